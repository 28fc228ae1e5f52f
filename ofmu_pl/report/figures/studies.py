"""Figures of studies: inner steps and penalty, convergence, unlearning difficulty, embedding alignment."""

from __future__ import annotations

from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import LogLocator

from ofmu_pl.report import published
from ofmu_pl.report.derived import alignment, difficulty, grid
from ofmu_pl.report.figures.comparison import label
from ofmu_pl.report.figures.style import Look, legend_below, panels, plain_numbers
from ofmu_pl.report.runs import RETRAINED, Findings, Run, number
from ofmu_pl.report.statistics import spread

TAIL = 0.1
"""Share of a run whose mean is its final value: single iterations are noisy."""
LONGEST = 100_000
"""Iterations of a curve that are read; runs write a thousand."""


def sweep_panels(experiment: Findings) -> list[str]:
    """Forgetting, utility, forget quality: the three that the paper's figure has, or what stands for them on images."""
    wanted = (
        ("UA", "forget_Q_A_Prob"),
        ("model_utility", "TA"),
        ("forget_quality_D", "forget_quality", "avg_gap"),
    )
    found = [next((m for m in names if experiment.entry(m)), None) for names in wanted]
    return [m for m in found if m] if all(found) else experiment.columns()[:3]


def sweep(experiment: Findings, look: Look) -> Figure | None:
    """Three panels against T, a line for each rho."""
    points = grid(experiment)
    shown = sweep_panels(experiment)
    if not shown or not any(t is not None for t, _ in points.values()):
        return None
    lines: dict[float | None, list[tuple[float, str, str]]] = {}
    for (scenario, method), (t, rho) in points.items():
        if t is not None and experiment.of([scenario], method):
            lines.setdefault(rho, []).append((t, scenario, method))
    figure, axes = panels(1, len(shown), 3.9)
    ordered = sorted(lines.items(), key=lambda item: item[0] or 0.0)
    colours = mpl.colormaps["viridis"](np.linspace(0.05, 0.8, len(ordered)))
    for axis, metric in zip(axes[0], shown, strict=True):
        for (rho, places), colour, marker in zip(ordered, colours, "osD^vPX<>" * len(ordered), strict=False):
            spreads = [(t, spread(list(experiment.values([s], m, metric).values()))) for t, s, m in sorted(places)]
            known = [(t, s) for t, s in spreads if s.n]
            if known:
                at, means = [t for t, _ in known], [s.mean for _, s in known]
                deviations = [0.0 if s.n < 2 else s.std for _, s in known]
                name = "ρ as configured" if rho is None else f"ρ = {rho:g}"
                axis.errorbar(at, means, yerr=deviations, fmt="-", marker=marker, color=colour, capsize=3, label=name)
        goal = list(experiment.values(list(experiment.scenarios), RETRAINED, metric).values())
        if goal and metric != "avg_gap":
            axis.axhline(float(np.mean(goal)), color="black", linestyle="--", linewidth=1.2, label="retrained model")
        axis.set(xlabel="inner steps T", ylabel=label(experiment, metric))
        axis.set_xticks(sorted({t for places in lines.values() for t, _, _ in places}))
    figure.suptitle("Inner steps and penalty: means over seeds, whiskers ± 1 standard deviation", x=0.01, ha="left")
    legend_below(figure, axes)
    return figure


def curve(run: Run, name: str) -> np.ndarray:
    """A run's values by iteration, NaN where it has measured none; empty if it has none at all.

    ``{"step": [...], "value": [...]}``, steps counted from 1; older results hold a list, a value an iteration.
    """
    points = run.results.curves.get(name) if run.results else None
    if isinstance(points, list):
        points = {"step": range(1, len(points) + 1), "value": points}
    steps, values = (points.get(key) if isinstance(points, dict) else None for key in ("step", "value"))
    if not isinstance(steps, list | range) or not isinstance(values, list):
        return np.array([])
    known = {k: number(x) for k, x in zip(steps, values, strict=False) if isinstance(k, int) and 0 < k <= LONGEST}
    found = np.full(max(known, default=0), np.nan)
    for k, x in known.items():
        found[k - 1] = np.nan if x is None else x
    return found


def norms(experiment: Findings) -> dict[float, dict[tuple[str, int, int], np.ndarray]]:
    """Courses of |grad F|, NaN for no value, by T and what runs of several T share: scenario or method, seed, place."""
    found: dict[float, dict[tuple[str, int, int], np.ndarray]] = {}
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
    colours = mpl.colormaps["viridis"](np.linspace(0.05, 0.8, len(found)))
    for (t, courses), colour in zip(found.items(), colours, strict=True):
        length = min(map(len, courses.values()))
        table = np.array([c[:length] for c in courses.values()])
        k = np.arange(1, length + 1)
        left.plot(k, np.nanmean(table, axis=0), color=colour, linewidth=1.6, label=f"T = {t:g}")
        if len(courses) > 1:
            left.fill_between(
                k, np.nanmin(table, axis=0), np.nanmax(table, axis=0), color=colour, alpha=0.15, linewidth=0
            )
    left.set(xscale="log", yscale="log", xlabel="outer iteration k", ylabel="|∇F| (nats per unit of parameter)")
    left.set_title("Along the run: mean over seeds, band from least to largest")
    steps = np.array(list(found))
    left_over = [spread([final(c) for c in courses.values()]) for courses in found.values()]
    deviations = [0.0 if s.n < 2 else s.std for s in left_over]
    means = np.array([s.mean for s in left_over])
    right.errorbar(steps, means, yerr=deviations, fmt="o-", color=look.colour(experiment.ours or ""), capsize=3,
                   label="measured, ± 1 std")  # fmt: skip
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
    right.set_title("At the end")
    legend_below(figure, [left, right])
    return figure


def udi(experiment: Findings, look: Look) -> Figure | None:
    """Difficulty of a group of forget samples against the utility that forgetting it costs, a panel a method."""
    points, correlations = difficulty(experiment)
    if not points:
        return None
    across = min(3, len(points))
    down = -(-len(points) // across)
    figure, axes = panels(down, across, 0.6 + 2.6 * down, sharex=True, sharey=True)
    for axis in axes.flat[len(points) :]:
        axis.set_visible(False)
    theirs = {published.our_method(experiment, p.method): p.value
              for p in published.cells(experiment.paper, "spearman_udi_mu_drop")}  # fmt: skip
    for axis, (method, found) in zip(axes.flat, points.items(), strict=False):
        x, y = np.array(found).T
        axis.plot(x, y, look.marker(method), color=look.colour(method), markeredgecolor="black", markeredgewidth=0.5)
        axis.axhline(0, color="0.5", linewidth=0.8)
        c = correlations.get(method, {})
        text = f"{method}, n = {len(found)}" + (f" (paper: {theirs[method]})" if method in theirs else "")
        if "rho" in c:
            text += f"\nSpearman {c['rho']:.2f} [{c.get('low', np.nan):.2f}, {c.get('high', np.nan):.2f}]"
        axis.set_title(text, fontsize=10, fontweight=look.weight(method))
    for axis in axes[-1]:
        axis.set_xlabel("mean UDI of the forget set")
    for axis in axes[:, 0]:
        axis.set_ylabel("drop in utility\n(before - after)")
    for k in range(len(points) - across * (down - 1), across):  # above an empty place the axis needs its own name
        axes[-2, k].set_xlabel("mean UDI of the forget set")
        axes[-2, k].tick_params(labelbottom=True)
    figure.suptitle("Unlearning difficulty and utility: a point a draw [95 % bootstrap interval]", x=0.01, ha="left")
    return figure


def thirds(experiment: Findings, look: Look) -> Figure | None:
    """Cosine with the retrained model's embeddings, easiest and hardest third."""
    found = alignment(experiment)
    models = list(dict.fromkeys([*found["easiest"], *found["hardest"]]))
    if not models:
        return None
    figure, ((axis,),) = panels(1, 1, 4.2)
    styles: dict[str, dict[str, Any]] = {"easiest": {"alpha": 0.45}, "hardest": {"alpha": 0.9, "hatch": "//"}}
    theirs = published.cells(experiment.paper)
    for shift, (third, style) in zip((-0.2, 0.2), styles.items(), strict=True):
        for i, model in enumerate(models):
            values = list(found[third].get(model, {}).values())
            s = spread(values)
            if not s.n:
                continue
            whisker = {"elinewidth": 1, "capsize": 3}
            axis.bar(i + shift, s.mean, 0.38, yerr=s.std if s.n > 1 else None, color=look.colour(model),
                     edgecolor="white", error_kw=whisker, **style)  # fmt: skip
            axis.plot([i + shift] * len(values), values, ".", color="black", markersize=5)
            for p in theirs:
                same = published.our_method(experiment, p.method) == model
                if same and p.metric == ("cosine_easy" if third == "easiest" else "cosine_hard"):
                    axis.plot(i + shift, float(p.value), "D", color="white", markeredgecolor="black", markersize=6)
    axis.set_xticks(range(len(models)), models, rotation=20, ha="right", rotation_mode="anchor")
    look.emphasise(axis.get_xticklabels())
    axis.set(ylabel="cosine with the retrained model (-1 to 1)", title="Embedding alignment: means over seeds, ± 1 std")
    axis.grid(visible=False, axis="x")
    handles: list[Any] = [mpl.patches.Patch(facecolor="0.4", edgecolor="white", **styles[k], label=f"{k} third")
                          for k in styles]  # fmt: skip
    if any(p.metric.startswith("cosine_") for p in theirs):
        diamond: dict[str, Any] = {"color": "white", "markeredgecolor": "black", "marker": "D", "linestyle": "none"}
        handles.append(Line2D([], [], **diamond, label="paper" + (" (not comparable)" if experiment.note else "")))
    figure.legend(handles=handles, loc="outside lower center", ncols=3)
    return figure
