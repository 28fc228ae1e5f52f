"""What a benchmark found: stores the values of its runs, and writes a page of docs/results with a figure a table.

    python -m ofmu_pl benchmark --config configs/benchmarks/front.yaml
    python scripts/benchmark_results.py logs/front [--only-table | --add]

The values go to docs/results/data, in a file of the benchmark's name; page and figures follow from them alone. With
``--add`` experiments, methods and seeds that the folder lacks stay as they are stored, and the page names the dates of
both; seeds of other settings than the search has chosen now do not stay. One method is better than another if its
means over seeds are, in the metric of forgetting and in that of keeping; a page says, too, where that holds in the
mean only and not on every seed. Of a benchmark that stands for tables of the paper the page begins with what the paper
says of them, and whether it held.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict
from pathlib import Path
from statistics import mean
from typing import Any

from benchmark_tables import ENDS, ranked, run_in, section, statements, tried
from front_figure import draw
from pages import MEANING, RESULTS_FOLDER, facts, write_page, written_by

from ofmu_pl.report.claims import claims
from ofmu_pl.report.collect import collect
from ofmu_pl.report.runs import Findings
from ofmu_pl.support.files import write_json

ABOUT = "↑ the higher, ↓ the lower, → the nearer to the retrained model's value the better"
STATEMENTS = (
    "As [the report](../outputs.md#the-report) decides it, for models of the sizes below: nothing here says what "
    "models of billions of parameters do. A statement is not decidable where the interval holds 0."
)
ALL = "all"
"""Name of the scenario of an experiment that names none."""


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("--add", action="store_true", help="keep what is stored and the folder lacks")
    args = parser.parse_args()
    name = args.folder.name
    data = RESULTS_FOLDER / "data" / f"{name}.json"
    if not args.only_table:
        run = finished(args.folder)
        found = {e.name: summary(e) for e in run if e.kind == "table" and not e.attacks}
        stored = json.loads(data.read_text()) if args.add else {"experiments": []}
        before = {e["name"]: e for e in stored["experiments"]}
        found = {name: with_stored(e, before[name]) if name in before else e for name, e in found.items()}
        said = {"claims": [asdict(c) for e in run for c in claims(e)]} if name.startswith("paper") else {}
        write_json(data, facts(stored) | {"experiments": [*(before | found).values()]} | said)
    stored = json.loads(data.read_text())
    draw_all(stored, name)
    write_page(name, page(stored, name))


def parser_of(about: str | None) -> argparse.ArgumentParser:
    """What a script takes that writes the page of a benchmark."""
    parser = argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="folder of a benchmark")
    parser.add_argument("--only-table", action="store_true", help="write the page from the stored values")
    return parser


def finished(folder: Path) -> list[Findings]:
    """The experiments of a benchmark that have finished runs.

    Raises:
        SystemExit: There is none.
    """
    experiments = [e for e in collect(folder).experiments if e.finished]
    if not experiments:
        raise SystemExit(f"No run of '{folder}' has finished: let the benchmark run first.")
    return experiments


def summary(e: Findings) -> dict[str, Any]:
    """What the page needs of an experiment."""
    sides = [*e.methods, *ENDS]
    return {
        "name": e.name,
        "title": e.title,
        "note": e.note,
        "gradients": e.gradients,
        "seeds": e.seeds,
        "searched": {m: list(x.searched.values()) for m, x in e.methods.items()},
        "values": {
            scenario: {
                side: {x: {str(k[1]): v for k, v in e.values([scenario], side, x).items()} for x in e.metrics}
                for side in sides
            }
            for scenario in e.scenarios
        },
        "metrics": e.metrics,
    }


def with_stored(found: dict[str, Any], stored: dict[str, Any]) -> dict[str, Any]:
    """A summary with the methods of a stored one that it lacks, and with the seeds of the same settings."""
    run = {m for sides in found["values"].values() for m in sides if any(sides[m].values())}
    lacking = stored["searched"].keys() - run  # a benchmark that has not ended names them, too
    searched = {m: x for m, x in found["searched"].items() if m not in lacking}
    chosen = [{m: [s["choice"] for s in x[m]] for m in x} for x in (searched, stored["searched"])]
    values = dict(stored["values"])
    for scenario, everything in found["values"].items():
        old, sides = values.get(scenario, {}), {m: x for m, x in everything.items() if m not in lacking}
        same = [side for side in sides if side in old and chosen[0].get(side) == chosen[1].get(side)]
        both = {side: {x: old[side].get(x, {}) | by_seed for x, by_seed in sides[side].items()} for side in same}
        values[scenario] = old | sides | both
    seeds = sorted({*found["seeds"], *stored["seeds"]})
    return found | {"seeds": seeds, "searched": stored["searched"] | searched, "values": values}


def page(stored: dict[str, Any], name: str) -> str:
    """The page as Markdown."""
    experiments = stored["experiments"]
    title = experiments[0]["title"] if len(experiments) == 1 else f"Benchmark {name}"
    lines = [f"# {'The paper: tables and statements, at tiny scale' if 'claims' in stored else title}", ""]
    many = any(len(e["seeds"]) > 1 for e in experiments)
    spoken = "Mean over seeds ± standard deviation." if many else "One seed, so that no difference can be tested."
    lines += [f"{written_by('benchmark_results.py', name, stored)} {spoken}", "", f"{ABOUT} ({MEANING}).", ""]
    if "claims" in stored:
        lines += ["## What the paper says, and whether it held here", "", STATEMENTS, ""]
        lines += [*statements(stored["claims"]), ""]
    for e in experiments:
        heading = "##"
        if len(experiments) > 1:
            lines += [f"## {e['title']}", ""]
            heading = "###"
        seeds = f"seed{'s' * (len(e['seeds']) > 1)} {', '.join(map(str, e['seeds']))}"
        lines += [f"{e['note']} {e['gradients']:.0f} [gradients](../words.md#methods-and-runs) a run; {seeds}.", ""]
        for scenario, values in e["values"].items():
            if run_in(e, values):
                lines += [f"{heading} {scenario}", ""] if scenario != ALL else []
                lines += [*section(e, values), ""]
                sides, *_ = ranked(e, values)
                if sides:
                    lines += [f"![{sides[1]} of each method against its {sides[0]}]({figure(name, e, scenario)})", ""]
        lines += [f"{heading} What was tried", "", *tried(e), ""]
    return "\n".join(lines).rstrip() + "\n"


def figure(name: str, e: dict[str, Any], scenario: str) -> str:
    """Where a table's figure lies, from the page."""
    return f"figures/{name}-{e['name']}-{scenario}.png"


def draw_all(stored: dict[str, Any], name: str) -> None:
    """A figure a table that compares two sides."""
    for e in stored["experiments"]:
        for scenario, values in e["values"].items():
            sides, points, better = ranked(e, values)
            if points and sides:
                there = {shown: values[side] for side, shown in ENDS.items() if all(values[side].get(x) for x in sides)}
                ends = {shown: [mean(metrics[x].values()) for x in sides] for shown, metrics in there.items()}
                front = [m for m in points if not better[m]]
                draw(RESULTS_FOLDER / figure(name, e, scenario), sides, points, front, ends)


if __name__ == "__main__":
    main()
