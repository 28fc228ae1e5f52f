"""Figures of methods side by side, and of studies: inner steps and penalty, difficulty, requests in turn."""

from itertools import chain, cycle
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.figure import Figure

from ofmu_pl.report.derived import difficulty, grid, sweep_panels
from ofmu_pl.report.figures.style import Look, finished, panels, panels_for
from ofmu_pl.report.requests import kept_columns, main_metric
from ofmu_pl.report.runs import Study, words
from ofmu_pl.report.statistics import front, spread_in, trade_off
from ofmu_pl.support.grouping import grouped
from ofmu_pl.support.records.models import BEFORE, RETRAINED

LARGEST = 12  # requests up to which a heat map has numbers in it


def sweep(experiment: Study, look: Look) -> Figure | None:
    """Three panels against T, a line for each rho."""
    shown = sweep_panels(experiment)
    ran = {place: point for place, point in grid(experiment).items() if experiment.part(place[0]).of(place[1])}
    by_rho = grouped((rho, (t, *place)) for place, (t, rho) in ran.items() if t is not None)
    if not shown or not by_rho:
        return None
    figure, axes = panels(1, len(shown), 3.9)
    ordered = sorted(by_rho.items(), key=lambda item: item[0] or 0.0)
    shades = mpl.colormaps["viridis"](np.linspace(0.05, 0.8, len(ordered)))
    steps = sorted({t for t, _, _ in chain.from_iterable(by_rho.values())})
    for axis, metric in zip(axes[0], shown, strict=True):
        for (rho, places), colour, marker in zip(ordered, shades, cycle("osD^vPX<>"), strict=False):
            spreads = [(t, spread_in(experiment.part(s), m, metric)) for t, s, m in sorted(places)]
            known = [(t, s.mean, 0.0 if s.n < 2 else s.std) for t, s in spreads if s.n]
            if known:
                at, means, deviations = zip(*known, strict=True)
                name = "ρ as configured" if rho is None else f"ρ = {rho:g}"
                axis.errorbar(at, means, yerr=deviations, fmt="-", marker=marker, color=colour, capsize=3, label=name)
        if metric != "avg_gap":
            goal = spread_in(experiment, RETRAINED, metric)
            if goal.n:
                axis.axhline(goal.mean, color="black", linewidth=1.3, label="retrained model (mean)")
        axis.set(xlabel="inner steps T", ylabel=experiment.label(metric))
        axis.set_xticks(steps)
    return finished(figure, "Inner steps and penalty: means over seeds, whiskers ± 1 standard deviation")


def udi(experiment: Study, look: Look) -> Figure | None:
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


def trade_offs(experiment: Study, look: Look) -> Figure | None:
    """What is forgotten against what is kept, with deviations; the star is where to go."""
    groups = {name: (group, pair) for name, group in experiment.groups.items() if (pair := trade_off(group))}
    if not groups:
        return None
    figure, axes = panels_for(len(groups), 0.0, 4.6)
    for axis, (name, (group, pair)) in zip(axes.flat, groups.items(), strict=False):
        units = [experiment.declared(m).unit for m in pair]
        best = front(group, pair)
        known = {}
        for method in (*group.ran, BEFORE, RETRAINED):
            x, y = (spread_in(group, method, m) for m in pair)
            if x.n and y.n:
                known[method] = x, y
        far_below = broken({method: y.mean for method, (_, y) in known.items()})
        for method, (x, y) in known.items():
            if method in far_below:
                continue
            size = 15 if method == RETRAINED else 11 if method in look.ours else 7
            style = {"color": look.colour(method), "markersize": size, "markeredgecolor": "black", "elinewidth": 1}
            style |= {"fmt": look.marker(method), "capsize": 2, "alpha": 0.9, "label": method}
            style["markeredgewidth"] = 1.6 if method in best else 0.6
            whiskers = {"xerr": x.std, "yerr": y.std} if min(x.n, y.n) > 1 else {}
            front_most = 4 if method in look.ours or method == RETRAINED else 3
            point = axis.errorbar(x.mean, y.mean, **whiskers, **style, zorder=front_most)
            point[0].set_clip_on(False)  # a marker at the end of an axis is seen whole
        axis.set(
            title=name if len(groups) > 1 else "", xlabel=experiment.label(pair[0]), ylabel=experiment.label(pair[1])
        )
        if far_below:  # whose other coordinate belongs on the axis all the same
            inside = max(y.mean for _, y in known.values())
            axis.update_datalim([(known[method][0].mean, inside) for method in far_below])
        axis.margins(0.12)
        axis.set(xlim=widened(axis.get_xlim(), units[0]), ylim=widened(axis.get_ylim(), units[1]))
        bottom = axis.get_ylim()[0]
        for place, method in enumerate(sorted(far_below, key=lambda method: known[method][0].mean)):
            x, y = known[method]
            axis.plot(x.mean, bottom, look.marker(method), color=look.colour(method), clip_on=False, label=method)
            aside = (6, 2 + 10 * (place % 3))  # so that neighbours' values do not overlap
            axis.annotate(f"↓ {y.mean:.2g}", (x.mean, bottom), aside, textcoords="offset points", fontsize=8)
    seeds = "means over seeds, whiskers ± 1 std; " if experiment.replicated else ""
    return finished(figure, f"Trade-off: {seeds}the star is the goal; thick edges: the front; ↓: further below", look)


def broken(kept: dict[str, float]) -> list[str]:
    """Methods that keep less than half of what the best keeps: at their value's place they would press all others flat.

    >>> broken({"ofmu": 0.99, "npo": 0.97, "grad_ascent": 0.2}), broken({"ofmu": 0.9, "npo": 0.5})
    (['grad_ascent'], [])
    """
    return [method for method, value in kept.items() if value < max(kept.values()) / 2]


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


def heat_maps(experiment: Study, look: Look) -> Figure | None:
    """A panel a method, the mean over seeds: a row a request, a column the time after each."""
    record = experiment.requests
    metric = main_metric(record) if record else None
    if record is None or metric is None:
        return None
    shown = _means([(s.method, s.forgotten[metric]) for s in record.sequences if metric in s.forgotten])
    figure, axes = panels_for(len(shown), 0.0, 3.6)
    top = 100.0 if max(map(np.nanmax, shown.values())) > 1 else 1.0  # per cent, or a share
    for axis, (method, matrix) in zip(axes.flat, shown.items(), strict=False):
        image = axis.imshow(matrix, vmin=0.0, vmax=top, cmap="viridis", aspect="auto")
        axis.grid(visible=False)
        n = len(matrix)
        ticks = np.arange(n) if n <= LARGEST else np.arange(0, n, n // 6)
        axis.set_xticks(ticks, [str(t + 1) for t in ticks])
        axis.set_yticks(ticks, [str(t + 1) for t in ticks])
        axis.set(xlabel="after request", ylabel="request")
        axis.set_title(method, fontweight=look.weight(method))
        for s, t in np.argwhere(np.isfinite(matrix)) if n <= LARGEST else ():
            tone = "black" if matrix[s, t] > 0.6 * top else "white"
            short = f"{matrix[s, t]:.0f}" if top > 1 else f"{matrix[s, t]:.2f}".removeprefix("0")  # ten in a row fit
            axis.text(t, s, short, ha="center", va="center", fontsize=7, color=tone)
    figure.colorbar(image, ax=axes, shrink=0.8, label=words(metric))
    return figure


def drift(experiment: Study, look: Look) -> Figure | None:
    """A panel a metric of what must stay, a line a method: its mean over seeds after each request."""
    record = experiment.requests
    names = kept_columns(experiment, record)[:2] if record else []
    if record is None or not names:
        return None
    figure, axes = panels(1, len(names), 3.6)
    for axis, name in zip(axes[0], names, strict=True):
        means = _means([(s.method, s.kept[name]) for s in record.sequences if name in s.kept])
        for method, mean in means.items():
            style = {"color": look.colour(method), "marker": look.marker(method), "label": method}
            axis.plot(np.arange(len(mean)), mean, **style)
        points = grouped((c.after, value) for c in record.controls if (value := c.kept.get(name)) is not None)
        if points:
            at = sorted(points)
            style = {"color": look.colour(RETRAINED), "marker": look.marker(RETRAINED), "linestyle": "none"}
            axis.plot(at, [np.mean(points[t]) for t in at], label=RETRAINED, **style)
        axis.set(xlabel="requests answered", ylabel=words(name))
        axis.locator_params(axis="x", integer=True)
    return finished(figure, "What must stay: means over seeds", look)


def _means(values: list[tuple[str, Any]]) -> dict[str, np.ndarray]:
    """By method the mean over seeds where one has a value, NaN elsewhere."""
    masked = {method: np.ma.masked_invalid(np.array(own, dtype=float)) for method, own in grouped(values).items()}
    return {method: own.mean(axis=0).filled(np.nan) for method, own in masked.items()}
