"""What the paper says in words, held against our numbers: reproduced, contradicted or not decidable, and why."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, pairwise
from typing import Literal

import numpy as np
from scipy.stats import norm, ttest_1samp

from ofmu_pl.metrics.bootstrap import LEVEL, holm
from ofmu_pl.report.derived import BETA, RHO_0, Place, alignment, difficulty, grid, norms, sweep_panels
from ofmu_pl.report.published import without
from ofmu_pl.report.runs import Study, words
from ofmu_pl.report.statistics import compare, differences, least_p, merit, paired
from ofmu_pl.report.tables import between, figure

HARD = "hard-third cosine"
POINTS = 6
"""Fewest points of a correlation that decides: of three to five, noise too has intervals that leave out 0."""
Verdict = Literal["reproduced", "contradicted", "not decidable"]
Found = tuple[str, Verdict, str]
"""The paper's words, what came out, and the numbers that decide."""
ByGrid = dict[float | None, dict[float, dict[int, float]]]
"""Values by rho, T and seed."""


@dataclass(frozen=True)
class Claim:
    """The paper's words, held against an experiment of this name, and the numbers that decide."""

    experiment: str
    text: str
    verdict: Verdict
    why: str


def claims(experiment: Study) -> list[Claim]:
    """All that an experiment of its kind can decide, either error having at most 5 % for each statement (``judged``).

    It goes by differences over seeds, and by the intervals of correlations that the analysis of ``udi`` gives.
    """
    judges = {
        "table": _significance,
        "udi": _coupling,
        "alignment": _nearness,
        "ablation": _ablation,
        "sweep": _sweep,
        "convergence": _convergence,
    }
    if experiment.kind not in judges or (experiment.kind == "table" and not experiment.paper):
        return []
    return [Claim(experiment.name, *found) for found in judges[experiment.kind](experiment)]


def _significance(experiment: Study) -> Iterator[Found]:
    text = f"OFMU's improvements over the baselines are statistically significant (p < {LEVEL})."
    tests = []
    for group in experiment.groups.values():
        for metric in dict.fromkeys(map(group.tested, group.columns)):
            tests += compare(group, metric)
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


def _gain(experiment: Study, variant: str, metric: str) -> list[float]:
    """Ours minus a variant, seed by seed; the hard third's cosine comes from the analysis."""
    if metric == HARD:
        cosines = alignment(experiment)["hardest"]
        return differences(cosines.get(experiment.ours or "", {}), cosines.get(variant, {}))
    return differences(*(merit(experiment, m, metric) for m in (experiment.ours or "", variant)))


def _ablation(experiment: Study) -> Iterator[Found]:
    quality = experiment.tested("forget_quality") if experiment.entry("forget_quality") else "avg_gap"
    hard = "Removing similarity-aware decorrelation reduces robustness on hard samples (embedding similarity drops)."
    less = "Removing the penalty reformulation lowers forgetting efficacy (forget quality falls)."
    gains: dict[str, list[float]] = {}
    for text, names, metric in ((hard, BETA, HARD), (less, RHO_0, quality)):
        variant = without(experiment, names)
        if variant is None:
            yield text, "not decidable", f"No variant has {names[0]} 0."
            continue
        for name in (quality, "model_utility" if experiment.entry("model_utility") else "TA", HARD):
            gains[f"{variant}, {words(name)},"] = _gain(experiment, variant, name)
        what = f"{variant}, {words(metric)},"
        yield text, judged([gains[what]]), f"{described(f'{experiment.ours} minus {what}', gains[what])}."
    ways = directions(list(gains.values()))
    nowhere_behind = len(gains) == 6 and all(len(d) > 1 and np.mean(d) >= 0 for d in gains.values())
    found = "; ".join(described(what, d) for what, d in gains.items()) or "there is no variant"
    text = "The full OFMU achieves the best results, but not by an overwhelming margin."
    yield text, _verdict(nowhere_behind and 1 in ways, -1 in ways), f"{experiment.ours} minus {found}."


def _by_grid(experiment: Study, metric: str) -> ByGrid:
    """Values by rho, T and seed; scenarios are grid points, so seeds pair them."""
    found: ByGrid = {}
    for (scenario, method), (t, rho) in grid(experiment).items():
        for (_, seed), value in experiment.part(scenario).values(method, metric).items():
            if t is not None:
                found.setdefault(rho, {}).setdefault(t, {})[seed] = value
    return {rho: dict(sorted(by_t.items())) for rho, by_t in found.items() if len(by_t) > 1}


def _sweep(experiment: Study) -> Iterator[Found]:
    rising = "More inner steps consistently strengthen forgetting efficacy (monotonically, for all rho)."
    stable = "Model utility is robust to changes in inner loop depth, less sensitive than forgetting."
    damped = "High penalty values suppress forgetting improvements."
    shown = sweep_panels(experiment)
    forgetting = _by_grid(experiment, shown[0]) if shown else {}
    if not forgetting:
        why = "No two values of model.inner_steps have finished runs with one upper.rho_0."
        for text in (rising, stable, damped):
            yield text, "not decidable", why
        return
    sign, name = -1 if shown[0] == "forget_Q_A_Prob" else 1, words(shown[0])
    steps: list[list[float]] = []
    gains: dict[float | None, dict[int, float]] = {}
    for rho, by_t in forgetting.items():
        for first, last in pairwise(by_t.values()):
            steps.append([sign * d for d in differences(last, first)])
        least, *_, most = by_t.values()
        gains[rho] = {seed: sign * (most[seed] - least[seed]) for seed in least if seed in most}
    by_rho = {rho: list(gain.values()) for rho, gain in gains.items()}
    rises = all(direction(d) > 0 for d in by_rho.values()) and all(np.mean(d) >= 0 for d in steps if d)
    numbers = [described(f"rho = {rho}:", d) for rho, d in by_rho.items()]
    verdict = _verdict(rises, -1 in directions(steps))
    yield rising, verdict, f"Change of forgetting ({name}) from least to most T, {'; '.join(numbers)}."
    yield _stability(experiment, stable, shown, forgetting)
    known = sorted(rho for rho in gains if rho is not None)
    if len(known) < 2:
        yield damped, "not decidable", "Runs with two values of upper.rho_0 are needed."
        return
    d = differences(gains[known[0]], gains[known[-1]])
    why = described(f"the gain in {name} over T at rho = {known[0]:g} less that at {known[-1]:g} is", d)
    yield damped, judged([d]), f"{why}."


def _stability(experiment: Study, text: str, shown: list[str], forgetting: ByGrid) -> Found:
    """Range over T of utility against that of forgetting, both in one unit, averaged over rho, seed by seed."""
    if len(shown) < 2:
        return text, "not decidable", "No metric of utility is in the results."
    utility = _by_grid(experiment, shown[1])
    ranges: dict[int, list[float]] = {}
    for rho in forgetting.keys() & utility.keys():
        for seed in set().union(*forgetting[rho].values()):
            one, other = _over_t(forgetting[rho], seed), _over_t(utility[rho], seed)
            if len(one) == len(other) == len(forgetting[rho]):
                ranges.setdefault(seed, []).append(float(np.ptp(one) - np.ptp(other)))
    d = [float(np.mean(found)) for _, found in sorted(ranges.items())]
    what = f"the range of {words(shown[0])} over T less that of {words(shown[1])} is"
    return text, judged([d]), f"{described(what, d)}."


def _over_t(by_t: dict[float, dict[int, float]], seed: int) -> list[float]:
    return [by_seed[seed] for by_seed in by_t.values() if seed in by_seed]


def _convergence(experiment: Study) -> Iterator[Found]:
    text = "The gradient of F becomes small: min over k of |grad F|^2 is O(1/K) + O(1/T) (lemma 3)."
    found = norms(experiment)
    if not found:
        yield text, "not decidable", "No run has the curve gradient_norm and model.inner_steps among its options."
        return
    starts: dict[float, dict[Place, float]] = {}
    ends: dict[float, dict[Place, float]] = {}
    for t, courses in found.items():
        starts[t] = {k: _level(c[: max(1, len(c) // 10)]) for k, c in courses.items()}
        ends[t] = {k: _level(c[-max(1, len(c) // 10) :]) for k, c in courses.items()}
    falls = {t: differences(starts[t], ends[t]) for t in found}
    why = "; ".join(described(f"T = {t:g}:", d) for t, d in falls.items())
    why = f"log10 of |grad F| in the first tenth less that in the last, {why}"
    pooled = list(chain.from_iterable(falls.values()))
    if -1 in directions(list(falls.values())):
        yield text, "contradicted", f"{why}: it grows."
    elif len(found) < 2 or len(pooled) < 2 or not all(map(math.isfinite, pooled)):
        yield text, "not decidable", f"{why}; runs with several T and seeds are needed."
    else:
        least, *_, most = ends.values()
        drop = differences(least, most)
        tail = described("log10 of the final |grad F| at the least T less that at the most is", drop)
        yield text, judged([*falls.values(), drop]), f"{why}; {tail}."


def _coupling(experiment: Study) -> Iterator[Found]:
    """Whether utility falls with the difficulty of what is forgotten, and least so with ours (tab:udi-corr)."""
    rises = "The harder the forget samples, the more utility falls (Spearman correlation with the UDI above 0)."
    weakest = "OFMU shows the weakest coupling of difficulty and utility loss."
    found = difficulty(experiment)[1]
    rho = {m: x for m, x in found.items() if {"low", "high"} <= x.keys() and x.get("n", 0) >= POINTS}
    if not rho:
        for text in (rises, weakest):
            yield text, "not decidable", f"No correlation has {POINTS} points: more draws of the forget set are needed."
        return
    numbers = [f"{m} {figure(x['rho'])} {between(x['low'], x['high'])}" for m, x in rho.items()]
    why = f"Over the draws of the forget set: {', '.join(numbers)}."
    falling = min(holm([_p_below(x) for x in rho.values()])) < LEVEL
    yield rises, _verdict(all(x["low"] > 0 for x in rho.values()), falling), why
    ours = rho.get(experiment.ours or "")
    others = [x for m, x in rho.items() if m != experiment.ours]
    if ours is None or not others:
        yield weakest, "not decidable", f"OFMU has fewer than {POINTS} points, or every other method has."
        return
    below = any(x["high"] < ours["low"] for x in others)  # two such intervals part with p < .006
    yield weakest, _verdict(all(x["low"] > ours["high"] for x in others), below), why


def _p_below(x: Mapping[str, float]) -> float:
    """Two-sided p of a correlation below 0, as its 95 % interval tells it."""
    above = max(x["high"] - x["rho"], 1e-12)
    return float(2 * norm.sf(norm.ppf(0.975) * -x["rho"] / above)) if x["rho"] < 0 else 1.0


def _verdict(reproduced: bool, contradicted: bool) -> Verdict:
    if contradicted:
        return "contradicted"
    return "reproduced" if reproduced else "not decidable"


def _nearness(experiment: Study) -> Iterator[Found]:
    """Whether ours leaves the hard samples' embeddings nearest to the retrained model's (tab:embed-sim)."""
    text = "On hard samples OFMU's embeddings are nearest to the retrained model's."
    hard = {m: x for m, x in alignment(experiment)["hardest"].items() if m in experiment.methods}
    ours = hard.pop(experiment.ours or "", {})
    if not ours or not hard:
        yield text, "not decidable", "There is no cosine of ours, or none of another method."
        return
    best = max(hard, key=lambda m: float(np.mean(list(hard[m].values()))))
    d = differences(ours, hard[best])
    # The best is chosen by the same numbers, so chance alone may put it above ours: all count for "contradicted".
    behind = min(directions([differences(ours, theirs) for theirs in hard.values()])) < 0
    why = described(f"{experiment.ours} minus {best}, the best of the others, cosine,", d)
    yield text, _verdict(direction(d) > 0, behind), f"{why}."


def _level(values: np.ndarray) -> float:
    return float(np.log10(np.nanmean(values)))


def directions(families: Sequence[Sequence[float]]) -> list[int]:
    """1 or -1 where a mean over seeds differs from 0 by the t-test, after Holm's correction for all of them; else 0."""
    corrected = holm([_p(d) for d in families])
    return [int(np.sign(np.mean(d))) if p < LEVEL else 0 for d, p in zip(families, corrected, strict=True)]


def direction(differences: Sequence[float]) -> int:
    """The same of one mean."""
    return directions([differences])[0]


def judged(families: Sequence[Sequence[float]]) -> Verdict:
    """What differences say of a statement that each of them should be above 0; either error has at most 5 %.

    Contradicted: one is below 0, after the correction for all. Reproduced: each is above 0 by its own test, which needs
    no correction, since all have to be (an intersection-union test).
    """
    if min(directions(families), default=0) < 0:
        return "contradicted"
    return "reproduced" if families and all(direction(d) > 0 for d in families) else "not decidable"


def _p(d: Sequence[float]) -> float:
    """Two-sided p of the t-test; of differences that do not vary, the least of the sign-flip test."""
    if len(d) < 2 or not any(d):
        return 1.0
    return least_p(len(d)) if np.ptp(d) <= 1e-12 * np.abs(d).max() else float(ttest_1samp(d, 0.0).pvalue)


def described(what: str, differences: Sequence[float]) -> str:
    """The mean difference with its interval, after words on what it is."""
    if not differences:
        return f"{what.rstrip(',:')}: no seed has both"
    mean = figure(float(np.mean(differences)))
    if len(differences) < 2:
        return f"{what} {mean} on one seed, which gives no interval"
    _, _, low, high = paired(differences)
    return f"{what} {mean} [{figure(low)}, {figure(high)}] over {len(differences)} seeds"
