"""What attacks brought back, by attack, method and replicate, and what needs many runs of a method, as tables."""

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from itertools import chain, product
from statistics import median
from typing import Any, TypeVar

from ofmu_pl.report.runs import Replicate, Study, number, words
from ofmu_pl.report.statistics import Spread, spread_of
from ofmu_pl.report.tables import Entry, Table, figure, measured, plain
from ofmu_pl.support.records.models import RETRAINED, TARGET, UNLEARNED
from ofmu_pl.support.records.results import NULL, AttackRecord

T = TypeVar("T")
WORST = "‡"
HEAD = "recovered → (%)"
MODELS, SCORE = "models", "score"
HEADS = {MODELS: "N", "epsilon": "epsilon ↓", "forgetting_score": "forgetting score ↑", SCORE: "score ↑"}
"""Heads of figures over runs that are not their names alone."""


def attacks_of(experiment: Study) -> list[str]:
    """Names of the attacks that some run was under, in order."""
    return list(dict.fromkeys(chain.from_iterable(r.attacks.attacks for r in experiment.finished)))


def made(experiment: Study, method: str, attack: str) -> dict[Replicate, AttackRecord]:
    """What an attack found on the runs of a method, by replicate."""
    runs = experiment.of(method).items()
    return {key: r.attacks.attacks[attack] for key, r in runs if attack in r.attacks.attacks}


def of_models(experiment: Study, attack: str, look: Callable[[AttackRecord, str], T]) -> dict[str, list[T]]:
    """What a look at an attack's records finds on each method's models, and on the two controls, by replicate.

    A control is one model for all methods of a replicate, so that the first run that has it speaks for all.
    """
    found: dict[str, list[T]] = {}
    controls: dict[str, dict[Replicate, T]] = {RETRAINED: {}, TARGET: {}}
    for method in experiment.methods:
        records = made(experiment, method, attack)
        found[method] = [look(record, UNLEARNED) for record in records.values()]
        for (key, record), (control, known) in product(records.items(), controls.items()):
            known[key] = known.get(key) or look(record, control)
    return found | {control: list(known.values()) for control, known in controls.items()}


def returned(experiment: Study, method: str, attack: str) -> Spread:
    """The share that is recovered, in per cent, over replicates; of a single one the interval is over rows."""
    return spread_of((r.returns for r in made(experiment, method, attack).values()), unit=100)


def shares(experiment: Study, method: str) -> dict[str, Spread]:
    """What is recovered of a method's runs, by attack."""
    return {a: returned(experiment, method, a) for a in attacks_of(experiment)}


def worst(found: dict[str, Spread]) -> str | None:
    """The attack that brings most back; ``None`` where no share is known with an interval."""
    return max((a for a, s in found.items() if not math.isnan(s.low)), key=lambda a: found[a].mean, default=None)


def worst_shares(experiment: Study) -> dict[str, Spread]:
    """What the attack that brings most back recovers, by method, where that is known."""
    found: dict[str, Spread] = {}
    for method in experiment.methods:
        by_attack = shares(experiment, method)
        if most := worst(by_attack):
            found[method] = by_attack[most]
    return found


def attack_table(experiment: Study) -> Table:
    """What is recovered, by method and attack; no rows: no run was attacked."""
    attacks = attacks_of(experiment)
    rows = {m: shares(experiment, m) for m in experiment.ran} if attacks else {}
    nearest = dict.fromkeys(attacks, math.inf)
    for attack, share in chain.from_iterable(found.items() for found in rows.values()):
        nearest[attack] = min(nearest[attack], abs(share.mean) if share.n else math.inf)
    spreads = f", mean ± standard deviation [95 % interval] over {experiment.over}" if experiment.replicated else ""
    table = Table(
        f"{experiment.name}-attacks",
        f"{experiment.title}: what is recovered{spreads}",
        ["method", *(f"{words(a)} → (%)" for a in attacks)],
    )
    for method, found in rows.items():
        line = [Entry(method)]
        for attack, share in found.items():
            best = len(rows) > 1 and abs(share.mean) == nearest[attack]
            line.append(measured(share, best, WORST if len(attacks) > 1 and worst(found) == attack else ""))
        table.add(line, method == experiment.ours)
    table.note(*_notes(experiment, rows))
    return table


def found_table(experiment: Study) -> Table:
    """What attacks find on each model; no rows: no run was attacked."""
    attacks = attacks_of(experiment)
    title = f"{experiment.title}: what attacks find, the more the better for the attacker"
    table = Table(f"{experiment.name}-found", title, ["model", *map(words, attacks)], lines={1})
    table.note("Of attacks that train it is the peak, over all rates and looks; their curves are of the peak's rate.")
    columns = [of_models(experiment, a, lambda r, model: r.metrics.get(model, {}).get(r.found, {})) for a in attacks]
    for model in (TARGET, RETRAINED, *experiment.methods) if attacks else ():
        table.add([Entry(model), *(measured(spread_of(found[model])) for found in columns)])
    return table


def cost_table(experiment: Study) -> Table:
    """What attacks cost a model, medians over runs; no rows: no run was attacked."""
    title = f"{experiment.title}: what attacks cost on a model"
    table = Table(f"{experiment.name}-attack-costs", title, ["attack", "gradients", "seconds"], folded=True)
    for attack in attacks_of(experiment):
        records = list(chain.from_iterable(made(experiment, m, attack).values() for m in experiment.methods))
        gradients, seconds = _median(r.gradients for r in records), _median(r.seconds for r in records)
        table.add([Entry(words(attack)), plain(gradients), plain(seconds)])
    return table


def _median(spent: Iterable[Mapping[str, Any]]) -> float | None:
    known = [x for by_model in spent if (x := number(by_model.get(UNLEARNED))) is not None]
    return median(known) if known else None


def _notes(experiment: Study, rows: dict[str, dict[str, Spread]]) -> list[str]:
    """What one must know to read the table; which models broke, and which were not at hand."""
    notes = [
        "recovered: how far what the attack finds is on the way from the retrained model (0 % by construction) to the "
        "target, which forgot nothing (100 % by construction). → nearest to 0 is best: below it the attack finds less "
        "than where the rows were never seen, which is a trace of its own."
    ]
    shares = chain.from_iterable(found.values() for found in rows.values())
    counts = {share.n for share in shares}
    if 1 in counts:
        notes.append("Where there is one run, the interval is over rows.")
    if 0 in counts:
        notes.append("–: the attack was not made, or its share is not known.")
    if len(attacks_of(experiment)) > 1 and any(counts):
        notes.append(f"{WORST} the attack that brings most back, whose share stands in the main table.")
    for run in experiment.finished:
        remarks = run.attacks.all_remarks
        notes += [str(remark) for remark in remarks if remark not in notes]
    return notes + _broken(experiment)


def _broken(experiment: Study) -> list[str]:
    """A sentence for each model that an attack broke, with its seeds."""
    seeds: dict[tuple[str, str, str], set[int]] = {}
    for run in experiment.finished:
        for attack, record in run.attacks.attacks.items():
            for model, why in record.broken.items():
                who = {UNLEARNED: run.method, RETRAINED: "the retrained model"}.get(model, f"the {model}")
                seeds.setdefault((words(attack), who, str(why)), set()).add(run.seed)
    return [
        f"{attack} broke {who} (seed{'s' * (len(s) > 1)} {', '.join(map(str, sorted(s)))}): {why}"
        for (attack, who, why), s in seeds.items()
    ]


def across_table(experiment: Study) -> Table:
    """Figures over the runs of each method, a line a scenario, method and attack; no rows: there are too few runs."""
    found: dict[tuple[str, str, str], dict[str, Any]] = {}
    for scenario, method in product(experiment.scenarios, experiment.methods):
        record = experiment.across.get(f"{scenario}/{method}")
        for attack, values in record.attacks.items() if record else ():
            found[scenario, method, attack] = values
    names = dict.fromkeys(chain.from_iterable(found.values()))
    figures = [n for n in names if n != MODELS and not n.endswith((*NULL, "worst_example_auc"))]
    heads = ["scenario", "method", "attack", HEADS[MODELS], *(HEADS.get(n, words(n)) for n in figures)]
    title = f"{experiment.title}: single rows, over the runs of a method"
    table = Table(f"{experiment.name}-across", title, heads)
    table.note(
        "Each row's confidences under the N unlearned models are compared with those under their retrained models. "
        "With few models chance alone is far from epsilon 0 and score 1.",
        "Figures of different N are not comparable: an epsilon is 50 where a decision makes no mistake on N models and "
        "else about ln N at most. The NeurIPS 2023 competition, whose points the forgetting score has, had 512.",
    )
    bracketed = False
    for (scenario, method, attack), values in found.items():
        models = number(values.get(MODELS))
        line = [Entry(scenario), Entry(method), Entry(words(attack))]
        line.append(Entry("–") if models is None else Entry(f"{models:.0f}", numbers={"": models}))
        line += [_beside_chance(values, n) for n in figures]
        bracketed |= any(e.small for e in line)
        table.add(line, method == experiment.ours)
    if bracketed:
        table.note(
            "In brackets: where 95 % of a figure lie when nobody tells forgotten from held-out rows, as models are "
            "dealt to the two sides at random."
        )
    if SCORE in figures:
        table.note("score: the forgetting score times retain and test accuracy as ratios to the retrained models'.")
    return table


def _beside_chance(values: Mapping[str, Any], name: str) -> Entry:
    """A figure, and in brackets where it lies by chance alone."""
    entry, ends = plain(number(values.get(name))), {end: number(values.get(name + end)) for end in NULL}
    known = {end: x for end, x in ends.items() if x is not None}
    small = f"({' to '.join(map(figure, known.values()))})" if known else ""
    return replace(entry, small=small, numbers=entry.numbers | known)
