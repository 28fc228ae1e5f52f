"""TOFU's suite: from scores of one model (and of a retrained one) to named metrics with goals."""

from collections.abc import Mapping
from functools import partial

import numpy as np

from ofmu_pl.metrics import functional as F
from ofmu_pl.metrics import tofu_items as T
from ofmu_pl.metrics.bootstrap import interval
from ofmu_pl.metrics.definitions import DEFINITIONS, Definition
from ofmu_pl.metrics.membership import auc, auc_result, membership_closeness, privacy_leakage
from ofmu_pl.metrics.result import Metric, MetricResult, by_name
from ofmu_pl.metrics.scores import Scores
from ofmu_pl.support.sets import forgets, is_probe

_better = partial(Metric, higher_is_better=True, group="forgotten")
_worse = partial(Metric, higher_is_better=False, group="forgotten")
FORGET_QUALITY = _better(
    "forget_quality",
    unit="p-value",
    column=1,
    tested_as="forget_quality_D",
    says="A statistical test of whether the model treats the forgotten rows as a retrained model does gives p = "
    "{value}; below 0.05 the two are told apart.",
)
FORGET_QUALITY_LOG = _better("forget_quality_log10_p", unit="log10 p")
FORGET_QUALITY_DISTANCE = _worse("forget_quality_D", unit="KS distance", column=2)
TRUTH_RATIO_GAP = _worse("forget_truth_ratio_gap")
MODEL_UTILITY = Metric(
    "model_utility",
    higher_is_better=True,
    group="kept",
    column=3,
    says="What the model can still do on rows that must stay, nine measures in one number, is {value}.",
)
PRIVACY_LEAKAGE = Metric("privleak", higher_is_better=True, unit="%", group="attacks")
PRIVACY_SCORE = Metric("privacy_score", higher_is_better=True, group="attacks")
MEMORIZATION_SCORE = _better("memorization_score")

_BY_CHOICE = (T.KEPT_ROUGE, T.KEPT_NORMALISED, T.KEPT_TRUTH_RATIO)
UTILITY_PARTS = {
    "retain": (T.KEPT_PROBABILITY, T.KEPT_ROUGE, T.KEPT_TRUTH_RATIO),
    "real_authors": _BY_CHOICE,
    "world_facts": _BY_CHOICE,
}
"""Metrics whose harmonic mean is model utility, by evaluation set."""
MEMORIZED = (T.EXTRACTION_STRENGTH, T.EXACT_MEMORIZATION, T.PARAPHRASE_PROBABILITY, T.TRUTH_PROBABILITY)
PRIVACY_ATTACKS = ("mia_loss", "mia_zlib", "mia_min_k", "mia_min_k_plus_plus")
_PICKS = (
    "Shown a forgotten row and a held-out one, an attacker who goes by {clue} picks the forgotten one in {{value}} "
    "of cases; 50 % is chance."
)
CLUES = {
    "mia_loss": "how little a row surprises the model",
    "mia_facts": "how little the facts in a row's answer surprise the model",
    "mia_min_k": "the words that surprise the model most",
    "mia_min_k_plus_plus": "the words that surprise the model most, against all words that could stand there,",
    "mia_zlib": "how little a row surprises the model for how much it says (by its compressed length)",
    "mia_reference": "how much less a row surprises the model than the retrained one",
}
"""What each attack goes by."""
ATTACKS = {
    name: Metric(name, higher_is_better=False, group="attacks", says=_PICKS.format(clue=clue))
    for name, clue in CLUES.items()
}


def tofu_metrics(
    scores: Scores,
    reference: Scores | None = None,
    definition: str = "exact",
    reference_values: Mapping[str, float] | None = None,
    intervals: bool = False,
) -> dict[str, MetricResult]:
    """Compute all metrics that the scores allow, under open-unlearning's names.

    Args:
        scores: Scores by evaluation set: ``forget``, ``retain``, ``real_authors``, ``world_facts``, ``holdout``,
            probes.
        reference: Scores of the retrained model on the same items, which give forget quality and goals on the forget
            side.
        definition: A key of ``DEFINITIONS``.
        reference_values: Totals of the retrained model by metric, where its scores do not give them.
        intervals: Compute intervals.
    """
    d = DEFINITIONS[definition]
    reference, known = reference or {}, dict(reference_values or {})
    # Utility has no target but its direction: a model may keep more than retraining does.
    wanted: dict[Metric, np.ndarray] = {}
    for name, found in T.item_values(reference, d).items():
        wanted |= found if forgets(name) else {}
    results: dict[str, MetricResult] = {}
    items = T.item_values(scores, d)
    for name, metrics in items.items():
        for metric, values in metrics.items():
            goal = wanted.get(metric, known.get(metric.name) if forgets(name) else None)
            results[metric.name] = metric.of_items(values, goal, definition, intervals)
    for probe, forget, retain in _sides(scores):
        results |= _forget_quality(forget, scores, reference, results, d)
        results |= _model_utility(probe, retain, items, d, intervals)
    results |= membership(scores, reference, known, d, intervals)
    return results | _composites(results, d)


def _sides(scores: Scores) -> list[tuple[str, str, str]]:
    """Names of each probe (empty: the benchmark itself), its forget set and its retain set."""
    probes = dict.fromkeys(name.rpartition("_")[0] for name in scores if is_probe(name))
    return [("", "forget", "retain"), *((probe, f"{probe}_forget", f"{probe}_retain") for probe in probes)]


def _forget_quality(
    name: str, scores: Scores, reference: Scores, results: dict[str, MetricResult], d: Definition
) -> dict[str, MetricResult]:
    """The test against the retrained model, and the distance of the two forget truth ratios."""
    ratios = [T.log_truth_ratio(s[name], d) if name in s else None for s in (scores, reference)]
    if ratios[0] is None or ratios[1] is None:
        return {}
    p, distance = F.forget_quality(ratios[0], ratios[1])
    ratio = results[T.of_set(T.TRUTH_RATIO, name).name]
    with np.errstate(divide="ignore"):
        log_p = float(np.log10(p))
    found = (
        (FORGET_QUALITY, p, 1.0),
        (FORGET_QUALITY_LOG, log_p, 0.0),
        (FORGET_QUALITY_DISTANCE, distance, 0.0),
        (TRUTH_RATIO_GAP, abs(ratio.value - (ratio.target or 0.0)), 0.0),
    )
    return by_name(*(T.of_set(m, name).result(value, len(ratios[0]), goal, d.name) for m, value, goal in found))


def _model_utility(
    probe: str, retain: str, items: dict[str, dict[Metric, np.ndarray]], d: Definition, intervals: bool
) -> dict[str, MetricResult]:
    """The harmonic mean of the nine parts, with those of the given retain set; a set's items are resampled together."""
    groups = []
    for side, parts in UTILITY_PARTS.items():
        name = retain if side == "retain" else side
        values = items.get(name, {})
        wanted = [T.of_set(metric, name) for metric in parts]
        if not all(metric in values for metric in wanted):
            return {}
        groups.append(np.column_stack([values[metric] for metric in wanted]))
    value = F.harmonic_mean(np.concatenate([x.mean(axis=0) for x in groups]).tolist())
    # To first order the mean h of K parts moves by h^2 / (K m^2) of what a part's mean m does.
    slope = value**2 / sum(x.shape[1] for x in groups)
    moved = [(x - x.mean(0)) @ (slope / np.maximum(x.mean(0), 1e-12) ** 2) for x in groups]
    rows = (moved[0] + value, *moved[1:])
    ends, n = interval(rows, bounded=True) if intervals else None, sum(map(len, groups))
    metric = MODEL_UTILITY.of(probe, group="probes", column=None, family=probe) if probe else MODEL_UTILITY
    return by_name(metric.result(value, n, None, d.name, ends, rows))


def membership(
    scores: Scores, reference: Scores, reference_auc: dict[str, float], d: Definition, intervals: bool = False
) -> dict[str, MetricResult]:
    """AUC of each attack on forget against holdout rows; the goal is the retrained model's AUC."""
    found = attacked(scores, reference)
    theirs = attacked(reference, reference)
    goals = {name: auc(*sides) for name, sides in theirs.items()} | reference_auc
    if "mia_min_k" not in goals and d.assumed_auc is not None:
        goals["mia_min_k"] = d.assumed_auc
    results = {}
    for name, sides in found.items():
        results[name] = auc_result(ATTACKS[name], sides, goals.get(name), d.name, intervals, theirs.get(name))
    if "mia_min_k" in found and "mia_min_k" in goals:
        leakage = privacy_leakage(results["mia_min_k"].value, goals["mia_min_k"], d.epsilon)
        results |= by_name(PRIVACY_LEAKAGE.result(leakage, results["mia_min_k"].n, 0.0, d.name))
    return results


def attacked(scores: Scores, reference: Scores | None = None) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """What each attack sees of forget and of holdout rows, of those that the scores allow."""
    if "forget" not in scores or "holdout" not in scores:
        return {}
    sides = [scores["forget"], scores["holdout"]]
    columns: dict[str, list[np.ndarray | None]] = {
        "mia_loss": [s.answer_loss for s in sides],
        "mia_facts": [s.facts_loss for s in sides],
        "mia_min_k": [s.min_k for s in sides],
        "mia_min_k_plus_plus": [s.min_k_plus_plus for s in sides],
        "mia_zlib": [None if s.zlib_bytes is None else s.answer_loss / s.zlib_bytes for s in sides],
    }
    if reference and {"forget", "holdout"} <= reference.keys():
        others = [reference[name].answer_loss for name in ("forget", "holdout")]
        columns["mia_reference"] = [s.answer_loss - other for s, other in zip(sides, others, strict=True)]
    return {name: (x, y) for name, (x, y) in columns.items() if x is not None and y is not None}


def _composites(results: dict[str, MetricResult], d: Definition) -> dict[str, MetricResult]:
    """Memorisation and privacy scores after open-unlearning's report (arXiv 2506.12618), whose code lacks them.

    ``memorization_score = HM(1 - ES, 1 - EM, 1 - paraphrase probability, 1 - p(right) / (p(right) + p(wrong)))`` and
    ``privacy_score = HM(1 - |AUC - AUC_ref| / max(AUC_ref, 1 - AUC_ref))`` over four attacks. Its utility score is the
    harmonic mean of model utility and a classifier's fluency; without that classifier it is ``model_utility``.
    """
    composites: dict[str, MetricResult] = {}
    parts = [results[metric.name] for metric in MEMORIZED if metric.name in results]
    if len(parts) == len(MEMORIZED):
        value = F.harmonic_mean([1 - r.value for r in parts])
        goals = [1 - r.target for r in parts if r.target is not None]
        target = F.harmonic_mean(goals) if len(goals) == len(parts) else None
        composites |= by_name(MEMORIZATION_SCORE.result(value, parts[0].n, target, d.name))
    found = [results[attack] for attack in PRIVACY_ATTACKS if attack in results]
    if len(found) == len(PRIVACY_ATTACKS) and all(r.target is not None for r in found):
        value = F.harmonic_mean([membership_closeness(r.value, r.target or 0.0) for r in found])
        composites |= by_name(PRIVACY_SCORE.result(value, found[0].n, 1.0, d.name))
    return composites
