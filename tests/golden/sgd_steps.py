"""The training steps that Lockstep's ResNet-18 is held against: SGD with momentum, on the same batch each time.

The rate is small, because at a larger one a ReLU that rounds to the other side of 0 moves the tenth loss by more than 1e-4 in
PyTorch's float32, too.
"""

import torch
from torch import nn

LR, MOMENTUM, STEPS = 1e-5, 0.9, 10


def sgd_steps(net, x):
    """Takes the steps; the label of row r is 3 r mod 10. The mean loss before each, and the first step's gradients by name."""
    y = torch.arange(len(x)) * 3 % 10
    optimizer = torch.optim.SGD(net.parameters(), lr=LR, momentum=MOMENTUM)
    losses, gradients = [], {}
    for step in range(STEPS):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(net(x), y)
        loss.backward()
        losses.append(loss.item())
        if step == 0:
            gradients = {name: parameter.grad.clone() for name, parameter in net.named_parameters()}
        optimizer.step()
    return losses, gradients
