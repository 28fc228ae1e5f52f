"""Influence unlearning: one Newton step from the model on all images to the one without the forget images."""

from lightning.pytorch.utilities import rank_zero_info
from torch import Tensor, nn
from torch.func import functional_call, jvp, vjp

from ofmu_pl.core.cg import conjugate_gradient
from ofmu_pl.core.derivatives import trainable
from ofmu_pl.core.vectors import Vector, add_, zeros_like
from ofmu_pl.modules.one_shot import OneShot, whole_split
from ofmu_pl.networks.base import Network
from ofmu_pl.support.errors import check_range

TOLERANCE = 1e-3
"""Relative residual at which conjugate gradients stop."""


class Influence(OneShot):
    """``theta + scale (G + damping)^-1 (n_f / n) (g_f - g_r)``; Jia et al.'s formula with a real solver.

    ``g_f`` and ``g_r`` are the mean gradients of the n_f forget and n_r retain images (n = n_f + n_r) and G the
    Gauss-Newton matrix of the retain loss (the Hessian of a linear model; never negative, unlike a network's), solved
    by conjugate gradients. Published code ("WoodFisher") rescales one vector and never applies an inverse.

    Args:
        network: Recipe of the network that shall forget.
        scale: Length of the step; 1 is the Newton step.
        damping: A number added to G's diagonal.
        iterations: Largest number of products with G.
        micro_batch_size: Number of images differentiated at a time.

    Example:
        >>> from ofmu_pl import SmallCNN
        >>> Influence(SmallCNN(), damping=0.1).modality
        'images'
    """

    in_words = (
        "The weights were moved once, to where they would be by a linear estimate if the forgotten images had "
        "not been trained on."
    )
    modality = "images"
    remedy = "raise model.damping or lower model.scale"

    def __init__(
        self,
        network: Network,
        scale: float = 1.0,
        damping: float = 1e-2,
        iterations: int = 50,
        micro_batch_size: int = 256,
    ) -> None:
        super().__init__(network)
        check_range(1, whole=True, iterations=iterations, micro_batch_size=micro_batch_size)
        check_range(0, damping=damping)
        self.scale, self.damping, self.iterations = scale, damping, iterations
        self.micro_batch_size = micro_batch_size

    def displacement(self) -> tuple[Vector, dict[str, float]]:
        """The Newton step, and scalars on its solution: residual and cost."""
        sides = {name: whole_split(self, name, self.micro_batch_size or 1) for name in ("forget", "retain")}
        sizes = {}
        for name, batches in sides.items():
            sizes[name] = sum(len(batch["labels"]) for batch in batches)
        parameters = trainable(self.trained)
        engine = self.gradient_engine()
        gradients = {name: zeros_like(parameters) for name in sides}
        for name, batches in sides.items():
            for batch in batches:
                engine.add_gradient(gradients[name], len(batch["labels"]) / sizes[name], self.loss(batch))

        def product(v: Vector) -> Vector:
            out = zeros_like(v)
            for batch in sides["retain"]:
                share = len(batch["labels"]) / sizes["retain"]
                add_(out, [(share, gauss_newton_product(self.trained, batch["images"], v))])
            return out

        share = sizes["forget"] / sum(sizes.values())
        b = removal(gradients["forget"], gradients["retain"], share)
        step, residual, products = conjugate_gradient(product, b, self.damping, self.iterations, TOLERANCE)
        # A product is a pass with tangents, and one with a backward pass over the retain images: two gradients of them.
        self.charge(1.0, sum(sizes.values()))
        self.charge(2 * products, sizes["retain"])
        remedy = "; not converged: raise model.iterations or model.damping" if residual > TOLERANCE else ""
        rank_zero_info(f"Influence: residual {residual:.2g} after {products} products{remedy}.")
        for x in step:
            x.mul_(self.scale)
        return step, {"residual": residual, "products": float(products)}


def removal(g_f: Vector, g_r: Vector, share: float) -> Vector:
    """``share (g_f - g_r)``, the right-hand side of the Newton step that removes a share of the samples.

    g_f and g_r are the mean gradients of the samples to remove and to keep. At the optimum on all samples ``share g_f +
    (1 - share) g_r = 0``, so this is ``-g_r``. The step is then exact if losses are quadratic and the matrix is the
    Hessian of the retain loss. Elsewhere ``-g_r`` would also train on the samples to keep; this form does not.
    """
    return [share * (f - r) for f, r in zip(g_f, g_r, strict=True)]


def gauss_newton_product(module: nn.Module, images: Tensor, v: Vector) -> Vector:
    """``G v`` with ``G = 1/b sum_i J_i^T (diag p_i - p_i p_i^T) J_i`` of the mean cross-entropy of b images.

    J is the Jacobian of the logits of a classifier in eval mode; images are (b, C, H, W).
    """
    point = {k: p.detach() for k, p in module.named_parameters() if p.requires_grad}

    def logits(parameters: dict[str, Tensor]) -> Tensor:
        found: Tensor = functional_call(module, parameters, (images,))
        return found

    forward, backward = jvp(logits, (point,), (dict(zip(point, v, strict=True)),)), vjp(logits, point)
    z, jv, pullback = backward[0], forward[1], backward[1]
    p = z.softmax(1)
    curved = p * jv - p * (p * jv).sum(1, keepdim=True)
    (out,) = pullback(curved / len(images))
    return [out[k].detach() for k in point]
