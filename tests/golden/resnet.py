#!/usr/bin/env python3
"""Makes resnet18.golden: ten training steps of the chapter's ResNet-18 in PyTorch, to hold Lockstep against.

Usage: resnet.py [folder to write into]. Needs numpy and PyTorch; the tests need only the file. Minutes, in double.

The 11 million weights are not stored but made, here and in tests/golden/formula.h, by a formula that is exact in float32:

  value(stream, i) = (word(stream, i) >> 8) / 2^23 - 1, uniform in [-1, 1), with word(stream, i) = mix(mix(stream) + i),
  where mix is lowbias32, a bijection of 32-bit words (Chris Wellons, Hash Prospector)

Stream n is the n-th parameter, counted from 0; i counts in Lockstep's layout (convolution weights [out, kh, kw, in]).
Weights and biases are value / sqrt(fan_in), which is how PyTorch draws its own; a norm's scale is 1 + value / 8, its shift
value / 8. Images are 1.75 value(1002, i), [16, 14, 14, 1]; the label of row r is 3 r mod 10. (With 1000 and 1001 one of
the two million values that meet a ReLU is so near 0 that it rounds to the other side in float32.)

Large results are stored as sketches: sixteen sums over all elements, with signs that are the lower bits of word(2000, i).
The mean square of the differences of two tensors' sketches estimates the square of the norm of their difference (Alon,
Matias and Szegedy, 1999), so a sketch sees every element. The steps are those of
sgd_steps.py. Records, in double, with P a parameter or buffer name; the format is described in golden.h:

  loss [10]                           the mean loss before each step
  grad.P [16], grad.P.norm            sketch and norm of the first step's gradient of the mean loss
  buffer.P [16], buffer.P.norm        sketch and norm of running statistics after ten steps
  logits [16, 10]                     in evaluation, after ten steps
  X.float32_error                     the norm of (float32 - double) in PyTorch, for each record X (largest for the loss)
"""

import os
import sys
from collections import OrderedDict

import numpy
import torch
from torch import nn

folder_of_this = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [folder_of_this, os.path.join(folder_of_this, "../../bench/pytorch")]
from lenet import write  # noqa: E402
from models import resnet18  # noqa: E402
from sgd_steps import sgd_steps  # noqa: E402

ROWS, SIDE = 16, 14
IMAGES, SIGNS = 1002, 2000  # streams


def mix(x):
    """lowbias32 of an array of uint32."""
    x = x ^ (x >> numpy.uint32(16))
    x = x * numpy.uint32(0x7FEB352D)
    x = x ^ (x >> numpy.uint32(15))
    x = x * numpy.uint32(0x846CA68B)
    return x ^ (x >> numpy.uint32(16))


def words(stream, n):
    return mix(mix(numpy.array([stream], dtype="u4")) + numpy.arange(n, dtype="u4"))


def values(stream, n):
    return ((words(stream, n) >> numpy.uint32(8)).astype("i4") - 2**23).astype("f4") * numpy.float32(2**-23)


def to_lockstep(tensor):
    array = tensor.detach().double().numpy()
    return array.transpose(0, 2, 3, 1) if array.ndim == 4 else array


def sketch(array):
    flat = numpy.ascontiguousarray(array).reshape(-1)
    bits = words(SIGNS, flat.size)
    return numpy.array([flat @ (1.0 - 2.0 * (bits >> numpy.uint32(k) & numpy.uint32(1))) for k in range(16)])


def initialise(net):
    norms = {name for name, module in net.named_modules() if isinstance(module, nn.BatchNorm2d)}
    fan_in = 0
    for stream, (name, parameter) in enumerate(net.named_parameters()):
        value = values(stream, parameter.numel())
        owner, kind = name.rsplit(".", 1)
        if owner in norms:
            value = value * numpy.float32(0.125) + numpy.float32(kind == "weight")
        else:
            if kind == "weight":
                fan_in = parameter[0].numel()
            value = value * numpy.float32(1 / fan_in**0.5)
        shape = parameter.shape
        if len(shape) == 4:
            value = value.reshape(shape[0], shape[2], shape[3], shape[1]).transpose(0, 3, 1, 2)
        with torch.no_grad():
            parameter.copy_(torch.from_numpy(numpy.ascontiguousarray(value)).reshape(shape))


def run(dtype):
    """All records as whole arrays, in double numbers whatever the precision of the computation."""
    net = resnet18()
    initialise(net)
    net.to(dtype)
    x = torch.from_numpy(1.75 * values(IMAGES, ROWS * SIDE * SIDE)).reshape(ROWS, 1, SIDE, SIDE).to(dtype)
    losses, gradients = sgd_steps(net, x)
    records = OrderedDict((f"grad.{name}", to_lockstep(gradient)) for name, gradient in gradients.items())
    for name, buffer in net.named_buffers():
        if not name.endswith("num_batches_tracked"):
            records[f"buffer.{name}"] = to_lockstep(buffer)
    net.eval()
    with torch.no_grad():
        records["logits"] = to_lockstep(net(x))
    records["loss"] = numpy.array(losses)
    return records


def main():
    folder = sys.argv[1] if len(sys.argv) > 1 else folder_of_this
    exact, single = run(torch.float64), run(torch.float32)
    records = OrderedDict()
    for name, array in exact.items():
        error = numpy.abs(single[name] - array).max() if name == "loss" else numpy.linalg.norm(single[name] - array)
        records[f"{name}.float32_error"] = numpy.float64(error)
        if "." in name:
            records[f"{name}.norm"] = numpy.float64(numpy.linalg.norm(array))
            records[name] = sketch(array)
        else:
            records[name] = array
        print(f"{name}: norm {numpy.linalg.norm(array):.3g}, float32 error {error:.2g}")
    path = os.path.join(folder, "resnet18.golden")
    write(path, records)
    print(f"{path}: {len(records)} records, {os.path.getsize(path)} bytes")


if __name__ == "__main__":
    main()
