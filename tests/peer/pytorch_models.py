"""The other side of pytorch_test.cc: for every model in a folder, PyTorch reads our weights, and writes its own.

Usage: pytorch_models.py FOLDER. For each NAME.ours.safetensors in it (weights, and in the metadata the model) and
images.safetensors ("x", [n, height, width, channels]) it writes NAME.logits.safetensors (what PyTorch computes with our
weights) and NAME.theirs.safetensors (other weights, as torch saves them) with NAME.their_logits.safetensors.
The models are written here with the names of their origins: torchvision's resnet18, d2l's resnet18, and LeNet as an
nn.Sequential.
"""

import pathlib
import sys

import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from torch import nn


def lenet(variant):
    inputs, padding, activation, pool = 1, 0, nn.ReLU, nn.MaxPool2d
    channels, kernels, widths = (6, 16), (5, 5), (256, 120, 84, 10)
    if variant == "chapter":
        channels, kernels, widths, pool = (20, 50), (3, 5), (800, 128, 10), nn.AvgPool2d
    if variant == "classic":
        padding, widths, activation, pool = 2, (400, 120, 84, 10), nn.Sigmoid, nn.AvgPool2d
    layers = []
    for outputs, kernel in zip(channels, kernels):
        layers += [nn.Conv2d(inputs, outputs, kernel, padding=padding), activation(), pool(2)]
        inputs, padding = outputs, 0
    layers.append(nn.Flatten())
    for i, (columns, rows) in enumerate(zip(widths, widths[1:])):
        layers += ([activation()] if i else []) + [nn.Linear(columns, rows)]
    return nn.Sequential(*layers)


class Block(nn.Module):
    """A residual block, torchvision's BasicBlock or d2l's Residual."""

    def __init__(self, inputs, outputs, stride, torchvision):
        super().__init__()
        bias = not torchvision
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=bias)
        self.bn1 = nn.BatchNorm2d(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=bias)
        self.bn2 = nn.BatchNorm2d(outputs)
        self.shortcut = []  # a list, so that its name is the one given below
        if inputs != outputs:
            conv = nn.Conv2d(inputs, outputs, 1, stride, bias=bias)
            if torchvision:
                self.downsample = nn.Sequential(conv, nn.BatchNorm2d(outputs))
                self.shortcut = [self.downsample]
            else:
                self.conv3 = conv
                self.shortcut = [conv]

    def forward(self, x):
        y = self.bn2(self.conv2(torch.relu(self.bn1(self.conv1(x)))))
        return torch.relu(y + (self.shortcut[0](x) if self.shortcut else x))


def resnet18(variant, stem, classes, channels):
    torchvision = variant == "torchvision"
    bias = not torchvision
    small = stem == "small"
    conv = nn.Conv2d(channels, 64, 3, 1, 1, bias=bias) if small else nn.Conv2d(channels, 64, 7, 2, 3, bias=bias)
    first = [conv, nn.BatchNorm2d(64), nn.ReLU()] + ([] if small else [nn.MaxPool2d(3, 2, 1)])
    names = ["conv1", "bn1", "relu", "maxpool"] if torchvision else ["0", "1", "2", "3"]
    net = nn.Sequential()
    for name, layer in zip(names, first):
        net.add_module(name, layer)
    for i, (inputs, outputs) in enumerate([(64, 64), (64, 128), (128, 256), (256, 512)], start=1):
        blocks = nn.Sequential(
            Block(inputs, outputs, 1 if inputs == outputs else 2, torchvision), Block(outputs, outputs, 1, torchvision)
        )
        net.add_module(f"layer{i}" if torchvision else f"resnet_block{i}", blocks)
    net.add_module("pool", nn.AdaptiveAvgPool2d(1))
    if torchvision:
        net.add_module("flatten", nn.Flatten())
        net.add_module("fc", nn.Linear(512, classes))
    else:
        net.add_module("fc", nn.Sequential(nn.Flatten(), nn.Linear(512, classes)))
    return net


def build(description):
    if description["model"] == "lenet":
        return lenet(description["variant"])
    return resnet18(
        description["variant"], description["stem"], int(description["classes"]), int(description["channels"])
    )


def randomize(net):
    """Other weights and statistics than a model starts with."""
    for name, tensor in net.state_dict().items():
        if name.endswith("running_var"):
            tensor.uniform_(0.5, 2)
        elif tensor.dim() == 1:
            tensor.add_(0.1 * torch.randn_like(tensor))


@torch.no_grad()
def main(folder):
    torch.manual_seed(1)
    torch.set_num_threads(1)
    x = load_file(folder / "images.safetensors")["x"].permute(0, 3, 1, 2)
    for path in sorted(folder.glob("*.ours.safetensors")):
        name = path.name.split(".")[0]
        with safe_open(path, "pt") as file:
            net = build(file.metadata()).eval()
        net.load_state_dict(load_file(path))  # strict: each name and shape
        save_file({"logits": net(x)}, folder / f"{name}.logits.safetensors")
        randomize(net)
        state = net.state_dict() if not name.startswith("lenet") else nn.DataParallel(net).state_dict()
        save_file(state, folder / f"{name}.theirs.safetensors")
        save_file({"logits": net(x)}, folder / f"{name}.their_logits.safetensors")


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]))
