"""What OFMU saw on its way: losses, similarity, |grad Phi|, the penalty's size and where Phi curves upwards."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator

from ofmu_pl.report.figures.studies import curve
from ofmu_pl.report.figures.style import Look, legend_below, panels, plain_numbers
from ofmu_pl.report.runs import Experiment, Run

PARTS = 10
"""Parts of a run; iterations are averaged in each, since methods differ in their number of iterations."""
PENALTY, CURVATURE = "|penalty| / |grad L_r|", "Φ curves upwards (%)"
PANELS: dict[str, tuple[Callable[[dict[str, np.ndarray]], np.ndarray], bool]] = {
    "forget loss (nats)": (lambda c: c["L_f"], False),
    "retain loss (nats)": (lambda c: c["L_r"], False),
    "Sim(grad L_f, grad L_r)": (lambda c: c["Sim"], False),
    "|grad Φ| (nats a unit)": (lambda c: c["grad_Phi"], False),
    PENALTY: (lambda c: np.where(c["penalty"] > 0, c["penalty"], np.nan) / c["grad_L_r"], True),
    CURVATURE: (lambda c: np.where(np.abs(c["curvature"]) > 0, 100.0 * (c["curvature"] > 0), np.nan), False),
}
"""Axis: values by iteration (none of the penalty where there is none), and whether it is logarithmic."""
NEEDED = ("L_f", "L_r", "Sim", "grad_Phi", "grad_L_r", "penalty", "curvature")


def courses(run: Run) -> dict[str, np.ndarray] | None:
    """A run's curves of equal length; ``None`` if it has not all that are shown."""
    found = {name: curve(run, name) for name in NEEDED}
    lengths = [len(values) for values in found.values()]
    if not min(lengths) or max(lengths) < PARTS:
        return None
    # Some end earlier: what needs higher derivatives is not measured in every iteration.
    found = {name: np.pad(x, (0, max(lengths) - len(x)), constant_values=np.nan) for name, x in found.items()}
    found["grad_L_r"][found["grad_L_r"] == 0] = np.nan
    return found


def telemetry(experiment: Experiment, look: Look) -> Figure | None:
    """Six panels against the share of the run that is done, a line a method: means over seeds and scenarios."""
    by_method: dict[str, list[dict[str, np.ndarray]]] = {}
    for run in experiment.finished:
        found = courses(run)
        if found is not None:
            by_method.setdefault(run.method, []).append(found)
    if not by_method:
        return None
    figure, axes = panels(2, 3, 5.6, sharex=True)
    at = 100.0 * (np.arange(PARTS) + 0.5) / PARTS
    for axis, (name, (values, logarithmic)) in zip(axes.flat, PANELS.items(), strict=True):
        for method, runs in by_method.items():
            parts = np.array([[_mean(part) for part in np.array_split(values(c), PARTS)] for c in runs])
            line: dict[str, Any] = {"color": look.colour(method), "marker": look.marker(method), "markersize": 4}
            axis.plot(at, [_mean(column) for column in parts.T], label=method, **line)
        axis.set(ylabel=name)
        if logarithmic:
            axis.set_yscale("log")
            axis.yaxis.set_major_locator(LogLocator(subs=(1.0, 3.0)))  # two ticks at least, within a decade too
            plain_numbers(axis.yaxis)
    for axis in axes[-1]:
        axis.set(xlabel="share of the run (%)", xlim=(0, 100))
    axes.flat[list(PANELS).index(CURVATURE)].set_ylim(0, 100)
    several = ": means over seeds and scenarios" if any(len(runs) > 1 for runs in by_method.values()) else ""
    figure.suptitle(f"What OFMU saw{several}, in tenths of the run", x=0.01, ha="left")
    legend_below(figure, axes)
    return figure


def _mean(values: np.ndarray) -> float:
    known = values[~np.isnan(values)]
    return float(known.mean()) if known.size else float("nan")
