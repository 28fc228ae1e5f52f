"""A page for each metric."""

import importlib
import pkgutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from makers.rst import heading, table, tree
from makers.stored import stored_metric
from ofmu_pl import metrics
from ofmu_pl.metrics import DEFINITIONS, Metric, functional, privacy_leakage

CATALOGUE = Path(__file__).parents[1] / "metrics.yaml"
KNOWN = {"np": np, "F": functional, "privacy_leakage": privacy_leakage}
"""Names in the worked examples of metrics.yaml."""


def declared() -> dict[str, Metric]:
    """Every metric that a file of ``ofmu_pl.metrics`` declares, by name."""
    found: dict[str, Metric] = {}
    for info in pkgutil.iter_modules(metrics.__path__):
        for value in vars(importlib.import_module(f"ofmu_pl.metrics.{info.name}")).values():
            found |= {metric.name: metric for metric in declarations(value)}
    return found


def declarations(value: object) -> Iterator[Metric]:
    """Declarations in a value: itself, or what a dictionary or sequence holds."""
    if isinstance(value, Metric):
        yield value
    elif isinstance(value, Mapping):
        for pair in value.items():
            yield from declarations(pair)
    elif isinstance(value, tuple | list | set):
        for entry in value:
            yield from declarations(entry)


def catalogue() -> dict[str, dict[str, Any]]:
    """What docs/metrics.yaml says, by page."""
    return yaml.safe_load(CATALOGUE.read_text(encoding="utf-8"))


def metric_pages() -> Iterator[tuple[str, str]]:
    """A page for each metric."""
    known, indexed, entries = declared(), set(), catalogue()
    told = {metric for entry in entries.values() for metric in entry["declared"]}
    if left := sorted(known.keys() - told):
        entries["more"] = {"title": "More metrics", "declared": left, "functions": [], "blind": []}
    for name, entry in entries.items():
        yield f"metrics/{name}", metric_page(entry, known, indexed)
    about = (
        "One page a metric: formula, goal, definitions side by side, a worked number, and what it does not see. "
        "Every value comes with its number of rows, its interval and the name of its definition; "
        ":doc:`/evaluation` says how to get them."
    )
    yield "metrics/index", tree("Metrics, one by one", about, list(entries))


def metric_page(entry: Mapping[str, Any], known: Mapping[str, Metric], indexed: set[str]) -> str:
    """The page of one metric."""
    text = heading(entry["title"], "=")
    if "goal" in entry:
        text += f"**Goal.** {entry['goal']}\n\n"
    if entry["declared"]:
        text += heading("In ``results.json``")
        rows = []
        for name in entry["declared"]:
            metric = known[name]
            says = (metric.says or "").format(value="…", rows="the rows") or "–"
            rows.append([f"``{name}``", metric.unit, "higher" if metric.higher_is_better else "lower", says])
        text += table(["name", "unit", "better without a goal", "in plain words"], rows)
    if entry["functions"]:
        text += heading("How it is computed")
        for name in entry["functions"]:
            again = "   :no-index:\n" if name in indexed else ""
            indexed.add(name)
            text += f".. autofunction:: ofmu_pl.{name}\n{again}\n"
    if worked := entry.get("worked"):
        text += heading("Definitions side by side") + f"For {worked['says']}:\n\n"
        values = {name: eval(worked["value"], KNOWN | {"d": d}) for name, d in DEFINITIONS.items()}
        text += table(["definition", "value"], [[f"``{n}``", shown(v)] for n, v in values.items()])
    if entry["blind"]:
        text += heading("What it does not see") + "".join(f"- {said}\n" for said in entry["blind"]) + "\n"
    return text + stored_metric(entry["declared"])


def shown(value: float) -> str:
    """A number of a worked example; what a definition leaves out is said so."""
    return "left out" if np.isnan(value) else f"{value:.4g}"
