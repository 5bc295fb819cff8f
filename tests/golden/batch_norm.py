#!/usr/bin/env python3
"""Makes batch_norm.golden: PyTorch's BatchNorm2d, two steps in training and one in evaluation.

Usage: batch_norm.py [folder to write into]. Needs numpy and PyTorch; the tests need only the file.

Everything is computed in double from float32 inputs, in Lockstep's layout. The same in float32 gives, for every record X,
how far PyTorch's own float32 is from its double: X.float32_error. The format is described in golden.h. Records:

  weight, bias, running_mean, running_var [5]       before the first step
  x, addend, dy [3, 4, 3, 2, 5]                     inputs of three steps: two in training, one in evaluation
  R.y, R.dx, R.daddend [3, 4, 3, 2, 5], R.dweight, R.dbias [3, 5]   for each step the outputs and gradients of recipe R:
      norm: bn(x); relu: relu(bn(x)); add: relu(bn(x) + addend). daddend is add's alone
  running_mean.after, running_var.after [3, 5]      the running statistics after each step, the same for all recipes
"""

import os
import sys
from collections import OrderedDict

import numpy
import torch

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from lenet import MARGIN, write  # noqa: E402

STEPS, CHANNELS = 3, 5
SHAPE = (STEPS, 4, 3, 2, CHANNELS)


def run(inputs, dtype):
    """All records, and how near a ReLU's input comes to its kink."""
    records, distance = OrderedDict(), float("inf")
    for recipe in ("norm", "relu", "add"):
        norm = torch.nn.BatchNorm2d(CHANNELS).to(dtype)
        with torch.no_grad():
            for name in ("weight", "bias", "running_mean", "running_var"):
                getattr(norm, name).copy_(torch.from_numpy(inputs[name]))
        for step in range(STEPS):
            norm.train(step < 2)
            norm.zero_grad()
            x, addend = (
                torch.from_numpy(inputs[name][step].transpose(0, 3, 1, 2)).to(dtype).requires_grad_()
                for name in ("x", "addend")
            )
            y = norm(x)
            if recipe == "add":
                y = y + addend
            if recipe != "norm":
                distance = min(distance, y.abs().min().item())
                y = torch.relu(y)
            y.backward(torch.from_numpy(inputs["dy"][step].transpose(0, 3, 1, 2)).to(dtype))
            results = dict(y=y, dx=x.grad, dweight=norm.weight.grad, dbias=norm.bias.grad)
            if recipe == "add":
                results["daddend"] = addend.grad
            for name, value in results.items():
                array = value.detach().double().numpy()
                array = array.transpose(0, 2, 3, 1) if array.ndim == 4 else array
                records.setdefault(f"{recipe}.{name}", []).append(array)
            if recipe == "norm":
                for name in ("running_mean", "running_var"):
                    records.setdefault(f"{name}.after", []).append(getattr(norm, name).double().numpy().copy())
    return OrderedDict((name, numpy.stack(arrays)) for name, arrays in records.items()), distance


def main():
    folder = sys.argv[1] if len(sys.argv) > 1 else os.path.dirname(os.path.abspath(__file__))
    for seed in range(1000):
        random = numpy.random.RandomState(seed)
        inputs = OrderedDict(
            weight=random.uniform(0.5, 2, CHANNELS) * [1, -1, 1, 1, -1],
            bias=random.standard_normal(CHANNELS),
            running_mean=random.standard_normal(CHANNELS),
            running_var=random.uniform(0.5, 2, CHANNELS),
            # Channels of other sizes, the last one far from 0 and narrow.
            x=random.standard_normal(SHAPE) * [1, 3, 0.25, 10, 0.5] + [0, 1, -2, 5, 100],
            addend=random.standard_normal(SHAPE),
            dy=random.standard_normal(SHAPE),
        )
        inputs = OrderedDict((name, value.astype("f4")) for name, value in inputs.items())
        exact, distance = run(inputs, torch.float64)
        if distance >= MARGIN * 10:  # the last channel's values are off by a few 1e-5
            break
    else:
        sys.exit("batch_norm.py: no seed keeps away from ReLU's kink")
    single, _ = run(inputs, torch.float32)
    records = OrderedDict(inputs)
    for name, array in exact.items():
        records[name] = array.astype("<f8")
        records[f"{name}.float32_error"] = numpy.float64(numpy.abs(single[name] - array).max())
        print(f"{name}: float32 off by {records[name + '.float32_error']:.2g} of {numpy.abs(array).max():.3g}")
    path = os.path.join(folder, "batch_norm.golden")
    write(path, records)
    print(f"{path}: {len(records)} records, {os.path.getsize(path)} bytes, seed {seed}, {distance:.2g} from a kink")


if __name__ == "__main__":
    main()
