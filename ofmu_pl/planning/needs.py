"""What a rehearsal finds, as tables: how far it came, and what an iteration takes of memory and work."""

import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from rich.console import Console
from rich.table import Table
from torch import nn

from ofmu_pl.networks.adapters import is_adapted
from ofmu_pl.networks.base import Network
from ofmu_pl.networks.rounding import BLOCK, matrices
from ofmu_pl.planning.ledger import KINDS
from ofmu_pl.support.errors import UserError

STEPS = ("data", "ranks", "model", "method", "iteration", "checkpoint", "evaluation", "export")
"""What is tried, in this order."""
BLIND = (
    "Not seen: numbers (divergence, quality), memory (plan says), GPU kernels and their types (bitsandbytes' 4 bits, "
    "flash_attention_2), links between ranks, loggers and further callbacks, metrics, files that are written, the "
    "retrained model, weights and what else is not on this machine."
)
"""What no dry run can see."""

GPUS = (24, 40, 80, 141)  # memory of common GPUs in GB, 10^9 bytes: RTX 4090 and A10; A100; A100 and H100; H200
SLACK = 1.1  # what an allocator, CUDA's context and workspaces inside kernels may take on top


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


@dataclass
class Needs:
    """The memory and work of an iteration.

    Attributes:
        title: Method, engine and processes.
        assumption: Sizes that were taken for rows not yet read.
        trained: Parameters that are trained.
        parameters: All parameters.
        memory: Bytes of one process at the worst moment, by kind (``ledger.KINDS``).
        host: Bytes of the host's memory that one process takes while the model is loaded or exported.
        gradients: Mean gradient evaluations of an outer iteration; ``None`` where they depend on the size of the data.
    """

    title: str
    assumption: str
    trained: int = 0
    parameters: int = 0
    memory: dict[str, float] = field(default_factory=lambda: dict.fromkeys(KINDS, 0.0))
    host: float = 0.0
    gradients: float | None = None

    @property
    def total(self) -> float:
        """Bytes of one process at the worst moment."""
        return sum(self.memory.values())

    def fits(self, gigabytes: float) -> str:
        """``yes``, ``tight`` (without the slack) or ``no``; what evaluations score is left out."""
        need = self.total / 1e9
        return "yes" if need * SLACK <= gigabytes else "tight" if need <= gigabytes else "no"

    def show(self, console: Console) -> None:
        """Print them as a table."""
        table = Table(title=self.title, title_justify="left", show_header=False, min_width=60)
        table.add_column()
        table.add_column(justify="right")
        table.add_row("parameters, trained / all", f"{count(self.trained)} / {count(self.parameters)}")
        work = "by the data's size" if self.gradients is None else f"{self.gradients:g}"
        table.add_row("gradients an iteration", work, end_section=True)
        for kind, label in KINDS.items():
            if self.memory[kind] >= 1:
                table.add_row(label, _bytes(self.memory[kind]))
        table.add_row("[bold]peak of each GPU[/bold]", f"[bold]{_bytes(self.total)}[/bold]")
        table.add_row("host memory of each process", _bytes(self.host))
        table.add_section()
        table.add_row(f"fits {' / '.join(map(str, GPUS))} GB", " / ".join(map(self.fits, GPUS)))
        console.print(table)
        console.print(self.assumption)
        console.print(
            f"Counted without weights, not measured on a GPU; 'yes' leaves {SLACK - 1:.0%} for allocator, CUDA and "
            "workspaces. What evaluations generate is not in it."
        )


def count(n: int) -> str:
    """A number of parameters, in millions or billions."""
    return f"{n / 1e9:.2f} B" if n >= 1e9 else f"{n / 1e6:.2f} M"


def _bytes(n: float) -> str:
    return f"{n / 1e9:.1f} GB" if n >= 1e9 else f"{n / 1e6:.1f} MB"


def quantized(recipe: Network, network: nn.Module) -> float:
    """Bytes that 4-bit weights save: a weight takes 4 bits and a 64th of a float32 scale, instead of a float32."""
    if not getattr(recipe, "load_in_4bit", False):
        return 0.0
    return (4 - 0.5 - 4 / BLOCK) * sum(w.numel() for _, w, _ in matrices(network) if not w.requires_grad)


def host(recipe: Network, network: nn.Module, held: float, sharded: bool) -> float:
    """Bytes of the host's memory that a process takes to load a network and to export it.

    Ranks of shards read their own rows, where they can, and export a matrix at a time. Any other process loads the
    whole network in float32, in 4 bits matrix by matrix; adapters are merged into a copy on the host.

    Args:
        recipe: The network's recipe.
        network: The network.
        held: Bytes of the parameters that the process holds.
        sharded: Whether they are a share of the network's.
    """
    sizes = [4.0 * p.numel() for p in network.parameters()]
    experts = any(p.dim() > 2 for p in network.parameters())  # which are not read by rows
    if sharded and recipe.reads_rows and not experts:
        return held + max(sizes)
    copied = held if getattr(recipe, "load_in_4bit", False) else sum(sizes)
    return held + copied if is_adapted(network) else copied
