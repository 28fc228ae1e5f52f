"""TOFU's suite: from per-item scores of one model (and of a retrained one) to named metrics with targets."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from ofmu_pl.metrics import functional as F

DEFINITION = "exact"
PREFIX = {"forget": "forget", "retain": "retain", "real_authors": "ra", "world_facts": "wf"}


@dataclass(frozen=True)
class MetricResult:
    """One number with what is needed to read it.

    Attributes:
        value: The number.
        n: Items it is computed from.
        higher_is_better: Direction, where there is no target.
        target: Where it should be, often the retrained model's value; ``None``: no target but the direction.
        definition: Name of the definition.
    """

    value: float
    n: int
    higher_is_better: bool
    target: float | None = None
    definition: str = DEFINITION

    def as_dict(self) -> dict[str, Any]:
        """For ``results.json``."""
        return asdict(self)


@dataclass
class SetScores:
    """What a model does on one evaluation set, by item.

    Attributes:
        ids: (N,) row numbers; a repeated one is counted once.
        answer_loss: (N,) loss of the answer, nats a token.
        paraphrase_loss: (N,) of the paraphrased answer (of the answer in a row that has none); ``None`` where the set
            has none.
        wrong_losses: (N, K) of the perturbed answers; ``None`` where the set has none.
        rouge: (N,) ROUGE-L recall of the greedy generation; ``None`` if nothing was generated.
    """

    ids: np.ndarray
    answer_loss: np.ndarray
    paraphrase_loss: np.ndarray | None = None
    wrong_losses: np.ndarray | None = None
    rouge: np.ndarray | None = None

    def __post_init__(self) -> None:
        """Keep each item once."""
        _, first = np.unique(self.ids, return_index=True)
        if len(first) < len(self.ids):
            for name, value in vars(self).items():
                if value is not None:
                    setattr(self, name, value[first])

    @property
    def log_truth_ratio(self) -> np.ndarray | None:
        """(N,) with the paraphrase as the right answer where there is one."""
        if self.wrong_losses is None:
            return None
        correct = self.answer_loss if self.paraphrase_loss is None else self.paraphrase_loss
        return F.log_truth_ratio(correct, self.wrong_losses)


Scores = dict[str, SetScores]


def tofu_metrics(scores: Scores, reference: Scores | None = None) -> dict[str, MetricResult]:
    """All metrics that the scores allow, under open-unlearning's names.

    Args:
        scores: By evaluation set: ``forget``, ``retain``, ``real_authors``, ``world_facts``.
        reference: Of the retrained model on the same items; gives forget quality, and targets on the forget side.
    """
    values = {name: _set_values(name, s) for name, s in scores.items()}
    wanted = {name: _set_values(name, s) for name, s in (reference or {}).items()}
    results: dict[str, MetricResult] = {}
    for name, metrics in values.items():
        for metric, items in metrics.items():
            target = wanted.get("forget", {}).get(metric) if name == "forget" else None
            results[metric] = MetricResult(
                float(items.mean()),
                len(items),
                higher_is_better=name != "forget" or metric == "forget_truth_ratio",
                target=None if target is None else float(target.mean()),
            )
    ours = scores["forget"].log_truth_ratio if "forget" in scores else None
    theirs = reference["forget"].log_truth_ratio if reference and "forget" in reference else None
    if ours is not None and theirs is not None:
        p, distance = F.forget_quality(ours, theirs)
        results["forget_quality"] = MetricResult(p, len(ours), higher_is_better=True, target=1.0)
        results["forget_quality_D"] = MetricResult(distance, len(ours), higher_is_better=False, target=0.0)
    parts = ["retain_Q_A_Prob", "ra_Q_A_Prob_normalised", "wf_Q_A_Prob_normalised"]
    parts += [f"{p}_{m}" for m in ("Q_A_ROUGE", "Truth_Ratio") for p in ("retain", "ra", "wf")]
    if all(part in results for part in parts):
        value = F.model_utility([results[part].value for part in parts])
        n = sum(len(s.ids) for name, s in scores.items() if name != "forget")
        results["model_utility"] = MetricResult(value, n, higher_is_better=True)
    return results


def _set_values(name: str, s: SetScores) -> dict[str, np.ndarray]:
    """Per-item values of one set's metrics."""
    prefix = PREFIX[name]
    values = {f"{prefix}_Q_A_Prob": F.probability(s.answer_loss)}
    if s.rouge is not None:
        values[f"{prefix}_Q_A_ROUGE"] = s.rouge
    ratio = s.log_truth_ratio
    if ratio is None or s.wrong_losses is None:
        return values
    if name == "forget":
        return values | {"forget_truth_ratio": F.closer_to_one(ratio)}
    if name != "retain":  # its probability counts as it is: retain rows have been trained on
        values[f"{prefix}_Q_A_Prob_normalised"] = F.normalised_probability(s.answer_loss, s.wrong_losses)
    return values | {f"{prefix}_Truth_Ratio": F.true_better(ratio)}
