#!/usr/bin/env python3
"""Makes the golden files lenet_*.golden: what PyTorch computes for whole LeNet steps, to hold Lockstep against.

Usage: lenet.py [folder to write into]. Needs numpy and PyTorch; the tests need only the files.

Everything is computed in double from float32 inputs, and stored as float32 in Lockstep's layout: convolution weights
[out, kh, kw, in], and the first Linear's columns in the order (height, width, channel) in which Lockstep flattens. The same
steps in float32 give, for every tensor, how far PyTorch's own float32 is from its double: the measure of a fair tolerance.
The format is described in golden.h. Records, with P a parameter name such as conv1.weight:

  images [8, 28, 28], labels [8]      random bytes; inputs are (byte / 255 - mean) / stddev
  mean, stddev                        float32 scalars
  init.P                              initial weights, exact in float32
  logits [8, 10], loss.sum, loss.mean of the first step
  grad.P                              gradient of the mean loss at the initial weights
  plain.P, plain.loss [3]             weights after 3 steps on the same batch with lr 0.1; the mean loss before each step
  nesterov.P, nesterov.loss [3]       the same with lr 0.05, momentum 0.9, Nesterov, weight decay 5e-4
  X.float32_error                     largest |float32 - double| in PyTorch, for each computed record X (a float64 scalar)
"""

import os
import struct
import sys
from collections import OrderedDict

import numpy
import torch
from torch import nn

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../bench/pytorch"))
from models import VARIANTS, lenet  # noqa: E402

ROWS = 8
STEPS = 3
MEAN, STDDEV = numpy.float32(0.28604060), numpy.float32(0.35302424)
RECIPES = {
    "plain": dict(lr=0.1),
    "nesterov": dict(lr=0.05, momentum=0.9, nesterov=True, weight_decay=5e-4),
}
DTYPES = {numpy.dtype("u1"): 0, numpy.dtype("<f4"): 1, numpy.dtype("<f8"): 2}
# ReLU and max pooling have kinks: a value so near to one that float32 lands on its other side would give
# another gradient without an error anywhere. Inputs are drawn until all values of all steps stay this far away.
MARGIN = 1e-5


def to_lockstep(name, tensor, channels):
    """A parameter in Lockstep's layout; `channels`: those of the last convolution, which fc1's columns are grouped by."""
    array = tensor.detach().double().numpy()
    if array.ndim == 4:
        return array.transpose(0, 2, 3, 1)
    if name == "fc1.weight":
        side = int((array.shape[1] // channels) ** 0.5)
        return array.reshape(-1, channels, side, side).transpose(0, 2, 3, 1).reshape(array.shape)
    return array


def initial_weights(variant, random):
    """Uniform weights (Kaiming's bound for ReLU, Xavier's for sigmoid), and biases that are not zero, as float32."""
    weights = OrderedDict()
    for name, parameter in lenet(variant).named_parameters():
        shape = tuple(parameter.shape)
        field = int(numpy.prod(shape[2:]))
        bound = 0.1
        if len(shape) > 1:
            bound = (6 / (shape[1] * field if variant != "classic" else (shape[0] + shape[1]) * field)) ** 0.5
        weights[name] = torch.from_numpy((bound * (2 * random.random_sample(shape) - 1)).astype(numpy.float32))
    return weights


def distance_to_kinks(model, inputs):
    """The smallest change of any value that would make a ReLU or a max pooling decide differently."""
    distance, x = float("inf"), inputs
    for layer in model:
        if isinstance(layer, nn.MaxPool2d):
            windows = x.unfold(2, 2, 2).unfold(3, 2, 2).reshape(-1, 4).sort(dim=1).values
            gaps = (windows[:, 3] - windows[:, 2])[windows[:, 3] > 0]  # all zero after ReLU: no gradient passes
            distance = min(distance, gaps.min().item())
        elif isinstance(layer, nn.ReLU):
            distance = min(distance, x.abs().min().item())
        x = layer(x)
    return distance


def run(variant, weights, images, labels, dtype):
    """All computed records, in double numbers whatever the precision of the computation, and the distance to kinks."""
    mean, stddev = torch.tensor(MEAN, dtype=dtype), torch.tensor(STDDEV, dtype=dtype)
    x = (images.to(dtype).unsqueeze(1) / 255 - mean) / stddev
    records, distance = OrderedDict(), float("inf")
    for recipe, settings in RECIPES.items():
        model = lenet(variant).to(dtype)
        model.load_state_dict(weights)
        channels = model.conv2.out_channels
        optimizer = torch.optim.SGD(model.parameters(), **settings)
        losses = []
        for step in range(STEPS):
            with torch.no_grad():
                distance = min(distance, distance_to_kinks(model, x))
            optimizer.zero_grad()
            logits = model(x)
            loss = nn.functional.cross_entropy(logits, labels)
            loss.backward()
            losses.append(loss.item())
            if step == 0 and recipe == "plain":
                records["logits"] = logits.detach().double().numpy()
                records["loss.sum"] = numpy.float64(
                    nn.functional.cross_entropy(logits, labels, reduction="sum").item()
                )
                records["loss.mean"] = numpy.float64(loss.item())
                for name, parameter in model.named_parameters():
                    records[f"grad.{name}"] = to_lockstep(name, parameter.grad, channels)
            optimizer.step()
        for name, parameter in model.named_parameters():
            records[f"{recipe}.{name}"] = to_lockstep(name, parameter, channels)
        records[f"{recipe}.loss"] = numpy.array(losses)
    return records, distance


def write(path, records):
    with open(path, "wb") as file:
        file.write(b"LSGOLDEN" + struct.pack("<II", 1, len(records)))
        for name, array in records.items():
            array = numpy.asarray(array)
            file.write(struct.pack("<I", len(name)) + name.encode())
            file.write(struct.pack("<II", DTYPES[array.dtype], array.ndim))
            file.write(struct.pack(f"<{array.ndim}q", *array.shape))
            file.write(numpy.ascontiguousarray(array).tobytes())


def make(variant, folder):
    for seed in range(1000):
        random = numpy.random.RandomState(seed)
        images = torch.from_numpy(random.randint(0, 256, (ROWS, 28, 28)).astype(numpy.uint8))
        labels = torch.from_numpy(random.permutation(10)[:ROWS].astype(numpy.int64))
        weights = initial_weights(variant, random)
        exact, distance = run(variant, weights, images, labels, torch.float64)
        if distance >= MARGIN:
            break
    else:
        sys.exit(f"lenet.py: {variant}: no seed keeps {MARGIN} away from kinks")
    single, _ = run(variant, weights, images, labels, torch.float32)

    records = OrderedDict(images=images.numpy(), labels=labels.numpy().astype("u1"), mean=MEAN, stddev=STDDEV)
    channels = weights["conv2.weight"].shape[0]
    for name, weight in weights.items():
        records[f"init.{name}"] = to_lockstep(name, weight, channels).astype("<f4")
    worst = 0
    for name, array in exact.items():
        records[name] = array.astype("<f4") if array.ndim > 0 and "loss" not in name else array.astype("<f8")
        error = numpy.abs(single[name] - array).max()
        records[f"{name}.float32_error"] = numpy.float64(error)
        worst = max(worst, error / numpy.abs(array).max())
    path = os.path.join(folder, f"lenet_{variant}.golden")
    write(path, records)
    print(
        f"{path}: {len(records)} records, {os.path.getsize(path)} bytes, seed {seed}, {distance:.2g} from the nearest kink, "
        f"PyTorch's float32 off by at most {worst:.2g} of a record's largest value"
    )


def main():
    torch.set_num_threads(1)
    folder = sys.argv[1] if len(sys.argv) > 1 else os.path.dirname(os.path.abspath(__file__))
    for variant in VARIANTS:
        make(variant, folder)


if __name__ == "__main__":
    main()
