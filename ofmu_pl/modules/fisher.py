"""Fisher forgetting: noise on every weight, less of it on those that the retain images need more."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap

from ofmu_pl.core.vectors import Vector
from ofmu_pl.modules.one_shot import OneShot, whole_split
from ofmu_pl.networks.base import Network
from ofmu_pl.support.errors import check_range

CAP = 1e3
"""Largest value of 1 / F."""


class Fisher(OneShot):
    """``theta + n``, ``n_i ~ N(0, alpha / max(F_i, 1 / CAP))``; F the retain images' Fisher information.

    Golatkar et al. 2020 as their code has it (variance of order 1/F), with the true Fisher of single images where
    published classification code squares the mean gradient of 32, multiplies the variance of BatchNorm's, of biases
    and of the last layer by 10, caps the last layer's at 100 and takes means over dimension 1. It also zeroes the
    classifier's row in class-wise runs, which alone yields UA 100.

    Args:
        network: Recipe of the network that shall forget.
        alpha: Scale of the noise (sources: 1e-9 to 1e-6; searched).
        micro_batch_size: Number of images whose gradients are held at a time.

    Example:
        >>> from ofmu_pl import SmallCNN
        >>> Fisher(SmallCNN(), alpha=1e-8).modality
        'images'
    """

    in_words = (
        "Random noise was added to the weights, the more of it the less a weight matters for the images that must stay."
    )
    modality = "images"
    remedy = "lower model.alpha"

    def __init__(self, network: Network, alpha: float = 1e-7, micro_batch_size: int = 32) -> None:
        super().__init__(network)
        check_range(1, micro_batch_size=micro_batch_size)
        check_range(0, alpha=alpha)
        self.alpha, self.chunk = alpha, micro_batch_size

    def displacement(self) -> tuple[Vector, dict[str, float]]:
        """The noise, drawn with the data's seed."""
        data = self.run.data
        batches = whole_split(self, "retain", self.chunk)
        n, classes = sum(len(b["labels"]) for b in batches), len(data.class_names)
        information = fisher_diagonal(self.trained, [b["images"] for b in batches])
        self.charge(classes, n)
        generator = torch.Generator().manual_seed(data.seed)
        noise = []
        for f in information:
            draw = torch.randn(f.shape, generator=generator).to(f)
            noise.append(draw * (self.alpha * (1 / f).clamp(max=CAP)).sqrt())
        capped = sum(int((f < 1 / CAP).sum()) for f in information) / sum(f.numel() for f in information)
        return noise, {"capped": capped}


def fisher_diagonal(module: nn.Module, batches: list[Tensor]) -> Vector:
    """``F_i = 1/n sum_x sum_y p(y|x) (d log p(y|x) / d theta_i)^2``, one gradient per image and class.

    The module is a classifier in eval mode; batches are images, (b, C, H, W) each, whose gradients are held at once.
    """
    named = {k: p.detach() for k, p in module.named_parameters() if p.requires_grad}
    rest = {k: v.detach() for k, v in (*module.named_parameters(), *module.named_buffers()) if k not in named}

    def log_p(parameters: dict[str, Tensor], image: Tensor, label: Tensor) -> tuple[Tensor, Tensor]:
        value = functional_call(module, {**rest, **parameters}, (image.unsqueeze(0),))[0].log_softmax(0)[label]
        return value, value.detach()

    gradients = vmap(grad(log_p, has_aux=True), in_dims=(None, 0, None))
    out = {k: torch.zeros_like(p) for k, p in named.items()}
    n = sum(map(len, batches))
    with torch.no_grad():
        classes = module(batches[0][:1]).shape[1]
    for images in batches:
        for label in range(classes):
            g, value = gradients(named, images, torch.tensor(label, device=images.device))
            weights = value.exp() / n
            for k, x in g.items():
                out[k] += torch.einsum("b,b...->...", weights, x.square())
    return list(out.values())
