"""Which held-out tokens a forget token is like, the level that it gets from them, how far it is, and who is alike."""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from scipy.stats import rankdata
from torch import Tensor

from ofmu_pl.data.guessable import OWN
from ofmu_pl.losses import IGNORED, log_odds

ALIKE_AUC = 0.1
"""Largest distance of an AUC from 0.5 at which rows are alike; with few rows the AUC's standard error, if larger.
The 95 % interval of few rows would cover every AUC, and a test that cannot reject must not end a run."""
ALIKE = 32
"""Held-out tokens that count as equally easy to guess."""
CAP = 0.8
"""Quantile of the losses of held-out tokens that cannot be guessed, above which no level of a ceiling lies."""


class Group(NamedTuple):
    """Like tokens.

    Attributes:
        kind: Their kind.
        held: Numbers of the held-out tokens.
        forget: Numbers of the forget tokens.
        quantiles: For each forget token the quantile of the held-out tokens' losses that is its level.
    """

    kind: int
    held: np.ndarray
    forget: np.ndarray
    quantiles: np.ndarray


def grouped(
    start: np.ndarray, kinds: np.ndarray, held_kinds: np.ndarray, ease: tuple[np.ndarray, np.ndarray] | None
) -> list[Group]:
    """Groups of like tokens: of one kind and, where there is a guess, as easy to guess.

    ``start``, (K,), are the first losses of the forget tokens, ``kinds``, (K,), their kinds, and ``ease`` the losses,
    of someone who guesses, of the forget and of the held-out tokens; ``None``: there is no guess.
    """
    groups = []
    for kind in np.unique(kinds):
        ours, theirs = np.flatnonzero(kinds == kind), np.flatnonzero(held_kinds == kind)
        if not len(theirs) and kind != OWN:
            continue  # nothing says that held-out rows are wrong there
        if not len(theirs):
            theirs = np.arange(len(held_kinds))
        parts = 1
        if ease is not None:  # the easiest first
            parts = max(1, len(theirs) // ALIKE)
            ours = ours[ease[0][ours].argsort(kind="stable")]
            theirs = theirs[ease[1][theirs].argsort(kind="stable")]
        for mine, like in zip(np.array_split(ours, parts), np.array_split(theirs, parts), strict=True):
            groups.append(Group(int(kind), like, mine, (rankdata(start[mine], "ordinal") - 0.5) / len(mine)))
    return groups


def levels_of(groups: Sequence[Group], losses: np.ndarray, count: int, *, by_kind: bool, capped: bool) -> np.ndarray:
    """The levels of forget tokens, (count,), by the losses of held-out ones.

    With ``by_kind`` tokens that held-out rows get right are not pushed, NaN. Levels that are ``capped`` suit a ceiling,
    beyond which tokens go on; others have the mean of held-out tokens, so that rows at their levels are alike.
    """
    levels = np.zeros(count)
    for group in groups:
        levels[group.forget] = np.quantile(losses[group.held], group.quantiles)
    if not by_kind:
        return levels
    own = [losses[group.held] for group in groups if group.kind == OWN]
    cap = np.quantile(np.concatenate(own), CAP) if own and capped else math.inf
    return np.where(levels > math.log(2), np.minimum(levels, cap), math.nan)


def alike(forgotten: Sequence[float], held: Sequence[float]) -> tuple[bool, dict[str, float]]:
    """Whether losses of forget rows are like held-out rows'; the means, and ``AUC = P(held > forget) + P(equal) / 2``.

    >>> alike([1.0, 3.0], [2.0, 2.0])
    (True, {'forget': 2.0, 'held_out': 2.0, 'auc': 0.5})
    """
    ours, theirs = np.array(forgotten), np.array(held)
    difference = theirs[:, None] - ours
    auc = float((difference > 0).mean() + (difference == 0).mean() / 2)
    error = math.sqrt((len(ours) + len(theirs) + 1) / 12 / len(ours) / len(theirs))
    told = {"forget": float(ours.mean()), "held_out": float(theirs.mean()), "auc": auc}
    return abs(auc - 0.5) <= max(ALIKE_AUC, error), told


WIDTH = 0.25
"""Distance in log-odds below which a token's pull fades."""
CORNER = 0.05
"""The same for a ceiling, where half of the push is left: with ``WIDTH`` tokens would go beyond by a nat or more."""
GUARD = 0.1
"""Weight of the pull on a token that held-out rows get right and that has become wrong."""


def distances(nll: Tensor, start: Tensor, level: Tensor, targets: Tensor, left: float, *, one_sided: bool) -> Tensor:
    """Distances of rows from their goals, (b,), in log-odds; two-sided ones call back rows that went too far.

    ``targets``, (b, S), are the rows' tokens, ``nll`` their losses, ``start`` their losses before the first step. Their
    losses at the end are ``level``, NaN where a token is not pushed. A one-sided goal is a ceiling that rises along the
    path, of which the share ``left`` is left.
    """
    mask = targets != IGNORED
    pushed = mask & ~level.isnan()
    count = pushed.sum(1).clamp(min=1)
    level = level.nan_to_num(0.0)
    z, first, goal = (log_odds((x * pushed).sum(1) / count) for x in (nll, start, level))
    below = torch.sigmoid((level - nll) / WIDTH).detach()
    # Each token moves on its own side of its level alone, whatever the others do.
    moved = below if one_sided else below.where((z < goal)[:, None], 1 - below)
    z = log_odds(((moved * nll + (1 - moved) * nll.detach()) * pushed).sum(1) / count)
    if one_sided:
        goal = goal + left * (first - goal)
        far = CORNER * F.softplus((goal - z) / CORNER)
    else:
        far = ((z - goal) ** 2 + WIDTH**2).sqrt() - WIDTH
    wrong = CORNER * F.softplus((log_odds(nll) - log_odds(start).clamp(min=0.0)) / CORNER)
    return far * pushed.any(1) + GUARD * (wrong * (mask & ~pushed)).sum(1) / count
