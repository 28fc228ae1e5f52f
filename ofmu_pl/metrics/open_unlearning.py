"""Reads and writes open-unlearning's logs: ``TOFU_EVAL.json`` with items, ``TOFU_SUMMARY.json`` with totals.

The layout is that of locuslab/open-unlearning d3d7cf9: metric -> {agg_value, value_by_index: {index: {...}}}.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ofmu_pl.metrics.definitions import DEFINITIONS
from ofmu_pl.metrics.functional import probability
from ofmu_pl.metrics.result import MetricResult
from ofmu_pl.metrics.scores import Scores, SetScores
from ofmu_pl.metrics.tofu_items import EXTRACTION_STRENGTH, KEPT_NORMALISED, item_values, log_truth_ratio, of_set
from ofmu_pl.support.sets import SETS

SUMMARY = (
    "extraction_strength",
    "forget_Q_A_Prob",
    "forget_Q_A_ROUGE",
    "forget_quality",
    "forget_truth_ratio",
    "model_utility",
    "privleak",
)
"""Metrics of open-unlearning's default suite."""


def read_eval(log: Mapping[str, Any]) -> tuple[Scores, dict[str, float]]:
    """Read the scores of a ``TOFU_EVAL.json``, and the totals that cannot be computed from them.

    Args:
        log: The parsed file.

    Raises:
        KeyError: The log lacks the forget set's losses or generations, or some of another set's losses.
    """
    scores: Scores = {}
    for name, p in SETS.items():
        if f"{p}_Q_A_Prob" not in log and name != "forget":
            continue
        ids = sorted(int(i) for i in log[f"{p}_Q_A_Prob"]["value_by_index"])

        def column(key: str, field: str, p: str = p, ids: list[int] = ids) -> np.ndarray:
            items = log[f"{p}_{key}"]["value_by_index"]
            return np.array([items[str(i)][field] for i in ids])

        scores[name] = SetScores(np.array(ids), column("Q_A_Prob", "avg_loss"))
        if name in ("forget", "retain"):
            scores[name].paraphrase_loss = column("Q_A_PARA_Prob", "avg_loss")
        scores[name].wrong_losses = column("Q_A_PERT_Prob", "avg_loss")
        if f"{p}_Q_A_ROUGE" in log or name == "forget":
            scores[name].rouge = column("Q_A_ROUGE", "rougeL_recall")
            scores[name].generations = column("Q_A_ROUGE", "generation").astype(object)
    names = [k for k in log if k.startswith("mia_") or k in ("extraction_strength", "exact_memorization")]
    return scores, {name: float(log[name]["agg_value"]) for name in names}


def write_eval(
    scores: Scores,
    metrics: Mapping[str, MetricResult],
    inputs: Mapping[str, Sequence[str]],
    truths: Mapping[str, Sequence[str]],
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Make the contents of ``TOFU_EVAL.json`` and ``TOFU_SUMMARY.json``.

    Args:
        scores: The model's scores, with open-unlearning's attention mask.
        metrics: The metrics under the definition ``open_unlearning``.
        inputs: Prompts as text without special tokens, by evaluation set.
        truths: Answers, by evaluation set.
    """
    d = DEFINITIONS["open_unlearning"]
    items = item_values(scores, d)
    log: dict[str, Any] = {}

    def enter(key: str, ids: np.ndarray, total: float, **columns: Sequence[Any]) -> None:
        rows = [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]
        log[key] = {
            "agg_value": total,
            "value_by_index": {str(i): row for i, row in zip(ids.tolist(), rows, strict=True)},
        }

    for name, p in SETS.items():
        if name not in scores or name == "forget_paraphrased":
            continue
        s = scores[name]
        losses = {"Q_A_Prob": s.answer_loss, "Q_A_PARA_Prob": s.paraphrase_loss, "Q_A_PERT_Prob": s.wrong_losses}
        for key, loss in losses.items():
            if loss is not None:
                prob = probability(loss)
                enter(f"{p}_{key}", s.ids, float(prob.mean()), prob=prob.tolist(), avg_loss=loss.tolist())
        ratio = log_truth_ratio(s, d)
        ratio_key = "forget_truth_ratio" if name == "forget" else f"{p}_Truth_Ratio"
        if ratio is not None:
            enter(ratio_key, s.ids, metrics[ratio_key].value, score=np.exp(ratio).tolist())
            normalised = items[name].get(of_set(KEPT_NORMALISED, name))
            if normalised is not None:
                enter(f"{p}_Q_A_Prob_normalised", s.ids, float(normalised.mean()), prob=normalised.tolist())
        if s.generations is not None:
            columns = _rouge(truths[name], s.generations.tolist())
            texts = {"input": inputs[name], "ground_truth": truths[name], "generation": s.generations.tolist()}
            enter(f"{p}_Q_A_ROUGE", s.ids, float(np.mean(columns["rougeL_recall"])), **columns, **texts)
    strength = items["forget"].get(EXTRACTION_STRENGTH)
    if strength is not None:
        enter("extraction_strength", scores["forget"].ids, float(strength.mean()), score=strength.tolist())
    if "mia_min_k" in metrics:
        sides: dict[str, Any] = {}
        for name in ("forget", "holdout"):
            values = np.asarray(scores[name].min_k)
            by_index = {str(i): {"score": v} for i, v in zip(scores[name].ids.tolist(), values.tolist(), strict=True)}
            sides[name] = {"agg_value": float(values.mean()), "value_by_index": by_index}
        area = metrics["mia_min_k"].value
        log["mia_min_k"] = {**sides, "auc": area, "agg_value": area}
    for key in ("forget_quality", "model_utility", "privleak"):
        log[key] = {"agg_value": metrics[key].value if key in metrics else None}
    log = dict(sorted(log.items()))
    return log, {key: log[key]["agg_value"] for key in SUMMARY if log.get(key, {}).get("agg_value") is not None}


def _rouge(truths: Sequence[str], generations: Sequence[str]) -> dict[str, list[float]]:
    from rouge_score import rouge_scorer  # takes a second, since it imports sklearn

    scorer = rouge_scorer.RougeScorer(["rouge1", "rougeL"], use_stemmer=True)
    found = [scorer.score(t, g) for t, g in zip(truths, generations, strict=True)]
    return {
        "rouge1_recall": [x["rouge1"].recall for x in found],
        "rougeL_f1": [x["rougeL"].fmeasure for x in found],
        "rougeL_recall": [x["rougeL"].recall for x in found],
    }
