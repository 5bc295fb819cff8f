#!/usr/bin/env python3
"""Images/s of ResNet-18's training steps in PyTorch eager on the CPU.

A step: forward, cross-entropy, backward, SGD (momentum 0.9, Nesterov, weight decay 5e-4) on a batch in memory; with
--precision bf16 forward and loss run under autocast. Blocks of steps, then one JSON line: the median block's images/s,
the best block's, the most memory that the process had, and the settings.
"""

import argparse
import contextlib
import json
import resource
import statistics
import time

import torch
from torch import nn

from models import keep_freed_memory, resnet18

LAYOUTS = {"contiguous": torch.contiguous_format, "channels_last": torch.channels_last}


def make_step(options):
    """A function that runs one training step."""
    torch.manual_seed(0)
    layout = LAYOUTS[options.layout]
    model = resnet18().to(memory_format=layout)
    images = torch.randn(options.batch_size, 1, 28, 28).to(memory_format=layout)
    labels = torch.arange(options.batch_size) % 10
    sgd = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9, nesterov=True, weight_decay=5e-4, fused=True)
    bf16 = options.precision == "bf16"
    precision = torch.autocast("cpu", torch.bfloat16) if bf16 else contextlib.nullcontext()

    def step():
        sgd.zero_grad(set_to_none=True)
        with precision:
            loss = nn.functional.cross_entropy(model(images), labels)
        loss.backward()
        sgd.step()

    return step


def seconds(step, times):
    start = time.perf_counter()
    for _ in range(times):
        step()
    return time.perf_counter() - start


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--layout", choices=LAYOUTS, default="channels_last")
    parser.add_argument("--precision", choices=("fp32", "bf16"), default="fp32")
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--blocks", type=int, default=5)
    parser.add_argument("--steps", type=int, default=3, help="steps a block (default: 3)")
    parser.add_argument("--warm-up", type=int, default=3, help="steps before the first block (default: 3)")
    parser.add_argument("--malloc", default="keep", choices=("default", "keep"), help="keep: freed memory stays")
    options = parser.parse_args()
    if options.malloc == "keep":
        keep_freed_memory()
    torch.set_num_threads(options.threads)
    torch.set_flush_denormal(True)

    step = make_step(options)
    seconds(step, options.warm_up)
    rates = [options.steps * options.batch_size / seconds(step, options.steps) for _ in range(options.blocks)]
    result = {
        "program": f"PyTorch {torch.__version__}",
        "images_per_second": statistics.median(rates),
        "best_images_per_second": max(rates),
        "peak_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
    }
    print(json.dumps(result | vars(options)))


if __name__ == "__main__":
    main()
