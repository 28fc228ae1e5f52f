"""Numbers about runs that are no metric of ``results.json``: costs as ratios, analyses, scores, grid points."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from ofmu_pl.report.runs import Replicate, StudiedRun, Study, number
from ofmu_pl.report.statistics import Spread, overall, spread

Names = tuple[str, ...]
"""An option's name, and what it was called before."""
BETA: Names = ("model.beta",)
RHO_0: Names = ("model.upper.rho_0", "model.rho_0")

UNIT_OF_COST = "grad_ascent"
"""The method that costs are given as multiples of."""
COSTS = {
    "time_over_GA_step": ("time an iteration", "training_seconds", True),
    "peak_memory_over_GA": ("peak memory", "peak_memory_bytes", False),
    "gradients_over_GA_step": ("gradients an iteration", "gradient_evaluations", True),
}
"""What each is called, the cost, and whether it is divided by iterations."""
Place = tuple[str, int, int]
"""Scenario or method, seed, place."""
LONGEST = 100_000
"""Iterations of a curve that are read; runs write a thousand."""


def costs(experiment: Study, method: str) -> dict[str, dict[Replicate, float]]:
    """Ratios to the gradient-ascent run of the same replicate, by name and replicate.

    ``time_over_GA_step`` and ``gradients_over_GA_step`` are training seconds and gradients divided by outer iterations,
    ``peak_memory_over_GA`` the peaks of the whole runs.
    """
    ours, unit = experiment.of(method), experiment.of(UNIT_OF_COST)
    found: dict[str, dict[Replicate, float]] = {name: {} for name in COSTS}
    for key in sorted(ours.keys() & unit.keys()):
        a, b = ours[key], unit[key]
        steps = [number(run.fact("steps")) or 0.0 for run in (a, b)]
        for name, (_, cost, by_step) in COSTS.items():
            x, y = a.cost(cost), b.cost(cost)
            per = steps if by_step else [1.0, 1.0]
            if x is not None and y and all(per):
                found[name][key] = (x / per[0]) / (y / per[1])
    return found


def alignment(experiment: Study) -> dict[str, dict[str, dict[str, float]]]:
    """Cosines with the retrained model's embeddings: by third (``easiest``, ``hardest``), model and seed."""
    found: dict[str, dict[str, dict[str, float]]] = {"easiest": {}, "hardest": {}}
    for seed, analysis in experiment.analysis.seeds.items():
        for third, by_model in found.items():
            for model, value in _numbers(_at(analysis, third, "cosine")).items():
                by_model.setdefault(model, {})[seed] = value
    return found


def difficulty(
    experiment: Study,
) -> tuple[dict[str, list[tuple[float, float]]], dict[str, dict[str, float]]]:
    """Points of the UDI analysis (index, drop in utility) and Spearman's rho, low, high, p, n, both by method."""
    points: dict[str, list[tuple[float, float]]] = {}
    for draw in experiment.analysis.draws:
        x = number(_at(draw, "udi_mean"))
        if x is None:
            continue
        for method, drop in _numbers(_at(draw, "utility_drop")).items():
            points.setdefault(method, []).append((x, drop))
    found = {method: _numbers(entry) for method, entry in experiment.analysis.spearman.items()}
    return points, {method: values for method, values in found.items() if "rho" in values}


def option(options: Mapping[str, Any], names: Names) -> Any:
    """The value of an option, by the first of its names that is given; ``None``: none is."""
    return next((options[name] for name in names if name in options), None)


def grid(experiment: Study) -> dict[tuple[str, str], tuple[float | None, float | None]]:
    """(T, rho) of each scenario and method, read from ``model.inner_steps`` and ``upper.rho_0`` of their options."""
    found = {}
    for scenario, own in experiment.scenarios.items():
        for method, spec in experiment.methods.items():
            options = {**experiment.options, **own, **spec.options}
            t, rho = number(options.get("model.inner_steps")), number(option(options, RHO_0))
            if t is not None or rho is not None:
                found[scenario, method] = (t, rho)
    return found


def sweep_panels(experiment: Study) -> list[str]:
    """Forgetting, utility, forget quality: the three that the paper's figure has, or what stands for them on images."""
    wanted = (
        ("UA", "forget_Q_A_Prob"),
        ("model_utility", "TA"),
        ("forget_quality_D", "forget_quality", "avg_gap"),
    )
    found = [next(filter(experiment.entry, names), None) for names in wanted]
    return [m for m in found if m] if all(found) else experiment.columns[:3]


def curve(run: StudiedRun, name: str) -> np.ndarray:
    """A run's values by iteration, NaN where it has measured none; empty if it has none at all.

    The file has ``{"step": [...], "value": [...]}``, steps counted from 1.
    """
    points = run.results.curves.get(name) if run.results else None
    steps, values = (points.get(key) if isinstance(points, dict) else None for key in ("step", "value"))
    if not isinstance(steps, list) or not isinstance(values, list):
        return np.array([])
    known = {k: number(x) for k, x in zip(steps, values, strict=False) if isinstance(k, int) and 0 < k <= LONGEST}
    found = np.full(max(known, default=0), np.nan)
    for k, x in known.items():
        found[k - 1] = np.nan if x is None else x
    return found


def norms(experiment: Study) -> dict[float, dict[Place, np.ndarray]]:
    """Courses of |grad F|, NaN for no value, by T and what runs of several T share."""
    found: dict[float, dict[Place, np.ndarray]] = {}
    points = grid(experiment)
    for run in experiment.finished:
        t = points.get((run.scenario, run.method), (None, None))[0]
        course = curve(run, "gradient_norm")
        if t is not None and len(course):
            courses = found.setdefault(t, {})
            by_method = "model.inner_steps" in experiment.methods[run.method].options
            shared = (run.scenario if by_method else run.method, run.seed)
            courses[*shared, sum(key[:2] == shared for key in courses)] = course
    return dict(sorted(found.items()))


def published_as(experiment: Study, method: str, metric: str) -> Spread:
    """The spread over replicates of a metric, score, cost or analysis under its name in ``published.csv``."""
    thirds = {"cosine_easy": "easiest", "cosine_hard": "hardest"}
    if metric == "overall":
        found = overall(experiment).get(method, {})
    elif metric in COSTS:
        found = costs(experiment, method)[metric]
    elif metric in thirds:
        return spread(alignment(experiment)[thirds[metric]].get(method, {}).values())
    elif metric == "spearman_udi_mu_drop":
        known = difficulty(experiment)[1].get(method)
        return spread([known["rho"]] if known else [])
    else:
        found = experiment.values(method, metric)
    return spread(found.values())


def _at(x: Any, *keys: str) -> Any:
    """What a part of a file has there; ``None`` where it is of another shape, since others wrote it."""
    for key in keys:
        x = x.get(key) if isinstance(x, dict) else None
    return x


def _numbers(x: Any) -> dict[str, float]:
    """Finite numbers by name, or the ``value`` of entries; none of what is no dictionary."""
    items = x.items() if isinstance(x, dict) else ()
    found = {str(k): number(v.get("value") if isinstance(v, dict) else v) for k, v in items}
    return {k: value for k, value in found.items() if value is not None}
