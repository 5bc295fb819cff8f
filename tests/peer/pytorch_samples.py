"""The other side of samples_test.cc: PyTorch's own sample inputs of the operations that Lockstep has.

Usage: pytorch_samples.py FOLDER. It writes cases.json and samples.safetensors: for every sample that Lockstep's options
can express its inputs, a gradient of the output, and what PyTorch computes from them in double, stored in float32 and in
Lockstep's layout. Case 17 has "17.x", "17.weight", ... (inputs), "17.y", "17.dy", and under "17.d.x" the gradient of x.
What cannot be expressed is counted by its reason, in cases.json too.
"""

import collections
import json
import math
import pathlib
import sys

import torch
from safetensors.torch import save_file
from torch.testing._internal.common_methods_invocations import op_db


class Inexpressible(Exception):
    pass


def need(condition, reason):
    if not condition:
        raise Inexpressible(reason)


def square(value, reason):
    values = set(value) if isinstance(value, (tuple, list)) else {value}
    need(len(values) == 1, reason)
    return values.pop()


# From PyTorch's layout into ours, of values and of gradients alike.
def as_it_is(t):
    return t


def image(t):
    """[n, c, h, w] or [c, h, w] to [n, h, w, c]."""
    return (t if t.dim() == 4 else t.unsqueeze(0)).permute(0, 2, 3, 1)


def channels_last(t):
    """[n, c, ...] to [n, h, w, c], with sides of 1 for those that are not there."""
    return image(t.reshape(*t.shape, *[1] * (4 - t.dim())))


def rows(t):
    """[..., columns] to [rows, columns]."""
    return t.reshape(math.prod(t.shape[:-1]), t.shape[-1])


def class_rows(t):
    """[n, classes, ...] to [rows, classes]."""
    return t.movedim(1, -1).reshape(-1, t.shape[1])


# For each operation: from a sample our options, the layout of each input, and that of the output.
def linear(x, weight, bias=None):
    need(weight.dim() == 2, "a weight without rows of its own")
    inputs = {"x": (x, rows), "weight": (weight, as_it_is)}
    if bias is not None:
        inputs["bias"] = (bias, as_it_is)
    return {}, inputs, rows


def conv2d(x, weight, bias=None, stride=1, padding=0, dilation=1, groups=1):
    need(square(dilation, "dilation") == 1, "dilation")
    need(groups == 1, "groups")
    stride = square(stride, "two strides")
    if padding == "same":
        need(stride == 1 and weight.shape[2] == weight.shape[3] and weight.shape[2] % 2 == 1, "an uneven padding")
        padding = weight.shape[2] // 2
    options = {"stride": stride, "padding": 0 if padding == "valid" else square(padding, "two paddings")}
    inputs = {"x": (x, image), "weight": (weight, lambda t: t.permute(0, 2, 3, 1))}
    if bias is not None:
        inputs["bias"] = (bias, as_it_is)
    return options, inputs, image


def window(x, kernel_size, stride, padding, ceil_mode):
    kernel = square(kernel_size, "a window that is no square")
    stride = kernel if stride is None or stride == () else square(stride, "two strides")
    padding = square(padding, "two paddings")
    rest = [(side + 2 * padding - kernel) % stride for side in x.shape[-2:]]
    need(not ceil_mode or rest == [0, 0], "ceil_mode where it changes the size")
    return {"kernel": kernel, "stride": stride, "padding": padding}, {"x": (x, image)}, image


def max_pool2d(x, kernel_size, stride=None, padding=0, dilation=1, ceil_mode=False, return_indices=False):
    need(square(dilation, "dilation") == 1, "dilation")
    return window(x, kernel_size, stride, padding, ceil_mode)


def avg_pool2d(x, kernel_size, stride=None, padding=0, ceil_mode=False, count_include_pad=True, divisor_override=None):
    need(divisor_override is None, "divisor_override")
    need(count_include_pad or square(padding, "two paddings") == 0, "a padding that is not counted")
    return window(x, kernel_size, stride, padding, ceil_mode)


def adaptive_avg_pool2d(x, output_size):
    sizes = output_size if isinstance(output_size, tuple) else (output_size, output_size)
    height, width = (size or side for size, side in zip(sizes, x.shape[-2:]))
    return {"height": height, "width": width}, {"x": (x, image)}, image


def batch_norm(x, running_mean, running_var, weight=None, bias=None, training=False, momentum=0.1, eps=1e-5):
    need(eps == 1e-5, "another epsilon")
    need(x.dim() > 1, "one dimension")
    need(not training or running_mean is None or momentum == 0.1, "another momentum")
    channels = x.shape[1]
    parts = {"weight": (weight, 1.0), "bias": (bias, 0.0), "mean": (running_mean, 0.0), "var": (running_var, 1.0)}
    inputs = {"x": (x, channels_last)}
    for name, (tensor, default) in parts.items():
        inputs[name] = (torch.full((channels,), default) if tensor is None else tensor, as_it_is)
    return {"training": int(training)}, inputs, channels_last


def cross_entropy(x, target, weight=None, reduction="mean", ignore_index=-100, label_smoothing=0.0):
    need(weight is None, "weights of the classes")
    need(not target.is_floating_point(), "probabilities as targets")
    need(reduction != "none", "a loss a row")
    need(not (target == ignore_index).any(), "a target that is ignored")
    options = {"mean": int(reduction == "mean"), "smoothing": label_smoothing}
    return options, {"x": (x, class_rows), "labels": (target, lambda t: t.reshape(-1))}, lambda t: t.reshape(1)


def add(x, other, alpha=1):
    need(alpha == 1, "alpha")
    need(isinstance(other, torch.Tensor) and x.shape == other.shape, "two shapes")
    return {}, {"x": (x, as_it_is), "other": (other, as_it_is)}, as_it_is


def dropout(x, p=0.5, training=True, inplace=False):
    need(p == 0 or not training, "PyTorch's own random numbers")
    return {}, {"x": (x, as_it_is)}, as_it_is


def flatten(x, start_dim=0, end_dim=-1):
    need(start_dim == 1 and end_dim == -1, "other dimensions than all but the first")
    return {}, {"x": (x, as_it_is)}, as_it_is


def reshape(x, shape):
    return {}, {"x": (x, as_it_is)}, as_it_is


def gelu(x, approximate="none"):
    need(approximate == "none", "the approximation by tanh")
    return {}, {"x": (x, as_it_is)}, as_it_is


def silu(x, inplace=False):
    return {}, {"x": (x, as_it_is)}, as_it_is


def one_input(x, memory_format=None):
    return {}, {"x": (x, as_it_is)}, as_it_is


OPERATIONS = {
    "nn.functional.linear": linear,
    "nn.functional.conv2d": conv2d,
    "nn.functional.max_pool2d": max_pool2d,
    "nn.functional.avg_pool2d": avg_pool2d,
    "nn.functional.adaptive_avg_pool2d": adaptive_avg_pool2d,
    "nn.functional.batch_norm": batch_norm,
    "nn.functional.relu": one_input,
    "sigmoid": one_input,
    "nn.functional.gelu": gelu,
    "nn.functional.silu": silu,
    "nn.functional.cross_entropy": cross_entropy,
    "add": add,
    "nn.functional.dropout": dropout,
    "flatten": flatten,
    "reshape": reshape,
    "bfloat16": one_input,
    "float": one_input,
}


def floating(value):
    return isinstance(value, torch.Tensor) and value.is_floating_point()


def main(folder):
    torch.set_num_threads(1)
    cases, tensors, left_out = [], {}, collections.Counter()
    for op in op_db:
        if op.name not in OPERATIONS or op.variant_test_name:  # a variant has the same samples
            continue
        types = [torch.float32]
        if op.name == "float":
            types.append(torch.bfloat16)
        for dtype in types:
            torch.manual_seed(0)
            for number, sample in enumerate(op.sample_inputs("cpu", dtype, requires_grad=True)):
                exact = op.name not in ("bfloat16", "float")

                def leaf(value):
                    if not floating(value):
                        return value
                    copy = value.detach().clone()
                    return (copy.double() if exact else copy).requires_grad_(value.requires_grad)

                sample = sample.transform(leaf)
                name = op.name.split(".")[-1]
                try:
                    options, inputs, layout = OPERATIONS[op.name](sample.input, *sample.args, **sample.kwargs)
                except Inexpressible as reason:
                    left_out[f"{name}: {reason}"] += 1
                    continue
                y = op(sample.input, *sample.args, **sample.kwargs)
                y = y[0] if isinstance(y, tuple) else y
                dy = torch.randn(y.shape).to(y.dtype)
                y.backward(dy)
                case = {"op": name, "sample": number, "options": options, "inputs": {}, "y": str(y.dtype)}

                def put(what, tensor):
                    tensor = tensor.detach().to(torch.int32 if tensor.dtype == torch.int64 else torch.float32)
                    tensors[f"{len(cases)}.{what}"] = tensor.contiguous().clone()

                for key, (tensor, to_ours) in inputs.items():
                    case["inputs"][key] = str(tensor.dtype)
                    put(key, to_ours(tensor))
                    if floating(tensor) and tensor.grad is not None:
                        put(f"d.{key}", to_ours(tensor.grad))
                put("y", layout(y))
                put("dy", layout(dy))
                cases.append(case)
    save_file(tensors, folder / "samples.safetensors")
    (folder / "cases.json").write_text(json.dumps({"cases": cases, "left out": left_out}))


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]))
