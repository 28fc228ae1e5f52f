"""What attacks would take: the work that is left, and about how long it is."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from rich import box
from rich.table import Table

from ofmu_pl.attacks.cost import AttackCost
from ofmu_pl.support.terminal import console, print_whole


@dataclass
class Work:
    """What one attack takes.

    Attributes:
        findings: Number of findings: models times seeds.
        known: Number of them that were found before.
        cost: What the others take.
        seconds: Time of that.
    """

    findings: int = 0
    known: int = 0
    cost: AttackCost = field(default_factory=AttackCost)
    seconds: float = 0.0

    def add(self, other: Work) -> None:
        """Count more findings.

        Args:
            other: The work of these.
        """
        self.findings += other.findings
        self.known += other.known
        self.cost += other.cost
        self.seconds += other.seconds

    @property
    def cells(self) -> list[str]:
        """Its row of the table."""
        numbers = (self.findings, self.known, self.cost.gradients, self.cost.passes, self.cost.tokens)
        return [*(f"{n:,}" for n in numbers), f"{self.seconds:.0f}"]


def print_plan(work: dict[str, Work], left_out: Iterable[str]) -> None:
    """Print what is left to do.

    Args:
        work: Work by attack.
        left_out: Why an attack cannot be made, as sentences.
    """
    table = Table(title="What is left to attack", box=box.SIMPLE_HEAD, title_justify="left", title_style="bold")
    for name in ("attack", "findings", "found before", "gradients", "passes", "tokens", "seconds"):
        table.add_column(name, justify="left" if name == "attack" else "right")
    together = Work()
    for name, w in work.items():
        table.add_row(name, *w.cells)
        together.add(w)
    table.add_section()
    table.add_row("together", *together.cells, style="bold")
    table.caption_justify = "left"
    table.caption = "\n".join(
        [
            "Findings: models times seeds; a model that runs share counts once. Passes: batches that are read without "
            "a gradient. Tokens: what answers may have at most. Seconds: from each kind of work timed on the unlearned "
            "model; loading models, comparing texts and fitting probes come on top.",
            *left_out,
        ]
    )
    print_whole(table, console())
