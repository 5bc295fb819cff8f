#!/usr/bin/env python3
"""Images/s of LeNet training steps in PyTorch eager on the CPU, with the settings that were found to be its fastest.

A step: forward, cross-entropy, backward, SGD (momentum 0.9, Nesterov, weight decay 5e-4) on a batch in memory. Runs blocks
of steps and prints one JSON line: the median block's images/s, and the best block's.
"""

import argparse
import json
import statistics
import time

import torch
from torch import nn

from models import VARIANTS, keep_freed_memory, lenet


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--variant", default="article", choices=VARIANTS)
    parser.add_argument("--batch-size", type=int, default=256)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--blocks", type=int, default=15)
    parser.add_argument("--block-seconds", type=float, default=0.2)
    parser.add_argument("--layout", default="contiguous", choices=("contiguous", "channels_last"))
    parser.add_argument("--optimizer", default="fused", choices=("loop", "foreach", "fused"))
    parser.add_argument("--malloc", default="keep", choices=("default", "keep"), help="keep: freed memory stays")
    parser.add_argument("--denormals", default="flush", choices=("keep", "flush"))
    options = parser.parse_args()
    if options.malloc == "keep":
        keep_freed_memory()

    torch.set_num_threads(options.threads)
    torch.set_flush_denormal(options.denormals == "flush")
    torch.manual_seed(0)
    format = torch.channels_last if options.layout == "channels_last" else torch.contiguous_format
    model = lenet(options.variant).to(memory_format=format)
    images = torch.randn(options.batch_size, 1, 28, 28).to(memory_format=format)
    labels = torch.randint(0, 10, (options.batch_size,))
    optimizer = torch.optim.SGD(
        model.parameters(),
        lr=0.01,
        momentum=0.9,
        nesterov=True,
        weight_decay=5e-4,
        foreach=options.optimizer == "foreach",
        fused=options.optimizer == "fused",
    )

    def step():
        optimizer.zero_grad(set_to_none=True)
        nn.functional.cross_entropy(model(images), labels).backward()
        optimizer.step()

    def seconds(steps):
        start = time.perf_counter()
        for _ in range(steps):
            step()
        return time.perf_counter() - start

    seconds(5)
    steps = max(1, round(options.block_seconds / (seconds(10) / 10)))
    rates = [steps * options.batch_size / seconds(steps) for _ in range(options.blocks)]
    settings = {name: value for name, value in vars(options).items() if name not in ("blocks", "block_seconds")}
    result = {"program": f"PyTorch {torch.__version__}", "images_per_second": statistics.median(rates)}
    print(json.dumps(result | {"best_images_per_second": max(rates), "steps_per_block": steps} | settings))


if __name__ == "__main__":
    main()
