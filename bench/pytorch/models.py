"""LeNet and ResNet-18 in PyTorch, in the variants that Lockstep has, for comparison only: nothing of Lockstep needs PyTorch.

Layer names (conv1, resnet_block1.0.bn2, fc1, ...) are Lockstep's, so that parameters can be matched by name.
"""

import os
import sys
from collections import OrderedDict

from torch import nn

VARIANTS = ("article", "chapter", "classic")


def lenet(variant):
    """A Sequential from images [n, 1, 28, 28] to logits [n, 10]."""
    if variant == "article":
        conv = [(1, 6, 5, 0), (6, 16, 5, 0)]
        full = [256, 120, 84, 10]
        activation, pool = nn.ReLU, nn.MaxPool2d
    elif variant == "chapter":
        conv = [(1, 20, 3, 0), (20, 50, 5, 0)]
        full = [800, 128, 10]
        activation, pool = nn.ReLU, nn.AvgPool2d
    elif variant == "classic":
        conv = [(1, 6, 5, 2), (6, 16, 5, 0)]
        full = [400, 120, 84, 10]
        activation, pool = nn.Sigmoid, nn.AvgPool2d
    else:
        raise ValueError(f"lenet: variant '{variant}': use one of {', '.join(VARIANTS)}")
    layers = OrderedDict()
    for i, (inputs, outputs, size, padding) in enumerate(conv, start=1):
        layers[f"conv{i}"] = nn.Conv2d(inputs, outputs, size, padding=padding)
        layers[f"act{i}"] = activation()
        layers[f"pool{i}"] = pool(2)
    layers["flatten"] = nn.Flatten()
    for i, (inputs, outputs) in enumerate(zip(full, full[1:]), start=1):
        if i > 1:
            layers[f"act{i + 1}"] = activation()
        layers[f"fc{i}"] = nn.Linear(inputs, outputs)
    return nn.Sequential(layers)


class Residual(nn.Module):
    """relu(bn2(conv2(relu(bn1(conv1(x))))) + shortcut(x)); see nn/layers/residual.h."""

    def __init__(self, inputs, outputs, stride, variant):
        super().__init__()
        bias = variant == "chapter"
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride=stride, padding=1, bias=bias)
        self.bn1 = nn.BatchNorm2d(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, padding=1, bias=bias)
        self.bn2 = nn.BatchNorm2d(outputs)
        self.conv3 = self.bn3 = None
        if inputs != outputs:
            self.conv3 = nn.Conv2d(inputs, outputs, 1, stride=stride, bias=bias)
            if variant == "torchvision":
                self.bn3 = nn.BatchNorm2d(outputs)

    def forward(self, x):
        y = self.bn2(self.conv2(nn.functional.relu(self.bn1(self.conv1(x)))))
        x = x if self.conv3 is None else self.conv3(x)
        x = x if self.bn3 is None else self.bn3(x)
        return nn.functional.relu(y + x)


def resnet18(num_classes=10, in_channels=1, stem="small", variant="chapter"):
    """A Sequential from images [n, in_channels, height, width] to logits [n, num_classes]; see nn/models/resnet.h."""
    if stem not in ("small", "imagenet") or variant not in ("chapter", "torchvision"):
        raise ValueError(f"resnet18: stem '{stem}', variant '{variant}': no such combination")
    size, stride, padding = (3, 1, 1) if stem == "small" else (7, 2, 3)
    layers = OrderedDict()
    layers["conv1"] = nn.Conv2d(in_channels, 64, size, stride, padding, bias=variant == "chapter")
    layers["bn1"] = nn.BatchNorm2d(64)
    layers["relu1"] = nn.ReLU()
    if stem == "imagenet":
        layers["pool1"] = nn.MaxPool2d(3, 2, 1)
    for i, (inputs, outputs) in enumerate([(64, 64), (64, 128), (128, 256), (256, 512)], start=1):
        layers[f"resnet_block{i}"] = nn.Sequential(
            Residual(inputs, outputs, 1 if inputs == outputs else 2, variant), Residual(outputs, outputs, 1, variant)
        )
    layers["global_avg_pool"] = nn.AdaptiveAvgPool2d(1)
    layers["flatten"] = nn.Flatten()
    layers["fc"] = nn.Linear(512, num_classes)
    return nn.Sequential(layers)


def keep_freed_memory():
    """Restarts the program once with a malloc that keeps freed memory instead of giving it back to the kernel.

    PyTorch's CPU tensors come from malloc; the page faults of returning and fetching them every step cost it up to
    half of its speed. glibc reads these settings only at start.
    """
    settings = {"MALLOC_TRIM_THRESHOLD_": str(1 << 40), "MALLOC_MMAP_THRESHOLD_": str(1 << 40)}
    if all(os.environ.get(name) == value for name, value in settings.items()):
        return
    os.environ.update(settings)
    os.execv(sys.executable, [sys.executable] + sys.argv)
