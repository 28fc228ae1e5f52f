"""What the paper says in words, held against our numbers: reproduced, contradicted or not decidable, and why."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from ofmu_pl.metrics.bootstrap import LEVEL
from ofmu_pl.report.claims_of_difficulty import coupling, nearness
from ofmu_pl.report.derived import alignment, grid
from ofmu_pl.report.figures.studies import norms, sweep_panels
from ofmu_pl.report.published import without
from ofmu_pl.report.runs import Findings, words
from ofmu_pl.report.statistics import compare, least_p, merit
from ofmu_pl.report.tables import figure
from ofmu_pl.report.verdicts import Found, Verdict, described, direction, directions, judged

HARD = "hard-third cosine"


@dataclass(frozen=True)
class Claim:
    """One statement of the paper.

    Attributes:
        experiment: Name of the experiment that it was held against.
        text: The paper's words.
        verdict: What came out.
        why: The numbers that decide, one sentence.
    """

    experiment: str
    text: str
    verdict: Verdict
    why: str


def claims(experiment: Findings) -> list[Claim]:
    """All that an experiment of its kind can decide, either error having at most 5 % for each statement (``judged``).

    It goes by differences over seeds, and by the intervals of correlations that the analysis of ``udi`` gives.
    """
    judges = {
        "table": _significance,
        "udi": coupling,
        "alignment": nearness,
        "ablation": _ablation,
        "sweep": _sweep,
        "convergence": _convergence,
    }
    if experiment.kind not in judges or (experiment.kind == "table" and not experiment.paper):
        return []
    return [Claim(experiment.name, *found) for found in judges[experiment.kind](experiment)]


def _merits(experiment: Findings, method: str, metric: str) -> dict[Any, float]:
    """Merits by replicate; those of the hard third's cosine come from the analysis."""
    if metric == HARD:
        return dict(alignment(experiment)["hardest"].get(method, {}))
    return dict(merit(experiment, list(experiment.scenarios), method, metric))


def _gain(experiment: Findings, variant: str, metric: str) -> list[float]:
    """Ours minus a variant, seed by seed."""
    ours, theirs = (_merits(experiment, m, metric) for m in (experiment.ours or "", variant))
    return [ours[key] - theirs[key] for key in ours if key in theirs]


def _ablation(experiment: Findings) -> Iterator[Found]:
    bare, loop = without(experiment, "model.beta"), without(experiment, "model.rho_0")
    quality = experiment.tested("forget_quality") if experiment.entry("forget_quality") else "avg_gap"
    for text, variant, option, metric in (
        (
            "Removing similarity-aware decorrelation reduces robustness on hard samples (embedding similarity drops).",
            *(bare, "model.beta", HARD),
        ),
        (
            "Removing the penalty reformulation lowers forgetting efficacy (forget quality falls).",
            *(loop, "model.rho_0", quality),
        ),
    ):
        if variant is None:
            yield text, "not decidable", f"No variant has {option} 0."
            continue
        d = _gain(experiment, variant, metric)
        yield text, judged([d]), f"{described(f'{experiment.ours} minus {variant}, {words(metric)},', d)}."
    text = "The full OFMU achieves the best results, but not by an overwhelming margin."
    wanted = [quality, "model_utility" if experiment.entry("model_utility") else "TA", HARD]
    gains = {(v, m): _gain(experiment, v, m) for v in (bare, loop) if v for m in wanted}
    ways = dict(zip(gains, directions(list(gains.values())), strict=True))
    lost = [key for key, way in ways.items() if way < 0]
    if lost:
        (variant, metric) = lost[0]
        why = described(f"{experiment.ours} minus {variant}, {words(metric)},", gains[lost[0]])
        yield text, "contradicted", f"{why}: the variant is better."
    elif len(gains) == 6 and 1 in ways.values() and all(len(d) > 1 and np.mean(d) >= 0 for d in gains.values()):
        yield text, "reproduced", f"{experiment.ours} is at least as good in all of {', '.join(map(words, wanted))}."
    else:
        behind = [f"{v} in {words(m)}" for (v, m), d in gains.items() if d and np.mean(d) < 0]
        missing = [f"{v} in {words(m)}" for (v, m), d in gains.items() if len(d) < 2]
        parts = [f"behind {', '.join(behind)} on average, which chance may do" if behind else ""]
        parts += ["better than none beyond chance" if 1 not in ways.values() else ""]
        parts += [f"fewer than two seeds for {', '.join(missing)}" if missing else ""]
        parts += ["a variant is missing" if len(gains) < 6 else ""]
        yield text, "not decidable", f"{experiment.ours}: {'; '.join(p for p in parts if p)}."


def _values_by_grid(experiment: Findings, metric: str) -> dict[float | None, dict[float, dict[int, float]]]:
    """Values by rho, T and seed; scenarios are grid points, so that seeds pair them."""
    found: dict[float | None, dict[float, dict[int, float]]] = {}
    for (scenario, method), (t, rho) in grid(experiment).items():
        for (_, seed), value in experiment.values([scenario], method, metric).items():
            if t is not None:
                found.setdefault(rho, {}).setdefault(t, {})[seed] = value
    return {rho: dict(sorted(by_t.items())) for rho, by_t in found.items() if len(by_t) > 1}


def _differences(first: Mapping[int, float], last: Mapping[int, float]) -> list[float]:
    return [last[seed] - first[seed] for seed in first if seed in last]


def _sweep(experiment: Findings) -> Iterator[Found]:
    shown = sweep_panels(experiment)
    forgetting = _values_by_grid(experiment, shown[0]) if shown else {}
    sign = -1 if shown and shown[0] == "forget_Q_A_Prob" else 1
    name = words(shown[0]) if shown else "no metric"
    rising = "More inner steps consistently strengthen forgetting efficacy (monotonically, for all rho)."
    stable = "Model utility is robust to changes in inner loop depth, less sensitive than forgetting."
    damped = "High penalty values suppress forgetting improvements."
    if not forgetting:
        for text in (rising, stable, damped):
            yield text, "not decidable", "No two values of model.inner_steps have finished runs with one model.rho_0."
        return
    steps, gains = {}, {}
    for rho, by_t in forgetting.items():
        ts = list(by_t)
        for a, b in pairwise(ts):
            steps[rho, a, b] = [sign * d for d in _differences(by_t[a], by_t[b])]
        gains[rho] = [sign * d for d in _differences(by_t[ts[0]], by_t[ts[-1]])]
    falls = [key for key, way in zip(steps, directions(list(steps.values())), strict=True) if way < 0]
    if falls:
        rho, a, b = falls[0]
        verdict, key = "contradicted", falls[0]
        why = f"at rho = {rho}, from T = {a:g} to {b:g}, {described(f'forgetting ({name}) changes by', steps[key])}."
    else:
        weak = [rho for rho, d in gains.items() if direction(d) <= 0]
        down = [key for key, d in steps.items() if d and np.mean(d) < 0]
        verdict = "not decidable" if weak or down else "reproduced"
        parts = [f"rho = {rho}: {described('', gains[rho]).strip()}" for rho in gains]
        why = f"change of forgetting ({name}) from least to most T, {'; '.join(parts)}."
    yield rising, verdict, why  # type: ignore[misc]
    yield _stability(experiment, stable, shown, forgetting)
    known = sorted(rho for rho in gains if rho is not None)
    if len(known) < 2:
        yield damped, "not decidable", "Runs with two values of model.rho_0 are needed."
        return
    low, high = (_seeded(forgetting[rho], sign) for rho in (known[0], known[-1]))
    d = _differences(high, low)
    why = described(f"the gain in {name} over T at rho = {known[0]:g} less that at {known[-1]:g} is", d)
    yield damped, judged([d]), f"{why}."


def _seeded(by_t: Mapping[float, Mapping[int, float]], sign: int) -> dict[int, float]:
    """Change from least to most T by seed."""
    first, *_, last = by_t.values()
    return {seed: sign * (last[seed] - first[seed]) for seed in first if seed in last}


def _stability(
    experiment: Findings, text: str, shown: list[str], forgetting: dict[float | None, dict[float, dict[int, float]]]
) -> Found:
    """Range over T of utility against that of forgetting, both in one unit, averaged over rho, seed by seed."""
    if len(shown) < 2:
        return text, "not decidable", "No metric of utility is in the results."
    utility = _values_by_grid(experiment, shown[1])
    ranges: dict[int, list[float]] = {}
    for rho in forgetting.keys() & utility.keys():
        for seed in {s for by_seed in forgetting[rho].values() for s in by_seed}:
            both = [[v[seed] for v in by[rho].values() if seed in v] for by in (forgetting, utility)]
            if all(len(values) == len(forgetting[rho]) for values in both):
                ranges.setdefault(seed, []).append(float(np.ptp(both[0]) - np.ptp(both[1])))
    d = [float(np.mean(found)) for _, found in sorted(ranges.items())]
    what = f"the range of {words(shown[0])} over T less that of {words(shown[1])} is"
    return text, judged([d]), f"{described(what, d)}."


def _convergence(experiment: Findings) -> Iterator[Found]:
    text = "The gradient of F becomes small: min over k of |grad F|^2 is O(1/K) + O(1/T) (lemma 3)."
    found = norms(experiment)
    if not found:
        yield text, "not decidable", "No run has the curve gradient_norm and model.inner_steps among its options."
        return
    falls: dict[float, list[float]] = {}
    for t, courses in found.items():
        for c in courses.values():
            n = max(1, len(c) // 10)
            falls.setdefault(t, []).append(float(np.log10(np.nanmean(c[:n]) / np.nanmean(c[-n:]))))
    pooled = [x for values in falls.values() for x in values]
    parts = [f"T = {t:g}: {figure(float(np.mean(v)))}" for t, v in falls.items()]
    why = f"log10 of |grad F| in the first tenth over that in the last, {', '.join(parts)}"
    if min(directions(list(falls.values()))) < 0:
        yield text, "contradicted", f"{why}: it grows."
    elif len(found) < 2 or len(pooled) < 2 or not all(math.isfinite(x) for x in pooled):
        yield text, "not decidable", f"{why}; runs with several T and seeds are needed."
    else:
        first, *_, last = found.values()
        ends = [{k: np.log10(np.nanmean(c[-max(1, len(c) // 10) :])) for k, c in x.items()} for x in (first, last)]
        drop = [float(end - ends[1][k]) for k, end in ends[0].items() if k in ends[1]]
        tail = described("log10 of the final |grad F| at the least T less that at the most is", drop)
        yield text, judged([*falls.values(), drop]), f"{why}; {tail}."


def _significance(experiment: Findings) -> Iterator[Found]:
    text = f"OFMU's improvements over the baselines are statistically significant (p < {LEVEL})."
    tests = [
        c
        for scenarios in experiment.groups.values()
        for m in dict.fromkeys(experiment.tested(m) for m in experiment.columns(scenarios))
        for c in compare(experiment, scenarios, m)
    ]
    if not tests:
        yield text, "not decidable", "No other method shares a seed with ours."
        return
    families, n = [c.differences for c in tests], min(c.n for c in tests)
    better, worse = (directions(families).count(side) for side in (1, -1))
    why = (
        f"Of {len(tests)} comparisons (methods, metrics, scenarios) {experiment.ours} is better in {better} and worse "
        f"in {worse} by t-tests with one correction for all of them; with {n} seed{'s' * (n > 1)} the exact test "
        f"reaches p = {figure(least_p(n))} at best."
    )
    yield text, judged(families), why
