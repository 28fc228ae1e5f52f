r"""The loss at which each token of a forget row is to end: that of held-out tokens of its kind.

    z(l)  = ln(e^l - 1)                    the log-odds against an answer of loss l = -ln p
    l     : mean over a row's pushed tokens of their losses; the goal is the mean of their levels
    far   : sqrt((z(l) - z_goal)^2 + w^2) - w of a row, w = 0.25: 0 at the goal alone
    level : quantile (rank - 1/2) / n of held-out tokens' losses, for a forget token's rank among its n like ones
    wrong : 0.1 x the sum of 0.05 softplus((z(l) - max(z(l_start), 0)) / 0.05) over tokens that are not pushed

A token is pushed where its level is a loss above ln 2 (p < 1/2), by the share sigmoid((level - l) / w) of its gradient:
while it is below that level. The row's other tokens count as ``wrong`` alone. A token that held-out rows get right,
such as a name in the question, is not pushed. To break it would lift a row's mean loss without forgetting anything, and
would mark the row. Such a token is called back where it becomes wrong.

Which held-out tokens a token is like: those of its kind (``data.guessable``) that are as easy to guess for someone who
knows the retain rows alone (``modules.guess``), where there is such a guess. Among these the token that the model was
surest of before the first step gets the lowest loss. An image has one "token", which is always pushed.

Nothing here is learned from a retrained model. Forgetting further than held-out rows would be a leak of its own.
"""

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
from ofmu_pl.modules.reader import RowReader, Rows, Told

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


class Levels:
    """Levels of forget tokens, and how far rows are from them.

    Args:
        reader: Reads rows at the weights of now.
        blind: Level in nats where no held-out row says how far to go.
        one_sided: Whether no token is called back from beyond its level, as from beyond a ceiling.
        expected: Tells the losses of someone who guesses; ``None``: tokens of one kind are all alike.

    Attributes:
        start: (K,) loss of each token of the forget rows before the first step, row by row.
        ends: (N + 1,) number of the first token of each forget row, and of all.
        levels: (K,) loss in nats that each of them is to end at; NaN where it is not pushed.
    """

    def __init__(self, reader: RowReader, blind: float, one_sided: bool, expected: Told | None) -> None:
        self.reader, self.blind, self.one_sided, self.expected = reader, blind, one_sided, expected
        self.levels = self.start = torch.empty(0)
        self.ends = torch.zeros(1, dtype=torch.long)
        self._groups: list[Group] = []

    def begin(self) -> None:
        """Read the forget rows before the first step, and give their tokens levels."""
        start = self.reader.losses("forget", range(self.reader.count("forget")))
        self.start = torch.from_numpy(np.concatenate(start))
        self.ends = torch.tensor([0, *(len(row) for row in start)]).cumsum(0)
        self.renew()

    def renew(self) -> Rows:
        """Give forget tokens the levels that held-out tokens' losses of now say; returns these, row by row."""
        if self.reader.data.never_seen is None:
            kinds = self._kinds("forget", range(self.reader.count("forget")), len(self.start))
            self.levels = torch.where(torch.from_numpy(kinds == OWN), self.blind, math.nan).double()
            return []
        held = self.reader.read_held_out()
        losses = np.concatenate(held)
        if not self._groups:
            every, unseen, shown = range(self.reader.count("forget")), self.reader.data.never_seen, self.reader.held_out
            both = self._kinds("forget", every, len(self.start)), self._kinds(unseen, shown, len(losses))
            told = self.expected
            ease = told and (np.concatenate(told("forget", every)), np.concatenate(told(unseen, shown)))
            self._groups = grouped(self.start.numpy(), *both, ease)
        by_kind = self.reader.data.kinds_of("forget", []) is not None
        levels = levels_of(self._groups, losses, len(self.start), by_kind=by_kind, capped=self.one_sided)
        self.levels = torch.from_numpy(levels)
        return held

    def distances(self, nll: Tensor, targets: Tensor, ids: Tensor, left: float) -> Tensor:
        """Distances, (b,), of forget rows from their levels, in log-odds; 0 at the goal, or beyond a ceiling.

        ``nll``, (b, S), are the losses of their tokens ``targets``, (b, S), ``ids``, (b,), their numbers, and ``left``
        is the share of the path that is left.
        """
        start, level = self._of(ids, targets)
        return distances(nll, start.to(nll), level.to(nll), targets, left, one_sided=self.one_sided)

    def first_distance(self, i: int, left: float) -> float:
        """How far forget row ``i`` was before the first step."""
        start, level = (x[None, self.ends[i] : self.ends[i + 1]] for x in (self.start, self.levels))
        targets = torch.zeros_like(start, dtype=torch.long)
        return float(distances(start, start, level, targets, left, one_sided=self.one_sided))

    def still_to_rise(self, losses: Rows, rows: Sequence[int], held: Rows | None = None) -> float:
        """What forget rows still have to rise to levels, which ``held`` has set, in log-odds; below 0 beyond them."""
        rises = []
        for row, i in zip(losses, rows, strict=True):
            levels = self.levels[self.ends[i] : self.ends[i + 1]]
            pushed = ~levels.isnan()
            if pushed.any():
                both = torch.stack([levels[pushed].mean(), torch.from_numpy(row)[pushed].mean()])
                rises.append(float(-log_odds(both).diff()))
        return float(np.mean(rises)) if rises else 0.0

    def _of(self, ids: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        """First losses and levels of rows' tokens, (b, S) each, at the places that have a target."""
        mask = (targets != IGNORED).cpu()
        places = torch.cat([torch.arange(int(self.ends[i]), int(self.ends[i + 1])) for i in ids.tolist()])
        empty = torch.zeros(mask.shape, dtype=torch.float64)
        return empty.masked_scatter(mask, self.start[places]), empty.masked_scatter(mask, self.levels[places])

    def _kinds(self, stream: str, rows: Sequence[int], count: int) -> np.ndarray:
        """Kinds of the tokens of rows, (count,), one row after another."""
        found = self.reader.data.kinds_of(stream, rows)
        return np.full(count, OWN) if found is None else np.concatenate(found)
