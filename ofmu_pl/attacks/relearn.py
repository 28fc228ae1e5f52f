"""Relearning: does a short training on something else bring the forgotten rows back?

Hu et al. 2024 (arXiv 2406.13356) train on a part of what was forgotten, or on public text that does not hold the
answers; Yoon et al. 2026 (arXiv 2602.03379) on rows of the same form that tell other facts. Training can teach, too
(arXiv 2506.00688), so read the figure beside the retrained model's alone.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ofmu_pl.attacks.asking import question_rows
from ofmu_pl.attacks.base import Finding, Findings, mean_curve
from ofmu_pl.attacks.subject import Subject
from ofmu_pl.attacks.tuning import Draw, TrainingAttack, drawn, sides, stream
from ofmu_pl.data.encoded import Encoded, piece
from ofmu_pl.data.own_files import read_source
from ofmu_pl.data.pieces import pieces, shared_run
from ofmu_pl.data.sampler import evenly
from ofmu_pl.data.text_base import TextDataModule
from ofmu_pl.metrics.result import Metric
from ofmu_pl.networks.base import Batch
from ofmu_pl.support.errors import UserError
from ofmu_pl.support.records.models import RETRAINED, TARGET, UNLEARNED
from ofmu_pl.support.shipped import expanded

FORGET, RETAIN, QUESTIONS, FORM = SOURCES = ("forget", "retain", "questions", "form")
LENGTH = 128  # most tokens of a piece of text


class Relearn(TrainingAttack):
    """Train on other rows with AdamW, and ask for the forgotten ones that it was not shown.

    Found is the peak: the mean probability ``exp(-loss)`` of the forgotten rows' answers at the rate and step that are
    best for the attacker, among them step 0. The curve is that of the peak's rate. Beside it stand the mean gap
    between the curves of the unlearned and the retrained model, and the number of steps to half of the target's
    probability (no figure where it is not reached).

    Args:
        source: What is trained on: ``forget``, a part of the forgotten rows, which are then not asked for; ``retain``;
            ``questions``, the forgotten rows' questions without answers; ``form``, the data's held-out rows, which
            have the forgotten rows' form and tell other facts; or a file of texts (``.txt``, ``.jsonl`` with ``text``).
        share: Share of the forgotten rows that is shown, where the source is ``forget``.
        steps: Number of steps.
        every: Number of steps between two looks.
        rates: Learning rates; of each model the one that is best for the attacker counts.
        rows: Most forgotten rows that are asked for; ``null``: all.
        name: Name in files and tables; ``null``: ``relearn_`` and the source's.

    Example:
        >>> Relearn("retain", steps=10).name
        'relearn_retain'
    """

    modalities = ("text", "images")
    y_label = "probability of forgotten rows"

    def __init__(
        self,
        source: str = FORGET,
        share: float = 0.25,
        steps: int = 60,
        every: int = 10,
        rates: Sequence[float] = (1e-5, 1e-4, 1e-3),
        rows: int | None = 100,
        name: str | None = None,
    ) -> None:
        super().__init__(steps, every, rates, rows)
        if not 0 < share < 1:
            raise UserError(f"attacks.share is {share}: give the part of the forgotten rows that is shown, in (0, 1).")
        self.source, self.share = source, share
        self.tests = "relearn_part" if source == FORGET else "relearn_other"
        self.reads = [] if source in SOURCES else [source]
        self.name = name or f"relearn_{Path(source).stem}"
        self.metrics = (
            Metric(f"{self.name}_prob", higher_is_better=False, group="attacks"),
            Metric(f"{self.name}_area", higher_is_better=False, group="attacks"),
            Metric(f"{self.name}_steps_to_half", higher_is_better=True, group="attacks", unit="steps"),
        )

    def run(self, subject: Subject, seed: int) -> Finding:
        """Train at every rate; the curve is that of the best."""
        shown, asked = self._sides(subject.data.splits[FORGET], seed)
        draw = self._stream(subject, shown, seed)
        return self.sweep(subject, draw, lambda model: subject.probabilities(model, FORGET, asked), asked)

    def compare(self, found: Findings) -> dict[str, float]:
        """The gap between the curves, and the steps to half of the target's probability."""
        figures = {}
        curve = mean_curve(found[UNLEARNED], len(found[UNLEARNED]))
        if RETRAINED in found:
            control = mean_curve(found[RETRAINED], len(found[RETRAINED]))
            shared = [x for x in curve if x in control]
            figures[self.metrics[1].name] = float(np.mean([curve[x] - control[x] for x in shared]))
        if TARGET in found:
            half = mean_curve(found[TARGET], len(found[TARGET]))[0] / 2
            reached = [x for x, y in curve.items() if y >= half]
            figures |= {self.metrics[2].name: float(min(reached))} if reached else {}
        return figures

    def _sides(self, rows: Sequence[Any], seed: int) -> tuple[list[int], list[int]]:
        """Places of the forgotten rows that are shown, and of those that are asked for: no passage is in both."""
        n = len(rows)
        shown, asked = sides(n, self.share, seed) if self.source == FORGET else ([], list(range(n)))
        if shown and isinstance(rows[0], dict) and "tokens" in rows[0]:  # pieces of documents; images are numbers
            tokens = [row["tokens"] for row in rows]
            seen, sought = [tokens[i] for i in shown], [tokens[i] for i in asked]
            overlap = {asked[j] for _, j in shared_run(seen, sought)}
            asked = [i for i in asked if i not in overlap]
            if not asked:
                raise UserError("Each forgotten piece shares a passage with one that is shown: lower attacks.share.")
        return shown, list(asked if self.rows is None else evenly(asked, self.rows))

    def _stream(self, subject: Subject, shown: list[int], seed: int) -> Draw:
        """The k-th batch of what is trained on."""
        data = subject.data
        if self.source in (FORGET, RETAIN):
            places = shown if self.source == FORGET else range(len(data.splits[RETAIN]))
            return stream(subject, self.source, places, seed)
        if self.source == FORM:
            if data.never_seen is None:
                raise UserError(f"{data.why_no_never_seen}, so attacks.source=form has none to train on: leave it out.")
            if data.splits[data.never_seen] is data.splits[FORGET]:
                raise UserError("It trains on held-out rows, so it cannot ask for them, too, as a control.")
            return stream(subject, data.never_seen, range(len(data.splits[data.never_seen])), seed)
        if data.modality != "text":
            raise UserError("attacks.source asks for texts, and images have none: give forget, retain or form.")
        if self.source == QUESTIONS:
            asked = [{**row, "before": [], "between": []} for row in question_rows(subject, FORGET, None)]
            texts = [piece(data.encoder.row_prompt(row)) for row in asked]
        else:
            texts = texts_of(data, expanded(self.source))

        def draw(number: int) -> Batch:
            index = drawn(range(len(texts)), seed, number)
            return subject.collated([texts[i] for i in index], index)

        return draw


def texts_of(data: TextDataModule, source: str) -> list[Encoded]:
    """Pieces of the texts of a ``.txt`` file, a folder of them, or rows with ``text``; none are a ``UserError``."""
    rows = read_source(source, "attacks.source").rows
    texts = [row["text"] for row in rows if isinstance(row.get("text"), str) and row["text"].strip()]
    if not texts:
        raise UserError(f"'{source}' has no texts: give attacks.source a .txt file, or rows with `text`.")
    found = []
    for parts in pieces(data.tokenizer, texts, LENGTH):
        found += [piece(part["tokens"]) for part in parts if len(part["tokens"]) > 1]
    if not found:
        raise UserError(f"'{source}' has no text of two tokens: give attacks.source longer texts.")
    return found
