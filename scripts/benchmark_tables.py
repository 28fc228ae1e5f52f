"""The tables of a benchmark's page: methods with their metrics, who is better than whom, and what was tried."""

from __future__ import annotations

import json
from statistics import mean
from typing import Any

from pages import WAYS, spread, table

from ofmu_pl.metrics import overall_score
from ofmu_pl.report.runs import BEFORE, RETRAINED
from ofmu_pl.report.statistics import TOFU_SCORE

SIDES = ("forget_quality_D", "model_utility"), ("forget_Q_A_Prob", "retain_Q_A_Prob"), ("avg_gap", "TA")
"""Metrics of forgetting, the lower the better, and of keeping, the higher; the first pair that all runs have."""

SCORE = "overall"
"""The paper's score of a method among those of its table: the mean over metrics of its value over the best one's."""

NAMED = 3
"""Methods that are named at most which are better than another."""

ENDS = {RETRAINED: "retrained", BEFORE: "target"}
"""Where one wants to be, and where forgetting starts."""


def run_in(e: dict[str, Any], values: dict[str, Any]) -> list[str]:
    """Methods that have run in a scenario."""
    return [m for m in e["searched"] if any(values[m].values())]


def ranked(
    e: dict[str, Any], values: dict[str, Any]
) -> tuple[tuple[str, str] | None, dict[str, tuple[float, ...]], dict[str, list[str]]]:
    """The two metrics that are compared, if there are two, each method's point, and who is better than it in both."""
    run = run_in(e, values)
    names = next((pair for pair in SIDES if all(values[m].get(x) for m in run for x in pair)), None)
    points = {m: tuple(mean(values[m][x].values()) for x in names or ()) for m in run}
    better = {m: [o for o, (f, k) in points.items() if f < points[m][0] and k > points[m][1]] for m in run if names}
    return names, points, better


def scores(run: list[str], values: dict[str, Any]) -> dict[str, list[float]]:
    """The paper's overall score of each method on each seed, among those that ran on it; empty without its metrics."""
    if len(run) < 2 or not all(values[m].get(x) for m in run for x in TOFU_SCORE):
        return {}
    found: dict[str, list[float]] = {m: [] for m in run}
    for seed in {seed for m in run for seed in values[m][TOFU_SCORE[0]]}:
        there = {m: {x: values[m][x][seed] for x in TOFU_SCORE} for m in run if seed in values[m][TOFU_SCORE[0]]}
        for m, score in overall_score(there).items():
            found[m].append(score)
    return found


def section(e: dict[str, Any], values: dict[str, Any]) -> list[str]:
    """A table, and a sentence on who is better than whom."""
    sides, points, better = ranked(e, values)
    metrics = [x for x in e["metrics"] if any(values[m].get(x) for m in points)]
    methods = sorted(points, key=lambda m: (len(better.get(m, [])), points[m][:1]))
    score = scores(methods, values)
    head = ["method", *(f"{x} {WAYS.get(x, '')}".strip() for x in metrics)]
    head += [f"{SCORE} ↑"] * bool(score) + ["methods that are better on both sides"] * bool(sides and len(methods) > 1)
    rows = [
        [
            m,
            *(spread(values[m][x].values()) for x in metrics),
            *([spread(score[m])] if score else []),
            few(better.get(m, [])),
        ]
        for m in methods
    ]
    for side in ENDS:
        if any(values[side].values()):
            rows.append([f"*{side}*", *(spread(values[side][x].values()) for x in metrics), "", ""])
    lines = table(head, [row[: len(head)] for row in rows])
    if not sides or len(methods) == 1:  # there is nothing, or nobody, to be compared with
        return lines
    forgets, keeps = sides
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


def statements(found: list[dict[str, str]]) -> list[str]:
    """A table of what the paper says and what came out, as the report has it."""
    rows = [[c["text"], f"**{c['verdict']}**", f"{c['experiment']}: {c['why']}"] for c in found]
    return table(["the paper says", "here", "numbers, with 95 % intervals"], rows)


def tried(e: dict[str, Any]) -> list[str]:
    """How many candidates each method had, and what was chosen."""
    rows = []
    for m, searches in e["searched"].items():
        choices = "; ".join(dict.fromkeys(json.dumps(s["choice"]) for s in searches)) or "nothing: settings were given"
        rows.append([m, str(max((len(s["scores"]) for s in searches), default=0)), choices])
    return table(["method", "candidates", "chosen by validation rows, on a seed that is not reported"], rows)
