#!/usr/bin/env python3
"""Makes label_smoothing.golden: PyTorch's cross-entropy with label smoothing, in double from float32 logits.

Usage: label_smoothing.py [folder to write into]. Needs numpy and PyTorch; the tests need only the file. The format is
described in golden.h. Records, with S one of 0, 0.1, 0.5 and 1:

  logits [6, 10], labels [6]
  loss.S.sum, loss.S.mean, gradient.S [6, 10]   the gradient is of the mean
"""

import os
import sys
from collections import OrderedDict

import numpy
import torch
from torch.nn.functional import cross_entropy

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from lenet import write  # noqa: E402


def main():
    folder = sys.argv[1] if len(sys.argv) > 1 else os.path.dirname(os.path.abspath(__file__))
    random = numpy.random.RandomState(1)
    logits = (3 * random.standard_normal((6, 10))).astype("f4")
    labels = random.randint(0, 10, 6)
    records = OrderedDict(logits=logits, labels=labels.astype("u1"))
    for smoothing in ("0", "0.1", "0.5", "1"):
        x = torch.from_numpy(logits).double().requires_grad_()
        y = torch.from_numpy(labels)
        for reduction in ("sum", "mean"):
            loss = cross_entropy(x, y, label_smoothing=float(smoothing), reduction=reduction)
            records[f"loss.{smoothing}.{reduction}"] = numpy.float64(loss.item())
        loss.backward()
        records[f"gradient.{smoothing}"] = x.grad.numpy()
    path = os.path.join(folder, "label_smoothing.golden")
    write(path, records)
    print(f"{path}: {len(records)} records, {os.path.getsize(path)} bytes")


if __name__ == "__main__":
    main()
