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

import numpy as np
import torch
from torch import Tensor

from ofmu_pl.data.guessable import OWN
from ofmu_pl.losses import IGNORED, log_odds
from ofmu_pl.modules.alike import Group, distances, grouped, levels_of
from ofmu_pl.modules.reader import RowReader, Rows, Told


class Levels:
    """Levels of forget tokens, and how far rows are from them.

    Args:
        reader: Reads rows at the weights of now.
        blind: Level in nats where no held-out row says how far to go.
        one_sided: Whether no token is called back from beyond its level, as from beyond a ceiling.
        kinds: Tells the kinds of tokens (``data.guessable``); ``None``: there is one kind, and every token is pushed.
        expected: Tells the losses of someone who guesses; ``None``: tokens of one kind are all alike.

    Attributes:
        start: (K,) loss of each token of the forget rows before the first step, row by row.
        ends: (N + 1,) number of the first token of each forget row, and of all.
        levels: (K,) loss in nats that each of them is to end at; NaN where it is not pushed.
    """

    def __init__(
        self, reader: RowReader, blind: float, one_sided: bool, kinds: Told | None, expected: Told | None
    ) -> None:
        self.reader, self.blind, self.one_sided = reader, blind, one_sided
        self.kinds, self.expected = kinds, expected
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
        by_kind = self.kinds is not None
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

    def still_to_rise(self, losses: Rows, rows: Sequence[int]) -> float:
        """What forget rows still have to rise to their levels, in log-odds, on average; below 0 beyond them."""
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
        both = []
        for values in (self.start, self.levels):
            padded = torch.zeros(mask.shape, dtype=values.dtype)
            padded[mask] = values[places]
            both.append(padded)
        return both[0], both[1]

    def _kinds(self, stream: str, rows: Sequence[int], count: int) -> np.ndarray:
        """Kinds of the tokens of rows, (count,), one row after another."""
        return np.full(count, OWN) if self.kinds is None else np.concatenate(self.kinds(stream, rows))
