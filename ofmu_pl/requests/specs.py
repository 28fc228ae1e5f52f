"""What is asked for, requests in turn, and the ordinary runs that follow: each from the model of the one before."""

from dataclasses import dataclass, field
from itertools import chain, product
from pathlib import Path

from ofmu_pl.benchmark.grid import HANDLE, MODEL, Cell
from ofmu_pl.benchmark.specs import Options, check_files, check_keys, check_names, check_own, files
from ofmu_pl.support.errors import UserError
from ofmu_pl.support.pages import REPORT
from ofmu_pl.support.records.manifest import Method, Value
from ofmu_pl.support.shipped import expanded

RETRAINED = "retrained"
START = "model.network.path"  # the option that names the model that a run starts from


@dataclass
class Retrained:
    """The run whose model was trained without all requests so far, as a control.

    Attributes:
        base: Its configuration, or a list of files, each put over those before.
        options: Command-line options by key; options of every run that start with ``data.`` are heard, too.
        after: Numbers of the requests after which there is one; ``null``: the first, half and all.
    """

    base: str | list[str]
    options: dict[str, Value] = field(default_factory=dict)
    after: list[int] | None = None


@dataclass
class Requests:
    """All of it, as ``command.in_turn`` takes and explains it."""

    base: str | list[str]
    methods: dict[str, Method]
    requests: list[dict[str, Value]]
    options: dict[str, Value]
    seeds: list[int]
    retain_later: bool
    retrained: Retrained | None

    @property
    def controlled(self) -> list[int]:
        """Numbers of the requests after which there is a retrained model."""
        if self.retrained is None:
            return []
        n = len(self.requests)
        return sorted({1, (n + 1) // 2, n}) if self.retrained.after is None else self.retrained.after


def check(asked: Requests, folder: Path) -> None:
    """Refuse what cannot be run, before anything is.

    Raises:
        UserError: There is no request, method or seed, one is there twice, a name leads out of the folder, a file is
            missing, or an environment variable is not set.
    """
    for what, given in (("requests", asked.requests), ("methods", asked.methods), ("seeds", asked.seeds)):
        if not given:
            raise UserError(f"There are no {what}: give at least one.")
    if len(set(asked.seeds)) < len(asked.seeds):
        raise UserError(f"seeds {asked.seeds} must all differ: each is a sequence of its own.")
    for number, request in enumerate(asked.requests, start=1):
        if not request:
            raise UserError(f"Request {number} is empty: give arguments of the data, such as forget_classes: [0].")
        if request in asked.requests[: number - 1]:
            raise UserError(f"Request {number} names the same rows as one before it: take one of them out.")
    if not asked.base or (asked.retrained is not None and not asked.retrained.base):
        raise UserError("The list has an empty base: name the configuration of its runs, and of retrained models.")
    check_names(asked.methods, folder, (RETRAINED, REPORT))
    for number in asked.controlled:
        if not 1 <= number <= len(asked.requests):
            raise UserError(f"retrained.after has {number}: choose among the requests 1 to {len(asked.requests)}.")
    controls = [asked.retrained] if asked.retrained else []
    check_files([asked.base, *(c.base for c in controls)], asked.methods.values(), "the list")
    of_runs = [asked.options, *(m.options for m in asked.methods.values())]
    check_own([*of_runs, *(c.options for c in controls)], ["seed_everything"], "The list")
    check_own(of_runs, ["export.folder"], "The list")
    expanded([*of_runs, *(c.options for c in controls)])
    check_keys(chain.from_iterable([*of_runs, *(c.options for c in controls)]))
    check_keys(f"data.{key}" for key in chain.from_iterable(asked.requests))
    expanded(asked.requests)


@dataclass
class Sequence:
    """A method on a seed, with its runs in turn."""

    method: str
    seed: int
    cells: list[Cell]


def sequences(asked: Requests) -> list[Sequence]:
    """All runs, in the order asked for."""
    found = []
    for seed, (method, m) in product(asked.seeds, asked.methods.items()):
        configs = (*files(asked.base), *([m.overlay] if m.overlay else []))
        cells: list[Cell] = []
        for number in range(1, len(asked.requests) + 1):
            needs = {last.key: last for last in cells[-1:]}
            options = asked.options | m.options | rows(asked, number)
            options |= {"seed_everything": seed, "export.folder": MODEL}
            if cells:
                options[START] = HANDLE + cells[-1].key
            cells.append(Cell(f"{method}/seed_{seed}/request_{number:02}", configs, options, needs))
        found.append(Sequence(method, seed, cells))
    return found


def controls(asked: Requests) -> dict[tuple[int, int], Cell]:
    """The runs of retrained models, by seed and number of the last request that they are trained without."""
    found: dict[tuple[int, int], Cell] = {}
    if asked.retrained is None:
        return found
    shared = {key: value for key, value in asked.options.items() if key.startswith("data.")}
    for seed in asked.seeds:
        for number in asked.controlled:
            options = shared | asked.retrained.options | rows(asked, number) | {"seed_everything": seed}
            folder = f"{RETRAINED}/seed_{seed}/without_{number:02}"
            found[seed, number] = Cell(folder, files(asked.retrained.base), options, {})
    return found


def rows(asked: Requests, number: int) -> Options:
    """Options of the data at a request, from 1: its rows, and the other requests whose rows are not retained."""
    others = {
        other: expanded(request)
        for other, request in enumerate(asked.requests, start=1)
        if other < number or (other > number and not asked.retain_later)
    }
    own = {f"data.{key}": value for key, value in asked.requests[number - 1].items()}
    return own | ({"data.other_requests": others} if others else {})
