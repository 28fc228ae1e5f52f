"""Figures of requests one after another: what is still known of each after each, and the drift of what must stay."""

import numpy as np
from matplotlib.figure import Figure

from ofmu_pl.report.figures.style import Look, finished, panels, panels_for
from ofmu_pl.report.requests import kept_columns, main_metric
from ofmu_pl.report.runs import Study, words
from ofmu_pl.support.records.models import RETRAINED
from ofmu_pl.support.records.requests import Row

LARGEST = 12
"""Requests up to which a heat map has numbers in it."""


def heat_maps(experiment: Study, look: Look) -> Figure | None:
    """A panel a method, the mean over seeds: a row a request, a column the time after each."""
    record = experiment.requests
    metric = main_metric(record) if record else None
    if record is None or metric is None:
        return None
    shown: dict[str, np.ndarray] = {}
    for method in record.methods:
        own = [s.forgotten[metric] for s in record.sequences if s.method == method and metric in s.forgotten]
        shown |= {method: _mean(own)} if own else {}
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
        for method in record.methods:
            values = [s.kept[name] for s in record.sequences if s.method == method and name in s.kept]
            if values:
                mean = _mean(values)
                style = {"color": look.colour(method), "marker": look.marker(method), "label": method}
                axis.plot(np.arange(len(mean)), mean, **style)
        points: dict[int, list[float]] = {}
        for control in record.controls:
            value = control.kept.get(name)
            if value is not None:
                points.setdefault(control.after, []).append(value)
        if points:
            at = sorted(points)
            style = {"color": look.colour(RETRAINED), "marker": look.marker(RETRAINED), "linestyle": "none"}
            axis.plot(at, [np.mean(points[t]) for t in at], label=RETRAINED, **style)
        axis.set(xlabel="requests answered", ylabel=words(name))
        axis.locator_params(axis="x", integer=True)
    return finished(figure, "What must stay: means over seeds", look)


def _mean(values: list[Row] | list[list[Row]]) -> np.ndarray:
    """The mean over seeds where one has a value, NaN elsewhere."""
    mean: np.ndarray = np.ma.masked_invalid(np.array(values, dtype=float)).mean(axis=0).filled(np.nan)
    return mean
