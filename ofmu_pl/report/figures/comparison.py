"""Figures that set methods side by side: metrics, overall scores, trade-offs, costs, draws, probes."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, MaxNLocator

from ofmu_pl.report import published
from ofmu_pl.report.figures.style import Look, legend_below, panels, plain_numbers
from ofmu_pl.report.runs import BEFORE, RETRAINED, Findings, number, words
from ofmu_pl.report.statistics import Spread, front, overall, spread, trade_off

COURSE = ("forget_Q_A_Prob", "retain_Q_A_Prob")
LOGARITHMIC = ("avg_gap",)
LETTERS_ACROSS = 110
"""Letters of labels that stand side by side in a figure's width."""


def label(experiment: Findings, metric: str) -> str:
    """An axis's label: name and unit of a metric."""
    return f"{words(metric)} ({experiment.declared(metric).unit})"


def methods_of(experiment: Findings, scenarios: list[str]) -> list[str]:
    """Methods with a finished run."""
    return [m for m in experiment.methods if experiment.of(scenarios, m)]


def deviation(s: Spread, unit: str) -> float | None:
    """Length of a whisker; none of p-values, whose magnitudes differ too much for one."""
    return s.std if s.n > 1 and unit != "p-value" else None


def bars(axis: Any, look: Look, values: dict[str, list[float]], unit: str = "0 to 1") -> None:
    """Horizontal bars of means, the best known method on top, with deviations and a dot a replicate."""
    for i, (method, found) in enumerate(values.items()):
        s = spread(found)
        if not s.n:
            continue
        bar = {"color": look.colour(method), "alpha": 0.85 if method in look.ours else 0.45, "height": 0.7}
        axis.barh(i, s.mean, xerr=deviation(s, unit), error_kw={"elinewidth": 1, "capsize": 2, "ecolor": "0.2"}, **bar)
        axis.plot(found, [i] * len(found), ".", color="black", markersize=4, clip_on=False)
    axis.set_yticks(range(len(values)), list(values))
    look.emphasise(axis.get_yticklabels())
    axis.set_ylim(len(values) - 0.4, -0.6)
    axis.grid(visible=False, axis="y")


def overall_scores(experiment: Findings, look: Look) -> Figure | None:
    """The paper's overall score, a panel a group of scenarios, published scores as diamonds."""
    found = {name: overall(experiment, scenarios) for name, scenarios in experiment.groups.items()}
    found = {name: scores for name, scores in found.items() if len(scores) > 1}  # one alone always has 1
    if not found:
        return None
    rows = max(map(len, found.values()))
    figure, axes = panels(1, len(found), 1.6 + 0.32 * rows, sharex=True)
    for axis, (name, scores) in zip(axes[0], found.items(), strict=True):
        values = {m: list(v.values()) for m, v in scores.items()}
        bars(axis, look, dict(sorted(values.items(), key=lambda item: -np.mean(item[1]))))
        axis.set(title=name, xlabel="overall score (0 to 1)", xlim=(0, 1.05))
        _diamonds(axis, experiment, name, "overall", [label.get_text() for label in axis.get_yticklabels()])
    told = ": bars are means, whiskers ± 1 std, dots seeds" if experiment.replicated else ""
    figure.suptitle(f"Overall score, higher is better{told}", x=0.01, ha="left")
    legend_below(figure, axes)
    return figure


def _diamonds(axis: Any, experiment: Findings, group: str, metric: str, methods: list[str]) -> None:
    """The paper's values of a metric on a panel of horizontal bars, for each setting that names its scenario."""
    by_setting: dict[str, list[tuple[float, int]]] = {}
    for p in published.cells(experiment.paper, metric):
        ours = published.our_method(experiment, p.method, p.setting)
        if group in p.setting.split("/") and ours in methods:
            by_setting.setdefault(p.setting, []).append((float(p.value), methods.index(str(ours))))
    for (setting, points), marker in zip(by_setting.items(), "DdPX", strict=False):
        x, y = zip(*points, strict=True)
        name = f"paper, {setting.split('/')[0]}" + (" (not comparable)" if experiment.note else "")
        axis.plot(x, y, marker, color="white", markeredgecolor="black", markersize=6, linestyle="none", label=name,
                  clip_on=False)  # fmt: skip


def metrics(experiment: Findings, look: Look) -> dict[str, Figure]:
    """Every metric by method, a figure a group of scenarios; the retrained model as a line."""
    found = {}
    for name, scenarios in experiment.groups.items():
        columns, methods = experiment.columns(scenarios), methods_of(experiment, scenarios)
        if not methods or not columns:
            continue
        across = {5: 5, 6: 3}.get(len(columns), min(4, len(columns)))  # no panel alone in a line
        down = -(-len(columns) // across)
        figure, axes = panels(down, across, 1.0 + down * (0.9 + 0.28 * len(methods)), sharey=True)
        for axis in axes.flat[len(columns) :]:
            axis.set_visible(False)
        for axis, metric in zip(axes.flat, columns, strict=False):
            values = {m: list(experiment.values(scenarios, m, metric).values()) for m in methods}
            unit = experiment.declared(metric).unit
            bars(axis, look, values, unit)
            _lines(axis, experiment, scenarios, metric)
            _scale(axis, metric, unit, values)
            text = label(experiment, metric)
            axis.set_xlabel(text if len(text) * across < LETTERS_ACROSS else text.replace(" (", "\n("))
        told = ": bars are means, whiskers ± 1 std, dots seeds" if experiment.replicated else ""
        figure.suptitle(f"{experiment.title}, {name}{told}", x=0.01, ha="left")
        legend_below(figure, axes)
        found[name] = figure
    return found


def _lines(axis: Any, experiment: Findings, scenarios: list[str], metric: str) -> None:
    for side, line in ((RETRAINED, "-"), (BEFORE, ":")):
        goal = list(experiment.values(scenarios, side, metric).values())
        if goal:
            axis.axvline(float(np.mean(goal)), color="black", linestyle=line, linewidth=1.3, label=SIDES[side])


SIDES = {RETRAINED: "retrained model (mean)", BEFORE: "before (mean)"}


def _scale(axis: Any, metric: str, unit: str, values: dict[str, list[float]]) -> None:
    every = [v for found in values.values() for v in found]
    if unit == "p-value" and every and 0 < min(every) < 1e-3:
        axis.set_xscale("log")
        axis.set_xlim(min(every) / 10, 3)
        axis.xaxis.set_major_locator(LogLocator(numticks=4))
        plain_numbers(axis.xaxis)
    elif metric in LOGARITHMIC and every and max(every) > 10:
        axis.set_xscale("symlog", linthresh=1)  # controls at 50 would hide differences of tenths
        plain_numbers(axis.xaxis)
    else:
        axis.xaxis.set_major_locator(MaxNLocator(3))
        axis.set_xlim(left=min(0.0, *every) if every else 0.0)


def trade_offs(experiment: Findings, look: Look) -> Figure | None:
    """What is forgotten against what is kept, with deviations; the star is where to go."""
    groups = {name: (s, pair) for name, s in experiment.groups.items() if (pair := trade_off(experiment, s))}
    if not groups:
        return None
    across = min(3, len(groups))
    down = -(-len(groups) // across)
    figure, axes = panels(down, across, 4.6 * down)
    for axis in axes.flat[len(groups) :]:
        axis.set_visible(False)
    for axis, (name, (scenarios, pair)) in zip(axes.flat, groups.items(), strict=False):
        units = [experiment.declared(m).unit for m in pair]
        best = [[spread(list(experiment.values(scenarios, m, x).values())).mean for x in pair] for m in
                front(experiment, scenarios, pair)]  # fmt: skip
        axis.plot(*zip(*sorted(best), strict=True), color="0.6", linewidth=1, zorder=1)
        for method in (*methods_of(experiment, scenarios), BEFORE, RETRAINED):
            x, y = (spread(list(experiment.values(scenarios, method, m).values())) for m in pair)
            if not (x.n and y.n):
                continue
            size = 15 if method == RETRAINED else 11 if method in look.ours else 7
            style = {"color": look.colour(method), "markersize": size, "markeredgecolor": "black", "elinewidth": 1}
            axis.errorbar(
                *(x.mean, y.mean), xerr=deviation(x, units[0]), yerr=deviation(y, units[1]),
                **style, fmt=look.marker(method), markeredgewidth=0.6, capsize=2, label=method,
                zorder=4 if method in look.ours or method == RETRAINED else 3, alpha=0.9,
            )  # fmt: skip
        axis.set(title=name, xlabel=label(experiment, pair[0]), ylabel=label(experiment, pair[1]))
        axis.margins(0.12)
        axis.set(xlim=_widened(axis.get_xlim(), units[0]), ylim=_widened(axis.get_ylim(), units[1]))
    told = "means over seeds, whiskers ± 1 std; " if experiment.replicated else ""
    figure.suptitle(f"Trade-off: {told}the star is the goal", x=0.01, ha="left")
    legend = legend_below(figure, axes)
    if legend is not None:
        look.emphasise(legend.get_texts())
    return figure


def _widened(limits: tuple[float, float], unit: str) -> tuple[float, float]:
    """Limits that leave a tenth of the unit's range, within which differences are mostly noise."""
    span = {"0 to 1": 0.1, "KS distance": 0.1, "%": 10.0}.get(unit, 0.0)
    more = max(0.0, span - (limits[1] - limits[0])) / 2
    return limits[0] - more, limits[1] + more


def course(experiment: Findings, look: Look) -> Figure | None:
    """How probabilities of forget and retain answers moved along the runs."""
    runs = [r for r in experiment.finished if r.history and r.value(COURSE[0]) is not None]
    if not runs:
        return None
    figure, ((axis,),) = panels(1, 1, 5.0)
    for run in runs:
        steps = [run.side(BEFORE), *(interim.metrics for interim in run.history), run.side("metrics")]
        path = [[number((s.get(m) or {}).get("value")) for m in COURSE] for s in steps]
        points = np.array([p for p in path if None not in p], np.float64)
        if not len(points):
            continue
        colour = look.colour(run.method)
        axis.plot(*points.T, "-", marker=".", color=colour, linewidth=1.3, alpha=0.7)
        axis.plot(*points[-1], look.marker(run.method), color=colour, markersize=11, markeredgecolor="black",
                  label=run.method)  # fmt: skip
    for side in (BEFORE, RETRAINED):
        ends = [[r.value(m, side) for m in COURSE] for r in runs]
        whole = np.array([e for e in ends if None not in e], np.float64)
        if len(whole):
            axis.plot(*whole.T, look.marker(side), color=look.colour(side), markersize=12, linestyle="none", label=side)
    axis.set(xlabel="probability of forget answers (0 to 1, left is forgotten)", xlim=(-0.03, 1.03), ylim=(0, 1.03))
    axis.set_ylabel("probability of retain answers (0 to 1, up is kept)")
    axis.set_title("The way of each run, from the model before to its end; the star is the goal")
    legend_below(figure, axis)
    return figure
