"""Image classifiers as plain modules: CIFAR's ResNet-18 and a small smooth network."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise

import torch
from torch import Tensor, nn

from ofmu_pl.support.extras import extra


class Normalize(nn.Module):
    """``(x - mean) / std`` per channel, inside the network, so that its weights and its pixels cannot be mismatched.

    Args:
        mean: Mean of each channel's pixels in [0, 1], (C,).
        std: Their standard deviation, (C,).
    """

    mean: Tensor
    std: Tensor

    def __init__(self, mean: Sequence[float], std: Sequence[float]) -> None:
        super().__init__()
        self.register_buffer("mean", torch.tensor(mean).view(-1, 1, 1))
        self.register_buffer("std", torch.tensor(std).view(-1, 1, 1))

    def forward(self, x: Tensor) -> Tensor:
        """Normalise images, (B, C, H, W) to (B, C, H, W)."""
        return (x - self.mean) / self.std


def resnet18(channels: int, classes: int, width: int = 64) -> nn.Sequential:
    """ResNet-18 for small images: 3 x 3 stem of stride 1, no pooling after it; 11,173,962 parameters for CIFAR-10.

    The blocks are torchvision's. Its whole ``resnet18`` is not used, as it is always 64 channels wide and names its
    weights otherwise than the models that runs have saved.

    Returns:
        The network, randomly initialised.

    Raises:
        UserError: Torchvision is not installed.
    """
    block = extra("torchvision.models.resnet", "ResNet18").BasicBlock
    widths = [width, width, 2 * width, 4 * width, 8 * width]
    layers: list[nn.Module] = [nn.Conv2d(channels, width, 3, 1, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU()]
    for i, (inputs, outputs) in enumerate(pairwise(widths)):
        shortcut = nn.Sequential(nn.Conv2d(inputs, outputs, 1, 2, bias=False), nn.BatchNorm2d(outputs)) if i else None
        first = block(inputs, outputs, stride=2 if i else 1, downsample=shortcut)
        layers.append(nn.Sequential(first, block(outputs, outputs)))
    network = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(widths[-1], classes))
    for m in network.modules():
        if isinstance(m, nn.Conv2d):
            nn.init.kaiming_normal_(m.weight, mode="fan_out", nonlinearity="relu")
    return network


def small_cnn(channels: int, classes: int, width: int, norm: Callable[[int], nn.Module]) -> nn.Sequential:
    """Three 3 x 3 convolutions with a norm and SiLU each, for 8 x 8 to 32 x 32 images."""
    layers: list[nn.Module] = []
    for inputs, outputs, stride in ((channels, width, 1), (width, 2 * width, 2), (2 * width, 2 * width, 2)):
        layers += [nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False), norm(outputs), nn.SiLU()]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(2 * width, classes))
