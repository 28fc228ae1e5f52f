"""Stored results of methods and metrics, as tables."""

from collections.abc import Sequence
from functools import cache

from results import RESULTS, Stored

from makers.rst import heading, table
from ofmu_pl.report.runs import BEFORE, RETRAINED, Study
from ofmu_pl.report.statistics import spread
from ofmu_pl.report.tables import measured

STORED = {"front": "Fictitious authors", "field": "Real TOFU", "attacks_images": "Images"}
"""Files of stored results whose methods are tuned alike, and what they are about."""
VARIED = "parts"
"""An experiment whose methods are variants of one."""


@cache
def read(file: str) -> Stored:
    """A file of stored results, which every page of a method or a metric asks for."""
    return Stored.read(RESULTS / f"data/{file}.json")


def stored(method: str, overlays: set[str]) -> str:
    """What a method's stored runs forgot and kept, beside their targets and retrained models; nothing: no runs.

    Names that begin with the method's are variants of it, and count, too.
    """
    text = ""
    for file, about in STORED.items():
        data = read(file)
        for experiment in data.experiments:
            own = [m for m in experiment.methods if m in {*overlays, method} or m.startswith(f"{method}_")]
            if experiment.name == VARIED or not own:
                continue
            last = data.measured[-1]
            for group, part in experiment.groups.items():
                text += f"**{about}, {group}**, {last.date}, {last.machine}; :doc:`all methods </results/{file}>`.\n\n"
                text += rows(part, [BEFORE, RETRAINED, *own], experiment.metrics)
    return text


def stored_metric(names: list[str]) -> str:
    """What methods had of a metric in the stored runs of the first experiment of each file; nothing: no runs."""
    text = ""
    for file, about in STORED.items():
        data = read(file)
        experiment = data.experiments[0]
        columns = [name for name in names if name in experiment.metrics]
        for group, part in experiment.groups.items() if columns else ():
            text += f"**{about}, {group}**, {data.measured[-1].date} (:doc:`more </results/{file}>`):\n\n"
            text += rows(part, [*experiment.methods, BEFORE, RETRAINED], columns)
    return heading("Stored results") + text if text else ""


def rows(experiment: Study, models: Sequence[str], metrics: Sequence[str]) -> str:
    """A table with a row a model."""
    found = []
    for model in models:
        values = [list(experiment.values(model, metric).values()) for metric in metrics]
        found.append([model, *(measured(spread(of_all)).text for of_all in values)])
    return table(["", *(f"``{metric}``" for metric in metrics)], found)
