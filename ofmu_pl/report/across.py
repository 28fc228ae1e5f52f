"""What attacks on single rows found, which need many runs of one method."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from ofmu_pl.report.runs import Findings, number, words
from ofmu_pl.report.tables import Entry, Table, figure, plain
from ofmu_pl.support.records import NULL

MODELS, SCORE = "models", "score"
HEADS = {MODELS: "N", "epsilon": "epsilon ↓", "forgetting_score": "forgetting score ↑", SCORE: "score ↑"}
"""Heads of figures that are not their names alone."""


def across_table(experiment: Findings, name: str, scenarios: list[str]) -> Table:
    """Figures over the runs of each method, a line a scenario, method and attack; no rows: there are too few runs."""
    found: dict[tuple[str, str, str], dict[str, Any]] = {}
    for scenario in scenarios:
        for method in experiment.methods:
            record = experiment.across.get(f"{scenario}/{method}")
            for attack, values in record.attacks.items() if record else ():
                found[scenario, method, attack] = values
    names: dict[str, None] = {}
    for values in found.values():
        names |= dict.fromkeys(values)
    figures = [n for n in names if n != MODELS and not n.endswith((*NULL, "worst_example_auc"))]
    heads = ["scenario", "method", "attack", HEADS[MODELS], *(HEADS.get(n, words(n)) for n in figures)]
    title = f"{experiment.title}, {name}: single rows, over the runs of a method"
    table = Table(f"{experiment.name}-{name}-across", title, heads)
    bracketed = False
    for (scenario, method, attack), values in found.items():
        models = number(values.get(MODELS))
        line = [Entry(scenario), Entry(method), Entry(words(attack))]
        line.append(Entry("–") if models is None else Entry(f"{models:.0f}", numbers={"": models}))
        line += [_beside_chance(values, n) for n in figures]
        bracketed |= any(e.small for e in line)
        table.add(line, method == experiment.ours)
    table.notes = [
        "Each row's confidences under the N unlearned models are compared with those under their retrained models. "
        "With few models chance alone is far from epsilon 0 and score 1.",
        "Figures of different N are not comparable: an epsilon is 50 where a decision makes no mistake on N models and "
        "else about ln N at most. The NeurIPS 2023 competition, whose points the forgetting score has, had 512.",
    ]
    if bracketed:
        table.notes.append(
            "In brackets: where 95 % of a figure lie when nobody tells forgotten from held-out rows, as models are "
            "dealt to the two sides at random."
        )
    if SCORE in figures:
        table.notes.append(
            "score: the forgetting score times retain and test accuracy as ratios to the retrained models', as in the "
            "competition."
        )
    return table


def _beside_chance(values: Mapping[str, Any], name: str) -> Entry:
    """A figure, and in brackets where it lies by chance alone."""
    entry, ends = plain(number(values.get(name))), {end: number(values.get(name + end)) for end in NULL}
    known = {end: x for end, x in ends.items() if x is not None}
    small = f"({' to '.join(map(figure, known.values()))})" if known else ""
    return replace(entry, small=small, numbers=entry.numbers | known)
