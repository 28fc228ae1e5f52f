r"""How far to forget: to the loss of never-seen rows, along a path whose steps mean the same on every model.

    l     : mean over a row's tokens of their losses, each bent at c, where a fifth of never-seen rows' tokens lie above
    z(l)  = ln(e^l - 1)                    the log-odds against an answer of loss l = -ln p
    far   : sqrt((z - z_goal)^2 + w^2) - w of a forget row, where z_goal is a never-seen row's: 0 at the goal alone
    path  : after a share t of the way, a row's distance is 1 - t of what it was
    keep  : each retain row's loss returns to what it was before the first step

As a ceiling the goal is one-sided: a row below its place on the path is pushed, with a rounded corner of width w,

    far   : w softplus((z_path - z) / w),    z_path = z_goal + (1 - t) (z_start - z_goal)

and a row beyond is left alone. To call it back would be to teach its answer once more: on Authors that brought back
the order of right and wrong answers, which one-sided pushes had undone (docs/log/2026-11-22-front.md).

Whose loss a row is to end at: that of a never-seen row which is as easy to guess for someone who knows the retain rows
alone (modules/guess.py), as it would be had the model never seen the row; without a guess, levels are given by lot.

Nothing here is learned from a retrained model. Forgetting further than never-seen rows would be a leak of its own.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from lightning.pytorch.utilities import rank_zero_warn
from scipy.stats import rankdata
from torch import Tensor

from ofmu_pl.data.sampler import batch_indices, evenly
from ofmu_pl.losses import IGNORED, ceiling, log_odds, sample_mean
from ofmu_pl.networks.base import Batch

PATH = 100
"""Iterations that the path takes if it never waits."""
APPROACH = 0.6
"""Share of a short run's iterations after which the path is at its goal; the rest repairs what is to be kept."""
CEILING_APPROACH = 0.15
"""The same of a ceiling, on any run: rows that come late do not arrive where batches are small."""
HARM = 0.3
"""Mean rise of retain losses, in nats, above which the path waits until they are repaired."""
KEPT = 0.03
"""Mean rise of retain losses, in nats, at which they count as kept: 97 % of the probability."""
LOOKED_AT = 64
"""Rows of each side that a check scores; their AUC's interval is 0.1 to either side."""
TOKENS = 0.8
"""Quantile of never-seen rows' token losses above which a forget row's token counts as forgotten."""
LOWEST = 2.0
"""Smallest bound of a token's loss, in nats: nearer to 0 the corner would bend what is known, too."""
WIDTH = 0.25
"""Distance in log-odds below which a row's pull fades."""
CORNER = 0.05
"""The same of a ceiling. At it half of the push is left, so that rows go on: by a nat and more, were it as wide."""
ROWS = 16
"""Rows scored at a time."""

STATE = ("start", "old", "levels", "token_level", "way", "harm")


class Goal:
    """Levels of forget rows and old losses of retain rows, and whether both are reached.

    Args:
        data: A ``PairedDataModule`` after ``setup``, whose ``never_seen`` names the split of never-seen rows, if any.
        tokens: Maps a batch to its tokens' losses, (b, S), and targets, at the network's weights of now.
        iterations: Length of the run.
        guess: Loss of a uniform guess, in nats; without never-seen rows, forget rows are to end at half of it.
        every: Outer iterations between two checks.
        one_sided: Whether the goal is a ceiling that rises along the path, from beyond which no row is called back.
        expected: Maps a split's name and numbers of its rows to the losses, (n,), of someone who guesses, by which
            forget and never-seen rows are matched; without it levels are given by lot.

    Attributes:
        token_level: The bound c of a token's loss, in nats.
        levels: (N,) loss in nats that each forget row is to end at.
        start: (N,) loss of each forget row before the first step.
        old: (M,) loss of each retain row before the first step; NaN for rows that the run does not draw.
        way: Iterations that the path has gone; it waits while too much is harmed.
        harm: Running mean of the rise of retain losses, in nats.
    """

    def __init__(
        self,
        data: Any,
        tokens: Callable[[Batch], tuple[Tensor, Tensor]],
        iterations: int,
        guess: float,
        every: int = 10,
        one_sided: bool = False,
        expected: Callable[[str, Sequence[int]], Tensor] | None = None,
    ) -> None:
        self.one_sided = one_sided
        self.data, self.tokens, self.guess, self.every = data, tokens, guess, every
        longest = CEILING_APPROACH * iterations if one_sided else min(PATH, APPROACH * iterations)
        self.length = PATH if iterations < 0 else max(1.0, longest)
        self.levels = self.start = self.old = torch.empty(0)
        self.token_level, self.way, self.harm = 0.0, 0, 0.0
        self.expected = expected
        self._lot = np.random.Generator(np.random.Philox(key=data.seed)).permutation(len(data.splits["forget"]))

    def begin(self, outer_batches: range) -> None:
        """Score the model that is to forget, once.

        Args:
            outer_batches: Numbers of the retain stream's batches whose losses are to return; none, as of a run without
                a known end: all rows'.
        """
        n, m = len(self.data.splits["forget"]), len(self.data.splits["retain"])
        if self.data.never_seen is None:
            rank_zero_warn(
                f"{self.data.why_no_never_seen}, so how far to forget is a guess: half of the loss ln V of a model "
                f"that knows nothing, {self.guess / 2:.2f} nats."
            )
        self._set_levels()
        self.start = self._score("forget", range(n), self.token_level)
        size, seed = self.data.batch_size, self.data.seed
        drawn = {int(i) for number in outer_batches for i in batch_indices(m, size, seed, "retain", number)}
        rows = sorted(drawn) or list(range(m))
        self.old = torch.full((m,), math.nan, dtype=torch.float64)
        self.old[rows] = self._score("retain", rows)

    def rows(self, nll: Tensor, targets: Tensor, ids: Tensor) -> Tensor:
        """Minus the distances of forget rows from their levels, in log-odds: largest, 0, at the goal.

        Args:
            nll: Losses of their tokens, (b, S).
            targets: The tokens, (b, S).
            ids: Numbers of the rows, (b,).
        """
        return -self._far(sample_mean(ceiling(nll, self.token_level), targets), ids)

    def _far(self, losses: Tensor, ids: Tensor) -> Tensor:
        """Distances, (b,), smooth as Phi has derivatives; if two-sided, they call rows back that went too far."""
        ids = ids.cpu()
        z, goal = log_odds(losses), log_odds(self.levels[ids]).to(losses)
        if self.one_sided:
            left = 1 - min(1.0, self.way / self.length)
            goal = goal + left * (log_odds(self.start[ids]).to(losses) - goal)
            return CORNER * F.softplus((goal - z) / CORNER)
        return ((z - goal) ** 2 + WIDTH**2).sqrt() - WIDTH

    def gap(self, batches: Sequence[Batch], steps: int, t: int, reached: float) -> float:
        """How far the path is ahead of a batch's rows, in log-odds.

        Args:
            batches: Forget batches of an iteration.
            steps: Ascent steps of an iteration.
            t: Number of the step that is to be taken, from 0.
            reached: Mean of ``rows`` over the t-th batch at the present weights.
        """
        i, share = batches[t]["ids"].cpu(), (t + 1) / steps
        left = 1 - min(1.0, (self.way + share) / self.length)
        return -left * float(self._far(self.start[i], i).mean()) - reached

    def excess(self, ids: Tensor, loss: float) -> float:
        """Rise of a retain batch's mean loss since before the first step, in nats; the path goes on if it is small.

        Rows that were not to be drawn, as of a run that goes on for longer than it began, count as the others' mean.
        """
        old = self.old[ids.cpu()]
        rise = loss - float(torch.where(old.isnan(), self.old.nanmean(), old).mean())
        self.harm += 0.2 * (rise - self.harm)
        self.way += rise < HARM
        return rise

    def check(self, step: int) -> tuple[bool, dict[str, float]]:
        """Compare forget with never-seen rows if a check is due, and set the levels by the latter's losses of now.

        Args:
            step: Outer iterations done.

        Returns:
            Whether the goal is reached, and what was measured.
        """
        if step % self.every:
            return False, {}
        seen = {"goal/harm": self.harm}
        if self.data.never_seen is None:
            arrived = self.way >= self.length
        else:
            strangers = self._set_levels()
            forgotten = self._score("forget", evenly(range(len(self.start)), LOOKED_AT)).numpy()
            auc = _auc(forgotten, strangers)
            error = math.sqrt((len(forgotten) + len(strangers) + 1) / 12 / len(forgotten) / len(strangers))
            arrived = abs(auc - 0.5) <= 1.96 * error
            seen |= {
                "goal/forget": float(forgotten.mean()),
                "goal/never_seen": float(strangers.mean()),
                "goal/auc": auc,
            }
        reached = arrived and self.harm <= KEPT
        return reached, seen

    def state_dict(self) -> dict[str, Any]:
        """What a resumed run cannot measure again."""
        return {name: getattr(self, name) for name in STATE}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore what ``state_dict`` gave."""
        for name in STATE:
            setattr(self, name, state[name])

    def _set_levels(self) -> np.ndarray:
        """Give forget rows the quantiles of never-seen rows' losses; returns these, without a bound."""
        if self.data.never_seen is None:
            self.token_level, plain = 2 * self.guess, np.array([self.guess / 2])
            bounded = plain
        else:
            found = list(self._tokens(self.data.never_seen, self._shown))
            tokens = torch.cat([nll[targets != IGNORED] for nll, targets in found])
            # An image is one token: nothing in it can outweigh the rest, and its loss may be too small to be bent.
            level = 2 * self.guess if self.data.modality == "images" else float(tokens.quantile(TOKENS))
            self.token_level = max(level, LOWEST)
            bounded = torch.cat([sample_mean(ceiling(nll, self.token_level), t) for nll, t in found]).numpy()
            plain = torch.cat([sample_mean(*x) for x in found]).numpy()
        places = self._lot if self.expected is None else rankdata(bounded[self._alike], "ordinal") - 1
        self.levels = torch.from_numpy(np.quantile(bounded, (places + 0.5) / len(places)))
        return plain

    @property
    def _shown(self) -> Sequence[int]:
        return evenly(range(len(self.data.splits[self.data.never_seen])), LOOKED_AT)

    @cached_property
    def _alike(self) -> np.ndarray:
        """(N,) For each forget row, the place among the shown never-seen rows of one that is as easy to guess."""
        assert self.expected is not None
        rows = range(len(self.data.splits["forget"]))
        ranks = rankdata(self.expected("forget", rows).numpy(), "ordinal") - 0.5
        strangers = self.expected(self.data.never_seen, self._shown).numpy().argsort()
        alike: np.ndarray = strangers[(ranks * len(strangers) / len(rows)).astype(int)]
        return alike

    def _score(self, stream: str, rows: Sequence[int], level: float | None = None) -> Tensor:
        """Losses of rows of a split, float64, in their order; their tokens' bent at a level."""
        return torch.cat([sample_mean(ceiling(nll, level), targets) for nll, targets in self._tokens(stream, rows)])

    def _tokens(self, stream: str, rows: Sequence[int]) -> Iterator[tuple[Tensor, Tensor]]:
        """Token losses (b, S), float64, and targets of rows of a split, batch by batch."""
        for part in torch.tensor(rows).split(ROWS):
            with torch.no_grad():
                nll, targets = self.tokens(self.data.collate(stream, part.tolist(), 0))
            yield nll.double().cpu(), targets.cpu()


def _auc(members: np.ndarray, strangers: np.ndarray) -> float:
    """``P(stranger > member) + P(equal) / 2``."""
    difference = strangers[:, None] - members
    return float((difference > 0).mean() + (difference == 0).mean() / 2)
