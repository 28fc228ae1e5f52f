"""Held-out relearning, "retraining on T" (Deeb & Roger 2024, arXiv 2410.08827).

The forgotten facts are independent of each other; some are shown, and others are asked for. What comes back of the
others was not taught, so the model had only hidden it. The paper finds 88 per cent of the accuracy again.
"""

from ofmu_pl.attacks.base import Finding
from ofmu_pl.attacks.choices import Choices, choices_of, chosen
from ofmu_pl.attacks.subject import Subject
from ofmu_pl.attacks.tuning import TrainingAttack, sides, stream
from ofmu_pl.data.sampler import evenly
from ofmu_pl.data.text_base import TextDataModule
from ofmu_pl.metrics.result import Metric
from ofmu_pl.support.errors import UserError

FORGET = "forget"
ACCURACY = Metric("rtt_accuracy", higher_is_better=False, group="attacks")


class RTT(TrainingAttack):
    """Train on the rows of half of the forgotten authors, and let the model choose answers of the others.

    Found is the share of rows whose right answer is likelier than all perturbed ones (``attacks.choices``: all of one
    form), at the rate and step that are best for the attacker, among them step 0. Where the data do not know who rows
    are about, rows are shared out.

    Args:
        steps: Number of steps.
        every: Number of steps between two looks.
        rates: Learning rates; of each model the one that is best for the attacker counts.
        rows: Most forgotten rows that are asked for; ``null``: all.

    Example:
        >>> RTT(steps=40).settings["steps"]
        40
    """

    metrics = (ACCURACY,)
    y_label = "accuracy on facts that were not shown"
    tests = "relearn_part"

    def run(self, subject: Subject, seed: int) -> Finding:
        """Train at every rate; the curve is that of the best."""
        shown, asked, choices = self._sides(subject.data, seed)
        draw = stream(subject, FORGET, shown, seed)
        return self.sweep(subject, draw, lambda model: chosen(subject, model, choices), asked)

    def _sides(self, data: TextDataModule, seed: int) -> tuple[list[int], list[int], Choices]:
        """Places of the rows that are shown, those of the rows that are asked for, and the answers to choose from."""
        forgotten, asked = data.splits[FORGET], data.evaluation_sets.get(FORGET, [])
        if [row.get("question") for row in forgotten] != [row.get("question") for row in asked]:
            raise UserError(
                f"The forget rows that '{data.name}' is measured on are not the questions of its forget split, so the "
                f"attack '{self.name}' cannot tell shown facts from others: take the attack out of the list."
            )
        shown, others = sides(len(forgotten), 0.5, seed, data.rows_per_author)
        places = list(evenly(others, self.rows or len(others)))
        return shown, places, choices_of(data, [asked[i] for i in places], self.name)
