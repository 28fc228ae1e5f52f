"""What OFMU saw on its way: losses, the distance to its goal, similarity, gradients, penalty, and the curvature."""

from itertools import chain
from typing import Literal

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import LogLocator, MaxNLocator

from ofmu_pl.report.derived import curve
from ofmu_pl.report.figures.style import NARROW, Look, Style, finished, panels, plain_numbers
from ofmu_pl.report.runs import StudiedRun, Study
from ofmu_pl.support.grouping import grouped

PANELS: dict[str, dict[str, str]] = {
    "loss (nats)": {"L_f": "forget", "L_r": "retain"},
    "goal (log-odds)": {"inner/distance": "distance"},
    "similarity": {"Sim": "Sim"},
    "|gradient|": {"grad_L_f": "forget loss", "grad_L_r": "retain loss", "grad_Phi": "Φ"},
    "penalty": {"penalty_share": "|penalty| / |grad L_r|", "rho": "ρ, or r of Reach"},
    "curvature of Φ": {"curvature": "curvature"},
}
"""Names of the curves, with what they are called, by axis."""
LOGARITHMIC, AROUND_ZERO = ("|gradient|", "penalty"), ("similarity", "curvature of Φ")
ABSENT_AT_ZERO = ("grad_L_f", "grad_L_r", "grad_Phi", "penalty_share", "rho", "curvature")
"""Curves that are 0 where there is no such thing: a penalty, or a gradient that did not vanish."""
STYLES: tuple[Literal["-", "--", ":"], ...] = ("-", "--", ":")


def courses(run: StudiedRun) -> dict[str, np.ndarray]:
    """A run's curves by name, NaN where an iteration measured none; empty where the run is not one of OFMU's."""
    if not len(curve(run, "grad_Phi")) and not len(curve(run, "rho")):
        return {}
    found = {name: curve(run, name) for name in chain.from_iterable(PANELS.values())}
    if not len(found["L_f"]):
        found["L_f"] = curve(run, "inner/L_f")
    for name in ABSENT_AT_ZERO:
        found[name] = np.where(found[name] == 0, np.nan, found[name])
    return {name: values for name, values in found.items() if not np.isnan(values).all()}


def telemetry(experiment: Study, look: Look) -> Figure | None:
    """A panel for each kind of number that some run has, below one another, against the outer iteration.

    A colour is a method: its means over seeds and scenarios. Markers stand where less than half of the iterations have
    measured a number.
    """
    by_method = grouped((run.method, found) for run in experiment.finished if (found := courses(run)))
    known = set(chain.from_iterable(chain.from_iterable(by_method.values())))
    shown = {axis: names for axis, names in PANELS.items() if known & names.keys()}
    if not shown:
        return None
    figure, axes = panels(len(shown), 1, 1.0 + 1.5 * len(shown), NARROW, sharex=True)
    for axis, (label, names) in zip(axes.flat, shown.items(), strict=True):
        for method, runs in by_method.items():
            _draw(axis, list(names), method, runs, look)
        axis.set_ylabel(label)
        axis.yaxis.set_major_locator(MaxNLocator(4))
        if label in LOGARITHMIC:
            axis.set_yscale("log")
            axis.yaxis.set_major_locator(LogLocator(subs=(1.0, 3.0)))  # two ticks at least, within a decade too
            plain_numbers(axis.yaxis)
        if label in AROUND_ZERO:
            axis.axhline(0.0, color="0.4", linewidth=0.8)
        if len(names) > 1:
            styles = [(name, style) for name, style in zip(names, STYLES, strict=False) if name in known]
            lines = [Line2D([], [], color="0.2", linestyle=style) for _, style in styles]
            called = [names[name] for name, _ in styles]
            axis.legend(lines, called, loc="lower left", bbox_to_anchor=(0, 1), ncols=3, borderpad=0)
    axes.flat[-1].set(xlabel="outer iteration")
    figure.align_ylabels()
    several = ": means over seeds and scenarios" if any(len(runs) > 1 for runs in by_method.values()) else ""
    return finished(figure, f"OFMU, iteration by iteration{several}", columns=3)


def _draw(axis: Axes, names: list[str], method: str, runs: list[dict[str, np.ndarray]], look: Look) -> None:
    """Draw a method's curves of one panel, as many as its runs have."""
    for name, style in zip(names, STYLES, strict=False):
        measured = [found[name] for found in runs if name in found]
        if measured:
            at, values = _mean(measured)
            marker = look.marker(method) if 2 * len(at) < at[-1] or len(at) == 1 else ""
            line: Style = {"color": look.colour(method), "linestyle": style, "marker": marker}
            axis.plot(at, values, label=method, linewidth=1.2, markersize=4, **line)


def _mean(runs: list[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """The iterations that some run has measured, from 1, and the means over the runs that have."""
    length = max(map(len, runs))
    table = np.array([np.pad(x, (0, length - len(x)), constant_values=np.nan) for x in runs])
    at = np.flatnonzero(~np.isnan(table).all(axis=0))
    return at + 1, np.nanmean(table[:, at], axis=0)
