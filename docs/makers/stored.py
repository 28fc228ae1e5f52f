"""Stored results of methods and metrics, as tables."""

from __future__ import annotations

from collections.abc import Sequence

from results import RESULTS, Stored

from makers.rst import heading, table
from ofmu_pl.report.runs import BEFORE, RETRAINED, Findings
from ofmu_pl.report.statistics import spread
from ofmu_pl.report.tables import measured

STORED = {"attacks": "Fictitious authors", "attacks_tofu": "Real TOFU, forget10", "attacks_images": "Images"}
"""Files of stored results that hold runs of methods, and what they are about."""


def stored(method: str, overlays: set[str]) -> str:
    """What a method's stored runs forgot and kept, beside their targets and retrained models; nothing: no runs.

    Rows outlive the overlay that they are named after, so names that begin with the method's count, too.
    """
    text = ""
    for file, about in STORED.items():
        data = Stored.read(RESULTS / f"data/{file}.json")
        (experiment,) = data.experiments
        own = [m for m in experiment.methods if m in {*overlays, method} or m.startswith(f"{method}_")]
        if own:
            last = data.measured[-1]
            text += f"**{about}**, {last.date}, {last.machine}; :doc:`all methods and attacks </results/{file}>`.\n\n"
            text += rows(experiment, [BEFORE, RETRAINED, *own], experiment.metrics)
    return text


def stored_metric(names: list[str]) -> str:
    """What methods had of a metric in the stored runs; nothing: no runs."""
    text = ""
    for file, about in STORED.items():
        data = Stored.read(RESULTS / f"data/{file}.json")
        (experiment,) = data.experiments
        columns = [name for name in names if name in experiment.metrics]
        if columns:
            text += f"**{about}**, {data.measured[-1].date} (:doc:`more </results/{file}>`):\n\n"
            text += rows(experiment, [*experiment.methods, BEFORE, RETRAINED], columns)
    return heading("Stored results") + text if text else ""


def rows(experiment: Findings, models: Sequence[str], metrics: Sequence[str]) -> str:
    """A table with a row a model."""
    found = []
    for model in models:
        values = [list(experiment.values(list(experiment.scenarios), model, metric).values()) for metric in metrics]
        found.append([model, *(measured(spread(of_all)).text for of_all in values)])
    return table(["", *(f"``{metric}``" for metric in metrics)], found)
