"""Stored results of methods and metrics, as tables."""

from __future__ import annotations

import json
from pathlib import Path
from statistics import mean, stdev

from makers.rst import heading, table

DATA = Path(__file__).parents[1] / "results/data"
STORED = {"attacks": "Fictitious authors", "attacks_tofu": "Real TOFU, forget10", "attacks_images": "Images"}
"""Files of stored results that hold runs of methods, and what they are about."""
COLUMNS = {
    "forget_Q_A_Prob": "forget probability",
    "retain_Q_A_Prob": "retain probability",
    "model_utility": "model utility",
    "UA": "UA (%)",
    "RA": "RA (%)",
}


def stored(method: str, overlays: set[str]) -> str:
    """What a method's stored runs forgot and kept, beside their targets and retrained models; nothing: no runs.

    Rows outlive the overlay that they are named after, so names that begin with the method's count, too.
    """
    text = ""
    for file, about in STORED.items():
        data = json.loads((DATA / f"{file}.json").read_text(encoding="utf-8"))
        own = {*overlays, method}
        shown = [run for run in data["runs"] if run["method"] in own or run["method"].startswith(f"{method}_")]
        if not shown:
            continue
        sides = {"before": ("target", shown), "retrained": ("retrained", shown)}
        each = sorted({run["method"] for run in shown})
        sides |= {name: ("after", [run for run in shown if run["method"] == name]) for name in each}
        columns = [metric for metric in COLUMNS if metric in shown[0]["sides"]["after"]]
        rows = [
            [name, *(spread([run["sides"][side][metric] for run in runs]) for metric in columns)]
            for name, (side, runs) in sides.items()
        ]
        spent = spread([run["gradients"] for run in shown])
        text += (
            f"**{about}**, {data['date']}, {data['machine']}, {spent} gradients a run, {len(shown)} run(s); "
            f":doc:`all methods and attacks </results/{file}>`.\n\n"
        )
        text += table(["", *(COLUMNS[c] for c in columns)], rows)
    return text


def spread(values: list[float]) -> str:
    """Mean and standard deviation of what runs gave."""
    around = f" ± {stdev(values):.2g}" if len(values) > 1 and len(set(values)) > 1 else ""
    return f"{mean(values):.3g}{around}"


def stored_metric(names: list[str]) -> str:
    """What methods had of a metric in the stored runs; nothing: no runs."""
    text = ""
    for file, about in STORED.items():
        data = json.loads((DATA / f"{file}.json").read_text(encoding="utf-8"))
        columns = [name for name in names if name in data["runs"][0]["sides"]["after"]]
        if not columns:
            continue
        methods = dict.fromkeys(run["method"] for run in data["runs"])
        sides = {name: ("after", [r for r in data["runs"] if r["method"] == name]) for name in methods}
        sides |= {"*before*": ("target", data["runs"]), "*retrained*": ("retrained", data["runs"])}
        rows = [
            [name, *(spread([run["sides"][side][c] for run in runs]) for c in columns)]
            for name, (side, runs) in sides.items()
        ]
        text += f"**{about}**, {data['date']} (:doc:`more </results/{file}>`):\n\n" + table(["", *columns], rows)
    return heading("Stored results") + text if text else ""
