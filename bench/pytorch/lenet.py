#!/usr/bin/env python3
"""Images/s of LeNet training steps in PyTorch eager on the CPU, at its best.

A step: forward, cross-entropy, backward, SGD (momentum 0.9, Nesterov, weight decay 5e-4) on a batch in memory.
Which memory layout and which form of the optimizer is fastest differs between versions and machines, so both are
tried first and the fastest pair is taken, unless they are given. Then come blocks of steps, and one JSON line: the
median block's images/s, the best block's, and the settings.
"""

import argparse
import json
import statistics
import time

import torch
from torch import nn

from models import VARIANTS, keep_freed_memory, lenet


LAYOUTS = {"contiguous": torch.contiguous_format, "channels_last": torch.channels_last}
OPTIMIZERS = ("loop", "foreach", "fused")


def make_step(options, layout, optimizer):
    """A function that runs one training step on its own model and batch."""
    torch.manual_seed(0)
    model = lenet(options.variant).to(memory_format=LAYOUTS[layout])
    images = torch.randn(options.batch_size, 1, 28, 28).to(memory_format=LAYOUTS[layout])
    labels = torch.randint(0, 10, (options.batch_size,))
    sgd = torch.optim.SGD(
        model.parameters(),
        lr=0.01,
        momentum=0.9,
        nesterov=True,
        weight_decay=5e-4,
        foreach=optimizer == "foreach",
        fused=optimizer == "fused",
    )

    def step():
        sgd.zero_grad(set_to_none=True)
        nn.functional.cross_entropy(model(images), labels).backward()
        sgd.step()

    return step


def seconds(step, times):
    start = time.perf_counter()
    for _ in range(times):
        step()
    return time.perf_counter() - start


def fastest(candidates):
    """The key of the candidate with the fastest step, out of rounds in which they take turns."""
    best = {}
    for key, step in candidates.items():
        seconds(step, 5)  # warm up: memory, and oneDNN's choice of kernels
        best[key] = float("inf")
    for _ in range(20):
        for key, step in candidates.items():
            best[key] = min(best[key], seconds(step, 2))
    return min(best, key=best.get)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--variant", default="article", choices=VARIANTS)
    parser.add_argument("--batch-size", type=int, default=256)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--blocks", type=int, default=15)
    parser.add_argument("--block-seconds", type=float, default=0.2)
    parser.add_argument("--layout", choices=LAYOUTS, help="default: the fastest")
    parser.add_argument("--optimizer", choices=OPTIMIZERS, help="default: the fastest")
    parser.add_argument("--malloc", default="keep", choices=("default", "keep"), help="keep: freed memory stays")
    parser.add_argument("--denormals", default="flush", choices=("keep", "flush"))
    options = parser.parse_args()
    if options.malloc == "keep":
        keep_freed_memory()
    torch.set_num_threads(options.threads)
    torch.set_flush_denormal(options.denormals == "flush")

    layouts = [options.layout] if options.layout else list(LAYOUTS)
    optimizers = [options.optimizer] if options.optimizer else OPTIMIZERS
    candidates = {(a, b): make_step(options, a, b) for a in layouts for b in optimizers}
    options.layout, options.optimizer = chosen = fastest(candidates)
    step = candidates[chosen]

    times = max(1, round(options.block_seconds / (seconds(step, 10) / 10)))
    rates = [times * options.batch_size / seconds(step, times) for _ in range(options.blocks)]
    settings = {name: value for name, value in vars(options).items() if name not in ("blocks", "block_seconds")}
    result = {"program": f"PyTorch {torch.__version__}", "images_per_second": statistics.median(rates)}
    print(json.dumps(result | {"best_images_per_second": max(rates), "steps_per_block": times} | settings))


if __name__ == "__main__":
    main()
