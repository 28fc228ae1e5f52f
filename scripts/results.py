"""Writes pages of docs/results from stored results, by the tables and figures of ``ofmu_pl report``.

    python scripts/results.py                               # every page, from docs/results/data
    python scripts/results.py front logs/front              # store what the runs of a benchmark found, write its page
    python scripts/results.py requests logs/requests_*      # of several folders
    python scripts/results.py front logs/front --add        # keep stored methods and seeds that the folders lack

What stands above the mark in a page is written by hand and stays; all below it follows from the stored results alone,
and so do the files of tables in docs/results/data/NAME.
With ``--add`` the page has the dates of both; seeds of other settings than the search has chosen now do not stay. More
seeds need no second search: one whose only candidate is what the stored one chose is shown as it was stored.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import date
from pathlib import Path
from typing import Any

import torch
import transformers

from ofmu_pl.report.claims import Claim, claims
from ofmu_pl.report.collect import collect
from ofmu_pl.report.contents import attack_tables, tables
from ofmu_pl.report.figures import attack_pictures, pictures
from ofmu_pl.report.figures.style import Look
from ofmu_pl.report.runs import Study
from ofmu_pl.report.tables import Entry, Table, to_csv, to_markdown
from ofmu_pl.support.files import numbered_lines, write_text
from ofmu_pl.support.records.reading import Record
from ofmu_pl.support.records.results import ReferenceRecord, Results

RESULTS = Path(__file__).parents[1] / "docs/results"
MARK = "<!-- What follows is written by a script from stored results. -->"
DECLARED = ("higher_is_better", "unit", "group", "column", "tested_as", "family")
"""What a metric's entry says of the metric, which is stored once."""
SHOWN_OF_METRICS = ("value", "target", "interval", "n")
MANY = 60
"""Finished runs of an experiment beyond which the metrics of its columns alone are stored."""
SHOWN = {"forget": 10, "retain": 5, "probe_level2_forget": 10, "probe_level2_retain": 5}
"""Rows of each set whose answers are shown, the first ones; of RWKU those of its questions."""
FIGURES = ("trade-off", "matrix", "drift")
"""Ends of the names of a report's figures that stand on a page."""


@dataclass
class Measured:
    """When and where results were stored."""

    date: str
    machine: str
    versions: dict[str, str]


@dataclass
class Stored(Record):
    """A file of docs/results/data.

    Attributes:
        measured: Each time that something was stored, the last one at the end.
        metrics: What each metric is, by name.
        experiments: Their runs have numbers alone; models that methods share stand with the first method.
        problems: What a report says is missing.
        claims: The paper's statements that the runs were held against.
        said: By experiment a table of answers, its head first.
    """

    measured: list[Measured]
    metrics: dict[str, dict[str, Any]]
    experiments: list[Study]
    problems: list[str] = field(default_factory=list)
    claims: list[Claim] = field(default_factory=list)
    said: dict[str, list[list[str]]] = field(default_factory=dict)

    def write(self, path: Path) -> None:
        """Without spaces, for a file has up to a hundred thousand numbers; a run a line."""
        text = json.dumps(self._content(), separators=(",", ":"), allow_nan=False)
        write_text(path, text.replace('{"scenario"', '\n{"scenario"') + "\n")

    @classmethod
    def _of(cls, content: dict[str, Any]) -> Stored:
        found = super()._of(content)
        for e in found.experiments:
            for run in e.finished:
                first = next(r.results for r in e.finished if (r.scenario, r.seed) == (run.scenario, run.seed))
                run.results.before, run.results.reference = first.before, first.reference
                for side in ("metrics", "before", "retrained"):
                    for name, entry in run.side(side).items():
                        entry.update(found.metrics[name])
        return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name", nargs="?", help="name of the page; left out: every page is written anew")
    parser.add_argument("folders", nargs="*", type=Path, help="folders of benchmarks, of requests or of runs")
    parser.add_argument("--add", action="store_true", help="keep what is stored and the folders lack")
    args = parser.parse_args()
    if args.folders:
        data = RESULTS / f"data/{args.name}.json"
        store(args.name, args.folders, Stored.read(data) if args.add else None).write(data)
        for figure in RESULTS.glob(f"figures/{args.name}-*.png"):
            figure.unlink()
    for data in sorted(RESULTS.glob(f"data/{args.name or '*'}.json")):
        stored = Stored.read(data)
        for path, picture in drawn(data.stem, stored.experiments):
            (RESULTS / path).write_bytes(picture)
        all_tables = every_table(stored)
        write_csv(csv_files(data.stem, all_tables))
        write_below(data.stem, page(data.stem, stored, all_tables))


def write_below(name: str, text: str) -> None:
    """Write what stands below the mark of a page of docs/results, whole or not at all, and print where it is."""
    path = RESULTS / f"{name}.md"
    above = path.read_text(encoding="utf-8").partition(MARK)[0] if path.is_file() else f"# {name}\n\n"
    write_text(path, f"{above}{MARK}\n\n{text}")
    print(path)


def store(name: str, folders: list[Path], before: Stored | None) -> Stored:
    """What the runs of folders found, in numbers.

    Args:
        name: Name of the page.
        folders: Their experiments of one name are taken together.
        before: What stays of methods and seeds that the folders lack.
    """
    before = before or Stored([], {}, [])
    graphics = f", {torch.cuda.get_device_name()}" if torch.cuda.is_available() else ", no GPU"
    machine = f"{os.cpu_count()} cores, {platform.machine()}{graphics}"
    now = Measured(str(date.today()), machine, {"torch": torch.__version__, "transformers": transformers.__version__})
    found = Stored([*(one for one in before.measured if one != now), now], before.metrics, [], said=before.said)
    by_name = {e.name: e for e in before.experiments}
    stored = set(by_name)
    for folder in folders:
        collection = collect(folder)
        found.problems += collection.problems
        for e in collection.experiments:
            if e.kind != "table":  # what needs an analysis of these runs
                found.claims += claims(e)
            if e.requests:
                e.name, e.title = collection.name, f"{collection.name}: {e.title}"
            elif e.name == "runs":
                for run in e.runs:
                    run.scenario = run.scenario.replace(collection.name, name)
                e.scenarios = {run.scenario: {} for run in e.runs}
            if answers := said_in(e, folder):
                found.said[e.name] = answers
            if e.finished:
                by_name[e.name] = with_stored(e, by_name[e.name]) if e.name in by_name else e
                stored.discard(e.name)
                found.claims += claims(by_name[e.name]) if e.kind == "table" else []
    if stored:  # which none of the folders has, and whose problems stay
        found.problems += [problem for problem in before.problems if problem not in found.problems]
    anew = {claim.experiment for claim in found.claims}
    found.claims = [claim for claim in before.claims if claim.experiment not in anew] + found.claims
    found.experiments = [thinned(e, found.metrics) for e in by_name.values()]
    return found


def with_stored(found: Study, old: Study) -> Study:
    """An experiment with the runs of a stored one that it lacks, but for those of methods that have other settings."""
    ran = {run.method for run in found.finished}
    chosen = [{m: [s["choice"] for s in x.searched.values()] for m, x in e.methods.items()} for e in (found, old)]
    places = {(run.scenario, run.method, run.seed) for run in found.finished}
    for run in old.runs:
        same = run.method not in ran or chosen[0][run.method] == chosen[1][run.method]
        if same and (run.scenario, run.method, run.seed) not in places:
            found.runs.append(run)
    found.runs = [r for r in found.runs if r.results or not any(o.method == r.method for o in old.finished)]
    for m, x in found.methods.items():
        for scenario, search in x.searched.items():  # a search that was left to its choice says less than it did
            before = old.methods[m].searched.get(scenario, search) if m in old.methods else search
            if before["choice"] == search["choice"] and len(before["scores"]) > len(search["scores"]):
                x.searched[scenario] = before
    found.methods = old.methods | {m: x for m, x in found.methods.items() if m in ran or m not in old.methods}
    found.scenarios, found.seeds = old.scenarios | found.scenarios, sorted({*old.seeds, *found.seeds})
    return found


def thinned(e: Study, metrics: dict[str, dict[str, Any]]) -> Study:
    """An experiment with what a page shows of its runs; declarations of metrics go to ``metrics``."""
    columns = {*e.metrics, *(e.tested(m) for m in e.metrics)}
    e.cells, e.prepare = [], {}
    shared: set[tuple[str, int]] = set()
    for run in e.finished:
        sides = []
        for side in ("metrics", "before", "retrained"):
            entries = run.side(side)
            if side != "metrics" and (run.scenario, run.seed) in shared:
                entries = {}
            kept = {}
            for metric, entry in entries.items():
                if metric in columns or len(e.finished) <= MANY:
                    metrics.setdefault(metric, {x: entry[x] for x in DECLARED if x in entry})
                    kept[metric] = {x: entry[x] for x in SHOWN_OF_METRICS if entry.get(x) is not None}
            sides.append(kept)
        shared.add((run.scenario, run.seed))
        facts = {x: run.fact(x) for x in ("seed", "steps", "method", "results_version") if run.fact(x) is not None}
        reference = ReferenceRecord("", metrics=sides[2]) if sides[2] else None
        run.results = Results(sides[0], run.definition, sides[1], reference, provenance=facts, cost=run.results.cost)
        run.words = []
        run.attacks.provenance, run.attacks.models = {}, {}
    for across in e.across.values():
        across.runs = []  # folders of the machine that ran them
    return e


def said_in(e: Study, folder: Path) -> list[list[str]]:
    """What models answer to the first rows, where runs of the first seed have kept it; empty: nowhere."""
    found: dict[str, list[dict[str, Any]]] = {}
    for run in e.finished:
        path = folder / run.folder / "latest/samples.jsonl"
        rows = [json.loads(line) for _, line in numbered_lines(path)] if path.is_file() else []
        if run.seed == e.seeds[0] and any("after" in row for row in rows):
            shown = [[row for row in rows if row["set"] == name][:most] for name, most in SHOWN.items()]
            found[run.method] = [row for rows in shown for row in rows]
    if not found:
        return []
    table = [["side", "question", "true answer", "said before", *(f"said after {m}" for m in found)]]
    for i, row in enumerate(next(iter(found.values()))):
        before = [row[x] for x in ("set", "question", "truth", "before")]
        after = [rows[i]["after"] for rows in found.values()]
        table.append([str(text) for text in before + after])
    return table


def drawn(name: str, experiments: list[Study]) -> Iterator[tuple[str, bytes]]:
    """Figures that can be drawn of stored results, of attacks those of curves, by their paths from the page."""
    for e in experiments:
        look = Look(list(e.methods), [e.ours])
        curved = tuple(f"-{a}-attack" for run in e.finished for a, record in run.attacks.attacks.items() if record.x)
        for picture in (*pictures(e, look), *attack_pictures(e, look)):
            if picture.name.endswith((*FIGURES, *curved)) and len(e.methods) > 1:
                yield f"figures/{name}-{picture.name}.png", picture.content


def page(name: str, stored: Stored, all_tables: list[tuple[str, Table]]) -> str:
    """What stands below the mark, as Markdown: one table and one figure; the other tables have files and a page."""
    times = "; ".join(f"{m.date}, {m.machine}, torch {m.versions['torch']}" for m in stored.measured)
    parts = [f"Stored in `docs/results/data/{name}.json`: {times}. [What the columns mean](../words.md#numbers)."]
    if stored.problems:
        parts.append("What is missing:\n\n" + "\n".join(f"- {problem}" for problem in stored.problems))
    e = stored.experiments[0]
    budget = f" {e.gradients:.0f} gradients a run." if e.gradients else ""
    parts.append(f"{e.note}{budget} Seeds: {', '.join(map(str, e.seeds))}.".strip())
    leading = "claims" if name.startswith("paper") else "-results"
    parts.append(to_markdown(next(table for _, table in all_tables if table.name.endswith(leading))).rstrip())
    figures = [path for path in drawings(name) if path.stem.startswith(f"{name}-{e.name}-")]
    if figures:
        about = figures[0].stem.removeprefix(f"{name}-").replace("-", " ")
        parts.append(f"![{e.title}: {about}](figures/{figures[0].name})")
    parts.append(
        f"[All {len(all_tables)} tables](../generated/tables) of the {len(stored.experiments)} experiments are on a "
        f"page of the site, and CSV files in `docs/results/data/{name}`."
    )
    return "\n\n".join(parts) + "\n"


def drawings(name: str) -> list[Path]:
    """The figures of a page; the first stands on it: of relearning, where there is one."""
    found = sorted(RESULTS.glob(f"figures/{name}-*.png"))
    return sorted(found, key=lambda path: not path.stem.endswith("relearn_forget-attack"))


def every_table(stored: Stored) -> list[tuple[str, Table]]:
    """All tables of a page, each with its experiment's title; what the paper says comes first."""
    found = []
    if stored.claims:
        rows = [[c.text, c.verdict, f"{c.experiment}: {c.why}"] for c in stored.claims]
        title = "What the paper says, and whether it held here, by 95 % intervals"
        found.append(("", texts("claims", title, [["the paper says", "here", "numbers"], *rows])))
    for e in stored.experiments:
        found += [(e.title, table) for table in [*tables(e), *attack_tables(e)]]
        if e.name in stored.said:
            found.append((e.title, texts(f"{e.name}-said", "What the models say", stored.said[e.name])))
    return found


def texts(name: str, title: str, rows: list[list[str]]) -> Table:
    """A table of texts, its head first."""
    return Table(name, title, rows[0], [[Entry(text) for text in row] for row in rows[1:]])


def csv_files(name: str, found: list[tuple[str, Table]]) -> dict[Path, str]:
    """A file of each table, unrounded."""
    return {RESULTS / f"data/{name}/{table.name.replace('/', '-')}.csv": to_csv(table) for _, table in found}


def write_csv(files: dict[Path, str]) -> None:
    """Write a page's files, and remove those of tables that are no more."""
    folder = next(iter(files)).parent
    folder.mkdir(exist_ok=True)
    for old in set(folder.glob("*.csv")) - set(files):
        old.unlink()
    for path, text in files.items():
        write_text(path, text)


if __name__ == "__main__":
    main()
