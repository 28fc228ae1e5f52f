"""What a dry run has tried, in order, and where it ended."""

import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rich.console import Console
from rich.table import Table

from ofmu_pl.support.errors import UserError

STEPS = ("data", "ranks", "model", "method", "iteration", "checkpoint", "evaluation", "export")
"""What is tried, in this order."""
BLIND = (
    "Not seen: numbers (divergence, quality), memory (plan says), GPU kernels and their types (bitsandbytes' 4 bits, "
    "flash_attention_2), links between ranks, loggers and further callbacks, metrics, files that are written, the "
    "retrained model, weights and what else is not on this machine."
)
"""What no dry run can see."""


class Course:
    """The steps of a dry run, up to the first fault.

    Attributes:
        found: What was found in each step that was begun, by its name.
        fault: The sentence that says what is wrong in the last of them; empty: nothing.

    Example:
        >>> course = Course()
        >>> with course.watched():
        ...     course.begin("data", "Digits")
        ...     raise UserError("The forget split is empty: name other classes.")
        >>> course.fault
        'The forget split is empty: name other classes.'
    """

    def __init__(self) -> None:
        self.found: dict[str, str] = {}
        self.fault = ""

    def begin(self, step: str, told: str = "") -> None:
        """Note that a step begins, so that the one before it went well."""
        self.found[step] = told

    def tell(self, told: str) -> None:
        """Say what the present step has found."""
        self.found[list(self.found)[-1]] = told

    @contextmanager
    def watched(self) -> Iterator[None]:
        """A context whose error, of whatever kind, ends the present step."""
        try:
            yield
        except UserError as error:
            self.fault = str(error)
        except Exception as error:  # whatever torch, transformers or Lightning raise would end the run, too
            frame = traceback.extract_tb(error.__traceback__)[-1]
            said = " ".join((str(error).strip() or "no reason given").splitlines()[0].split()).rstrip(".")
            place = f"{'/'.join(Path(frame.filename).parts[-2:])}:{frame.lineno}"
            self.fault = f"{type(error).__name__} in {place} ({said:.300}): mend what this step is made of."

    def show(self, console: Console) -> None:
        """Print the steps as a table, those that were not reached too, and what a dry run is blind to."""
        table = Table(title="Dry run: one iteration without weights", title_justify="left")
        for column in ("tried", "", "what"):
            table.add_column(column)
        for step in STEPS:
            if step not in self.found:
                table.add_row(step, "not tried", "")
            elif self.fault and step == list(self.found)[-1]:
                table.add_row(step, "FAULT", self.fault)
            else:
                table.add_row(step, "ok", self.found[step])
        console.print(table, markup=False)
        console.print(BLIND, markup=False)
