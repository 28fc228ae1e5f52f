"""What language benchmarks found: stores every value of their runs, with its interval, and writes the page.

    python -m ofmu_pl benchmark --config configs/benchmarks/smollm2.yaml
    python scripts/language_results.py logs/smollm2 [--only-table]

The values go to docs/results/data, in a file of the benchmark's name; the page follows from them alone. A benchmark
that has not ended gives the runs that have, and the page says which are missing.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import yaml
from benchmark_results import finished, parser_of
from benchmark_tables import tried
from pages import RESULTS_FOLDER, facts, spread, table, write_page, written_by

from ofmu_pl.report.runs import BEFORE, RETRAINED, Findings
from ofmu_pl.support.files import numbered_lines, write_json

CONFIGS = RESULTS_FOLDER.parents[1] / "configs/benchmarks"
TASK = "task_"
"""What the names of metrics of lm-eval's tasks begin with."""
TITLES = {
    "language_tiny": "LUME and KnowUnDo on a Llama trained here",
    "smollm2": "A real language model forgets",
}
"""Of pages with several experiments, by benchmark."""
ENDS = {RETRAINED: "*retrained*", BEFORE: "*target*"}
"""Where one wants to be, and where forgetting starts."""
SHOWN = {"forget": 10, "retain": 5, "probe_level2_forget": 10, "probe_level2_retain": 5}
"""Number of rows of each side whose answers are shown, the first ones; of RWKU those of its questions."""


def main() -> None:
    args = parser_of(__doc__).parse_args()
    name = args.folder.name
    data = RESULTS_FOLDER / "data" / f"{name}.json"
    if not args.only_table:
        wanted = yaml.safe_load((CONFIGS / f"{name}.yaml").read_text(encoding="utf-8"))["experiments"]
        found = finished(args.folder)
        experiments = [summary(e, args.folder) | {"asked": plan(wanted[e.name])} for e in found]
        write_json(data, facts() | {"experiments": experiments})
    write_page(name, page(json.loads(data.read_text(encoding="utf-8")), name))


def plan(wanted: dict[str, Any]) -> dict[str, Any]:
    """Methods and seeds that the shipped configuration has, of which a benchmark may have run some."""
    return {"methods": list(wanted["methods"]), "seeds": wanted["seeds"]}


def summary(e: Findings, folder: Path) -> dict[str, Any]:
    """What the page needs of an experiment of one scenario."""
    scenarios = list(e.scenarios)
    values: dict[str, Any] = {}
    for side in (*e.methods, *ENDS):
        runs = e.of(scenarios, side)
        if side in ENDS:  # one model, whatever the seed
            runs = dict(list(runs.items())[:1])
        for (_, seed), run in runs.items():
            for metric, entry in run.side(side if side in ENDS else "metrics").items():
                kept = {key: entry.get(key) for key in ("value", "interval", "n")}
                values.setdefault(metric, {}).setdefault(side, {})[str(seed)] = kept
    cost = {
        method: {str(seed): run.cost("training_seconds") for (_, seed), run in e.of(scenarios, method).items()}
        for method in e.methods
    }
    return {
        "name": e.name,
        "title": e.title,
        "note": e.note,
        "gradients": e.gradients,
        "seeds": e.seeds,
        "metrics": e.metrics,
        "upwards": {metric: e.declared(metric).higher_is_better for metric in values},
        "searched": {m: list(x.searched.values()) for m, x in e.methods.items()},
        "values": values,
        "training_seconds": cost,
        "failed": {run.method: run.error for run in e.runs if run.error},
        "samples": said(e, folder),
    }


def said(e: Findings, folder: Path) -> dict[str, list[dict[str, Any]]]:
    """What models answer to the first rows, by method, where the first seed's run has kept it."""
    found = {}
    for run in e.finished:
        path = folder / run.folder / "latest/samples.jsonl"
        rows = [json.loads(line) for _, line in numbered_lines(path)] if path.is_file() else []
        if run.seed == e.seeds[0] and any("after" in row for row in rows):
            shown = [row for side, most in SHOWN.items() for row in [r for r in rows if r["set"] == side][:most]]
            found[run.method] = [{x: row[x] for x in ("set", "question", "truth", "before", "after")} for row in shown]
    return found


def page(stored: dict[str, Any], name: str) -> str:
    """The page as Markdown."""
    experiments = stored["experiments"]
    goal = "There is no retrained model, so what is forgotten has no goal but to be low."
    if any(has(e, RETRAINED) for e in experiments):
        goal = "The retrained model's column is the goal of what is forgotten."
    lines = [f"# {experiments[0]['title'] if len(experiments) == 1 else TITLES[name]}", ""]
    lines += [
        f"{written_by('language_results.py', name, stored)} Of one seed a value has its 95 % interval over rows, of "
        f"several the mean over seeds ± standard deviation. {goal} ↑ the higher, ↓ the lower the better, where there "
        "is no goal. Losses are in nats, privleak is in per cent, and what does not say otherwise lies between 0 and 1 "
        "([words](../words.md#numbers)).",
        "",
    ]
    for e in experiments:
        if len(experiments) > 1:
            lines += [f"## {e['title']}", ""]
        lines += [*section(e, "###" if len(experiments) > 1 else "##"), ""]
    return "\n".join(lines).rstrip() + "\n"


def section(e: dict[str, Any], heading: str) -> list[str]:
    """An experiment: its main table, what else the models can do, every value, what was tried, what is said."""
    methods = [m for m in e["searched"] if any(m in by_side for by_side in e["values"].values())]
    tasks = [metric for metric in e["values"] if metric.startswith(TASK)]
    seeds = {m: ", ".join(e["training_seconds"][m]) for m in methods}
    lines = [f"{e['note']} {e['gradients']:.0f} gradients a run.", ""]
    lines += [f"Runs: {'; '.join(f'{m} (seeds {seeds[m]})' for m in methods)}. {missing(e)}", ""]
    lines += by_method(e, methods, [metric for metric in e["metrics"] if metric in e["values"]])
    if tasks:
        lines += ["", f"{heading} What else the models can do", ""]
        lines += [
            "Tasks of lm-eval, of which no model here was trained on anything.",
            "",
            *by_method(e, methods, tasks),
        ]
    lines += ["", f"{heading} Every value", "", *by_metric(e, methods)]
    lines += ["", f"{heading} What was tried", "", *tried(e)]
    if e["samples"]:
        lines += ["", f"{heading} What they say", "", *answers(e["samples"])]
    return lines


def missing(e: dict[str, Any]) -> str:
    """A sentence on what the configuration asks for and has not been run, or has failed."""
    done = {m: [int(seed) for seed in e["training_seconds"].get(m, {})] for m in e["asked"]["methods"]}
    left = {m: [seed for seed in e["asked"]["seeds"] if seed not in done[m]] for m in done}
    told = [f"{m} (seed{'s' * (len(seeds) > 1)} {', '.join(map(str, seeds))})" for m, seeds in left.items() if seeds]
    failed = [f" {m} failed: {why}" for m, why in e["failed"].items()]
    return (f"Not run, though asked for: {'; '.join(told)}." if told else "All that was asked for.") + "".join(failed)


def by_method(e: dict[str, Any], methods: list[str], metrics: list[str]) -> list[str]:
    """A table with a row a method."""
    sides = {m: m for m in methods} | {side: text for side, text in ENDS.items() if has(e, side)}
    rows = [[text, *(shown(e, metric, side) for metric in metrics)] for side, text in sides.items()]
    return table(["model", *(f"{metric} {arrow(e, metric)}" for metric in metrics)], rows)


def by_metric(e: dict[str, Any], methods: list[str]) -> list[str]:
    """A table with a row a metric, without intervals, which stand in the stored values."""
    sides = {side: text for side, text in reversed(ENDS.items()) if has(e, side)} | {m: m for m in methods}
    rows = [
        [f"{metric} {arrow(e, metric)}", *(shown(e, metric, side, short=True) for side in sides)]
        for metric in e["values"]
    ]
    return table(["metric", *sides.values()], rows)


def has(e: dict[str, Any], side: str) -> bool:
    """Whether there is any value of a model."""
    return any(side in by_side for by_side in e["values"].values())


def arrow(e: dict[str, Any], metric: str) -> str:
    """Which way is better."""
    return "↑" if e["upwards"][metric] else "↓"


def shown(e: dict[str, Any], metric: str, side: str, short: bool = False) -> str:
    """A value with its interval over rows, or over seeds; "-" where there is none."""
    entries = [entry for entry in e["values"][metric].get(side, {}).values() if entry["value"] is not None]
    values = [entry["value"] for entry in entries]
    if not values:
        return "-"
    if len(values) > 1:
        return spread(values)
    ends = entries[0]["interval"]
    return f"{values[0]:.3g}" + (f" ({ends[0]:.2g} to {ends[1]:.2g})" if ends and not short else "")


def answers(samples: dict[str, list[dict[str, Any]]]) -> list[str]:
    """A table of what is said before and after, by every method whose answers were kept."""
    first = next(iter(samples.values()))
    rows = [
        [row["set"], row["question"], row["truth"], row["before"], *(found[k]["after"] for found in samples.values())]
        for k, row in enumerate(first)
    ]
    head = ["side", "question", "true answer", "said before", *(f"said after {m}" for m in samples)]
    return table(head, [[" ".join(str(text).split()).replace("|", "/") for text in row] for row in rows])


if __name__ == "__main__":
    main()
