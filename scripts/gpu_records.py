"""What `scripts/gpu.py` has found, in files, and its part of docs/results/hardware.md."""

import re
import subprocess
import sys
from collections.abc import Collection
from pathlib import Path
from typing import Any

from gpu_parts import PARTS
from results import RESULTS, texts, write_below

from ofmu_pl.report.tables import to_markdown
from ofmu_pl.support.files import read_json, write_json

STORED = RESULTS / "gpu"
MOST = 20
"""Failures that stand on the page; the files have all."""
HIDDEN = ("loading s", "loading GB", "first iteration s", "iterations", "model")
"""Figures that stand in the files alone."""
Records = dict[str, dict[str, Any]]
"""What is known of parts, by name."""


def read(folder: Path) -> Records:
    """The records of all parts in a folder's files."""
    return {name: record for file in sorted(folder.glob("*.json")) for name, record in read_json(file).items()}


def keep(folder: Path, name: str, record: dict[str, Any]) -> None:
    """Add a part's record to its item's file, whole or not at all."""
    file = folder / f"{name.partition('.')[0]}.json"
    write_json(file, (read_json(file) if file.is_file() else {}) | {name: record})


def line(figures: dict[str, Any], without: Collection[str] = ()) -> str:
    """Figures that are numbers or words."""
    cells = []
    for name, value in figures.items():
        if isinstance(value, str | int | float) and value != "" and name not in without:
            cells.append(f"{name} {format(value, '.3g') if isinstance(value, float) else value}")
    return ", ".join(cells)


def publish(folder: Path) -> None:
    """Store what a call brought back, and write what stands below the mark of docs/results/hardware.md."""
    for name, record in read(folder).items():
        if record["rehearsal"]:
            raise SystemExit(f"{folder} holds a rehearsal, of which nothing is a result: give a call's folder.")
        if stored := record["figures"].pop("stored", None):
            write_json(RESULTS / "data/between.json", stored)
            subprocess.run([sys.executable, str(Path(__file__).with_name("results.py")), "between"], check=True)
        keep(STORED, name, record)
    write_below("hardware", page(read(STORED)))


def page(records: Records) -> str:
    """The results of all parts as Markdown; a plan stands in the row of its run."""
    rows = [["part", "what", "found"]]
    rows += [[name, part.what, found(name, records)] for name, part in PARTS.items() if not name.startswith("plan.")]
    table = to_markdown(texts("", "The list", rows)).strip()
    return "\n\n".join([*measured(records), table, *failures(records)]) + "\n"


def found(name: str, records: Records) -> str:
    """What a part found, and what ``plan`` says of the same run."""
    planned = records.get(f"plan.{name[0]}", {}).get("figures", {}).get(name, {})
    record = records.get(name)
    if record is None:
        return "; ".join(filter(None, ["not run on a GPU", line(planned)]))
    state = "" if record["outcome"] == "done" else f"{record['outcome']} ({record['seconds']:.0f} s)"
    return "; ".join(filter(None, [state, line(record["figures"], HIDDEN), line(planned)]))


def measured(records: Records) -> list[str]:
    """When, on what, and with which versions."""
    times = {}
    for record in records.values():
        versions = ", ".join(f"{package} {number}" for package, number in record["versions"].items())
        times.setdefault(f"{record['date']}, {record['device']} ({versions})", []).append(record)
    return ["Stored in `docs/results/gpu`: " + "; ".join(times) + "."] if times else []


def failures(records: Records) -> list[str]:
    """The tests that failed, and why, and the last words of parts that did."""
    lines = []
    for name, record in records.items():
        causes = record["figures"].get("failures", {})
        lines += [f"- `{test}`: {plain(cause)}" for test, cause in [*causes.items()][:MOST]]
        lines += [f"- and {len(causes) - MOST} more, in `docs/results/gpu`"] if len(causes) > MOST else []
        lines += [f"- {name} {record['outcome']}: {plain(record['error'][-200:])}"] if record.get("error") else []
    return ["What failed:\n\n" + "\n".join(lines)] if lines else []


def plain(text: str) -> str:
    """A text in one line that Markdown leaves as it is."""
    return re.sub(r"([*_`<>\[\]|])", r"\\\1", " ".join(text.split()))
