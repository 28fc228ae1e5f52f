r"""The method in the paper's symbols: Phi, grad Phi, Hess(Phi) v and grad F. Read this file first.

    s         = Sim(g_f, g_r)                       g_f, g_r: gradients of the mean losses on B_f, B_r
    Phi       = L_f - beta s                                                        (paper, eq. for Phi)
    grad Phi  = g_f - beta (H_f u_f + H_r u_r)       u_f = ds/dg_f, u_r = ds/dg_r
    Hess(Phi) v = H_f v - beta ( D3L_f[u_f, v] + H_f w_f + D3L_r[u_r, v] + H_r w_r )
                                                     (w_f, w_r) = D(u_f, u_r)[H_f v, H_r v]
    F         = L_r + rho |grad Phi|^2               grad F = g_r + 2 rho Hess(Phi) grad Phi
    inner     theta <- theta + eta_in grad Phi       T times, fresh (B_f, B_r)
    outer     theta <- theta - eta_out grad F        at theta_in; B_r' serves the retain loss and Phi

No autograd graph joins the two losses: s enters by inner products of finished gradients, so each line is a sum of
products of one loss each, linear in its data.
"""

import math
from dataclasses import dataclass, replace
from functools import partial

from ofmu_pl.core.derivatives import Engine, Loss, hvp
from ofmu_pl.core.safeguards import AS_PRINTED, Safeguards
from ofmu_pl.core.similarity import Cosine
from ofmu_pl.core.vectors import Vector, add_, clip_, dot, norm, scale_, zeros_like


class Phi:
    """Phi at the parameters' present values, for one pair of batches.

    Args:
        engine: Differentiates the losses.
        forget: L_f as terms.
        retain: L_r as terms.
        beta: Weight of the similarity, > 0 in the paper; 0 leaves plain ascent on L_f.
        floor: Floor of the gradient norms inside the similarity (``similarity.Cosine``).
        order: 2 if only ``gradient`` will be asked for, 3 if ``hessian_vector`` will be, too.
        aligned_only: Take beta as 0 where s <= 0: Phi = L_f - beta max(s, 0).

    Attributes:
        beta: The weight in force.
        f: The forget loss's expansion (``f.value`` = L_f, ``f.gradient`` = g_f).
        r: The retain loss's expansion.
        sim: The similarity of the two gradients.

    Example:
        Two quadratics, L_f = |theta|^2 / 2 and L_r = |theta - q|^2 / 2, whose gradients stand at 45 degrees.

        >>> import torch
        >>> from ofmu_pl import Autograd
        >>> theta, q = torch.tensor([1.0, 1.0], requires_grad=True), torch.tensor([1.0, 0.0])
        >>> forget, retain = [lambda: (theta**2).sum() / 2], [lambda: ((theta - q) ** 2).sum() / 2]
        >>> phi = Phi(Autograd([theta]), forget, retain, beta=0.5)
        >>> phi.f.value, round(phi.sim.value, 4), round(phi.value, 4)
        (1.0, 0.7071, 0.6464)
        >>> phi.gradient()
        [tensor([0.8232, 0.8232])]
    """

    def __init__(
        self,
        engine: Engine,
        forget: Loss,
        retain: Loss,
        beta: float,
        floor: float = 0.0,
        order: int = 2,
        *,
        aligned_only: bool = False,
    ) -> None:
        self.f = engine.expand(forget, order)
        self.r = engine.expand(retain, order)
        self.sim = Cosine(self.f.gradient, self.r.gradient, floor)
        self.beta = 0.0 if aligned_only and self.sim.value <= 0 else beta
        self.u_f, self.u_r = self.sim.gradient()

    @property
    def value(self) -> float:
        """``L_f - beta s``."""
        return self.f.value - self.beta * self.sim.value

    def decorrelation(self) -> Vector:
        """``-beta (H_f u_f + H_r u_r)``: the part of grad Phi that turns the two gradients apart."""
        out = zeros_like(self.f.gradient)
        self._add_decorrelation(out)
        return out

    def gradient(self) -> Vector:
        """``grad Phi = g_f - beta (H_f u_f + H_r u_r)``."""
        out = [g.clone() for g in self.f.gradient]
        self._add_decorrelation(out)
        return out

    def _add_decorrelation(self, out: Vector) -> None:
        if self.beta:
            self.f.add_hvp(out, -self.beta, self.u_f)
            self.r.add_hvp(out, -self.beta, self.u_r)

    def hessian_vector(self, v: Vector) -> Vector:
        """``Hess(Phi) v`` by the closed form above."""
        out = hvp(self.f, [(1.0, v)])
        if not self.beta:
            return out
        d_f, d_r = out, hvp(self.r, [(1.0, v)])
        w_f, w_r = self.sim.directional(d_f, d_r)
        third_f = self.f.third(self.u_f, v, w_f)
        third_r = self.r.third(self.u_r, v, w_r)
        add_(out, [(-self.beta, third_f), (-self.beta, third_r)])
        return out


def grad_phi(engine: Engine, forget: Loss, retain: Loss, beta: float, floor: float = 0.0) -> Vector:
    """Grad Phi at the parameters' present values; without a similarity L_r has no part in it."""
    if beta:
        return Phi(engine, forget, retain, beta, floor).gradient()
    return engine.expand(forget, order=1).gradient


@dataclass
class OuterGradient:
    """The parts of grad F at the parameters' values where they were taken.

    Attributes:
        retain: g_r, the gradient of the retain loss on B_r'.
        penalty: ``2 rho Hess(Phi) grad Phi``, clipped if asked.
        decorrelation: ``-beta (H_f u_f + H_r u_r)``; ``None`` where the similarity has no part in Phi.
        loss_f: L_f on B_f'.
        loss_r: L_r on B_r'.
        similarity: s on (B_f', B_r').
        forget_norm: |g_f|.
        retain_norm: |g_r|.
        grad_phi_norm: |grad Phi|.
        penalty_norm: |penalty|, after clipping.
        clipped: Whether the penalty was longer than its bound, so that rho does not set its length.
        curvature: ``<v, Hess(Phi) v> / |v|^2`` along v = grad Phi; 0 without a penalty.
    """

    retain: Vector
    penalty: Vector
    decorrelation: Vector | None
    loss_f: float
    loss_r: float
    similarity: float
    forget_norm: float
    retain_norm: float
    grad_phi_norm: float
    penalty_norm: float = 0.0
    curvature: float = 0.0
    clipped: bool = False

    def total_(self) -> Vector:
        """``grad F = g_r + penalty``, in place of ``retain``."""
        add_(self.retain, [(1.0, self.penalty)])
        return self.retain

    def scalars(self) -> dict[str, float]:
        """The numbers by the names that a run logs."""
        share = self.penalty_norm / self.retain_norm if self.retain_norm else 0.0
        return {
            "L_f": self.loss_f,
            "L_r": self.loss_r,
            "Sim": self.similarity,
            "grad_L_f": self.forget_norm,
            "grad_L_r": self.retain_norm,
            "grad_Phi": self.grad_phi_norm,
            "penalty": self.penalty_norm,
            "penalty_share": share,
            "penalty_clipped": float(self.clipped),
            "curvature": self.curvature,
        }


def outer_gradient(
    engine: Engine, forget: Loss, retain: Loss, rho: float, beta: float, safeguards: Safeguards = AS_PRINTED
) -> OuterGradient:
    """The gradient of F at the parameters' present values, with one g_r for both of its uses.

    A first-order engine takes Hess(Phi) grad Phi as the difference of grad Phi along itself (four gradients more; one
    where the similarity has no part in Phi); the exact engine as the closed form.

    Args:
        engine: Differentiates the losses.
        forget: L_f on B_f' as terms.
        retain: L_r on B_r' as terms.
        rho: Penalty parameter rho_k.
        beta: Weight of the similarity.
        safeguards: Floor of norms, cap of the penalty, and where the similarity counts.

    Example:
        Without the similarity Phi is L_f, and for L_f = theta^2 / 2 the penalty is 2 rho theta.

        >>> import torch
        >>> from ofmu_pl.core.autograd import Autograd
        >>> theta = torch.tensor([1.0], requires_grad=True)
        >>> forget, retain = [lambda: (theta**2).sum() / 2], [lambda: ((theta - 3) ** 2).sum() / 2]
        >>> parts = outer_gradient(Autograd([theta]), forget, retain, rho=0.5, beta=0.0)
        >>> parts.retain, parts.penalty, parts.curvature
        ([tensor([-2.])], [tensor([1.])], 1.0)
        >>> parts.total_()
        [tensor([-1.])]
    """
    floor = safeguards.floor
    phi = Phi(engine, forget, retain, beta, floor, order=3 if rho else 2, aligned_only=safeguards.aligned_only)
    g_r, beta = phi.r.gradient, phi.beta
    decorrelation = phi.decorrelation() if beta else None
    v = [g.clone() for g in phi.f.gradient]
    if decorrelation is not None:
        add_(v, [(1.0, decorrelation)])
    found = OuterGradient(
        retain=g_r,
        penalty=[],  # memory peaks before there is one
        decorrelation=decorrelation,
        loss_f=phi.f.value,
        loss_r=phi.r.value,
        similarity=phi.sim.value,
        forget_norm=phi.sim.norm_f,
        retain_norm=phi.sim.norm_r,
        grad_phi_norm=norm(v),
    )
    if not rho:
        return replace(found, penalty=zeros_like(g_r))
    if engine.first_order:
        del phi  # its g_f is not needed again, and memory peaks in the next line
        penalty = engine.along(partial(grad_phi, engine, forget, retain, beta, floor), v, base=v)
    else:
        penalty = phi.hessian_vector(v)
    curvature = dot(v, penalty) / found.grad_phi_norm**2 if found.grad_phi_norm else 0.0
    scale_(penalty, 2 * rho)
    bound = math.inf if safeguards.penalty_clip is None else safeguards.penalty_clip * found.retain_norm
    size = clip_(penalty, bound)
    return replace(found, penalty=penalty, penalty_norm=min(size, bound), curvature=curvature, clipped=size > bound)
