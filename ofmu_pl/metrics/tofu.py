"""TOFU's suite: from per-item scores of one model (and of a retrained one) to named metrics with targets."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from scipy import stats

from ofmu_pl.metrics import functional as F
from ofmu_pl.metrics.bootstrap import interval
from ofmu_pl.metrics.definitions import DEFINITIONS, Definition
from ofmu_pl.metrics.membership import auc, membership_closeness, privacy_leakage
from ofmu_pl.metrics.scores import Scores, SetScores
from ofmu_pl.support.sets import SETS, forgets, is_probe, prefix_of

UTILITY_PARTS = (
    "retain_Q_A_Prob",
    "ra_Q_A_Prob_normalised",
    "wf_Q_A_Prob_normalised",
    *(f"{prefix}_{metric}" for metric in ("Q_A_ROUGE", "Truth_Ratio") for prefix in ("retain", "ra", "wf")),
)
HIGHER_IS_BETTER = ("truth_ratio", "truth_probability")  # on the forget side: nearer to an even chance
PRIVACY_ATTACKS = ("mia_loss", "mia_zlib", "mia_min_k", "mia_min_k_plus_plus")


@dataclass(frozen=True)
class MetricResult:
    """One number with what is needed to read it.

    Attributes:
        value: The number.
        n: Items it is computed from.
        higher_is_better: Direction, where there is no target.
        target: Where it should be, often the retrained model's value; ``None``: no target but the direction.
        definition: Name of the definition.
        interval: 95 % bootstrap interval over items; ``None`` where items have no values of their own (tests).
    """

    value: float
    n: int
    higher_is_better: bool
    target: float | None = None
    definition: str = "exact"
    interval: tuple[float, float] | None = None

    def as_dict(self) -> dict[str, Any]:
        """For ``results.json``."""
        return asdict(self)


def tofu_metrics(
    scores: Scores,
    reference: Scores | None = None,
    definition: str = "exact",
    reference_values: Mapping[str, float] | None = None,
    intervals: bool = False,
) -> dict[str, MetricResult]:
    """All metrics that the scores allow, under open-unlearning's names.

    Args:
        scores: By evaluation set: ``forget``, ``retain``, ``real_authors``, ``world_facts``, ``holdout``, probes.
        reference: Of the retrained model on the same items; gives forget quality, and targets on the forget side.
        definition: A key of ``DEFINITIONS``.
        reference_values: The retrained model's totals by metric, where its scores do not give them.
        intervals: Compute bootstrap intervals.
    """
    d = DEFINITIONS[definition]
    reference, known = reference or {}, dict(reference_values or {})
    # Utility has no target but its direction: a model may keep more than retraining does.
    wanted = {k: v for name, x in item_values(reference, d).items() if forgets(name) for k, v in x.items()}
    results: dict[str, MetricResult] = {}
    items = item_values(scores, d)
    for name, metrics in items.items():
        for metric, values in metrics.items():
            forgetting = forgets(name)
            target = float(wanted[metric].mean()) if metric in wanted else known.get(metric) if forgetting else None
            results[metric] = MetricResult(
                float(values.mean()),
                len(values),
                not forgetting or metric.endswith(HIGHER_IS_BETTER),
                target,
                definition,
                interval([values]) if intervals else None,
            )
    for prefix, forget, retain in _sides(scores):
        results |= _forget_quality(prefix, scores.get(forget), reference.get(forget), results, d)
        results |= _model_utility(prefix, retain, items, d, intervals)
    results |= _membership(scores, reference, known, d)
    return results | _composites(results, d)


def item_values(scores: Scores, d: Definition) -> dict[str, dict[str, np.ndarray]]:
    """Per-item values by evaluation set and metric: what means, intervals and open-unlearning's logs are made of."""
    judged = [name for name in SETS if name in scores] + [name for name in scores if is_probe(name)]
    return {name: _set_values(name, scores[name], d) for name in judged}


def _sides(scores: Scores) -> list[tuple[str, str, str]]:
    """Prefix of names, forget set and retain set: of the benchmark itself, and of each probe."""
    probes = dict.fromkeys(name.rpartition("_")[0] for name in scores if is_probe(name))
    return [("", "forget", "retain"), *((f"{probe}_", f"{probe}_forget", f"{probe}_retain") for probe in probes)]


def log_truth_ratio(s: SetScores, d: Definition) -> np.ndarray | None:
    """(N,), ``None`` for a set without wrong answers."""
    return (
        None if s.wrong_losses is None else F.log_truth_ratio(s.correct_loss, s.wrong_losses, d.wrong_mean, d.epsilon)
    )


def _set_values(name: str, s: SetScores, d: Definition) -> dict[str, np.ndarray]:
    if name == "forget_paraphrased" or is_probe(name):  # all that the side's own set has, under names of its own
        side = "forget" if forgets(name) else "retain"
        values = _set_values(side, s, d)
        return {f"{name}_{metric.removeprefix(f'{side}_')}": x for metric, x in values.items()}
    prefix = SETS[name]
    values = {f"{prefix}_Q_A_Prob": F.probability(s.answer_loss)}
    if s.paraphrase_loss is not None and name == "forget":
        values["forget_Q_A_PARA_Prob"] = F.probability(s.paraphrase_loss)
    if s.rouge is not None:
        values[f"{prefix}_Q_A_ROUGE"] = s.rouge
    if name == "forget" and s.tokens is not None and s.suffix is not None and s.correct is not None:
        values["extraction_strength"] = F.extraction_strength(s.suffix, s.tokens, d.extraction_floor)
        some = s.tokens > 0  # an answer of no tokens cannot be memorised: it is left out, as in open-unlearning
        values["exact_memorization"] = s.correct[some] / s.tokens[some]
    ratio = log_truth_ratio(s, d)
    if ratio is None or s.wrong_losses is None:
        return values
    if name == "forget":
        values["forget_truth_ratio"] = F.closer_to_one(ratio, d.epsilon)
        values["forget_truth_probability"] = F.truth_probability(ratio)
        return values
    if name != "retain":  # its probability counts as it is: retain rows have been trained on
        values[f"{prefix}_Q_A_Prob_normalised"] = F.normalised_probability(s.answer_loss, s.wrong_losses, d.epsilon)
    return values | {f"{prefix}_Truth_Ratio": F.true_better(ratio)}


def _forget_quality(
    prefix: str, ours: SetScores | None, theirs: SetScores | None, results: dict[str, MetricResult], d: Definition
) -> dict[str, MetricResult]:
    """The test against the retrained model, and how far the forget truth ratio is from its own."""
    ratios = [None if s is None else log_truth_ratio(s, d) for s in (ours, theirs)]
    if ratios[0] is None or ratios[1] is None:
        return {}
    p, distance = F.forget_quality(ratios[0], ratios[1])
    n = len(ratios[0])
    gap = results[f"{prefix}forget_truth_ratio"]
    with np.errstate(divide="ignore"):
        log_p = float(np.log10(p))
    return {
        f"{prefix}forget_quality": MetricResult(p, n, True, 1.0, d.name),
        f"{prefix}forget_quality_log10_p": MetricResult(log_p, n, True, 0.0, d.name),
        f"{prefix}forget_quality_D": MetricResult(distance, n, False, 0.0, d.name),
        f"{prefix}forget_truth_ratio_gap": MetricResult(abs(gap.value - (gap.target or 0.0)), n, False, 0.0, d.name),
    }


def quality_ceiling(first: Scores, second: Scores, definition: str = "exact") -> dict[str, MetricResult]:
    """Forget quality between two retrained models: what another seed alone leaves of it, so the best to hope for."""
    d = DEFINITIONS[definition]
    ratios = [log_truth_ratio(s["forget"], d) for s in (second, first) if "forget" in s]
    if len(ratios) < 2 or ratios[0] is None or ratios[1] is None:
        return {}
    p, distance = F.forget_quality(ratios[0], ratios[1])
    n = len(ratios[0])
    return {
        "forget_quality_ceiling": MetricResult(p, n, True, None, d.name),
        "forget_quality_ceiling_D": MetricResult(distance, n, False, None, d.name),
    }


def _model_utility(
    prefix: str, retain: str, items: dict[str, dict[str, np.ndarray]], d: Definition, intervals: bool
) -> dict[str, MetricResult]:
    """Harmonic mean of the nine parts, those of ``retain`` from that set; items of one set are resampled together."""
    groups = []
    for name, side in ((retain, "retain"), ("real_authors", "ra"), ("world_facts", "wf")):
        values = items.get(name, {})
        parts = {f"{side}{k.removeprefix(str(prefix_of(name)))}": x for k, x in values.items()}
        groups.append([x for part, x in parts.items() if part in UTILITY_PARTS])
    if sum(map(len, groups)) < len(UTILITY_PARTS):
        return {}
    columns = [np.column_stack(group) for group in groups]
    value = F.harmonic_mean(np.concatenate([x.mean(axis=0) for x in columns]).tolist())
    ends = interval(columns, lambda means: stats.hmean(means, axis=1)) if intervals else None
    return {f"{prefix}model_utility": MetricResult(value, sum(map(len, columns)), True, None, d.name, ends)}


def _membership(
    scores: Scores, reference: Scores, reference_auc: dict[str, float], d: Definition
) -> dict[str, MetricResult]:
    """AUC of each attack on forget against holdout rows; where an AUC should be is where retraining puts it."""
    found = attacks(scores, reference)
    reference_auc = attacks(reference, reference) | reference_auc
    if "mia_min_k" not in reference_auc and d.assumed_auc is not None:
        reference_auc["mia_min_k"] = d.assumed_auc
    n = sum(len(scores[name].ids) for name in ("forget", "holdout") if name in scores)
    results = {name: MetricResult(value, n, False, reference_auc.get(name), d.name) for name, value in found.items()}
    if "mia_min_k" in found and "mia_min_k" in reference_auc:
        leakage = privacy_leakage(found["mia_min_k"], reference_auc["mia_min_k"], d.epsilon)
        results["privleak"] = MetricResult(leakage, n, True, 0.0, d.name)
    return results


def attacks(scores: Scores, reference: Scores | None = None) -> dict[str, float]:
    """AUC by attack, of those that the scores allow.

    Args:
        scores: With ``forget`` and ``holdout``.
        reference: Of another model on the same rows, for ``mia_reference`` (loss minus that model's loss).
    """
    if "forget" not in scores or "holdout" not in scores:
        return {}
    sides = [scores["forget"], scores["holdout"]]
    columns: dict[str, list[Any]] = {
        "mia_loss": [s.answer_loss for s in sides],
        "mia_min_k": [s.min_k for s in sides],
        "mia_min_k_plus_plus": [s.min_k_plus_plus for s in sides],
        "mia_zlib": [None if s.zlib_bytes is None else s.answer_loss / s.zlib_bytes for s in sides],
        "mia_gradnorm": [s.gradient_norm for s in sides],
    }
    if reference and {"forget", "holdout"} <= reference.keys():
        others = [reference[name].answer_loss for name in ("forget", "holdout")]
        columns["mia_reference"] = [s.answer_loss - other for s, other in zip(sides, others, strict=True)]
    return {name: auc(*pair) for name, pair in columns.items() if pair[0] is not None and pair[1] is not None}


def _composites(results: dict[str, MetricResult], d: Definition) -> dict[str, MetricResult]:
    """Memorisation and privacy scores after open-unlearning's report (arXiv 2506.12618), which has no code of them.

    ``memorization_score = HM(1 - ES, 1 - EM, 1 - paraphrase probability, 1 - p(right) / (p(right) + p(wrong)))`` and
    ``privacy_score = HM(1 - |AUC - AUC_ref| / max(AUC_ref, 1 - AUC_ref))`` over four attacks. Its utility score is the
    harmonic mean of model utility and a classifier's fluency; without that classifier it is ``model_utility``.
    """
    composites = {}
    parts = ("extraction_strength", "exact_memorization", "forget_Q_A_PARA_Prob", "forget_truth_probability")
    if all(part in results for part in parts):
        value = F.harmonic_mean([1 - results[part].value for part in parts])
        target = None
        if all(results[part].target is not None for part in parts):
            target = F.harmonic_mean([1 - (results[part].target or 0.0) for part in parts])
        composites["memorization_score"] = MetricResult(value, results[parts[0]].n, True, target, d.name)
    found = [results[attack] for attack in PRIVACY_ATTACKS if attack in results]
    if len(found) == len(PRIVACY_ATTACKS) and all(r.target is not None for r in found):
        value = F.harmonic_mean([membership_closeness(r.value, r.target or 0.0) for r in found])
        composites["privacy_score"] = MetricResult(value, found[0].n, True, 1.0, d.name)
    return composites
