"""The figure that sets methods side by side: what is forgotten against what is kept."""

from __future__ import annotations

from matplotlib.figure import Figure

from ofmu_pl.report.figures.style import Look, finished, panels_for
from ofmu_pl.report.runs import BEFORE, RETRAINED, Findings
from ofmu_pl.report.statistics import front, spread_in, trade_off


def trade_offs(experiment: Findings, look: Look) -> Figure | None:
    """What is forgotten against what is kept, with deviations; the star is where to go."""
    groups = {name: (s, pair) for name, s in experiment.groups.items() if (pair := trade_off(experiment, s))}
    if not groups:
        return None
    figure, axes = panels_for(len(groups), 0.0, 4.6)
    for axis, (name, (scenarios, pair)) in zip(axes.flat, groups.items(), strict=False):
        units = [experiment.declared(m).unit for m in pair]
        points = {}
        for method in (*experiment.ran(scenarios), BEFORE, RETRAINED):
            x, y = (spread_in(experiment, scenarios, method, m) for m in pair)
            if not (x.n and y.n):
                continue
            points[method] = (x.mean, y.mean)
            size = 15 if method == RETRAINED else 11 if method in look.ours else 7
            style = {"color": look.colour(method), "markersize": size, "markeredgecolor": "black", "elinewidth": 1}
            style |= {"fmt": look.marker(method), "markeredgewidth": 0.6, "capsize": 2, "alpha": 0.9, "label": method}
            whiskers = {"xerr": x.std, "yerr": y.std} if x.n > 1 else {}
            front_most = 4 if method in look.ours or method == RETRAINED else 3
            point = axis.errorbar(x.mean, y.mean, **whiskers, **style, zorder=front_most)
            point[0].set_clip_on(False)  # a marker at the end of an axis is seen whole
        best = sorted(points[m] for m in front(experiment, scenarios, pair))
        axis.plot(*zip(*best, strict=True), color="0.6", linewidth=1, zorder=1)
        axis.set(title=name, xlabel=experiment.label(pair[0]), ylabel=experiment.label(pair[1]))
        axis.margins(0.12)
        axis.set(xlim=widened(axis.get_xlim(), units[0]), ylim=widened(axis.get_ylim(), units[1]))
    seeds = "means over seeds, whiskers ± 1 std; " if experiment.replicated else ""
    return finished(figure, f"Trade-off: {seeds}the star is the goal", look)


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
