#!/usr/bin/env python3
"""What accuracy PyTorch reaches with the recipe that train_lenet uses by default: the mark ours is held against.

Kaiming initialisation (normal, fan-in, gain sqrt(2); biases zero), inputs standardised by the training pixels'
mean and deviation, SGD with momentum 0.9, Nesterov and weight decay 5e-4 on every parameter, gradients clipped to
a norm of 0.5, linear warm-up in one epoch or a fifth of all, then a cosine to 0.
A JSON line an epoch, and one at the end.
"""

import argparse
import gzip
import json
import math
import os
import time

import numpy
import torch
from torch import nn

from models import VARIANTS, keep_freed_memory, lenet


def read_idx(path):
    with gzip.open(path) as file:
        data = file.read()
    shape = numpy.frombuffer(data, ">i4", data[3], 4)
    return torch.from_numpy(numpy.frombuffer(data, numpy.uint8, offset=4 + 4 * data[3]).reshape(shape).copy())


def initialise(model, init):
    for layer in model:
        if isinstance(layer, (nn.Conv2d, nn.Linear)):
            if init == "kaiming_normal":
                nn.init.kaiming_normal_(layer.weight, nonlinearity="relu")
            elif init == "kaiming_uniform":
                nn.init.kaiming_uniform_(layer.weight, nonlinearity="relu")
            elif init == "xavier_uniform":
                nn.init.xavier_uniform_(layer.weight)
            elif init == "normal":
                nn.init.normal_(layer.weight, 0, 0.01)
            nn.init.zeros_(layer.bias)


def rate(step, steps_per_epoch, epochs, peak):
    warmup = round(min(1, epochs / 5) * steps_per_epoch)
    if step < warmup:
        return peak * (step + 1) / warmup
    progress = (step - warmup + 1) / (steps_per_epoch * epochs - warmup + 1)
    return peak * 0.5 * (1 + math.cos(math.pi * progress))


def accuracy(model, images, labels):
    with torch.no_grad():
        right = sum(int((model(x).argmax(1) == y).sum()) for x, y in zip(images.split(1000), labels.split(1000)))
    return right / len(labels)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data-dir", default="/usr/share/datasets/fashion-mnist")
    parser.add_argument("--variant", default="article", choices=VARIANTS)
    parser.add_argument(
        "--init", default="kaiming_normal", choices=("kaiming_normal", "kaiming_uniform", "xavier_uniform", "normal")
    )
    parser.add_argument("--lr", type=float, default=0.15)
    parser.add_argument("--clip-norm", type=float, default=0.5, help="0: none")
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--batch-size", type=int, default=256)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    keep_freed_memory()

    torch.set_num_threads(options.threads)
    torch.manual_seed(options.seed)
    sets = {}
    for name in ("train", "t10k"):
        images = read_idx(os.path.join(options.data_dir, f"{name}-images-idx3-ubyte.gz"))
        labels = read_idx(os.path.join(options.data_dir, f"{name}-labels-idx1-ubyte.gz")).long()
        sets[name] = (images.unsqueeze(1).float() / 255, labels)
    train, labels = sets["train"]
    mean, deviation = train.double().mean().item(), train.double().std(correction=0).item()
    train = (train - mean) / deviation
    test = ((sets["t10k"][0] - mean) / deviation, sets["t10k"][1])

    model = lenet(options.variant)
    initialise(model, options.init)
    optimizer = torch.optim.SGD(model.parameters(), lr=options.lr, momentum=0.9, nesterov=True, weight_decay=5e-4)
    steps = math.ceil(len(labels) / options.batch_size)
    results = []
    for epoch in range(options.epochs):
        start, total, right = time.perf_counter(), 0.0, 0
        for i, rows in enumerate(torch.randperm(len(labels)).split(options.batch_size)):
            for group in optimizer.param_groups:
                group["lr"] = rate(epoch * steps + i, steps, options.epochs, options.lr)
            optimizer.zero_grad(set_to_none=True)
            logits = model(train[rows])
            loss = nn.functional.cross_entropy(logits, labels[rows])
            loss.backward()
            if options.clip_norm:
                nn.utils.clip_grad_norm_(model.parameters(), options.clip_norm)
            optimizer.step()
            total += loss.item() * len(rows)
            right += int((logits.argmax(1) == labels[rows]).sum())
        seconds = time.perf_counter() - start
        results.append(accuracy(model, *test))
        line = {"epoch": epoch + 1, "train_loss": total / len(labels), "train_accuracy": right / len(labels)}
        print(json.dumps(line | {"test_accuracy": results[-1], "seconds": seconds}), flush=True)
    summary = {"variant": options.variant, "init": options.init, "lr": options.lr, "seed": options.seed}
    print(json.dumps(summary | {"test_accuracy": results[-1], "best_test_accuracy": max(results)}), flush=True)


if __name__ == "__main__":
    main()
