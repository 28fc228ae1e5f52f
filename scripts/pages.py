"""What the scripts that write docs/results share: where things are, a table's lines, and the line that dates a page."""

from __future__ import annotations

import os
import platform
from collections.abc import Collection, Iterable
from datetime import date
from pathlib import Path
from statistics import mean, stdev
from typing import Any

import torch
import transformers

from ofmu_pl.support.files import replacing

RESULTS_FOLDER = Path(__file__).parents[1] / "docs/results"
WAYS = {
    "forget_quality": "↑",
    "forget_quality_D": "↓",
    "model_utility": "↑",
    "forget_truth_ratio": "→",
    "forget_Q_A_Prob": "→",
    "retain_Q_A_Prob": "↑",
    "mia_loss": "→",
    "UA": "→",
    "RA": "↑",
    "TA": "↑",
    "MIA": "→",
    "avg_gap": "↓",
    "forget_test_AUC": "→",
}
"""Which way a metric of a table is better."""
MEANING = "[what they mean](../words.md#numbers)"
"""Link to what the columns are."""


def facts(stored: dict[str, Any] | None = None) -> dict[str, Any]:
    """Date, machine and versions, to be stored with numbers.

    Args:
        stored: What was stored before and stays beside the new numbers: its facts, if it has some, go to ``earlier``.
    """
    today = {
        "date": str(date.today()),
        "machine": f"{os.cpu_count()} cores, {platform.machine()}",
        "versions": {"torch": torch.__version__, "transformers": transformers.__version__},
    }
    if not stored or "date" not in stored:
        return today
    before = [*stored.get("earlier", []), {key: stored[key] for key in today}]
    return today | {"earlier": [one for one in before if one != today]}


def written_by(script: str, name: str, stored: dict[str, Any]) -> str:
    """First sentence of a page, from the facts that were stored."""
    measured = "; ".join(
        f"{one['date']}, {one['machine']}, torch {one['versions']['torch']}"
        for one in [*stored.get("earlier", []), stored]
    )
    return f"Written by `scripts/{script}` from docs/results/data/{name}.json ({measured}; not run on a GPU)."


def write_page(name: str, text: str) -> None:
    """Write a page of docs/results, whole or not at all, and print where it is."""
    with replacing(RESULTS_FOLDER / f"{name}.md") as partial:
        partial.write_text(text, encoding="utf-8")
    print(RESULTS_FOLDER / f"{name}.md")


def table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> list[str]:
    """Lines of a table in Markdown."""
    head = list(head)
    return [row(head), rule(len(head)), *map(row, rows)]


def row(cells: Iterable[str]) -> str:
    """One line of it; bars in a cell are no ends of it."""
    return "| " + " | ".join(cell.replace("|", r"\|") for cell in cells) + " |"


def rule(columns: int) -> str:
    """The line below the head."""
    return "|" + "---|" * columns


def spread(values: Collection[float]) -> str:
    """Mean ± standard deviation; one value as it is, and a dash for none."""
    if not values:
        return "-"
    return f"{mean(values):.3g}" + (f" ± {stdev(values):.2g}" if len(values) > 1 else "")
