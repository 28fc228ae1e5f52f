"""A picture of forgetting item by item: each model's probabilities and truth ratios of the forget rows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import matplotlib
import numpy as np

matplotlib.use("agg")
import matplotlib.pyplot as plt
from matplotlib.ticker import MaxNLocator

from ofmu_pl.metrics import DEFINITIONS, SetScores, forget_quality, probability
from ofmu_pl.metrics.tofu_items import log_truth_ratio
from ofmu_pl.support.files import replacing

COLOURS = {"before": "0.6", "after": "tab:blue", "model": "tab:blue", "retrained": "tab:green"}


def draw_histograms(path: Path, scores: dict[str, SetScores], definition: str = "exact") -> None:
    """Draw probabilities (left) and truth ratios (right) of the forget rows.

    Args:
        path: File of the picture.
        scores: Scores on the forget set, by model: ``before`` and ``after``, or ``model``, and ``retrained`` if there
            is one.
        definition: Definition of the truth ratio.
    """
    figure, (left, right) = plt.subplots(1, 2, figsize=(11, 4), layout="constrained", facecolor="white")
    values = {name: np.log10(np.maximum(probability(s.answer_loss), 1e-12)) for name, s in scores.items()}
    _histogram(left, values, "probability of the true answer (per token)")
    ratios = {name: log_truth_ratio(s, DEFINITIONS[definition]) for name, s in scores.items()}
    found = {name: r / np.log(10) for name, r in ratios.items() if r is not None}
    title = f"Truth ratios ({definition})"
    judged = "after" if "after" in found else "model"
    if "retrained" in found and judged in found:
        p, distance = forget_quality(found[judged], found["retrained"])
        title += f": {judged} against retrained, D = {distance:.3f}, p = {p:.2g}"
    if found:
        _histogram(right, found, "truth ratio (wrong over right answers)")
        right.axvline(0, color="0.3", linewidth=0.8, linestyle=":")
    left.set_title("Forget rows", fontsize=10)
    right.set_title(title, fontsize=10)
    with replacing(path) as temporary:
        figure.savefig(temporary, dpi=150, format="png")
    plt.close(figure)


def _histogram(axes: Any, values: dict[str, np.ndarray], label: str) -> None:
    """Draw shares of items over powers of ten."""
    everything = np.concatenate(list(values.values()))
    low, high = everything.min(), everything.max()
    bins = np.linspace(low, high if high > low else low + 1, 31)
    for name, x in values.items():
        weights = np.full(len(x), 100 / len(x))
        style: dict[str, Any] = {"histtype": "step", "linewidth": 2}
        if name == "before":
            style = {"histtype": "stepfilled", "alpha": 0.35}
        style |= {"label": f"{name} (median {10 ** np.median(x):.2g})", "color": COLOURS[name]}
        axes.hist(x, bins=bins, weights=weights, **style)
    axes.xaxis.set_major_locator(MaxNLocator(6, integer=high - low > 2))  # whole powers of ten, where there are some
    axes.xaxis.set_major_formatter(lambda x, _: f"{10**x:.3g}")
    axes.set(xlabel=label, ylabel="% of rows")
    axes.legend(frameon=False, fontsize=8)
    axes.grid(alpha=0.25)
