#!/usr/bin/env python3
"""Makes the golden file python.safetensors: what Python's safetensors writes, to hold our reader and writer against.

Usage: python_safetensors.py [folder to write into]. Needs PyTorch and the package safetensors; the tests need only the file.

One tensor of each element type that we read, a scalar, an empty one, a name that is not ASCII, and metadata (one entry: the
package writes several in any order). The values are the ones that tests/nn/safetensors_test.cc expects.
"""

import os
import sys

import torch
from safetensors.torch import save_file

folder = sys.argv[1] if len(sys.argv) > 1 else os.path.dirname(os.path.abspath(__file__))
save_file(
    {
        "conv.weight": torch.tensor([[1.5, -2.0, 0.0], [float("inf"), 1e-45, -0.0]], dtype=torch.float32),
        "num_batches_tracked": torch.tensor(-7, dtype=torch.int64),
        "labels": torch.tensor([1, -2], dtype=torch.int32),
        "half": torch.tensor([[[1.0], [-2.5]]], dtype=torch.bfloat16),
        "pixels": torch.tensor([0, 128, 255], dtype=torch.uint8),
        "nothing": torch.zeros((0, 4), dtype=torch.float32),
        "größe": torch.tensor([3.0], dtype=torch.float32),
    },
    os.path.join(folder, "python.safetensors"),
    metadata={"format": "pt"},
)
