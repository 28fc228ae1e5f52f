"""What a benchmark found: stores the values of its runs, and writes a page of docs/results with a figure a table.

    python -m ofmu_pl benchmark --config configs/benchmarks/front.yaml
    python scripts/benchmark_results.py logs/front [--only-table | --add]

The values go to docs/results/data, in a file of the benchmark's name; page and figures follow from them alone. With
``--add`` experiments, methods and seeds that the folder lacks stay as they are stored, and the page names the dates of
both; seeds of other settings than the search has chosen now do not stay. One method is better than another if its
means over seeds are, in the metric of forgetting and in that of keeping; a page says, too, where that holds in the
mean only and not on every seed.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from statistics import mean
from typing import Any

import matplotlib.pyplot as plt
from pages import MEANING, RESULTS_FOLDER, WAYS, facts, spread, table, write_page, written_by

from ofmu_pl.report.collect import collect
from ofmu_pl.report.runs import BEFORE, RETRAINED, Experiment
from ofmu_pl.support.files import write_json

SIDES = ("forget_quality_D", "model_utility"), ("forget_Q_A_Prob", "retain_Q_A_Prob")
"""Metrics of forgetting, the lower the better, and of keeping, the higher; the first pair that all runs have."""

ABOUT = (
    "↑ the higher, ↓ the lower, → the nearer to the retrained model's value the better; all values lie between 0 and 1 "
    f"({MEANING})."
)

NAMED = 3
"""Methods that are named at most which are better than another."""

ALL = "all"
"""Name of the scenario of an experiment that names none."""

ENDS = {RETRAINED: ("retrained", "*"), BEFORE: ("target", "s")}
"""Where one wants to be, and where forgetting starts."""


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("--add", action="store_true", help="keep what is stored and the folder lacks")
    args = parser.parse_args()
    name = args.folder.name
    data = RESULTS_FOLDER / "data" / f"{name}.json"
    if not args.only_table:
        found = {e.name: summary(e) for e in finished(args.folder)}
        stored = json.loads(data.read_text()) if args.add else {"experiments": []}
        before = {e["name"]: e for e in stored["experiments"]}
        found = {name: with_stored(e, before[name]) if name in before else e for name, e in found.items()}
        write_json(data, facts(stored) | {"experiments": [*(before | found).values()]})
    stored = json.loads(data.read_text())
    draw(stored, name)
    write_page(name, page(stored, name))


def parser_of(about: str | None) -> argparse.ArgumentParser:
    """What a script takes that writes the page of a benchmark."""
    parser = argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="folder of a benchmark")
    parser.add_argument("--only-table", action="store_true", help="write the page from the stored values")
    return parser


def finished(folder: Path) -> list[Experiment]:
    """The experiments of a benchmark that have finished runs.

    Raises:
        SystemExit: There is none.
    """
    experiments = [e for e in collect(folder).experiments if e.finished]
    if not experiments:
        raise SystemExit(f"No run of '{folder}' has finished: let the benchmark run first.")
    return experiments


def summary(e: Experiment) -> dict[str, Any]:
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
    lines = [f"# {experiments[0]['title'] if len(experiments) == 1 else f'Benchmark {name}'}", ""]
    many = any(len(e["seeds"]) > 1 for e in experiments)
    spoken = "Mean over seeds ± standard deviation." if many else "One seed, so that no difference can be tested."
    lines += [f"{written_by('benchmark_results.py', name, stored)} {spoken}", "", ABOUT, ""]
    for e in experiments:
        heading = "##"
        if len(experiments) > 1:
            lines += [f"## {e['title']}", ""]
            heading = "###"
        seeds = f"seed{'s' * (len(e['seeds']) > 1)} {', '.join(map(str, e['seeds']))}"
        lines += [f"{e['note']} {e['gradients']:.0f} [gradients](../words.md#methods-and-runs) a run; {seeds}.", ""]
        for scenario, values in e["values"].items():
            if ranked(e, values)[1]:
                lines += [f"{heading} {scenario}", ""] if scenario != ALL else []
                pictured = "{1} of each method against its {0}".format(*ranked(e, values)[0])
                lines += [*section(e, values), "", f"![{pictured}]({figure(name, e, scenario)})", ""]
        lines += [f"{heading} What was tried", "", *tried(e), ""]
    return "\n".join(lines).rstrip() + "\n"


def figure(name: str, e: dict[str, Any], scenario: str) -> str:
    """Where a table's figure lies, from the page."""
    return f"figures/{name}-{e['name']}-{scenario}.png"


def ranked(e: dict[str, Any], values: dict[str, Any]) -> tuple[tuple[str, str], dict[str, Any], dict[str, list[str]]]:
    """The two metrics that are compared, each method's point, and who is better than it in both."""
    run = [m for m in e["searched"] if any(values[m].values())]
    names = next((pair for pair in SIDES if all(values[m].get(x) for m in run for x in pair)), SIDES[-1])
    points = {m: tuple(mean(values[m][x].values()) for x in names) for m in run}
    better = {m: [o for o, (f, k) in points.items() if f < points[m][0] and k > points[m][1]] for m in run}
    return names, points, better


def section(e: dict[str, Any], values: dict[str, Any]) -> list[str]:
    """A table, and a sentence on who is better than whom."""
    (forgets, keeps), points, better = ranked(e, values)
    metrics = [x for x in e["metrics"] if any(values[m][x] for m in points)]
    methods = sorted(points, key=lambda m: (len(better[m]), points[m][0]))
    rows = [[m, *(spread(values[m][x].values()) for x in metrics), few(better[m])] for m in methods]
    for side in ENDS:
        if any(values[side].values()):
            rows.append([f"*{side}*", *(spread(values[side][x].values()) for x in metrics), ""])
    head = ["method", *(f"{x} {WAYS.get(x, '')}".strip() for x in metrics)]
    if len(methods) == 1:  # there is nobody to be compared with
        return table(head, [row[:-1] for row in rows])
    lines = table([*head, "methods that are better on both sides"], rows)
    front = ", ".join(m for m in methods if not better[m])
    said = f"Forgetting is compared by {forgets}, keeping by {keeps}. No method is better on both sides than {front}."
    beaten = beaten_on_every_seed([values[m] for m in methods], forgets, keeps)
    also = [m for m, lost in zip(methods, beaten, strict=True) if better[m] and not lost]
    if also:
        said += f" In the mean, but not on every seed, some method is better than {', '.join(also)}."
    said += "".join(fewer_seeds({m: list(values[m][forgets]) for m in methods}, len(e["seeds"])))
    return [*lines, "", said]


def beaten_on_every_seed(values: list[dict[str, dict[str, float]]], forgets: str, keeps: str) -> list[bool]:
    """For each method whether another is better in both metrics on every seed that both have."""

    def beats(one: dict[str, dict[str, float]], other: dict[str, dict[str, float]]) -> bool:
        seeds = one[forgets].keys() & other[forgets].keys()
        lower = all(one[forgets][s] < other[forgets][s] for s in seeds)
        return bool(seeds) and lower and all(one[keeps][s] > other[keeps][s] for s in seeds)

    return [any(beats(o, m) for o in values) for m in values]


def fewer_seeds(seeds: dict[str, list[str]], most: int) -> list[str]:
    """Sentences on the methods that ran on fewer seeds than others, whose means are therefore less sure."""
    groups: dict[tuple[str, ...], list[str]] = {}
    for m, run in seeds.items():
        groups.setdefault(tuple(run), []).append(m)
    return [
        f" On seed{'s' * (len(run) > 1)} {', '.join(run)} alone: {', '.join(names)}."
        for run, names in groups.items()
        if len(run) < most
    ]


def few(names: list[str]) -> str:
    """The first names, and how many more there are."""
    more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
    return ", ".join(names[:NAMED]) + more if names else "none"


def tried(e: dict[str, Any]) -> list[str]:
    """How many candidates each method had, and what was chosen."""
    rows = []
    for m, searches in e["searched"].items():
        choices = "; ".join(dict.fromkeys(json.dumps(s["choice"]) for s in searches)) or "nothing: settings were given"
        rows.append([m, str(max((len(s["scores"]) for s in searches), default=0)), choices])
    return table(["method", "candidates", "chosen by validation rows, on a seed that is not reported"], rows)


def draw(stored: dict[str, Any], name: str) -> None:
    """A figure a table, every method a point: the upper left corner is where one wants to be."""
    for e in stored["experiments"]:
        for scenario, values in e["values"].items():
            names, points, better = ranked(e, values)
            if not points:
                continue
            sheet, axis = plt.subplots(figsize=(7, 4.5), layout="constrained")
            axis.plot(*zip(*sorted(points[m] for m in points if not better[m]), strict=True), color="0.7", zorder=1)
            for m, point in points.items():
                color, marker = ("C3", "D") if m.startswith("ofmu") else ("C0", "o")
                axis.scatter(*point, s=36, color=color, marker=marker, zorder=2)
            ends = {side: [mean(values[side][x].values()) for x in names if values[side].get(x)] for side in ENDS}
            ends = {side: point for side, point in ends.items() if len(point) == len(names)}
            for side, point in ends.items():
                axis.scatter(*point, s=70, color="black", marker=ENDS[side][1], zorder=2)
            axis.margins(0.12)
            axis.set_xlabel(f"{names[0]} (lower: more is forgotten)")
            axis.set_ylabel(f"{names[1]} (higher: more is kept)")
            label(sheet, axis, points | {ENDS[side][0]: point for side, point in ends.items()})
            sheet.savefig(RESULTS_FOLDER / figure(name, e, scenario), dpi=130)
            plt.close(sheet)


def label(sheet: Any, axis: Any, points: dict[str, Any]) -> None:
    """Write names to the right of points, to the left where a name or another point is in the way, or below that."""
    sheet.canvas.draw()  # constrained layout has placed the axes then
    places = {text: axis.transData.transform(point) * 72 / sheet.dpi for text, point in points.items()}
    taken = [(x - 5, x + 5, y) for x, y in places.values()]
    for text, point in sorted(points.items(), key=lambda item: (-item[1][1], item[1][0])):
        (x, y), width = places[text], 4.6 * len(text)
        for down in range(40):
            free = [
                (side, left)
                for side, left in (("left", x + 6), ("right", x - 6 - width))
                if not any(left < b and a < left + width and abs(y - down - c) < 8 for a, b, c in taken)
            ]
            if free:
                break
        side, left = free[0] if free else ("left", x + 6)
        taken.append((left, left + width, y - down))
        offset = 6 if side == "left" else -6
        axis.annotate(text, point, xytext=(offset, -down - 3), textcoords="offset points", fontsize=8, ha=side)


if __name__ == "__main__":
    main()
