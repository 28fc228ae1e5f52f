"""Figures that set methods side by side: metrics, trade-offs, ways of runs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, MaxNLocator

from ofmu_pl.report.figures.style import Look, finished, panels, panels_for, plain_numbers
from ofmu_pl.report.runs import BEFORE, RETRAINED, Findings, number, words
from ofmu_pl.report.statistics import Spread, front, spread, spread_in, trade_off
from ofmu_pl.support.records import Entries

COURSE = ("forget_Q_A_Prob", "retain_Q_A_Prob")
LETTERS_ACROSS = 110
"""Letters of labels that stand side by side in a figure's width."""
SIDES = {RETRAINED: ("-", "retrained model (mean)"), BEFORE: (":", "before (mean)")}
"""Lines of the models beside the methods."""


def label(experiment: Findings, metric: str) -> str:
    """An axis's label: name and unit of a metric."""
    return f"{words(metric)} ({experiment.declared(metric).unit})"


def methods_of(experiment: Findings, scenarios: list[str]) -> list[str]:
    """Methods with a finished run."""
    return [m for m in experiment.methods if experiment.of(scenarios, m)]


def deviation(s: Spread, unit: str) -> float | None:
    """Length of a whisker; none of p-values, whose magnitudes differ too much for one."""
    return s.std if s.n > 1 and unit != "p-value" else None


def told(experiment: Findings) -> str:
    """What bars show, where runs are replicated."""
    return ": bars are means, whiskers ± 1 std, dots seeds" if experiment.replicated else ""


def bars(axis: Axes, look: Look, values: Mapping[str, list[float]], unit: str = "0 to 1") -> None:
    """Horizontal bars of means, the best known method on top, with deviations and a dot a replicate."""
    for i, (method, found) in enumerate(values.items()):
        s = spread(found)
        if not s.n:
            continue
        whisker = {"elinewidth": 1, "capsize": 2, "ecolor": "0.2"}
        strong = 0.85 if method in look.ours else 0.45
        ends = deviation(s, unit)
        axis.barh(i, s.mean, 0.7, xerr=ends, error_kw=whisker, color=look.colour(method), alpha=strong)
        axis.plot(found, [i] * len(found), ".", color="black", markersize=4, clip_on=False)
    axis.set_yticks(range(len(values)), list(values))
    look.emphasise(axis.get_yticklabels())
    axis.set_ylim(len(values) - 0.4, -0.6)
    axis.grid(visible=False, axis="y")


def metrics(experiment: Findings, look: Look) -> dict[str, Figure]:
    """Every metric by method, a figure a group of scenarios; the retrained model as a line."""
    found = {}
    for name, scenarios in experiment.groups.items():
        columns, methods = experiment.columns(scenarios), methods_of(experiment, scenarios)
        if not methods or not columns:
            continue
        across = {5: 5, 6: 3}.get(len(columns), 4)  # no panel alone in a line
        figure, axes = panels_for(len(columns), 1.0, 0.9 + 0.28 * len(methods), across, sharey=True)
        for axis, metric in zip(axes.flat, columns, strict=False):
            values = {m: list(experiment.values(scenarios, m, metric).values()) for m in methods}
            unit = experiment.declared(metric).unit
            bars(axis, look, values, unit)
            lines(axis.axvline, experiment, scenarios, metric, RETRAINED, BEFORE)
            _scale(axis, metric, unit, values)
            text = label(experiment, metric)
            narrow = len(text) * min(across, len(columns)) >= LETTERS_ACROSS
            axis.set_xlabel(text.replace(" (", "\n(") if narrow else text)
        found[name] = finished(figure, axes, f"{experiment.title}, {name}{told(experiment)}")
    return found


def lines(draw: Any, experiment: Findings, scenarios: list[str], metric: str, *sides: str) -> None:
    """Lines, drawn by an axis's ``axvline`` or ``axhline``, at the means of models beside the methods."""
    for side in sides:
        goal, (line, name) = spread_in(experiment, scenarios, side, metric), SIDES[side]
        if goal.n:
            draw(goal.mean, color="black", linestyle=line, linewidth=1.3, label=name)


def _scale(axis: Axes, metric: str, unit: str, values: dict[str, list[float]]) -> None:
    known = list(filter(None, values.values()))
    least = min(map(min, known), default=0.0)
    if unit == "p-value" and 0 < least < 1e-3:
        axis.set_xscale("log")
        axis.set_xlim(least / 10, 3)
        axis.xaxis.set_major_locator(LogLocator(numticks=4))
        plain_numbers(axis.xaxis)
    elif metric == "avg_gap" and max(map(max, known), default=0.0) > 10:
        axis.set_xscale("symlog", linthresh=1)  # controls at 50 would hide differences of tenths
        plain_numbers(axis.xaxis)
    else:
        axis.xaxis.set_major_locator(MaxNLocator(3))
        axis.set_xlim(left=min(0.0, least))


def trade_offs(experiment: Findings, look: Look) -> Figure | None:
    """What is forgotten against what is kept, with deviations; the star is where to go."""
    groups = {name: (s, pair) for name, s in experiment.groups.items() if (pair := trade_off(experiment, s))}
    if not groups:
        return None
    figure, axes = panels_for(len(groups), 0.0, 4.6)
    for axis, (name, (scenarios, pair)) in zip(axes.flat, groups.items(), strict=False):
        units = [experiment.declared(m).unit for m in pair]
        points = {}
        for method in (*methods_of(experiment, scenarios), BEFORE, RETRAINED):
            x, y = (spread_in(experiment, scenarios, method, m) for m in pair)
            if not (x.n and y.n):
                continue
            points[method] = (x.mean, y.mean)
            size = 15 if method == RETRAINED else 11 if method in look.ours else 7
            style = {"color": look.colour(method), "markersize": size, "markeredgecolor": "black", "elinewidth": 1}
            style |= {"fmt": look.marker(method), "markeredgewidth": 0.6, "capsize": 2, "alpha": 0.9, "label": method}
            whiskers = {"xerr": deviation(x, units[0]), "yerr": deviation(y, units[1])}
            front_most = 4 if method in look.ours or method == RETRAINED else 3
            point = axis.errorbar(x.mean, y.mean, **whiskers, **style, zorder=front_most)
            point[0].set_clip_on(False)  # a marker at the end of an axis is seen whole
        best = sorted(points[m] for m in front(experiment, scenarios, pair))
        axis.plot(*zip(*best, strict=True), color="0.6", linewidth=1, zorder=1)
        axis.set(title=name, xlabel=label(experiment, pair[0]), ylabel=label(experiment, pair[1]))
        axis.margins(0.12)
        axis.set(xlim=widened(axis.get_xlim(), units[0]), ylim=widened(axis.get_ylim(), units[1]))
    seeds = "means over seeds, whiskers ± 1 std; " if experiment.replicated else ""
    return finished(figure, axes, f"Trade-off: {seeds}the star is the goal", look)


def widened(limits: tuple[float, float], unit: str) -> tuple[float, float]:
    """Limits at least a tenth of the unit's range apart, within which differences are mostly noise, and inside it.

    >>> widened((0.25, 0.75), "0 to 1"), widened((40.0, 42.0), "%"), widened((98.0, 100.0), "%")
    ((0.25, 0.75), (36.0, 46.0), (90.0, 100.0))
    """
    whole = {"0 to 1": 1.0, "KS distance": 1.0, "%": 100.0}.get(unit)
    if whole is None:
        return limits
    span = max(whole / 10, limits[1] - limits[0])
    high = min(whole, max(span, (limits[0] + limits[1] + span) / 2))
    return max(0.0, high - span), high


def course(experiment: Findings, look: Look) -> Figure | None:
    """How probabilities of forget and retain answers moved along the runs."""
    runs = [r for r in experiment.finished if r.results and r.results.history and r.value(COURSE[0]) is not None]
    if not runs:
        return None
    figure, ((axis,),) = panels(1, 1, 5.0)
    for run in runs:
        history = run.results.history if run.results else []
        measurements = [run.side(BEFORE), *(interim.metrics for interim in history), run.side("metrics")]
        points = _known(measurements)
        if not len(points):
            continue
        colour = look.colour(run.method)
        axis.plot(*points.T, "-", marker=".", color=colour, linewidth=1.3, alpha=0.7)
        end = {"marker": look.marker(run.method), "markersize": 11, "markeredgecolor": "black"}
        axis.plot(*points[-1], color=colour, label=run.method, **end)
    for side in (BEFORE, RETRAINED):
        ends = _known([run.side(side) for run in runs])
        if len(ends):
            axis.plot(*ends.T, look.marker(side), color=look.colour(side), markersize=12, linestyle="none", label=side)
    axis.set(xlabel="probability of forget answers (0 to 1, left is forgotten)", xlim=(-0.03, 1.03), ylim=(0, 1.03))
    axis.set_ylabel("probability of retain answers (0 to 1, up is kept)")
    return finished(figure, axis, "The way of each run, from the model before to its end; the star is the goal")


def _known(measurements: list[Entries]) -> np.ndarray:
    """The points of the measurements that have both metrics."""
    points = []
    for entries in measurements:
        point = [number((entries.get(m) or {}).get("value")) for m in COURSE]
        points += [] if None in point else [point]
    return np.array(points, np.float64)
