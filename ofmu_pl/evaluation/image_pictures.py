"""Pictures of what happened to a classifier: bars, confidences, confusion, and the forgotten images themselves."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import matplotlib
import numpy as np

matplotlib.use("agg")
import matplotlib.pyplot as plt

from ofmu_pl.evaluation.histograms import COLOURS
from ofmu_pl.evaluation.table import Metrics
from ofmu_pl.metrics.image_scores import ImageScores, confusion
from ofmu_pl.support.files import replacing

SIDES = dict[str, dict[str, ImageScores]]
"""Scores by evaluation set of the models ``before``, ``after``, ``retrained``."""
BARS = ("UA", "RA", "TA", "MIA", "forget_test_AUC")
SHEET = (4, 8)
"""Numbers of rows and columns of the images shown."""


def draw_pictures(folder: Path, data: Any, sides: SIDES, columns: dict[str, Metrics]) -> None:
    """Write ``metrics.png``, ``confidence.png``, ``confusion.png`` and ``forgotten.png``.

    Args:
        folder: Folder of the pictures.
        data: An ``ImageDataModule`` after ``setup``.
        sides: Scores by model.
        columns: Metrics by model, as in the table.
    """
    _save(folder / "metrics.png", _bars(columns))
    _save(folder / "confidence.png", _confidences(sides))
    _save(folder / "confusion.png", _confusions(data, sides))
    _save(folder / "forgotten.png", _sheet(data, sides))


def _save(path: Path, figure: Any) -> None:
    with replacing(path) as temporary:
        figure.savefig(temporary, dpi=130, format="png")
    plt.close(figure)


def _bars(columns: dict[str, Metrics]) -> Any:
    """Draw each metric's bar beside the retrained model's, in per cent."""
    figure, axes = plt.subplots(figsize=(9, 4), layout="constrained", facecolor="white")
    names = [name for name in BARS if any(name in metrics for metrics in columns.values())]
    width = 0.85 / len(columns)
    for i, (label, metrics) in enumerate(columns.items()):
        found = [metrics.get(name) for name in names]
        values = [np.nan if r is None else r.value * (1 if r.unit == "%" else 100) for r in found]
        x = np.arange(len(names)) + (i - (len(columns) - 1) / 2) * width
        bars = axes.bar(x, values, width * 0.92, label=label, color=COLOURS[label])
        axes.bar_label(bars, [f"{v:.1f}" for v in values], fontsize=8, padding=1)
    gap = columns.get("after", columns.get("model", {})).get("avg_gap")
    axes.set_title("Metrics" if gap is None else f"Metrics: mean gap to the retrained model {gap.value:.2f} points")
    axes.set_xticks(range(len(names)), [n.replace("forget_test_AUC", "AUC forget\nagainst test") for n in names])
    axes.set(ylabel="per cent (AUC: x 100)", ylim=(0, 118))
    axes.grid(axis="y", alpha=0.3)
    axes.legend(ncols=len(columns), loc="upper center", frameon=False)
    return figure


def _confidences(sides: SIDES) -> Any:
    """Draw each model's confidence in the true class, forget images beside test images."""
    size = (4.2 * len(sides), 3.4)
    figure, axes = plt.subplots(1, len(sides), figsize=size, layout="constrained", sharey=True, squeeze=False)
    figure.set_facecolor("white")
    style: dict[str, Any] = {"bins": np.linspace(0, 1, 26), "histtype": "step", "linewidth": 1.8}
    for axis, (label, scores) in zip(axes[0], sides.items(), strict=True):
        for name, colour in (("forget", "tab:red"), ("test", "0.4"), ("retain", "tab:blue")):
            p = np.exp(-scores[name].losses)
            axis.hist(p, weights=np.full(len(p), 100 / len(p)), label=name, color=colour, **style)
        axis.set(title=label, xlabel="probability of the true class")
        axis.grid(alpha=0.25)
    axes[0][0].set_ylabel("% of images")
    axes[0][0].legend(frameon=False)
    return figure


def _confusions(data: Any, sides: SIDES) -> Any:
    """Draw the confusion on test images: rows are the true classes, columns the predicted ones."""
    figure, axes = plt.subplots(
        1, len(sides), figsize=(4.2 * len(sides) + 0.6, 4.4), layout="constrained", squeeze=False
    )
    figure.set_facecolor("white")
    classes = len(data.class_names)
    for axis, (label, scores) in zip(axes[0], sides.items(), strict=True):
        counts = confusion(scores["test"], classes)
        shares = 100 * counts / np.maximum(counts.sum(1, keepdims=True), 1)
        image = axis.imshow(shares, vmin=0, vmax=100, cmap="Blues")
        axis.set(title=f"{label}: test images", xlabel="predicted")
        if classes <= 20:
            axis.set_xticks(range(classes), data.class_names, rotation=90, fontsize=7)
            axis.set_yticks(range(classes), data.class_names, fontsize=7)
            for i, j in zip(*np.nonzero(shares >= 0.5), strict=True):
                colour = "white" if shares[i, j] > 50 else "black"
                axis.text(j, i, f"{shares[i, j]:.0f}", ha="center", va="center", fontsize=6, color=colour)
        for c in data.split.forgotten:
            axis.axhspan(c - 0.5, c + 0.5, fill=False, edgecolor="tab:red", linewidth=1.5)
    axes[0][0].set_ylabel("true class" + (" (red: forgotten)" if data.split.forgotten else ""))
    figure.colorbar(image, ax=axes[0][-1], label="% of the class", shrink=0.8)
    return figure


def _sheet(data: Any, sides: SIDES) -> Any:
    """Draw some forgotten images with the class that each model predicts."""
    images, labels = data.images_of("forget")
    rows, columns = SHEET
    shown = np.linspace(0, len(labels) - 1, min(rows * columns, len(labels))).astype(int)
    figure, axes = plt.subplots(rows, columns, figsize=(1.5 * columns, 1.75 * rows), layout="constrained")
    figure.set_facecolor("white")
    for axis in axes.flat:
        axis.axis("off")
    for axis, i in zip(axes.flat, shown, strict=False):
        pixels = images[i].permute(1, 2, 0).numpy()
        grey = pixels.shape[2] == 1
        axis.imshow(pixels[:, :, 0] if grey else pixels, cmap="gray_r" if grey else None)
        s = sides["after"]["forget"]
        said = data.class_names[s.predictions[i]]
        p = np.exp(s.log_probs[i]).max()
        colour = "black" if s.correct[i] else "tab:red"
        axis.set_title(f"{data.class_names[labels[i]]} → {said} {p:.2f}", fontsize=7, color=colour)
    figure.suptitle("Forgotten images: true class → what the model says now, and how sure (red: wrong)", fontsize=10)
    return figure
