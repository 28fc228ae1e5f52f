r"""How far to forget: each token to the loss that held-out tokens of its kind have, along a path of equal steps.

    z(l)  = ln(e^l - 1)                    the log-odds against an answer of loss l = -ln p
    l     : mean over a row's pushed tokens of their losses; the goal is the mean of their levels
    path  : after a share t of the way,  z_path = z_goal + (1 - t) (z_start - z_goal)
    far   : sqrt((z(l) - z_goal)^2 + w^2) - w of a row: 0 at the goal alone
    keep  : each retain row's loss returns to what it was before the first step

A token is pushed where its level is a loss above ln 2 (p < 1/2), and only while it is below that level. The row's other
tokens do not count. A token that held-out rows get right, such as a name in the question, is not pushed. To break it
would lift a row's mean loss without forgetting anything, and would mark the row. Such a token is called back where it
becomes wrong.

As a ceiling the goal is one-sided: a row below its place on the path is pushed, with a rounded corner of width w,

    far   : w softplus((z_path - z(l)) / w)

and a row beyond is left alone. To call it back would be to teach its answer once more.

Which held-out tokens a token is like: those of its kind (``data.guessable``) that are as easy to guess for someone who
knows the retain rows alone (``modules.guess``), where there is such a guess. Among these the token that the model was
surest of before the first step gets the lowest loss. An image has one "token", which is always pushed.

Nothing here is learned from a retrained model. Forgetting further than held-out rows would be a leak of its own.
"""

import math
from collections.abc import Callable, Sequence

import numpy as np
import torch
from lightning.pytorch.utilities import rank_zero_warn
from torch import Tensor

from ofmu_pl.data.base import PairedDataModule
from ofmu_pl.data.guessable import OWN, facts_loss
from ofmu_pl.data.sampler import batch_indices, evenly
from ofmu_pl.losses import IGNORED, log_odds
from ofmu_pl.metrics.bootstrap import LEVEL, least_p
from ofmu_pl.modules.alike import WIDTH, Group, alike, distances, grouped, levels_of
from ofmu_pl.networks.base import Batch

PATH = 100
"""Iterations that the path takes if it never waits."""
APPROACH = 0.6
"""Share of a short run's iterations after which the path is at its goal; the rest repairs what is to be kept."""
CEILING_APPROACH = 0.15
"""The same of a ceiling, on any run: rows that come late do not arrive where batches are small."""
HARM = 0.3
"""Mean rise of retain losses, in nats, above which the path waits until they are repaired."""
EVERY = 10
"""Outer iterations between two checks."""
KEPT = 0.03
"""Mean rise of retain losses, in nats, at which they count as kept: 97 % of the probability."""
LOOKED_AT = 64
"""Rows of each side that a check scores."""
ROWS = 16
"""Rows scored at a time."""

STATE = ("start", "ends", "old", "levels", "way", "harm")
Rows = list[np.ndarray]
"""One array a row, with a number for each of its tokens."""
Told = Callable[[str, Sequence[int]], Rows]
"""Maps a split's name and numbers of its rows to a number for each of their tokens."""


class Goal:
    """Levels of forget tokens and old losses of retain rows, and whether both are reached.

    Args:
        data: A ``PairedDataModule`` after ``setup``, whose ``never_seen`` names the split of held-out rows, if any.
        tokens: Maps a batch to its tokens' losses, (b, S), and targets, at the network's weights of now.
        iterations: Length of the run.
        guess: Loss of a uniform guess, in nats. Without held-out rows tokens end at half of it, images of forgotten
            classes at all of it.
        one_sided: Whether the goal is a ceiling that rises along the path, from beyond which no token is called back.
        kinds: Tells the kinds of tokens (``data.guessable``); ``None``: there is one kind, and every token is pushed.
        expected: Tells the losses of someone who guesses; ``None``: tokens of one kind are all alike.

    Attributes:
        start: (K,) loss of each token of the forget rows before the first step, row by row.
        ends: (N + 1,) number of the first token of each forget row, and of all.
        levels: (K,) loss in nats that each of them is to end at; NaN where it is not pushed.
        old: (M,) loss of each retain row before the first step; NaN for rows that the run does not draw.
        way: Iterations that the path has gone; it waits while too much is harmed.
        harm: Running mean of the rise of retain losses, in nats.
    """

    def __init__(
        self,
        data: PairedDataModule,
        tokens: Callable[[Batch], tuple[Tensor, Tensor]],
        iterations: int,
        guess: float,
        one_sided: bool = False,
        kinds: Told | None = None,
        expected: Told | None = None,
    ) -> None:
        self.data, self.tokens, self.guess, self.one_sided = data, tokens, guess, one_sided
        longest = CEILING_APPROACH * iterations if one_sided else min(PATH, APPROACH * iterations)
        self.length = PATH if iterations < 0 else max(1.0, longest)
        self.levels = self.start = self.old = torch.empty(0)
        self.ends = torch.zeros(1, dtype=torch.long)
        self.way, self.harm = 0, 0.0
        self.kinds, self.expected = kinds, expected
        self._groups: list[Group] = []

    @property
    def arrived(self) -> bool:
        """Whether the path is at its goal."""
        return self.way >= self.length

    def begin(self, outer_batches: range) -> None:
        """Score the model that is to forget, once.

        ``outer_batches`` are the numbers of the retain batches that the run draws; empty: all retain rows are scored.
        """
        m = len(self.data.splits["retain"])
        if self.data.never_seen is None:
            rank_zero_warn(
                f"{self.data.why_no_never_seen}, so forget rows are to end at a loss of {self._blind:.2f} nats (a "
                f"model that knows nothing has ln V, {self.guess:.2f})."
            )
        elif least_p(min(self._count, LOOKED_AT), len(self._shown)) > LEVEL:
            rank_zero_warn(
                f"{self._count} forget row(s) beside {len(self._shown)} held-out row(s) are too few for a test: no AUC "
                "could tell them apart. The run goes by the loss that its forget rows are to have."
            )
        start = self._score("forget", range(self._count))
        self.start = torch.from_numpy(np.concatenate(start))
        self.ends = torch.tensor([0, *(len(row) for row in start)]).cumsum(0)
        self._set_levels()
        drawn: set[int] = set()
        for number in outer_batches:
            drawn.update(batch_indices(m, self.data.batch_size, self.data.seed, "retain", number).tolist())
        rows = sorted(drawn) or list(range(m))
        self.old = torch.full((m,), math.nan, dtype=torch.float64)
        self.old[rows] = means(self._score("retain", rows))

    def rows(self, nll: Tensor, targets: Tensor, ids: Tensor) -> Tensor:
        """Minus the distances, (b,), of forget rows from their levels, in log-odds; 0 at the goal, or beyond a ceiling.

        ``nll``, (b, S), are the losses of their tokens ``targets``, (b, S), ``ids``, (b,), their numbers.
        """
        start, level = self._of(ids, targets)
        left = self._left_after(self.way)
        return -distances(nll, start.to(nll), level.to(nll), targets, left, one_sided=self.one_sided)

    def _of(self, ids: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        """First losses and levels of rows' tokens, (b, S) each, at the places that have a target."""
        mask = (targets != IGNORED).cpu()
        places = torch.cat([torch.arange(int(self.ends[i]), int(self.ends[i + 1])) for i in ids.tolist()])
        found = []
        for values in (self.start, self.levels):
            padded = torch.zeros(mask.shape, dtype=values.dtype)
            padded[mask] = values[places]
            found.append(padded)
        return found[0], found[1]

    @property
    def kept(self) -> bool:
        """Whether retain rows are as good as they were before the first step."""
        return self.harm <= KEPT

    def skip_path(self) -> None:
        """Stand at the path's end with nothing harmed, for a rehearsal of what comes late."""
        self.way, self.harm = math.ceil(self.length), 0.0

    def _left_after(self, way: float) -> float:
        """The share of the path that is left after so many iterations."""
        return 1 - min(1.0, way / self.length)

    def gap(self, batch: Batch, steps: int, t: int, reached: float) -> float:
        """Distance, in log-odds, by which the path is ahead of a batch's rows at ascent ``t``, from 0, of ``steps``.

        ``reached`` is the batch's mean of what the method ``rows`` gives at the present weights.
        """
        first, left = [], self._left_after(self.way + (t + 1) / steps)
        for i in batch["ids"].tolist():
            start, level = (x[None, self.ends[i] : self.ends[i + 1]] for x in (self.start, self.levels))
            targets, now = torch.zeros_like(start, dtype=torch.long), self._left_after(self.way)
            first.append(float(distances(start, start, level, targets, now, one_sided=self.one_sided)))
        return -left * float(np.mean(first)) - reached

    def excess(self, ids: Tensor, loss: float) -> float:
        """Rise of a retain batch's mean loss since before the first step, in nats; the path goes on if it is small.

        A row without an old loss, as in a run resumed for longer than planned, counts as the mean of the old losses.
        """
        old = self.old[ids.cpu()]
        rise = loss - float(torch.where(old.isnan(), self.old.nanmean(), old).mean())
        self.harm += 0.2 * (rise - self.harm)
        self.way += rise < HARM
        return rise

    def measured_harm(self) -> float:
        """Mean rise of the losses of up to 64 retain rows since before the first step, in nats, measured now."""
        rows = evenly((~self.old.isnan()).nonzero().flatten().tolist(), LOOKED_AT)
        return self._rise(rows, self.old[rows])

    def _rise(self, rows: Sequence[int], old: Tensor) -> float:
        """Mean rise of the losses of retain rows, which were ``old``."""
        return float((means(self._score("retain", rows)) - old).mean())

    def check(self, step: int) -> tuple[bool, dict[str, float]]:
        """Compare forget with held-out rows if a check is due, and set the levels by the latter's losses of now.

        Returns:
            Whether the goal is reached after so many outer iterations, and what was measured.
        """
        if step % EVERY:
            return False, {}
        arrived = self.arrived
        seen: dict[str, float] = {}
        if self.data.never_seen is not None:
            arrived, seen = self.compare(self._set_levels())
        elif arrived:
            rows = evenly(range(self._count), LOOKED_AT)
            left = self._left(self._score("forget", rows), rows)
            arrived, seen = left <= WIDTH, {"goal/left": left}
        return arrived and self.kept, {"goal/harm": self.harm, **seen}

    def compare(self, held: Rows) -> tuple[bool, dict[str, float]]:
        """Whether forget rows are like held-out rows, whose losses of now are ``held``, and what was measured."""
        unseen, rows = self.data.never_seen, evenly(range(self._count), LOOKED_AT)
        assert unseen is not None, "there are no held-out rows"
        forgotten = self._score("forget", rows)
        arrived, told = alike([row.mean() for row in forgotten], [row.mean() for row in held])
        seen = {f"goal/{name}": value for name, value in told.items()}
        if least_p(len(rows), len(held)) > LEVEL:
            left = self._left(forgotten, rows)
            arrived = abs(left) <= WIDTH
            seen["goal/left"] = left
        elif self.kinds is not None:  # tokens that are not pushed may stay better known than in held-out rows
            ours = self._facts(forgotten, "forget", rows)
            theirs = self._facts(held, unseen, self._shown)
            arrived, told = alike(ours, theirs)
            seen |= {f"goal/facts_{name}": value for name, value in told.items()}
        return arrived, seen

    def _left(self, losses: Rows, rows: Sequence[int]) -> float:
        """What forget rows still have to rise to their levels, in log-odds, on average."""
        left = []
        for row, i in zip(losses, rows, strict=True):
            levels = self.levels[self.ends[i] : self.ends[i + 1]]
            pushed = ~levels.isnan()
            if pushed.any():
                ends = torch.stack([levels[pushed].mean(), torch.from_numpy(row)[pushed].mean()])
                left.append(float(-log_odds(ends).diff()))
        return float(np.mean(left)) if left else 0.0

    def _facts(self, losses: Rows, stream: str, rows: Sequence[int]) -> list[float]:
        """Mean loss of each row's facts."""
        assert self.kinds is not None, "tokens of images have no kinds"
        kinds = self.kinds(stream, rows)
        return [facts_loss(row, kind == OWN) for row, kind in zip(losses, kinds, strict=True)]

    def state_dict(self) -> dict[str, Tensor | float]:
        """What a resumed run cannot measure again."""
        return {name: getattr(self, name) for name in STATE}

    def load_state_dict(self, state: dict[str, Tensor | float]) -> None:
        """Restore what ``state_dict`` gave."""
        for name in STATE:
            setattr(self, name, state[name])

    # Levels --------------------------------------------------------------------------------------------------------

    def _set_levels(self) -> Rows:
        """Give forget tokens their levels; returns the losses of held-out rows, from which they come."""
        if self.data.never_seen is None:
            kinds = self._kinds("forget", range(self._count), len(self.start))
            self.levels = torch.where(torch.from_numpy(kinds == OWN), self._blind, math.nan).double()
            return []
        held = self._score(self.data.never_seen, self._shown)
        losses = np.concatenate(held)
        if not self._groups:
            every, unseen = range(self._count), self.data.never_seen
            both = self._kinds("forget", every, len(self.start)), self._kinds(unseen, self._shown, len(losses))
            told = self.expected
            ease = told and (np.concatenate(told("forget", every)), np.concatenate(told(unseen, self._shown)))
            self._groups = grouped(self.start.numpy(), *both, ease)
        by_kind = self.kinds is not None
        levels = levels_of(self._groups, losses, len(self.start), by_kind=by_kind, capped=self.one_sided)
        self.levels = torch.from_numpy(levels)
        return held

    def _kinds(self, stream: str, rows: Sequence[int], count: int) -> np.ndarray:
        """Kinds of the tokens of rows, (count,), one row after another."""
        return np.full(count, OWN) if self.kinds is None else np.concatenate(self.kinds(stream, rows))

    @property
    def _blind(self) -> float:
        """The level where no held-out row says how far to go."""
        return self.guess if self.data.modality == "images" else self.guess / 2

    @property
    def _count(self) -> int:
        return len(self.data.splits["forget"])

    @property
    def _shown(self) -> Sequence[int]:
        return evenly(range(len(self.data.splits[str(self.data.never_seen)])), LOOKED_AT)

    def _score(self, stream: str, rows: Sequence[int]) -> Rows:
        """Token losses of rows of a split, float64, in their order."""
        found = []
        for part in torch.tensor(rows).split(ROWS):
            with torch.no_grad():
                nll, targets = self.tokens(self.data.collate(stream, part.tolist(), 0))
            found += [x[t != IGNORED].double().cpu().numpy() for x, t in zip(nll, targets, strict=True)]
        return found


def means(rows: Rows) -> Tensor:
    """Mean losses of rows, (R,), float64."""
    return torch.tensor([row.mean() for row in rows], dtype=torch.float64)
