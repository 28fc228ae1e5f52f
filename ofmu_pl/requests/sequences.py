"""From requests to runs: ordinary runs of ``fit``, each from the model that the one before it left."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import product
from typing import Any

from ofmu_pl.benchmark.grid import HANDLE, MODEL, Cell
from ofmu_pl.benchmark.specs import files
from ofmu_pl.requests.specs import RETRAINED, Asked
from ofmu_pl.support.variables import expanded

START = "model.network.path"
"""The option that names the model that a run starts from."""


@dataclass
class Sequence:
    """A method on a seed, with its runs in turn."""

    method: str
    seed: int
    cells: list[Cell] = field(default_factory=list)


def sequences(asked: Asked) -> list[Sequence]:
    """All runs, in the order asked for."""
    return [_sequence(asked, method, seed) for seed, method in product(asked.seeds, asked.methods)]


def controls(asked: Asked) -> dict[tuple[int, int], Cell]:
    """The runs of retrained models, by seed and number of the last request that they are trained without."""
    found: dict[tuple[int, int], Cell] = {}
    if asked.retrained is None:
        return found
    shared = {key: value for key, value in asked.options.items() if key.startswith("data.")}
    for seed in asked.seeds:
        for number in asked.controlled:
            options = shared | asked.retrained.options | rows(asked, number) | {"seed_everything": seed}
            folder = f"{RETRAINED}/seed_{seed}/without_{number:02}"
            found[seed, number] = Cell(folder, RETRAINED, files(asked.retrained.base), options, {})
    return found


def rows(asked: Asked, number: int) -> dict[str, Any]:
    """Options of the data at a request, from 1: its rows, and the other requests whose rows are not retained."""
    others = {
        other: expanded(request)
        for other, request in enumerate(asked.requests, start=1)
        if other < number or (other > number and not asked.retain_later)
    }
    own = {f"data.{key}": value for key, value in asked.requests[number - 1].items()}
    return own | ({"data.other_requests": others} if others else {})


def _sequence(asked: Asked, method: str, seed: int) -> Sequence:
    found, m = Sequence(method, seed), asked.methods[method]
    configs = (*files(asked.base), *([m.overlay] if m.overlay else []))
    for number in range(1, len(asked.requests) + 1):
        options = asked.options | m.options | rows(asked, number)
        options |= {"seed_everything": seed, "export.folder": MODEL}
        needs = {}
        if found.cells:
            last = found.cells[-1]
            needs[last.key] = last
            options[START] = HANDLE + last.key
        folder = f"{method}/seed_{seed}/request_{number:02}"
        found.cells.append(Cell(folder, method, configs, options, needs))
    return found
