"""What does not belong together is taken apart, what is missing is named: one sentence each."""

import json
from collections import Counter

from ofmu_pl.report.runs import Replicate, StudiedRun, Study
from ofmu_pl.support.grouping import grouped


def belonging(name: str, runs: list[StudiedRun], problems: list[str]) -> list[StudiedRun]:
    """The runs of an experiment that belong together: one a method, scenario and seed, of the commonest definition.

    The same weights twice are one run, too, whatever their seeds say. Other definitions' numbers mean something else.
    """
    kept: dict[tuple[str, str, int], StudiedRun] = {}
    weights: dict[tuple[str, str, str], StudiedRun] = {}
    for run in runs:
        mark = run.fact("weights")
        first = kept.get((run.scenario, run.method, run.seed))
        twin = weights.get((run.scenario, run.method, str(mark))) if mark and run.cost("gradient_evaluations") else None
        if first is not None:
            why = f"repeats seed {run.seed} of {run.method} in {run.scenario}, which {first.folder} has"
        elif twin is not None:
            why = f"has the very weights of {twin.folder} (seed {twin.seed})"
        else:
            kept[run.scenario, run.method, run.seed] = run
            weights[run.scenario, run.method, str(mark)] = run
            continue
        problems.append(f"{name}: {run.folder} {why}: only the first counts.")
    (main, n), *rest = Counter(r.definition for r in kept.values() if r.results).most_common() or [("", 0)]
    if rest:
        others = ", ".join(f"{definition} ({k})" for definition, k in rest)
        problems.append(f"{name}: results of several definitions are mixed, {main} ({n} runs) and {others}: left out.")
    return [r for r in kept.values() if r.results is None or r.definition == main]


def _not_finished(experiment: Study) -> list[str]:
    """One sentence for all runs that have not ended, one a method and scenario for those that broke."""
    waiting = [r for r in experiment.runs if r.results is None and r.error is None and r.status == "unfinished"]
    found = [f"{len(waiting)} of {len(experiment.runs)} runs have not ended yet."] if waiting else []
    others = [r for r in experiment.runs if r.results is None and r not in waiting]
    broken = grouped(((r.scenario, r.method, r.status), r) for r in others)
    for (scenario, method, status), runs in broken.items():
        seeds = ", ".join(str(r.seed) for r in runs)
        of = f" (seed {runs[0].seed}'s words)" if len({r.error for r in runs}) > 1 else ""
        why = (runs[0].error or "it does not say why").rstrip(".")
        found.append(f"{scenario}/{method} {status} with seed{'s' * (len(runs) > 1)} {seeds}: {why}{of}.")
    return found


def _other_rows(experiment: Study) -> list[str]:
    """One sentence a run that forgets other rows than most runs of its scenario and seed, or does not say which."""
    replicates: dict[Replicate, list[tuple[str | None, StudiedRun]]] = {}
    for run in experiment.finished:
        hashes = run.fact("hashes")
        rows = hashes.get("forget") if isinstance(hashes, dict) else None
        replicates.setdefault((run.scenario, run.seed), []).append((str(rows) if rows else None, run))
    found = []
    for (scenario, seed), runs in replicates.items():
        counts = Counter(rows for rows, _ in runs if rows is not None).most_common(1)
        for rows, run in runs if counts else ():
            if rows is None:
                found.append(
                    f"{run.folder} does not say which rows it forgets (results.json, provenance.hashes): whether it "
                    f"may be compared with the other runs of {scenario}, seed {seed} is not known."
                )
            elif rows != counts[0][0]:
                others = f"{counts[0][1]} run{'s' * (counts[0][1] > 1)} of {scenario}, seed {seed}"
                found.append(f"{run.folder} forgets other rows than {others}: do not compare them.")
    return found


def _other_attacks(experiment: Study) -> list[str]:
    """One sentence an attack that runs were under with differing settings or seeds."""
    ways: dict[str, dict[str, str]] = {}
    for run in experiment.finished:
        for name, record in run.attacks.attacks.items():
            way = json.dumps([record.settings, record.seeds], sort_keys=True)
            ways.setdefault(name, {}).setdefault(way, run.folder)
    return [
        f"The attack '{name}' had other settings or seeds on {' than on '.join(folders.values())}: repeat it on all."
        for name, folders in ways.items()
        if len(folders) > 1
    ]


def check(experiment: Study, problems: list[str]) -> None:
    """Name what failed, what is missing, and what does not belong together."""
    found = _not_finished(experiment)
    found += [f"the attacks on {r.folder} failed: {r.attack_error}" for r in experiment.runs if r.attack_error]
    for method, why in experiment.attack_errors.items():
        found.append(f"the attacks on the runs of {method} together failed: {why}")
    for run in experiment.finished:
        broken = [m for m in experiment.metrics if run.metric(m) and run.value(m) is None]
        if broken:
            found.append(f"{run.folder} has no finite {', '.join(broken)}: counted as missing.")
    found += _other_rows(experiment) + _other_attacks(experiment)
    unknown = [m for m in experiment.metrics if experiment.finished and not experiment.entry(m)]
    if unknown:
        found.append(f"no run has the metrics {', '.join(unknown)}: their columns are left out.")
    problems += [f"{experiment.name}: {sentence}" for sentence in found]
