"""What does not belong together is taken apart, what is missing is named: one sentence each."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

from ofmu_pl.report.runs import Findings, Replicate, Run


def drop_doubles(experiment: Findings, problems: list[str]) -> None:
    """One run a method, scenario and seed; the same weights twice are one run, too, whatever their seeds say."""
    kept: dict[tuple[str, str, int], Run] = {}
    weights: dict[tuple[str, str, str], Run] = {}
    for run in experiment.runs:
        first = kept.get((run.scenario, run.method, run.seed))
        if first is not None:
            problems.append(
                f"{experiment.name}: {run.folder} repeats seed {run.seed} of {run.method} in {run.scenario}, which "
                f"{first.folder} has: only the first counts."
            )
            continue
        mark = run.fact("weights")
        twin = weights.get((run.scenario, run.method, str(mark))) if mark and run.cost("gradient_evaluations") else None
        if twin is not None:
            problems.append(
                f"{experiment.name}: {run.folder} (seed {run.seed}) has the very weights of {twin.folder} (seed "
                f"{twin.seed}): it is no second sample, so only the first counts."
            )
            continue
        kept[run.scenario, run.method, run.seed] = run
        if mark:
            weights[run.scenario, run.method, str(mark)] = run
    experiment.runs = list(kept.values())


def set_apart(experiment: Findings, problems: list[str]) -> None:
    """Keep the runs of the commonest definition; the others' numbers mean something else."""
    counts = Counter(r.definition for r in experiment.finished)
    if len(counts) < 2:
        return
    (main, n), *rest = counts.most_common()
    others = ", ".join(f"{name} ({k})" for name, k in rest)
    problems.append(
        f"{experiment.name}: results of several definitions are mixed, {main} ({n} runs) and {others}: the latter are "
        "shown in a table of their own and compared with nothing."
    )
    experiment.apart = [r for r in experiment.finished if r.definition != main]
    experiment.runs = [r for r in experiment.runs if r not in experiment.apart]


def _not_finished(experiment: Findings) -> list[str]:
    """One sentence for all runs that have not ended, one a method and scenario for those that broke."""
    waiting = [r for r in experiment.runs if r.results is None and r.error is None and r.status == "unfinished"]
    found = [f"{len(waiting)} of {len(experiment.runs)} runs have not ended yet."] if waiting else []
    broken: dict[tuple[str, str, str], list[Run]] = {}
    for run in experiment.runs:
        if run.results is None and run not in waiting:
            broken.setdefault((run.scenario, run.method, run.status), []).append(run)
    for (scenario, method, status), runs in broken.items():
        seeds = ", ".join(str(r.seed) for r in runs)
        of = f" (seed {runs[0].seed}'s words)" if len({r.error for r in runs}) > 1 else ""
        why = (runs[0].error or "it does not say why").rstrip(".")
        found.append(f"{scenario}/{method} {status} with seed{'s' * (len(runs) > 1)} {seeds}: {why}{of}.")
    return found


def _other_rows(experiment: Findings) -> list[str]:
    """One sentence a run that forgets other rows than most runs of its scenario and seed, or does not say which."""
    replicates: dict[Replicate, dict[Any, list[Run]]] = {}
    for run in experiment.finished:
        hashes = run.fact("hashes")
        rows = hashes.get("forget") if isinstance(hashes, dict) else None
        replicates.setdefault((run.scenario, run.seed), {}).setdefault(str(rows) if rows else None, []).append(run)
    found = []
    for (scenario, seed), by_rows in replicates.items():
        silent = by_rows.pop(None, [])
        most = max(by_rows.values(), key=len, default=[])
        for run in (run for runs in by_rows.values() if runs is not most for run in runs):
            others = most[0].folder if len(most) == 1 else f"{len(most)} runs of {scenario}, seed {seed}"
            found.append(f"{run.folder} forgets other rows than {others}: do not compare them.")
        found += [
            f"{run.folder} does not say which rows it forgets (results.json, provenance.hashes): whether it may be "
            f"compared with the other runs of {scenario}, seed {seed} is not known."
            for run in silent
            if most
        ]
    return found


def _other_attacks(experiment: Findings) -> list[str]:
    """One sentence an attack that runs were under with differing settings or seeds."""
    ways: dict[str, dict[str, list[str]]] = {}
    for run in experiment.finished:
        for name, record in run.attacks.attacks.items():
            way = json.dumps([record.settings, record.seeds], sort_keys=True)
            ways.setdefault(name, {}).setdefault(way, []).append(run.folder)
    return [
        f"The attack '{name}' had other settings or seeds on {min(by_way.values(), key=len)[0]} than on "
        f"{max(by_way.values(), key=len)[0]}: make it again on both, alike."
        for name, by_way in ways.items()
        if len(by_way) > 1
    ]


def check(experiment: Findings, problems: list[str]) -> None:
    """Name what failed, what is missing, and what does not belong together."""
    problems += [f"{experiment.name}: {sentence}" for sentence in _not_finished(experiment)]
    problems += [
        f"{experiment.name}: the attacks on {r.folder} failed: {r.attack_error}"
        for r in experiment.runs
        if r.attack_error
    ]
    problems += [
        f"{experiment.name}: the attacks on the runs of {method} together failed: {why}"
        for method, why in experiment.attack_errors.items()
    ]
    for run in experiment.finished:
        broken = [m for m in experiment.metrics if run.metric(m) and run.value(m) is None]
        if broken:
            problems.append(f"{experiment.name}: {run.folder} has no finite {', '.join(broken)}: counted as missing.")
    problems += [f"{experiment.name}: {sentence}" for sentence in _other_rows(experiment)]
    problems += [f"{experiment.name}: {sentence}" for sentence in _other_attacks(experiment)]
    unknown = [m for m in experiment.metrics if experiment.finished and not experiment.entry(m)]
    if unknown:
        problems.append(f"{experiment.name}: no run has the metrics {', '.join(unknown)}: their columns are left out.")
