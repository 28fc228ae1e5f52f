"""What attacks found on the runs of a benchmark: stores their summaries, and writes a page of docs/results.

    python -m ofmu_pl benchmark --config configs/benchmarks/attacks.yaml
    python -m ofmu_pl attack --config configs/attacks.yaml --runs logs/attacks
    python -m ofmu_pl report logs/attacks
    python scripts/attack_results.py logs/attacks [--name attacks] [--only-table]

The summaries go to docs/results/data, in a file of the page's name; the page follows from them alone.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterable
from pathlib import Path
from statistics import mean, median, stdev
from typing import Any

from pages import RESULTS_FOLDER, facts, row, rule, write_page, written_by

from ofmu_pl.support.files import write_json
from ofmu_pl.support.records import ACROSS, ATTACKS, NULL, RESULTS, AttacksRecord, Results

SHOWN = {
    "forget_Q_A_Prob": "p forget (goal: retrained)",
    "retain_Q_A_Prob": "p retain ↑",
    "model_utility": "utility ↑",
    "RA": "RA (%) ↑",
    "UA": "UA (%)",
}
"""Metrics of the runs that stand beside what returns."""

PICTURED = ("relearn_forget", "relearn_retain", "depth_score")
"""Attacks whose figures of the report, if it was made, stand on the page."""

RUNS = {
    "attacks": (
        "on fictitious authors",
        "A Llama of 0.3 M parameters; 4 of 20 invented authors (32 rows) are forgotten, within 320 gradients a run "
        "(the part `authors` of `configs/benchmarks/attacks.yaml`).",
    ),
    "attacks_tofu": (
        "on real TOFU",
        "A Llama of 4.5 M parameters; forget10 is forgotten, within 96 gradients of 16 rows a run "
        "(`configs/benchmarks/attacks_tofu.yaml`).",
    ),
    "attacks_images": (
        "on digits",
        "A random tenth of the digits is forgotten, the same for every seed, within 320 gradients a run (the part "
        "`images` of `configs/benchmarks/attacks.yaml`).",
    ),
}
"""What the attacked runs are, by the page: the end of its title, and a sentence."""

FOUND = {
    ("relearn", "quantise", "logit_lens"): "the probability of the true answer or class",
    ("prompts",): "the ROUGE-L recall of what the model says",
    ("sample",): "the share of questions that leak",
    ("confidence",): "the log-odds of the true answer or class, in nats",
    ("depth_score",): "1 - UDS",
    ("linear_probe",): "an AUC",
    ("rtt",): "the share of right choices",
}
"""What is found, by the beginnings of attacks' names."""

ABOUT_ACROSS = (
    "Every forgotten row's confidences under the unlearned models against those under the retrained models "
    "([how](../attacks.md#confidence-one-example-at-a-time)). Where nobody tells forgotten from "
    "never-seen rows they are not 0, 1 and .5: of 8 and 8 models that are alike (normal confidences of 129 rows, "
    "simulated), 95 % of epsilons lie from 1.49 to 1.94, of scores from .17 to .19, "
    "of AUCs from .45 to .52, of accuracies from .47 to .52, of rates from .001 to .017. "
    "Scores of different numbers of models are not comparable."
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="folder of a benchmark, or of runs")
    parser.add_argument("--name", default="attacks")
    parser.add_argument("--only-table", action="store_true", help="write the page from the stored summaries")
    args = parser.parse_args()
    data = RESULTS_FOLDER / "data" / f"{args.name}.json"
    if not args.only_table:
        write_json(data, summary(args.folder) | {"figures": pictures(args.folder, args.name)})
    write_page(args.name, page(json.loads(data.read_text()), args.name))


def pictures(folder: Path, name: str) -> list[str]:
    """Copy the report's figures of some attacks beside the page; returns where they are, from there."""
    found = {}
    for attack in PICTURED:
        own = sorted(folder.glob(f"report/figures/*-{attack}-attack.png"))
        for figure in own or folder.parent.glob(f"report/figures/{folder.name}-{attack}-attack.png"):
            found[f"figures/{name}-{attack}.png"] = figure.read_bytes()
    for path, picture in found.items():
        (RESULTS_FOLDER / path).write_bytes(picture)
    return list(found)


def summary(folder: Path) -> dict[str, Any]:
    """What the page needs of every attacked run below a folder."""
    runs, settings = [], {}
    for path in sorted(folder.rglob(ATTACKS)):
        record, results = AttacksRecord.read(path), Results.read(path.parent / RESULTS)
        settings |= {name: a.settings for name, a in record.attacks.items()}
        runs.append(
            {
                "method": method_of(path.parent),
                "seed": results.provenance["seed"],
                "steps": results.provenance["steps"],
                "gradients": results.cost.gradient_evaluations,
                "sides": {
                    side: {name: entries[name]["value"] for name in SHOWN if name in entries}
                    for side, entries in (
                        ("after", results.metrics),
                        ("target", results.before),
                        ("retrained", results.reference.metrics if results.reference else {}),
                    )
                },
                "attacks": {
                    name: {
                        "found": {m: entries[a.found]["value"] for m, entries in a.metrics.items()},
                        "returns": a.returns,
                        "gradients": a.gradients,
                        "seconds": a.seconds,
                        "broken": a.broken,
                    }
                    for name, a in record.attacks.items()
                },
            }
        )
    if not runs:
        raise SystemExit(f"There is no {ATTACKS} below '{folder}': run `python -m ofmu_pl attack --runs {folder}`.")
    return {
        **facts(),
        "settings": settings,
        "runs": runs,
        "across": {
            path.parent.name: values
            for path in sorted(folder.rglob(ACROSS))
            for values in json.loads(path.read_text())["attacks"].values()
        },
    }


def method_of(run: Path) -> str:
    """The method's folder: a benchmark's lies above that of the seed."""
    above = run.resolve().parent
    return above.parent.name if above.name.startswith("seed_") else above.name


def page(stored: dict[str, Any], name: str) -> str:
    """The tables as Markdown: what returns, what is found, and what attacks cost."""
    runs = stored["runs"]
    methods = list(dict.fromkeys(run["method"] for run in runs))
    attacks = list(dict.fromkeys(attack for run in runs for attack in run["attacks"]))
    of = {m: [run for run in runs if run["method"] == m] for m in methods}
    worst = {m: max((mean(s) for a in attacks if (s := share(of[m], a))), default=0.0) for m in methods}
    methods.sort(key=lambda m: worst[m])
    shown = [x for x in SHOWN if any(x in run["sides"]["after"] for run in runs)]
    where, what = RUNS.get(name, (f"on {name}", ""))
    many = len({run["seed"] for run in runs}) > 1
    spoken = "Mean over seeds ± standard deviation." if many else "One seed."
    lines = [
        f"# Does it come back? Attacks {where}",
        "",
        f"{written_by('attack_results.py', name, stored)} {spoken}",
        "",
        f"{what} [What each attack does](../attacks.md).",
        "",
        "## What returns",
        "",
        "0 %, the goal: the attack finds what it finds on the retrained model. 100 %: as much as if nothing had been "
        "forgotten. Below 0 %: less than on the retrained model, which is a trace, too. Methods are in the order of "
        "their worst attack.",
        "",
        row(["method", "seeds", *attacks, *(SHOWN[x] for x in shown)]),
        rule(2 + len(attacks) + len(shown)),
    ]
    for m in methods:
        cells = [spread(share(of[m], a), percent=True) for a in attacks]
        cells += [spread([run["sides"]["after"][x] for run in of[m] if x in run["sides"]["after"]]) for x in shown]
        lines.append(row([m, str(len(of[m])), *cells]))
    for side in ("target", "retrained"):
        ends = [spread(once_a_seed((run["seed"], run["sides"][side].get(x)) for run in runs)) for x in shown]
        lines.append(row([f"*{side}*", "", *("100 %" if side == "target" else "0 %" for _ in attacks), *ends]))
    for figure in stored.get("figures", []):
        pictured = f"What {Path(figure).stem.removeprefix(f'{name}-')} finds on each model"
        lines += ["", f"![{pictured}]({figure})"]
    told = {what: [a for a in attacks if a.startswith(names)] for names, what in FOUND.items()}
    units = "; ".join(f"of {', '.join(names)} {what}" for what, names in told.items() if names)
    goal = "The more, the better for the attacker; the retrained model's row is the goal."
    lines += ["", "## What attacks find", "", f"What the numbers are: {units}. {goal}", ""]
    lines += [row(["model", *attacks]), rule(1 + len(attacks))]
    for m in methods:
        lines.append(row([m, *(spread(found(of[m], a, "unlearned")) for a in attacks)]))
    for side in ("retrained", "target"):
        ends = [spread(once_a_seed((run["seed"], finding(run, a, side)) for run in runs)) for a in attacks]
        lines.append(row([f"*{side}*", *ends]))
    lines += ["", "## What attacks cost", "", row(["attack", "gradients a model", "seconds a model"]), rule(3)]
    for a in attacks:
        costs = [run["attacks"][a] for run in runs if a in run["attacks"]]
        cells = [median(c[k]["unlearned"] for c in costs) for k in ("gradients", "seconds")]
        lines.append(row([a, f"{cells[0]:.0f}", f"{cells[1]:.1f}"]))
    if stored["across"]:
        names = list(dict.fromkeys(name for values in stored["across"].values() for name in values))
        names = [name for name in names if not name.endswith((*NULL, "worst_example_auc"))]  # 1 of any few models
        lines += ["", "## Single examples over the runs of a method", "", ABOUT_ACROSS, ""]
        lines += [row(["method", *(name.replace("_", " ") for name in names)]), rule(1 + len(names))]
        for m in (m for m in methods if m in stored["across"]):
            values = stored["across"][m]
            lines.append(row([m, *(f"{values[n]:.3g}" if n in values else "-" for n in names)]))
    broken = [
        (m, a, w) for m in methods for run in of[m] for a, x in run["attacks"].items() for w in x["broken"].values()
    ]
    lines += ["", *(f"- {m}, {a}: {why}" for m, a, why in dict.fromkeys(broken))]
    return "\n".join(lines).rstrip() + "\n"


def share(runs: list[dict[str, Any]], attack: str) -> list[float]:
    """What returns, one value a run."""
    values = [run["attacks"].get(attack, {}).get("returns", {}).get("value") for run in runs]
    return [float(x) for x in values if x is not None]


def found(runs: list[dict[str, Any]], attack: str, model: str) -> list[float]:
    """What the attack finds on a model, one value a run."""
    return [x for run in runs if (x := finding(run, attack, model)) is not None]


def finding(run: dict[str, Any], attack: str, model: str) -> float | None:
    """What the attack finds on a model of one run; ``None``: it was not made."""
    x: float | None = run["attacks"].get(attack, {}).get("found", {}).get(model)
    return x


def once_a_seed(values: Iterable[tuple[int, float | None]]) -> list[float]:
    """The first value of each seed, of models that all runs of a seed share."""
    found: dict[int, float] = {}
    for seed, x in values:
        if x is not None:
            found.setdefault(seed, x)
    return list(found.values())


def spread(values: list[float], percent: bool = False) -> str:
    """Mean ± standard deviation."""
    if not values:
        return "-"
    scale, form = (100, ".0f") if percent else (1, ".3g")
    text = format(scale * mean(values), form)
    if len(values) > 1:
        text += f" ± {format(scale * stdev(values), form)}"
    return f"{text} %" if percent else text


if __name__ == "__main__":
    main()
