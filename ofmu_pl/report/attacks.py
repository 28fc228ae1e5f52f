"""What attacks brought back, by attack, method and replicate, and the table of it."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from itertools import chain
from statistics import median
from typing import Any

from ofmu_pl.report.runs import RETRAINED, Findings, Replicate, number, words
from ofmu_pl.report.statistics import Spread, spread_of
from ofmu_pl.report.tables import Entry, Table, measured, plain
from ofmu_pl.support.records import AttackRecord

UNLEARNED, TARGET = "unlearned", "target"
"""Beside ``RETRAINED`` the models of a record."""
WORST = "‡"
HEAD = "returns → (%)"


def attacks_of(experiment: Findings, scenarios: list[str]) -> list[str]:
    """Names of the attacks that some run of these scenarios was under, in order."""
    runs = [r for r in experiment.finished if r.scenario in scenarios]
    return list(dict.fromkeys(chain.from_iterable(r.attacks.attacks for r in runs)))


def made(experiment: Findings, scenarios: list[str], method: str, attack: str) -> dict[Replicate, AttackRecord]:
    """What an attack found on the runs of a method, by replicate."""
    runs = experiment.of(scenarios, method).items()
    return {key: r.attacks.attacks[attack] for key, r in runs if attack in r.attacks.attacks}


def returned(experiment: Findings, scenarios: list[str], method: str, attack: str) -> Spread:
    """The share that returns, in per cent, over replicates; of a single one the interval is over rows."""
    return spread_of((r.returns for r in made(experiment, scenarios, method, attack).values()), unit=100)


def worst(experiment: Findings, scenarios: list[str], method: str) -> tuple[str, Spread] | None:
    """The attack that brings most back, and how much; ``None`` where no share is known."""
    return _worst({a: returned(experiment, scenarios, method, a) for a in attacks_of(experiment, scenarios)})


def _worst(shares: dict[str, Spread]) -> tuple[str, Spread] | None:
    known = {a: s for a, s in shares.items() if s.n}
    return max(known.items(), key=lambda item: item[1].mean) if known else None


def attack_table(experiment: Findings, name: str, scenarios: list[str]) -> Table:
    """What returns, by method and attack; no rows: no run was attacked."""
    attacks = attacks_of(experiment, scenarios)
    shares: dict[str, dict[str, Spread]] = {}
    nearest = dict.fromkeys(attacks, math.inf)
    for method in experiment.methods:
        if attacks and experiment.of(scenarios, method):
            shares[method] = {a: returned(experiment, scenarios, method, a) for a in attacks}
            for attack, share in shares[method].items():
                nearest[attack] = min(nearest[attack], abs(share.mean) if share.n else math.inf)
    over = "draws" if len(scenarios) > 1 else "seeds"
    spreads = f", mean ± standard deviation [95 % interval] over {over}" if experiment.replicated else ""
    table = Table(
        f"{experiment.name}-{name}-attacks",
        f"{experiment.title}, {name}: what returns{spreads}",
        ["method", *(f"{words(a)} → (%)" for a in attacks)],
    )
    for method, found in shares.items():
        most = _worst(found)
        line = [Entry(method)]
        for attack, share in found.items():
            e = measured(share)
            e.best = len(shares) > 1 and abs(share.mean) == nearest[attack]
            e.mark = WORST if most is not None and len(attacks) > 1 and most[0] == attack else ""
            line.append(e)
        table.add(line, method == experiment.ours)
    table.notes = _notes(experiment, scenarios, shares)
    return table


def found_table(experiment: Findings, name: str, scenarios: list[str]) -> Table:
    """What attacks find on each model; no rows: no run was attacked."""
    attacks = attacks_of(experiment, scenarios)
    title = f"{experiment.title}, {name}: what attacks find, the more the better for the attacker"
    table = Table(f"{experiment.name}-{name}-found", title, ["model", *map(words, attacks)], lines={1})
    for model in (TARGET, RETRAINED, *experiment.methods) if attacks else ():
        shared = model in (TARGET, RETRAINED)  # by methods, once a seed
        line = [Entry(model)]
        for attack in attacks:
            by_replicate: dict[Replicate, dict[str, Any]] = {}
            for method in experiment.methods if shared else [model]:
                for key, record in made(experiment, scenarios, method, attack).items():
                    entries = record.metrics.get(model if shared else UNLEARNED, {})
                    by_replicate.setdefault(key, entries.get(record.found, {}))
            line.append(measured(spread_of(by_replicate.values())))
        table.add(line)
    return table


def cost_table(experiment: Findings, name: str, scenarios: list[str]) -> Table:
    """What attacks cost a model, medians over runs; no rows: no run was attacked."""
    title = f"{experiment.title}, {name}: what attacks cost on a model"
    table = Table(f"{experiment.name}-{name}-attack-costs", title, ["attack", "gradients", "seconds"], folded=True)
    for attack in attacks_of(experiment, scenarios):
        records: list[AttackRecord] = []
        for method in experiment.methods:
            records += made(experiment, scenarios, method, attack).values()
        gradients, seconds = _median(r.gradients for r in records), _median(r.seconds for r in records)
        table.add([Entry(words(attack)), plain(gradients), plain(seconds)])
    return table


def _median(spent: Iterable[Mapping[str, Any]]) -> float | None:
    known = [x for by_model in spent if (x := number(by_model.get(UNLEARNED))) is not None]
    return median(known) if known else None


def _notes(experiment: Findings, scenarios: list[str], shares: dict[str, dict[str, Spread]]) -> list[str]:
    """What one must know to read the table; which models broke, and which were not at hand."""
    notes = [
        "returns: how far what the attack finds is on the way from the retrained model (0 % by construction) to the "
        "target, which forgot nothing (100 % by construction). → nearest to 0 is best: below it the attack finds less "
        "than where the rows were never seen, which is a trace of its own."
    ]
    counts = {s.n for s in chain.from_iterable(found.values() for found in shares.values())}
    if 1 in counts:
        notes.append("Where there is one run, the interval is over rows.")
    if 0 in counts:
        notes.append("–: the attack was not made, or its share is not known.")
    if len(attacks_of(experiment, scenarios)) > 1 and any(counts):
        notes.append(f"{WORST} the attack that brings most back, whose share stands in the main table.")
    for run in experiment.finished:
        remarks = run.attacks.remarks if run.scenario in scenarios else []
        notes += [str(remark) for remark in remarks if remark not in notes]
    return notes + _broken(experiment, scenarios)


def _broken(experiment: Findings, scenarios: list[str]) -> list[str]:
    """A sentence for each model that an attack broke, with its seeds."""
    seeds: dict[tuple[str, str, str], list[int]] = {}
    for run in experiment.finished:
        for attack, record in run.attacks.attacks.items() if run.scenario in scenarios else ():
            for model, why in record.broken.items():
                who = {UNLEARNED: run.method, RETRAINED: "the retrained model"}.get(model, f"the {model}")
                found = seeds.setdefault((words(attack), who, str(why)), [])
                found += [run.seed] if run.seed not in found else []
    return [
        f"{attack} broke {who} (seed{'s' * (len(s) > 1)} {', '.join(map(str, sorted(s)))}): {why}"
        for (attack, who, why), s in seeds.items()
    ]
