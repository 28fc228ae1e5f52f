"""Requests one after another: runs what is missing of the shipped lists, and writes the page.

    python scripts/one_after_another.py [--only-table] [--logs logs] [--note TEXT] configs/requests/authors.yaml ...

Each list is ``python -m ofmu_pl requests --config LIST``; what is there is not run again. Summaries go to
docs/results/data/requests.json, the page to docs/results/requests.md.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import yaml
from pages import MEANING, WAYS, facts, row, table, write_page

from ofmu_pl.support.files import write_json
from ofmu_pl.support.records import REQUESTS, RequestsRecord

ROOT = Path(__file__).parents[1]
DATA = ROOT / "docs/results/data/requests.json"
ABOUT = f"""# Requests one after another

Written by `scripts/one_after_another.py` from docs/results/data/requests.json; [how they are run and
what is written](../requests.md). p is the probability of the true answer, exp(-loss), the mean over a request's
rows, and of images their accuracy in per cent: row s, column t of a matrix is that of request s after request t. Came
back: the most that it rose after the request's own turn (below 0: it never rose). Retrained: models trained without
the requests so far. One seed, no rate was searched: what is compared is a short, equal budget of gradients, not what
each method can do in the end. ↑ the higher, ↓ the lower, → the nearer to the retrained model's value the better
({MEANING}).
"""
METRICS = {"forget_Q_A_Prob": "p", "forget_accuracy": "accuracy"}
"""What a list shows of its requests, the first that it has, with its name in the tables."""
KEPT = ("retain_Q_A_Prob", "model_utility", "RA", "TA")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("lists", nargs="*", type=Path)
    parser.add_argument("--logs", type=Path, default=ROOT / "logs")
    parser.add_argument("--workers", default="2")
    parser.add_argument("--note", help="what else a reader should know of these runs; kept with the summary")
    parser.add_argument("--only-table", action="store_true", help="write the page from the stored summaries")
    args = parser.parse_args()
    stored: dict[str, Any] = json.loads(DATA.read_text()) if DATA.is_file() else {}
    for path in [] if args.only_table else args.lists:
        words = ["requests", "--config", str(path), "--logs", str(args.logs), "--workers", args.workers]
        subprocess.run(
            [sys.executable, "-m", "ofmu_pl", *words], check=True, env=os.environ | {"PYTHONPATH": str(ROOT)}
        )
        name = yaml.safe_load(path.read_text())["name"]
        note = args.note or stored.get(name, {}).get("note", "")
        stored[name] = summary(RequestsRecord.read(args.logs / name / REQUESTS), path) | {"note": note}
        write_json(DATA, stored)
    write_page("requests", page(stored))


def summary(record: RequestsRecord, path: Path) -> dict[str, Any]:
    """What the page shows of a list."""
    metric = next(name for name in METRICS if any(name in s.forgotten for s in record.sequences))
    sequences = [
        {
            "method": s.method,
            "matrix": s.forgotten.get(metric, []),
            "before": s.before.get(metric, []),
            "returned": s.returned.get(metric, []),
            "kept": {name: s.kept[name] for name in KEPT if name in s.kept},
            "gradients": [r.cost.gradient_evaluations for r in s.requests],
            "seconds": [r.cost.training_seconds for r in s.requests],
            "status": [r.status for r in s.requests],
        }
        for s in record.sequences
    ]
    controls = [
        {"after": c.after, "p": c.forgotten[metric], "kept": {name: c.kept[name] for name in KEPT if name in c.kept}}
        for c in record.controls
        if metric in c.forgotten
    ]
    about = {"list": path.name, "date": record.date[:10], "ofmu_pl": record.version, "machine": facts()["machine"]}
    return about | {"metric": METRICS[metric], "sequences": sequences, "controls": controls}


def page(stored: dict[str, Any]) -> str:
    """The tables as Markdown."""
    run = {found["list"] for found in stored.values()}
    missing = [path.name for path in sorted((ROOT / "configs/requests").glob("*.yaml")) if path.name not in run]
    lines = [ABOUT, *([f"Lists that have not been run to their end: {', '.join(missing)}.", ""] if missing else [])]
    for name, found in stored.items():
        lines += [f"## {name} (`configs/requests/{found['list']}`, {found['date']}, {found['machine']})", ""]
        lines += [found["note"], ""] if found["note"] else []
        lines += _overview(found)
        for s in found["sequences"]:
            lines += _matrix(s, found["controls"], found["metric"])
    return "\n".join(lines) + "\n"


def _overview(found: dict[str, Any]) -> list[str]:
    kept = [name for name in KEPT if any(name in s["kept"] for s in found["sequences"])]
    of_all = f"{found['metric']} of all"
    heads = ["method", "requests", f"{of_all} before", f"{of_all} in the end →", "largest return ↓"]
    lines = table([*heads, *(f"{name} {WAYS[name]}: before, in the end" for name in kept), "gradients", "seconds"], [])
    for s in found["sequences"]:
        n = s["status"].count("finished")
        last = [values[n - 1] for values in s["matrix"]][:n] if n else []
        returned = [x for x in s["returned"] if x is not None]
        cells = [s["method"], f"{n} of {len(s['status'])}", _mean(s["before"]), _mean(last)]
        cells.append(_number(max(returned)) if returned else "")
        for name in kept:
            values = [x for x in s["kept"].get(name, []) if x is not None]
            cells.append(f"{_number(values[0])}, {_number(values[-1])}" if values else "")
        cells += [f"{sum(x for x in s[cost] if x is not None):.0f}" for cost in ("gradients", "seconds")]
        lines.append(row(cells))
    for c in found["controls"]:
        p = [x for x in c["p"][: c["after"]] if x is not None]
        cells = [f"retrained without {c['after']}", "", "", _mean(p), ""]
        lines.append(row([*cells, *(_number(c["kept"].get(name)) for name in kept), "", ""]))
    return [*lines, ""]


def _matrix(s: dict[str, Any], controls: list[dict[str, Any]], metric: str) -> list[str]:
    n = len(s["matrix"])
    beside = [f"retrained without {c['after']}" for c in controls]
    lines = [f"**{s['method']}** ({metric} →)", ""]
    lines += table(["request", "before it", *(f"after {t}" for t in range(1, n + 1)), "came back ↓", *beside], [])
    for i, values in enumerate(s["matrix"]):
        cells = [str(i + 1), *map(_number, (s["before"][i], *values, s["returned"][i]))]
        lines.append(row([*cells, *(_number(c["p"][i]) for c in controls)]))
    for name, values in s["kept"].items():
        cells = [f"{name} {WAYS[name]}", *map(_number, values), "", *(_number(c["kept"].get(name)) for c in controls)]
        lines.append(row(cells))
    return [*lines, ""]


def _mean(values: list[float | None]) -> str:
    known = [x for x in values if x is not None]
    return _number(sum(known) / len(known)) if known else ""


def _number(x: float | None) -> str:
    if x is None:
        return ""
    if abs(x) > 1:  # per cent
        return f"{x:.1f}"
    return f"{x:.3f}" if abs(x) >= 0.001 or x == 0 else f"{x:.0e}"


if __name__ == "__main__":
    main()
