"""A picture of the runs below a folder: what was forgotten against what was kept."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("agg")
import matplotlib.pyplot as plt

from ofmu_pl.errors import UserError
from ofmu_pl.files import replacing

SHOWN = {
    "forget_Q_A_Prob": "forget\nprobability",
    "forget_Q_A_ROUGE": "forget\nROUGE-L",
    "forget_truth_ratio": "forget\ntruth ratio",
    "forget_quality": "forget\nquality",
    "retain_Q_A_Prob": "retain\nprobability",
    "retain_Q_A_ROUGE": "retain\nROUGE-L",
    "model_utility": "model\nutility",
}
"""Metrics of the bar panel, all between 0 and 1."""


def report(folder: Path, output: Path | None = None) -> Path:
    """Draw ``report.png`` from every unlearning run's newest finished version below a folder.

    Args:
        folder: For example logs/quickstart; runs are found as METHOD/latest/results.json.
        output: The picture; null: report.png in the folder.

    Raises:
        UserError: There is no finished unlearning run below the folder.
    """
    runs = {
        path.parent.parent.name: json.loads(path.read_text()) for path in sorted(folder.glob("*/latest/results.json"))
    }
    runs = {name: results for name, results in runs.items() if results.get("before")}
    if not runs:
        raise UserError(
            f"There is no finished unlearning run below '{folder}' (METHOD/latest/results.json): "
            "give the benchmark's folder, for example logs/quickstart, after a run of fit has ended."
        )
    figure, (left, right) = plt.subplots(
        1, 2, figsize=(12.5, 5), width_ratios=(1, 1.5), layout="constrained", facecolor="white"
    )
    _trade_off(left, runs)
    _bars(right, runs)
    path = output or folder / "report.png"
    with replacing(path) as temporary:
        figure.savefig(temporary, dpi=150, format="png")
    plt.close(figure)
    sys.stdout.write(f"Report: {path}\n")
    return path


def _trade_off(axes: Any, runs: dict[str, dict[str, Any]]) -> None:
    """Retain against forget probability along each run: the retrained model's corner is where to go."""
    first = next(iter(runs.values()))
    point = _point(first["before"])
    axes.plot(*point, "s", color="0.35", markersize=10, label="target model (before)", zorder=3)
    if first.get("reference"):
        retrained = _point(first["reference"]["metrics"])
        axes.plot(*retrained, "*", color="tab:green", markersize=18, label="retrained (the goal)", zorder=3)
    for i, (name, results) in enumerate(runs.items()):
        path = [_point(results["before"])]
        path += [_point(h["metrics"]) for h in results.get("history", [])]
        path.append(_point(results["metrics"]))
        axes.plot(*zip(*path, strict=True), "-", marker=".", color=f"C{i}", linewidth=1.2, markersize=4, alpha=0.75)
        axes.plot(*path[-1], "o", color=f"C{i}", markersize=10, label=f"{name} (after)", zorder=4)
    axes.set(
        xlabel="probability of forget answers (left is forgotten)",
        ylabel="probability of retain answers (up is kept)",
        xlim=(-0.03, 1.03),
        ylim=(0, 1.03),
        title="Trade-off, along the run",
    )
    axes.grid(alpha=0.3)
    axes.legend(loc="lower left", frameon=False)


def _bars(axes: Any, runs: dict[str, dict[str, Any]]) -> None:
    """The main metrics before, after each method, and retrained."""
    first = next(iter(runs.values()))
    series = [("before", first["before"], "0.6")]
    series += [(name, results["metrics"], f"C{i}") for i, (name, results) in enumerate(runs.items())]
    if first.get("reference"):
        series.append(("retrained", first["reference"]["metrics"], "tab:green"))
    names = [name for name in SHOWN if any(name in metrics for _, metrics, _ in series)]
    width = 0.85 / len(series)
    for i, (label, metrics, colour) in enumerate(series):
        values = [(metrics.get(name) or {}).get("value") or 0.0 for name in names]
        x = [j + (i - (len(series) - 1) / 2) * width for j in range(len(names))]
        bars = axes.bar(x, values, width * 0.92, label=label, color=colour)
        axes.bar_label(bars, [_short(v) for v in values], fontsize=7, padding=1)
    axes.set_xticks(range(len(names)), [SHOWN[name] for name in names], fontsize=9)
    axes.set(ylim=(0, 1.15), title="Metrics (the retrained model's value is the target)")
    axes.grid(axis="y", alpha=0.3)
    axes.legend(ncols=len(series), loc="upper center", frameon=False)


def _point(metrics: dict[str, Any]) -> tuple[float, float]:
    return metrics["forget_Q_A_Prob"]["value"], metrics["retain_Q_A_Prob"]["value"]


def _short(value: float) -> str:
    return f"{value:.2f}" if value >= 0.005 or value == 0 else f"{value:.0e}"
