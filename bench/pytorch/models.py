"""LeNet in PyTorch, in the three variants that Lockstep has, for comparison only: nothing of Lockstep needs PyTorch.

Layer names (conv1, conv2, fc1, ...) are Lockstep's, so that parameters can be matched by name.
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
