#!/usr/bin/env python3
"""Makes optimizers.golden: what PyTorch's optimizers do with given gradients, and its gradient clipping.

Usage: optimizers.py [folder to write into]. Needs numpy and PyTorch; the tests need only the file.

Everything is computed in double from float32 inputs. The same in float32 gives, for every record X, how far PyTorch's
own float32 is from its double: X.float32_error. The format is described in golden.h. Records:

  init.weight [7, 5], init.bias [7]             parameters before the first step
  gradient.weight [5, 7, 5], gradient.bias [5, 7]   the gradients of five steps
  R.weight, R.bias                              parameters after five steps of recipe R (see RECIPES)
  clip.norm, clip.weight, clip.bias             the first step's gradients, clipped to CLIP: their norm before, and themselves
"""

import os
import sys
from collections import OrderedDict

import numpy
import torch

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from lenet import write  # noqa: E402

STEPS = 5
CLIP = 0.125
SHAPES = {"weight": (7, 5), "bias": (7,)}
# _weights: only the weight decays, not the bias.
RECIPES = {
    "sgd_weights": (torch.optim.SGD, dict(lr=0.1, momentum=0.9, nesterov=True, weight_decay=0.05)),
    "adam": (torch.optim.Adam, dict(lr=0.01, weight_decay=0.1)),
    "adamw": (torch.optim.AdamW, dict(lr=0.01, weight_decay=0.1)),
    "adam_betas": (torch.optim.Adam, dict(lr=0.02, betas=(0.8, 0.95), eps=1e-3)),
    "adamw_weights": (torch.optim.AdamW, dict(lr=0.01, weight_decay=0.1)),
}


def run(start, gradients, dtype):
    records = OrderedDict()
    for recipe, (optimizer_class, settings) in RECIPES.items():
        parameters = {name: torch.nn.Parameter(value.to(dtype, copy=True)) for name, value in start.items()}
        groups = [dict(params=[parameters["weight"]]), dict(params=[parameters["bias"]])]
        if recipe.endswith("_weights"):
            groups[1]["weight_decay"] = 0
        optimizer = optimizer_class(groups, **settings)
        for step in range(STEPS):
            for name, parameter in parameters.items():
                parameter.grad = gradients[name][step].to(dtype, copy=True)
            optimizer.step()
        for name, parameter in parameters.items():
            records[f"{recipe}.{name}"] = parameter.detach().double().numpy()
    parameters = {name: torch.nn.Parameter(value.to(dtype, copy=True)) for name, value in start.items()}
    for name, parameter in parameters.items():
        parameter.grad = gradients[name][0].to(dtype, copy=True)
    records["clip.norm"] = torch.nn.utils.clip_grad_norm_(parameters.values(), CLIP).double().numpy()
    for name, parameter in parameters.items():
        records[f"clip.{name}"] = parameter.grad.double().numpy()
    return records


def main():
    torch.set_num_threads(1)
    folder = sys.argv[1] if len(sys.argv) > 1 else os.path.dirname(os.path.abspath(__file__))
    random = numpy.random.RandomState(1)
    start, gradients = OrderedDict(), OrderedDict()
    for name, shape in SHAPES.items():
        start[name] = torch.from_numpy(random.standard_normal(shape).astype("f4"))
        # Gradients of all sizes, so that Adam's epsilon counts for some.
        sizes = 10.0 ** random.uniform(-9, 0, shape)
        gradients[name] = torch.from_numpy((sizes * random.standard_normal((STEPS, *shape))).astype("f4"))
    exact, single = run(start, gradients, torch.float64), run(start, gradients, torch.float32)
    records, worst = OrderedDict(), 0
    for name in SHAPES:
        records[f"init.{name}"] = start[name].numpy()
        records[f"gradient.{name}"] = gradients[name].numpy()
    for name, array in exact.items():
        records[name] = array.astype("<f8")
        error = numpy.abs(single[name] - array).max()
        records[f"{name}.float32_error"] = numpy.float64(error)
        worst = max(worst, error / numpy.abs(array).max())
    path = os.path.join(folder, "optimizers.golden")
    write(path, records)
    print(
        f"{path}: {len(records)} records, {os.path.getsize(path)} bytes, "
        f"PyTorch's float32 off by at most {worst:.2g} of a record's largest value"
    )


if __name__ == "__main__":
    main()
