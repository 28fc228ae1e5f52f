"""Tables and pictures of a benchmark on images: means and deviations over seeds beside the retrained model's."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
from rich.console import Console
from rich.table import Table

matplotlib.use("agg")
import matplotlib.pyplot as plt

from ofmu_pl.files import replacing, write_json
from ofmu_pl.metrics import overall_scores

SHOWN = ("avg_gap", "UA", "RA", "TA", "MIA", "forget_test_AUC")
Found = dict[tuple[str, str, int], dict[str, Any] | None]
"""Results by method, scenario and seed; ``None`` for a run that failed."""


def summarise(
    folder: Path, name: str, found: Found, choices: dict[tuple[str, str], Any], failures: dict[str, str]
) -> None:
    """Print the tables; write ``summary.json``, ``summary.md`` and ``SCENARIO.png``.

    Args:
        folder: Of the benchmark.
        name: Its name.
        found: Results of all runs.
        choices: Searched setting by method and scenario, ``None`` where there was no search.
        failures: Sentence by folder of a run that failed.
    """
    scenarios = list(dict.fromkeys(s for _, s, _ in found))
    console = Console() if sys.stdout.isatty() else Console(width=160)
    text, everything = [f"# {name}", ""], {}
    for scenario in scenarios:
        rows = _rows(scenario, found)
        everything[scenario] = rows
        lines = _lines(scenario, rows, choices)
        text += [f"## {scenario}", "", *_markdown(lines), ""]
        console.print(_table(f"{name}, {scenario}: mean ± standard deviation over seeds", lines))
        _picture(folder / f"{scenario}.png", f"{name}, {scenario}", rows)
    for place, sentence in failures.items():
        console.print(f"Failed: {place}: {sentence}", markup=False)
        text.append(f"- failed: `{place}`: {sentence}")
    write_json(folder / "summary.json", {"scenarios": everything, "failures": failures})
    with replacing(folder / "summary.md") as temporary:
        temporary.write_text("\n".join(text) + "\n")
    console.print(f"Summary: {folder / 'summary.md'}")


def _rows(scenario: str, found: Found) -> dict[str, dict[str, list[float]]]:
    """By method (and ``retrained``), values over seeds of each metric and of the cost; methods by their mean gap."""
    rows: dict[str, dict[str, list[float]]] = {}
    retrained: dict[int, dict[str, float]] = {}
    for (method, s, seed), results in found.items():
        if s != scenario or results is None:
            continue
        values = {k: results["metrics"][k]["value"] for k in SHOWN if k in results["metrics"]}
        values |= {"gradients": results["cost"]["gradient_evaluations"], "seconds": results["cost"]["training_seconds"]}
        for k, v in values.items():
            rows.setdefault(method, {}).setdefault(k, []).append(float("nan") if v is None else v)
        retrained[seed] = {k: m["value"] for k, m in results["reference"]["metrics"].items() if k in SHOWN}
        made = results["reference"]["model"]["cost"]
        retrained[seed] |= {"gradients": made["gradient_evaluations"], "seconds": made["training_seconds"]}
    goal = {k: [r[k] for r in retrained.values()] for k in next(iter(retrained.values()), {})}
    ordered = sorted(rows, key=lambda m: np.nan_to_num(np.mean(rows[m]["avg_gap"]), nan=np.inf))
    return {"retrained": goal, **{m: rows[m] for m in ordered}}


def _lines(
    scenario: str, rows: dict[str, dict[str, list[float]]], choices: dict[tuple[str, str], Any]
) -> list[list[str]]:
    # "overall" is the paper's score: the higher each of the four, the better, whatever Retrain has.
    lines = [["method", "searched", *SHOWN, "overall", "gradients", "seconds", "runs"]]
    means = {m: {k: float(np.mean(v)) for k, v in values.items()} for m, values in rows.items()}
    overall = overall_scores({m: values for m, values in means.items() if m != "retrained"})
    for method, values in rows.items():
        choice = choices.get((method, scenario))
        line = [method, "" if choice is None else f"{choice:g}" if isinstance(choice, float | int) else str(choice)]
        line += [_spread(values.get(k, []), 3 if k.endswith("AUC") else 2) for k in SHOWN]
        line.append(f"{overall[method]:.3f}" if method in overall else "")
        line += [f"{means[method][k]:.{digits}f}" for k, digits in (("gradients", 0), ("seconds", 1))]
        lines.append([*line, str(len(values["seconds"]))])
    return lines


def _spread(values: list[float], digits: int) -> str:
    """Mean and sample deviation."""
    if not values:
        return ""
    deviation = f"±{np.std(values, ddof=1):.{digits}f}" if len(values) > 1 else ""
    return f"{np.mean(values):.{digits}f}{deviation}"


def _markdown(lines: list[list[str]]) -> list[str]:
    head, *body = [f"| {' | '.join(line)} |" for line in lines]
    return [head, "|" + "---|" * len(lines[0]), *body]


def _table(title: str, lines: list[list[str]]) -> Table:
    table = Table(*lines[0], title=title)
    for i, line in enumerate(lines[1:]):
        table.add_row(*line, end_section=i == 0)
    return table


def _picture(path: Path, title: str, rows: dict[str, dict[str, list[float]]]) -> None:
    """Gap by method, with every seed as a dot; beside it the four metrics, with Retrain's as lines."""
    methods = [m for m in rows if m != "retrained"]
    height = 0.34 * len(methods) + 1.4
    figure, axes = plt.subplots(1, 5, figsize=(13, height), layout="constrained", sharey=True, facecolor="white")
    for axis, metric in zip(axes, SHOWN[:5], strict=True):
        values = [rows[m].get(metric, [np.nan]) for m in methods]
        means = [float(np.mean(v)) for v in values]
        axis.barh(methods, means, color=["tab:blue" if m == "ofmu" else "0.8" for m in methods])
        for i, v in enumerate(values):
            axis.plot(v, [i] * len(v), ".", color="black", markersize=4)
            axis.text(
                0.99, i, f"{means[i]:.2f}", transform=axis.get_yaxis_transform(), ha="right", va="center", fontsize=8
            )
        if metric == "avg_gap":
            axis.set_xscale("symlog", linthresh=1)  # controls at 50 would hide differences of tenths
            axis.set(xlim=(0, 300), xticks=[0, 1, 10, 100], xticklabels=["0", "1", "10", "100"])
            axis.set_xlabel("mean gap to Retrain (points; 0 is best)", fontsize=8)
        else:
            goal = np.mean(rows["retrained"].get(metric, [np.nan]))
            axis.axvline(goal, color="tab:green", linewidth=1.5)
            axis.set(xlim=(0, 132), xticks=range(0, 101, 25))
            axis.set_xlabel(f"{metric} (%), Retrain {goal:.2f}", fontsize=8)
        axis.grid(axis="x", alpha=0.3)
    axes[0].invert_yaxis()
    figure.suptitle(f"{title}: bars are means, dots are seeds, green is the retrained model", fontsize=10)
    with replacing(path) as temporary:
        figure.savefig(temporary, dpi=130, format="png")
    plt.close(figure)
