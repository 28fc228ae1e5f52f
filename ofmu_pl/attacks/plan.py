"""What attacks would take: gradients that are left, and seconds from one that is timed."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from rich import box
from rich.console import Console
from rich.table import Table

from ofmu_pl.attacks.subject import Subject

TIMED = 3
"""Number of gradients that are timed after a first one."""


@dataclass
class Work:
    """What one attack takes.

    Attributes:
        findings: Number of findings: models times seeds.
        known: Number of them that were found before.
        gradients: Number of gradients of a batch's loss for the others.
        seconds: Time of these gradients.
    """

    findings: int = 0
    known: int = 0
    gradients: int = 0
    seconds: float = 0.0

    def add(self, known: bool, gradients: int, seconds: float) -> None:
        """Count one more finding.

        Args:
            known: Whether it was found before.
            gradients: Number of gradients that are left for it.
            seconds: Time of one of them.
        """
        self.findings += 1
        self.known += known
        self.gradients += gradients
        self.seconds += gradients * seconds


def seconds_of_a_gradient(subject: Subject) -> tuple[float, int]:
    """Time a gradient of a batch of forgotten rows on a model: the median of a few.

    Args:
        subject: The model and its data.

    Returns:
        Seconds, and the number of rows of the batch.
    """
    model = subject.build()
    rows = min(subject.data.batch_size, len(subject.data.splits["forget"]))
    batch = subject.batch("forget", range(rows))
    taken = []
    for _ in range(1 + TIMED):
        started = time.perf_counter()
        subject.recipe.sample_losses(model, batch).mean().backward()
        if subject.device.startswith("cuda"):
            torch.cuda.synchronize()
        taken.append(time.perf_counter() - started)
        model.zero_grad()
    return sorted(taken[1:])[TIMED // 2], rows


def print_plan(work: dict[str, Work], rows: Sequence[int]) -> None:
    """Print what is left to do.

    Args:
        work: Work by attack.
        rows: Numbers of rows of the batches whose gradients were timed.
    """
    table = Table(title="What is left to attack", box=box.SIMPLE_HEAD, title_justify="left", title_style="bold")
    for name in ("attack", "findings", "found before", "gradients", "seconds"):
        table.add_column(name, justify="left" if name == "attack" else "right")
    for name, w in work.items():
        table.add_row(name, str(w.findings), str(w.known), f"{w.gradients:,}", f"{w.seconds:.0f}")
    table.add_section()
    total = [sum(getattr(w, name) for w in work.values()) for name in ("findings", "known", "gradients", "seconds")]
    table.add_row("together", *map(str, total[:2]), f"{total[2]:,}", f"{total[3]:.0f}", style="bold")
    table.caption_justify = "left"
    table.caption = (
        "Findings: models times seeds; a model that runs share counts once. Seconds are those of gradients of "
        f"{', '.join(map(str, sorted(set(rows))))} rows; loading models and passes without gradients come on top."
    )
    console = Console(file=sys.stdout)
    console = console if console.is_terminal else Console(file=sys.stdout, width=140)
    console.print(table)
