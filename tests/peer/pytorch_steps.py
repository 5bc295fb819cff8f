"""The other side of steps_test.cc: ten training steps of ResNet-18 from the weights that PyTorch draws.

Usage: pytorch_steps.py FOLDER. It reads images.safetensors ("x", [n, height, width, channels]) and writes start.safetensors, the state_dict before the first step, and expected.safetensors: under a
parameter's name its gradient in the first step, under a buffer's name its value after ten, and "loss", the mean loss
before each step (golden/sgd_steps.py). All is computed in double, and stored in float32.
"""

import pathlib
import sys

import torch
from pytorch_models import resnet18
from safetensors.torch import load_file, save_file

sys.path.insert(0, str(pathlib.Path(__file__).parent.parent / "golden"))
from sgd_steps import sgd_steps  # noqa: E402


def main(folder):
    torch.manual_seed(0)
    torch.set_num_threads(1)
    net = resnet18("chapter", "small", 10, 1)
    save_file(net.state_dict(), folder / "start.safetensors")
    net.double()
    x = load_file(folder / "images.safetensors")["x"].permute(0, 3, 1, 2).double()
    losses, expected = sgd_steps(net, x)
    expected.update(net.named_buffers())
    expected["loss"] = torch.tensor(losses)
    save_file({name: tensor.float().contiguous() for name, tensor in expected.items()}, folder / "expected.safetensors")


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]))
