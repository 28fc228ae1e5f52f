"""Numbers about runs that are no metric of ``results.json``: costs as ratios, analyses, scores, grid points."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ofmu_pl.report.runs import Findings, Replicate, number
from ofmu_pl.report.statistics import Spread, overall, spread

Measured = Callable[[list[str], str, str], Spread | None]
"""A function of scenarios, method and metric that gives what was measured."""
UNIT_OF_COST = "grad_ascent"
"""The method that costs are given as multiples of."""
COSTS = {
    "time_over_GA_step": "time an iteration",
    "peak_memory_over_GA": "peak memory",
    "gradients_over_GA_step": "gradients an iteration",
}


def costs(experiment: Findings, scenarios: list[str], method: str) -> dict[str, dict[Replicate, float]]:
    """Ratios to the gradient-ascent run of the same replicate, by name and replicate.

    ``time_over_GA_step`` and ``gradients_over_GA_step`` are training seconds and gradients divided by outer iterations,
    ``peak_memory_over_GA`` the peaks of the whole runs.
    """
    ours, unit = experiment.of(scenarios, method), experiment.of(scenarios, UNIT_OF_COST)
    found: dict[str, dict[Replicate, float]] = {name: {} for name in COSTS}
    for key in ours.keys() & unit.keys():
        a, b = ours[key], unit[key]
        steps = [number(run.fact("steps")) or 0.0 for run in (a, b)]
        pairs = {
            "time_over_GA_step": [r.cost("training_seconds") for r in (a, b)],
            "gradients_over_GA_step": [r.cost("gradient_evaluations") for r in (a, b)],
            "peak_memory_over_GA": [r.cost("peak_memory_bytes") for r in (a, b)],
        }
        for name, (x, y) in pairs.items():
            per = (1.0, 1.0) if name == "peak_memory_over_GA" else steps
            if x is not None and y and all(per):
                found[name][key] = (x / per[0]) / (y / per[1])
    return {name: dict(sorted(values.items())) for name, values in found.items()}


def alignment(experiment: Findings) -> dict[str, dict[str, dict[str, float]]]:
    """Cosines with the retrained model's embeddings: by third (``easiest``, ``hardest``), model and seed."""
    found: dict[str, dict[str, dict[str, float]]] = {"easiest": {}, "hardest": {}}
    for seed, analysis in _items(experiment.analysis.seeds):
        for third, by_model in found.items():
            for model, entry in _items(_at(analysis, third, "cosine")):
                value = number(_at(entry, "value"))
                if value is not None:
                    by_model.setdefault(model, {})[seed] = value
    return found


def difficulty(experiment: Findings) -> tuple[dict[str, list[tuple[float, float]]], dict[str, dict[str, float]]]:
    """Points of the UDI analysis (index, drop in utility) and Spearman's rho, low, high, p, n, both by method."""
    points: dict[str, list[tuple[float, float]]] = {}
    for draw in experiment.analysis.draws:
        x = number(_at(draw, "udi_mean"))
        for method, drop in _items(_at(draw, "utility_drop")):
            y = number(drop)
            if x is not None and y is not None:
                points.setdefault(method, []).append((x, y))
    found = {}
    for method, entry in _items(experiment.analysis.spearman):
        values = {k: number(v) for k, v in _items(entry)}
        if values.get("rho") is not None:
            found[method] = {k: v for k, v in values.items() if v is not None}
    return points, found


def grid(experiment: Findings) -> dict[tuple[str, str], tuple[float | None, float | None]]:
    """(T, rho) of each scenario and method, read from ``model.inner_steps`` and ``model.rho_0`` of their options."""
    found = {}
    for scenario, own in experiment.scenarios.items():
        for method, spec in experiment.methods.items():
            options = {**experiment.options, **own, **spec.options}
            t, rho = number(options.get("model.inner_steps")), number(options.get("model.rho_0"))
            if t is not None or rho is not None:
                found[scenario, method] = (t, rho)
    return found


def measured_in(experiment: Findings) -> Measured:
    """Spreads over replicates of metrics, overall scores, costs and analyses, under the names of ``published.csv``."""
    scores = {tuple(scenarios): overall(experiment, scenarios) for scenarios in experiment.groups.values()}
    thirds = alignment(experiment)
    rho = difficulty(experiment)[1]

    def find(scenarios: list[str], method: str, metric: str) -> Spread | None:
        if metric == "overall":
            return spread(list(scores[tuple(scenarios)].get(method, {}).values()))
        if metric in COSTS:
            return spread(list(costs(experiment, scenarios, method)[metric].values()))
        if metric in ("cosine_easy", "cosine_hard"):
            third = thirds["easiest" if metric.endswith("easy") else "hardest"]
            return spread(list(third.get(method, {}).values()))
        if metric == "spearman_udi_mu_drop":
            return spread([rho[method]["rho"]]) if method in rho else None
        return spread(list(experiment.values(scenarios, method, metric).values()))

    return find


def _items(x: Any) -> list[tuple[str, Any]]:
    """Items of a dictionary, and none of anything else, since others wrote the file."""
    return [(str(k), v) for k, v in x.items()] if isinstance(x, dict) else []


def _at(x: Any, *keys: str) -> Any:
    for key in keys:
        x = x.get(key) if isinstance(x, dict) else None
    return x
