"""Losses as functions of network outputs: one value per sample, so that means over any split of a batch add up.

B samples, S positions, V tokens. ``targets`` (B, S) holds the token that each position predicts, ``IGNORED`` where
there is no loss; a sample without any target has loss 0 and no gradient. Everything is computed in float32 at least.
Upstream's means run over all tokens of a batch and so weigh long answers more; ours run over samples.
"""

import math

import torch
import torch.nn.functional as F
from torch import Tensor

IGNORED = -100  # the label of positions without loss (Hugging Face's convention)


# Log-likelihoods -------------------------------------------------------------------------------------------------


def shifted(labels: Tensor) -> Tensor:
    """Targets of (B, S) unshifted labels. The labels are shifted, not the logits, which derivatives would copy."""
    return F.pad(labels[:, 1:], (0, 1), value=IGNORED)


def token_nll(logits: Tensor, targets: Tensor) -> Tensor:
    """``-log p(target)`` of each position, (B, S) in nats, 0 where there is no target."""
    flat = _precise(logits).flatten(0, 1)
    nll = F.cross_entropy(flat, targets.flatten(), ignore_index=IGNORED, reduction="none")
    return nll.view(targets.shape)


def sample_mean(values: Tensor, targets: Tensor) -> Tensor:
    """Means of (B, S) values over the positions that have a target, (B,)."""
    mask = targets != IGNORED
    return (values * mask).sum(1) / mask.sum(1).clamp(min=1)


def ceiling(losses: Tensor, level: float | Tensor | None, width: float = 0.25) -> Tensor:
    """A smooth upper bound of each sample's loss: ``level - width softplus((level - l) / width)``.

    It equals l far below ``level`` and is constant far above it, so that a forgotten sample has no gradient; the corner
    is rounded over ``width`` nats because Hess(Phi) needs three derivatives.

    Args:
        losses: Losses in nats, (B,).
        level: The bound in nats, one for all or one per sample; ``None`` returns the losses unchanged.
        width: Half-width of the rounded corner in nats.
    """
    if level is None:
        return losses
    return level - width * F.softplus((level - losses) / width)


def log_odds(losses: Tensor) -> Tensor:
    """Log-odds against an answer, ``ln((1 - p) / p) = ln(e^l - 1)`` with p = e^-l.

    It grows as fast from p = 0.99 as from p = 0.01, where the loss itself is flat as long as p is near 1: one step's
    rise is foreseen well by the gradient.

    Args:
        losses: (B,) mean losses in nats, >= 0; below 1e-6 they count as 1e-6, with the slope that this has.

    Returns:
        (B,) of the same dtype.

    Example:
        >>> log_odds(torch.tensor([0.6931472, 2.3978953])).round(decimals=4)
        tensor([0.0000, 2.3026])
    """
    at_least = losses + (losses.clamp(min=1e-6) - losses).detach()
    return at_least + torch.log(-torch.expm1(-at_least))


# Forget losses, to be minimised ----------------------------------------------------------------------------------


def npo(nll: Tensor, reference_nll: Tensor, beta: float) -> Tensor:
    """Negative preference optimisation, ``(2/beta) log(1 + (p / p_ref)^beta)`` (Zhang et al. 2024, eq. 3).

    Args:
        nll: *Summed* negative log-likelihoods of the forget answers, (B,).
        reference_nll: The same under the frozen model, (B,).
        beta: Inverse temperature; towards 0 this is gradient ascent.
    """
    return 2 / beta * F.softplus(beta * (reference_nll - nll))


def simnpo(nll: Tensor, beta: float, delta: float = 0.0) -> Tensor:
    """SimNPO, ``-(2/beta) log sigmoid(beta (l - delta))`` of *mean* losses l, no reference (Fan et al. 2024, eq. 6).

    Args:
        nll: Mean negative log-likelihoods of the forget answers, (B,).
        beta: Inverse temperature.
        delta: Margin in nats.
    """
    return 2 / beta * F.softplus(beta * (delta - nll))


def dpo(
    preferred: Tensor, reference_preferred: Tensor, forget: Tensor, reference_forget: Tensor, beta: float
) -> Tensor:
    """Direct preference of another answer over the forget answer (IdkDPO: a refusal; AltPO: a made-up answer).

    ``-(2/beta) log sigmoid(beta (log p(a)/p_ref(a) - log p(y)/p_ref(y)))``; Rafailov et al. 2023, eq. 7, scaled as NPO.

    Args:
        preferred: Summed negative log-likelihoods of the preferred answers, (B,).
        reference_preferred: The same under the frozen model, (B,).
        forget: Summed negative log-likelihoods of the forget answers, (B,).
        reference_forget: The same under the frozen model, (B,).
        beta: Inverse temperature.
    """
    margin = (reference_preferred - preferred) - (reference_forget - forget)
    return 2 / beta * F.softplus(-beta * margin)


def weighted_ascent(logits: Tensor, targets: Tensor, beta_1: float, beta_2: float = 0.0) -> Tensor:
    """Ascent with constant token weights, ``-mean_t w_t l_t`` with ``w = p^beta_1 (1 - p)^beta_2`` detached.

    WGA is ``beta_2 = 0`` (Wang et al. 2025), SatImp has both (Yang et al. 2025).
    """
    nll = token_nll(logits, targets)
    p = (-nll.detach()).exp()
    return -sample_mean(p**beta_1 * (1 - p) ** beta_2 * nll, targets)


def nll_and_kl(logits: Tensor, targets: Tensor, goal: Tensor) -> Tensor:
    """Losses of n places, of logits (n, 1, V), and their divergences from a goal's, (n, 2): logits are made once."""
    return torch.stack([token_nll(logits, targets)[:, 0], kl(logits, targets, goal)], 1)


def undial(logits: Tensor, targets: Tensor, reference_logits: Tensor, beta: float) -> Tensor:
    """Cross-entropy to the frozen model's distribution, the true token's logit lowered by ``beta`` (Dong et al. 2024).

    It is a mean over answer positions; upstream averages over prompt and padding as well, where label -100 hits token V
    - 100.

    Args:
        logits: (B, S, V).
        targets: (B, S).
        reference_logits: Logits of the frozen model, (B, S, V).
        beta: How much the true token's logit is lowered.
    """
    lowered = _precise(reference_logits) - beta * _one_hot(targets, logits.shape[2])
    return sample_mean(_cross_entropy(lowered.softmax(2), logits), targets)


def after_first(targets: Tensor, skip: int | Tensor) -> Tensor:
    """The (B, S) targets without the first ``skip`` of each row; (B,) where rows differ."""
    early = (targets != IGNORED).cumsum(1) <= torch.as_tensor(skip, device=targets.device).unsqueeze(-1)
    return targets.masked_fill(early, IGNORED)


def ce_u(logits: Tensor, targets: Tensor) -> Tensor:
    """Cross-entropy to the model's own distribution without the true token (Yang 2025).

    Args:
        logits: (B, S, V).
        targets: (B, S).
    """
    own = _precise(logits.detach()).masked_fill(_one_hot(targets, logits.shape[2]).bool(), -torch.inf).softmax(2)
    return sample_mean(_cross_entropy(own, logits), targets)


def logit_margin(logits: Tensor, targets: Tensor) -> Tensor:
    """``mean_t (max_v z_v - mean_v z_v)^2``: flattens the logits at answer positions (PDU's forget term).

    Upstream masks with unshifted labels and so covers positions one late.
    """
    z = _precise(logits)
    return sample_mean((z.amax(2) - z.mean(2)).square(), targets)


def margins(logits: Tensor, targets: Tensor, rivals: int | None = None) -> Tensor:
    """Log-odds of each target against its ``rivals`` likeliest others, ``z_y - log sum_v e^(z_v)``, (B, S).

    ``None``: against all others, ``ln(p / (1 - p))``. Values at places without a target mean nothing.
    """
    z, own = _precise(logits), _one_hot(targets, logits.shape[2]).bool()
    others = z.masked_fill(own, -torch.inf)
    if rivals is not None:
        others = others.topk(min(rivals, z.shape[2] - 1)).values
    return z.gather(2, targets.clamp(min=0).unsqueeze(2)).squeeze(2) - others.logsumexp(2)


def margin_hinge(logits: Tensor, targets: Tensor, rivals: int, bound: float, buffer: float) -> Tensor:
    """``mean_t max(0, m_t - bound + buffer) / buffer`` of ``margins`` (MASC): at least the share of m_t > bound."""
    return sample_mean(F.relu(margins(logits, targets, rivals) - bound + buffer) / buffer, targets)


def js_to_token(logits: Tensor, targets: Tensor) -> Tensor:
    """``mean_t ln 2 + (q ln q - (1 + q) ln(1 + q)) / 2``, q = p(target): JS to all mass on the target (JensUn)."""
    nll = token_nll(logits, targets)
    q = (-nll).exp()
    return sample_mean(math.log(2) - (q * nll + (1 + q) * q.log1p()) / 2, targets)


# Distances to a frozen model or vector ---------------------------------------------------------------------------


def kl(logits: Tensor, targets: Tensor, reference_logits: Tensor) -> Tensor:
    """``mean_t KL(p_ref || p)`` over answer positions (upstream includes prompt and padding)."""
    log_p, log_q = _precise(logits).log_softmax(2), _precise(reference_logits).log_softmax(2)
    return sample_mean((log_q.exp() * (log_q - log_p)).sum(2), targets)


def js(logits: Tensor, targets: Tensor, reference_logits: Tensor) -> Tensor:
    """``mean_t (KL(p || m) + KL(p_ref || m)) / 2`` with ``m = (p + p_ref) / 2`` over answer positions; at most ln 2."""
    log_p, log_q = _precise(logits).log_softmax(2), _precise(reference_logits).log_softmax(2)
    log_m = torch.logaddexp(log_p, log_q) - math.log(2)
    return sample_mean((log_p.exp() * (log_p - log_m) + log_q.exp() * (log_q - log_m)).sum(2), targets) / 2


def hidden_distance(hidden: Tensor, goal: Tensor, mask: Tensor) -> Tensor:
    """``mean_t |h_t - goal_t|^2 / d`` of each sample (RMU; upstream divides by every row's count in turn: B x B).

    Args:
        hidden: Hidden states, (B, S, d).
        goal: Hidden states of the frozen model, (B, S, d), or the control vector, (d,).
        mask: Positions that count, (B, S).
    """
    distance = (_precise(hidden) - _precise(goal)).square().mean(2)
    return (distance * mask).sum(1) / mask.sum(1).clamp(min=1)


def _precise(x: Tensor) -> Tensor:
    return x if x.dtype == torch.float64 else x.float()


def _one_hot(targets: Tensor, size: int) -> Tensor:
    """One-hot targets, (B, S, V), with zeros where there is no target."""
    mask = targets != IGNORED
    return F.one_hot(targets.where(mask, 0), size) * mask.unsqueeze(2)


def _cross_entropy(p: Tensor, logits: Tensor) -> Tensor:
    """Cross-entropies of distributions to logits, (B, S)."""
    return -(p * _precise(logits).log_softmax(2)).sum(2)
