"""Reads and writes open-unlearning's logs: ``TOFU_EVAL.json`` with items, ``TOFU_SUMMARY.json`` with totals.

The layout is that of locuslab/open-unlearning d3d7cf9: metric -> {agg_value, value_by_index: {index: {...}}}.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ofmu_pl.metrics.definitions import DEFINITIONS
from ofmu_pl.metrics.functional import probability
from ofmu_pl.metrics.result import MetricResult
from ofmu_pl.metrics.scores import Scores, SetScores
from ofmu_pl.metrics.tofu_items import EXTRACTION_STRENGTH, KEPT_NORMALISED, item_values, log_truth_ratio, of_set
from ofmu_pl.support.sets import SETS

Log = dict[str, Any]  # metric -> total and items; see above
SUMMARY = "extraction_strength forget_Q_A_Prob forget_Q_A_ROUGE forget_quality forget_truth_ratio".split()
SUMMARY += ["model_utility", "privleak"]
"""Metrics of open-unlearning's default suite."""


def read_eval(log: Log) -> tuple[Scores, dict[str, float]]:
    """Read the scores of a parsed ``TOFU_EVAL.json``, and the totals that cannot be computed from them.

    A log without the forget set's losses or generations, or with some of another set's losses, is a ``KeyError``.
    """
    scores: Scores = {}
    for name, p in SETS.items():
        if f"{p}_Q_A_Prob" not in log and name != "forget":
            continue
        fields = {"answer_loss": ("Q_A_Prob", "avg_loss"), "wrong_losses": ("Q_A_PERT_Prob", "avg_loss")}
        if name in ("forget", "retain"):
            fields["paraphrase_loss"] = ("Q_A_PARA_Prob", "avg_loss")
        if f"{p}_Q_A_ROUGE" in log or name == "forget":
            fields |= {"rouge": ("Q_A_ROUGE", "rougeL_recall"), "generations": ("Q_A_ROUGE", "generation")}
        ids = sorted(map(int, log[f"{p}_Q_A_Prob"]["value_by_index"]))
        columns = {"ids": ids}
        for field, (key, entry) in fields.items():
            items = log[f"{p}_{key}"]["value_by_index"]
            columns[field] = [items[str(i)][entry] for i in ids]
        scores[name] = SetScores.from_dict(columns)
    names = [k for k in log if k.startswith("mia_") or k in ("extraction_strength", "exact_memorization")]
    return scores, {name: float(log[name]["agg_value"]) for name in names}


def write_eval(
    scores: Scores,
    metrics: Mapping[str, MetricResult],
    inputs: Mapping[str, Sequence[str]],
    truths: Mapping[str, Sequence[str]],
) -> tuple[Log, Log]:
    """Make the contents of ``TOFU_EVAL.json`` and ``TOFU_SUMMARY.json``, of the definition ``open_unlearning``.

    ``inputs`` are prompts as text without special tokens, and ``truths`` answers, by evaluation set.
    """
    d = DEFINITIONS["open_unlearning"]
    items = item_values(scores, d)
    log: Log = {}
    for name, p in SETS.items():
        if name not in scores or name == "forget_paraphrased":
            continue
        s = scores[name]
        losses = {"Q_A_Prob": s.answer_loss, "Q_A_PARA_Prob": s.paraphrase_loss, "Q_A_PERT_Prob": s.wrong_losses}
        for key, loss in losses.items():
            if loss is not None:
                prob = probability(loss)
                log[f"{p}_{key}"] = _entry(s.ids, float(prob.mean()), prob=prob.tolist(), avg_loss=loss.tolist())
        ratio = log_truth_ratio(s, d)
        ratio_key = "forget_truth_ratio" if name == "forget" else f"{p}_Truth_Ratio"
        if ratio is not None:
            log[ratio_key] = _entry(s.ids, metrics[ratio_key].value, score=np.exp(ratio).tolist())
            normalised = items[name].get(of_set(KEPT_NORMALISED, name))
            if normalised is not None:
                log[f"{p}_Q_A_Prob_normalised"] = _entry(s.ids, float(normalised.mean()), prob=normalised.tolist())
        if s.generations is not None:
            columns = _rouge(truths[name], s.generations.tolist())
            texts = {"input": inputs[name], "ground_truth": truths[name], "generation": s.generations.tolist()}
            log[f"{p}_Q_A_ROUGE"] = _entry(s.ids, float(np.mean(columns["rougeL_recall"])), **columns, **texts)
    strength = items["forget"].get(EXTRACTION_STRENGTH)
    if strength is not None:
        log["extraction_strength"] = _entry(scores["forget"].ids, float(strength.mean()), score=strength.tolist())
    if "mia_min_k" in metrics:
        sides = {}
        for name in ("forget", "holdout"):
            values = np.asarray(scores[name].min_k)
            sides[name] = _entry(scores[name].ids, float(values.mean()), score=values.tolist())
        area = metrics["mia_min_k"].value
        log["mia_min_k"] = {**sides, "auc": area, "agg_value": area}
    for key in ("forget_quality", "model_utility", "privleak"):
        log[key] = {"agg_value": metrics[key].value if key in metrics else None}
    log = dict(sorted(log.items()))
    return log, {key: log[key]["agg_value"] for key in SUMMARY if log.get(key, {}).get("agg_value") is not None}


def _entry(ids: np.ndarray, total: float, **columns: Sequence[object]) -> Log:
    """A metric's total and its items, with a column each of what is told of them."""
    items = {}
    for i, values in zip(ids.tolist(), zip(*columns.values(), strict=True), strict=True):
        items[str(i)] = dict(zip(columns, values, strict=True))
    return {"agg_value": total, "value_by_index": items}


def _rouge(truths: Sequence[str], generations: Sequence[str]) -> dict[str, list[float]]:
    from rouge_score import rouge_scorer  # takes a second, since it imports sklearn

    scorer = rouge_scorer.RougeScorer(["rouge1", "rougeL"], use_stemmer=True)
    found = [scorer.score(t, g) for t, g in zip(truths, generations, strict=True)]
    return {
        "rouge1_recall": [x["rouge1"].recall for x in found],
        "rougeL_f1": [x["rougeL"].fmeasure for x in found],
        "rougeL_recall": [x["rougeL"].recall for x in found],
    }
