"""Methods that ask how much each weight matters to rows: noise by it (Fisher forgetting), or weights shrunk (SSD)."""

import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap

from ofmu_pl.core.derivatives import trainable
from ofmu_pl.core.vectors import Vector, zeros_like
from ofmu_pl.modules.one_shot import OneShot, whole_split
from ofmu_pl.networks.base import Batch, Network
from ofmu_pl.support.errors import UserError, check_range

CAP = 1e3
"""Largest value of 1 / F."""


class Fisher(OneShot):
    """``theta + n``, ``n_i ~ N(0, alpha / max(F_i, 1 / CAP))``; F the retain images' Fisher information.

    Golatkar et al. 2020, with the variance of order 1/F as in their code, and the Fisher information of single images.
    Published classification code squares the mean gradient of 32 images instead, and takes means over dimension 1.
    It multiplies the variance of BatchNorm's parameters, biases and the last layer by 10, and caps the last layer's at
    100. In class-wise runs it also zeroes the classifier's row, which alone yields UA 100.

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
        check_range(1, whole=True, micro_batch_size=micro_batch_size)
        check_range(0, alpha=alpha)
        self.alpha, self.micro_batch_size = alpha, micro_batch_size

    def displacement(self) -> tuple[Vector, dict[str, float]]:
        """The noise, drawn with the data's seed."""
        data = self.run.data
        batches = whole_split(self, "retain", self.micro_batch_size or 1)
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

    def log_p(parameters: dict[str, Tensor], image: Tensor, label: Tensor) -> tuple[Tensor, Tensor]:
        value = functional_call(module, parameters, (image.unsqueeze(0),))[0].log_softmax(0)[label]
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


class SSD(OneShot):
    """``theta_i min(dampening I_i / J_i, 1)`` where ``J_i > alpha I_i``, once (Foster et al. 2024, arXiv 2308.07707).

    J is the importance of the weights for forget rows, I that for all rows, forget and retain: the mean over groups of
    rows of the squared gradient of a group's mean loss. Since I has a share of J in it, ``J_i / I_i`` is at most the
    number of all groups by that of forget groups; an ``alpha`` so large is refused, as are adapters (UserError).

    Faithful: as the authors' code (if-loops/selective-synaptic-dampening cdfdc0e, ssd.py), which squares the mean
    gradient of a batch of 128 (``group_size``). The paper's formula is the Fisher information, of single rows
    (``group_size: 1``). Groups do not mix forget with retain rows; images are not augmented.

    Args:
        network: Recipe of the network that shall forget.
        alpha: How much more a weight must matter to forget rows to be shrunk (authors' ResNet-18: 10).
        dampening: The paper's lambda (authors: 1): less shrinks more.
        group_size: Rows whose mean gradient is squared.

    Example:
        >>> from ofmu_pl import SmallCNN
        >>> SSD(SmallCNN(), alpha=5.0).alpha
        5.0
    """

    in_words = (
        "The weights that mattered more to the forgotten rows than to all rows were shrunk once; nothing was trained."
    )

    def __init__(self, network: Network, alpha: float = 10.0, dampening: float = 1.0, group_size: int = 128) -> None:
        super().__init__(network)
        check_range(0, alpha=alpha, dampening=dampening)
        check_range(1, whole=True, group_size=group_size)
        if network.adds_adapters:
            raise UserError("SSD shrinks weights that have learned, and adapters are new: leave out network.lora.")
        self.alpha, self.dampening, self.group_size = alpha, dampening, group_size

    def displacement(self) -> tuple[Vector, dict[str, float]]:
        """The shrinkage, and the share of the weights that are chosen."""
        forget, retain = (whole_split(self, name, self.group_size) for name in ("forget", "retain"))
        groups = len(forget) + len(retain)
        if self.run.checks_itself and self.alpha * len(forget) >= groups:
            raise UserError(
                f"No weight matters {self.alpha:g} times as much to forget rows, {len(forget)} of {groups} groups, as "
                f"to all rows: set model.alpha below {groups / len(forget):.3g}."
            )
        own, others = self.squares(forget), self.squares(retain)
        found, chosen = [], 0
        for theta, f, r in zip(trainable(self.trained), own, others, strict=True):
            importance, everywhere = f / len(forget), (f + r) / groups
            where = importance > self.alpha * everywhere
            factor = (self.dampening * everywhere / importance).clamp(max=1)
            found.append(theta.detach() * (factor - 1).where(where, 0))
            chosen += int(where.sum())
        return found, {"chosen": chosen / sum(x.numel() for x in found)}

    def squares(self, groups: list[Batch]) -> Vector:
        """The sum over groups of the squared gradient of their mean loss."""
        parameters, engine = trainable(self.trained), self.gradient_engine()
        total = zeros_like(parameters)
        for group in groups:
            gradient = zeros_like(parameters)
            engine.add_gradient(gradient, 1.0, self.loss(group))
            for x, g in zip(total, gradient, strict=True):
                x.addcmul_(g, g)
        self.charge(1.0, sum(len(group["labels"]) for group in groups))
        return total
