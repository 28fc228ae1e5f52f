"""Figures of studies: inner steps and penalty, convergence, unlearning difficulty."""

from __future__ import annotations

from itertools import chain, cycle

import matplotlib as mpl
import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator

from ofmu_pl.report.derived import difficulty, grid
from ofmu_pl.report.figures.style import Look, finished, panels, panels_for, plain_numbers
from ofmu_pl.report.runs import RETRAINED, Finding, Findings, number
from ofmu_pl.report.statistics import spread, spread_in

TAIL = 0.1
"""Share of a run whose mean is its final value: single iterations are noisy."""
Place = tuple[str, int, int]
"""Scenario or method, seed, place."""
LONGEST = 100_000
"""Iterations of a curve that are read; runs write a thousand."""


def sweep_panels(experiment: Findings) -> list[str]:
    """Forgetting, utility, forget quality: the three that the paper's figure has, or what stands for them on images."""
    wanted = (
        ("UA", "forget_Q_A_Prob"),
        ("model_utility", "TA"),
        ("forget_quality_D", "forget_quality", "avg_gap"),
    )
    found = [next(filter(experiment.entry, names), None) for names in wanted]
    return [m for m in found if m] if all(found) else experiment.columns()[:3]


def shades(n: int) -> np.ndarray:
    """Colours of n steps of one thing."""
    return mpl.colormaps["viridis"](np.linspace(0.05, 0.8, n))


def sweep(experiment: Findings, look: Look) -> Figure | None:
    """Three panels against T, a line for each rho."""
    shown = sweep_panels(experiment)
    by_rho: dict[float | None, list[tuple[float, str, str]]] = {}
    for (scenario, method), (t, rho) in grid(experiment).items():
        if t is not None and experiment.of([scenario], method):
            by_rho.setdefault(rho, []).append((t, scenario, method))
    if not shown or not by_rho:
        return None
    figure, axes = panels(1, len(shown), 3.9)
    ordered = sorted(by_rho.items(), key=lambda item: item[0] or 0.0)
    steps = sorted({t for t, _, _ in chain.from_iterable(by_rho.values())})
    for axis, metric in zip(axes[0], shown, strict=True):
        for (rho, places), colour, marker in zip(ordered, shades(len(ordered)), cycle("osD^vPX<>"), strict=False):
            spreads = [(t, spread_in(experiment, [s], m, metric)) for t, s, m in sorted(places)]
            known = [(t, s.mean, 0.0 if s.n < 2 else s.std) for t, s in spreads if s.n]
            if known:
                at, means, deviations = zip(*known, strict=True)
                name = "ρ as configured" if rho is None else f"ρ = {rho:g}"
                axis.errorbar(at, means, yerr=deviations, fmt="-", marker=marker, color=colour, capsize=3, label=name)
        if metric != "avg_gap":
            goal = spread_in(experiment, list(experiment.scenarios), RETRAINED, metric)
            if goal.n:
                axis.axhline(goal.mean, color="black", linewidth=1.3, label="retrained model (mean)")
        axis.set(xlabel="inner steps T", ylabel=experiment.label(metric))
        axis.set_xticks(steps)
    return finished(figure, "Inner steps and penalty: means over seeds, whiskers ± 1 standard deviation")


def curve(run: Finding, name: str) -> np.ndarray:
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


def norms(experiment: Findings) -> dict[float, dict[Place, np.ndarray]]:
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


def final(values: np.ndarray) -> float:
    """Mean over the last tenth of a course."""
    return float(np.nanmean(values[-max(1, int(TAIL * len(values))) :]))


def convergence(experiment: Findings, look: Look) -> Figure | None:
    """|grad F| against outer iterations for each T, and what is left at the end against T."""
    found = norms(experiment)
    if not found:
        return None
    figure, ((left, right),) = panels(1, 2, 4.2, width_ratios=(1.5, 1))
    for (t, courses), colour in zip(found.items(), shades(len(found)), strict=True):
        length = min(map(len, courses.values()))
        table = np.array([c[:length] for c in courses.values()])
        k = np.arange(1, length + 1)
        left.plot(k, np.nanmean(table, axis=0), color=colour, linewidth=1.6, label=f"T = {t:g}")
        if len(courses) > 1:
            band = np.nanmin(table, axis=0), np.nanmax(table, axis=0)
            left.fill_between(k, *band, color=colour, alpha=0.15, linewidth=0)
    left.set(xscale="log", yscale="log", xlabel="outer iteration k", ylabel="|∇F| (nats per unit of parameter)")
    steps = np.array(list(found))
    left_over = [spread(map(final, courses.values())) for courses in found.values()]
    deviations = [0.0 if s.n < 2 else s.std for s in left_over]
    means = np.array([s.mean for s in left_over])
    style = {"fmt": "o-", "color": look.colour(experiment.ours or ""), "capsize": 3}
    right.errorbar(steps, means, yerr=deviations, **style, label="measured, ± 1 std")
    slope = {"color": "0.4", "linestyle": "--", "linewidth": 1}
    right.plot(steps, means[0] * np.sqrt(steps[0] / steps), **slope, label="falls as 1 / √T (lemma 3: |∇F|² as 1 / T)")
    right.set(xscale="log", yscale="log", xlabel="inner steps T", ylabel="|∇F|, mean of the last tenth")
    right.set_xticks(steps, [f"{t:g}" for t in steps])
    right.minorticks_off()
    for axis in (left, right):
        low, high = axis.get_ylim()
        axis.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0) if high < 300 * low else (1.0,)))
        plain_numbers(axis.yaxis)
    plain_numbers(left.xaxis)
    title = "Convergence along the run (means over seeds, bands from least to largest) and at the end"
    return finished(figure, title)


def udi(experiment: Findings, look: Look) -> Figure | None:
    """Difficulty of a group of forget samples against the utility that forgetting it costs, a panel a method."""
    points, correlations = difficulty(experiment)
    if not points:
        return None
    figure, axes = panels_for(len(points), 0.6, 2.6, sharex=True, sharey=True)
    for axis, (method, found) in zip(axes.flat, points.items(), strict=False):
        x, y = np.array(found).T
        axis.plot(x, y, look.marker(method), color=look.colour(method), markeredgecolor="black", markeredgewidth=0.5)
        axis.axhline(0, color="0.5", linewidth=0.8)
        c, text = correlations.get(method, {}), f"{method}, n = {len(found)}"
        if "rho" in c:
            text += f"\nSpearman {c['rho']:.2f} [{c.get('low', np.nan):.2f}, {c.get('high', np.nan):.2f}]"
        axis.set_title(text, fontsize=10, fontweight=look.weight(method))
    figure.supxlabel("mean UDI of the forget set", fontsize=10)
    figure.supylabel("drop in utility (before - after)", fontsize=10)
    for axis in axes.flat:
        axis.tick_params(labelbottom=True)  # also above a place that is empty
    return finished(figure, "Unlearning difficulty and utility: a point a draw [95 % bootstrap interval]")
