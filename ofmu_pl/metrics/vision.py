r"""Image classification's suite: UA, RA, TA, MIA-Efficacy and their gap to retraining.

As in Jia et al. 2023 (arXiv 2304.04934) and SalUn (Fan et al. 2024, arXiv 2310.12508): accuracies in per cent, and a
number is good where it is near the retrained model's, not where it is high.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import torch
from sklearn.metrics import confusion_matrix

from ofmu_pl.metrics.attacks import FEATURES, attack_quality, mia_efficacy
from ofmu_pl.metrics.bootstrap import interval
from ofmu_pl.metrics.functional import overall_score
from ofmu_pl.metrics.membership import auc
from ofmu_pl.metrics.tofu import MetricResult
from ofmu_pl.support.errors import UserError

MAIN_METRICS = ("UA", "RA", "TA", "MIA")
"""What the average gap and the overall score are made of."""
ATTACKS = {"MIA": "confidence"} | {f"MIA_{feature}": feature for feature in FEATURES if feature != "confidence"}
"""Metrics' names and their features; the confidence attack is the one that papers report."""
USUALLY_ABOVE = ("forget_accuracy", "TA_all", "TA_forgotten")
"""Accuracies that mostly lie above the retrained model's: something of the forgotten classes is left."""


@dataclass
class ImageScores:
    """What one model says about one set of images.

    Attributes:
        ids: (N,) int64 numbers of the images; kept in ascending order, a repeated one is counted once.
        labels: (N,) int64 true classes.
        log_probs: (N, C) float32 or float64, natural logarithms of the softmax.
    """

    ids: np.ndarray
    labels: np.ndarray
    log_probs: np.ndarray

    def __post_init__(self) -> None:
        """Keep each image once, in order: draws by position are then the same for every model and number of ranks."""
        _, first = np.unique(self.ids, return_index=True)
        self.ids, self.labels, self.log_probs = self.ids[first], self.labels[first], self.log_probs[first]

    def as_dict(self) -> dict[str, torch.Tensor]:
        """Tensors by field, for checkpoints; log-probabilities in float32."""
        fields = {name: torch.from_numpy(value) for name, value in vars(self).items()}
        return fields | {"log_probs": fields["log_probs"].float()}

    @classmethod
    def from_dict(cls, fields: Mapping[str, torch.Tensor]) -> ImageScores:
        """What ``as_dict`` gave."""
        return cls(**{name: value.numpy() for name, value in fields.items()})

    @property
    def predictions(self) -> np.ndarray:
        """(N,) the likeliest class; -1, which is none, where a log-probability is NaN."""
        return np.where(np.isnan(self.log_probs).any(axis=1), -1, self.log_probs.argmax(axis=1))

    @property
    def correct(self) -> np.ndarray:
        """(N,) bool; NaN is wrong."""
        return self.predictions == self.labels

    @property
    def losses(self) -> np.ndarray:
        """(N,) float64 cross-entropy, nats."""
        return -self.log_probs[np.arange(len(self.labels)), self.labels].astype(np.float64)


def vision_metrics(
    scores: Mapping[str, ImageScores],
    reference: Mapping[str, ImageScores] | None = None,
    *,
    forgotten: tuple[int, ...] = (),
    attack_samples: int,
    seed: int = 0,
    intervals: bool = False,
    targets: Mapping[str, float] | None = None,
) -> dict[str, MetricResult]:
    """All metrics of one model; accuracies and efficacies in per cent.

    - ``UA = 100 - forget_accuracy``, ``RA``, ``TA``, ``VA``: unlearning, retain, test and validation accuracy; test and
      validation without the images of the forgotten classes. ``TA_all``: the whole test set, ``TA_forgotten``: only
      the forgotten classes' images; both only where classes are forgotten.
    - ``MIA``: efficacy of the confidence attack (``attacks.mia_efficacy``); ``MIA_correctness``, ``MIA_entropy``,
      ``MIA_modified_entropy``, ``MIA_probability``: of the others. ``MIA_attack_accuracy`` (%) and ``MIA_attack_AUC``:
      how well the confidence attack does its own work on held-out samples; the higher, the more ``MIA`` says.
    - ``forget_test_AUC``: whether losses tell forget from test images of the same classes (1: forget images always
      have the lower loss); target 0.5.
    - ``avg_gap``, with a reference: mean over UA, RA, TA and MIA of ``|value - retrained model's value|``, SalUn's Avg.
      Gap.

    NaN predictions are wrong ones; what attacks a model with NaN is NaN itself.

    Args:
        scores: By set: ``forget``, ``retain``, ``test``, and ``validation`` where there is one.
        reference: Of the retrained model on the same images; gives targets and the gap.
        forgotten: Classes that are forgotten as a whole; none for a random forget set.
        attack_samples: Members, drawn from retain, and strangers, drawn from the test images of the classes that are
            kept, that an attack learns from: so many of each. Efficacies with other numbers do not compare.
        seed: Of these draws, the same for both models, and of the attack's halves.
        intervals: Compute bootstrap intervals of accuracies (not of ``VA``).
        targets: The retrained model's values, where they are known already (the attacks on CIFAR take half a minute).

    Raises:
        UserError: There are too few images for the attack, or the reference has others.
    """
    if reference:
        _check_same_images(scores, reference)
    members, strangers = _draw(scores, forgotten, attack_samples, seed)

    results: dict[str, MetricResult] = {}
    if targets is None:
        targets = _targets(reference, forgotten, members, strangers) if reference else {}
    for name, hits in _accuracies(scores, forgotten).items():
        ends = interval([hits]) if intervals and name != "VA" else None
        above = name in USUALLY_ABOVE
        results[name] = MetricResult(float(hits.mean()), len(hits), not above, targets.get(name), interval=ends)
    for name, value in _efficacies(scores, members, strangers).items():
        results[name] = MetricResult(value, len(scores["forget"].ids), True, targets.get(name))
    member, stranger, _ = _features(ATTACKS["MIA"], scores, members, strangers)
    for name, value in zip(("accuracy", "AUC"), attack_quality(member, stranger, seed), strict=True):
        results[f"MIA_attack_{name}"] = MetricResult(value, 2 * attack_samples, True)
    results |= _forget_against_test(scores, forgotten)

    if reference:
        gaps = [abs(results[name].value - (results[name].target or 0.0)) for name in MAIN_METRICS]
        n = sum(results[name].n for name in ("UA", "RA", "TA"))  # MIA judges the images of UA
        results["avg_gap"] = MetricResult(float(np.mean(gaps)), n, False, 0.0)
    return results


def overall_scores(table: Mapping[str, Mapping[str, float]]) -> dict[str, float]:
    """The OFMU paper's overall score: mean over UA, RA, TA and MIA of a method's value over the largest one.

    It takes all four as the higher the better, so it rewards forgetting a random set beyond what retraining does. The
    paper does not say whether the retrained model takes part in the maximum; here it does if it is in the table. A
    method with a NaN scores NaN and does not touch the others.

    Args:
        table: By method, at least the four metrics.

    >>> a, b = {"UA": 80, "RA": 90, "TA": 90, "MIA": 50}, {"UA": 40, "RA": 90, "TA": 45, "MIA": 25}
    >>> overall_scores({"a": a, "b": b})
    {'a': 1.0, 'b': 0.625}
    """
    main = {method: {name: metrics[name] for name in MAIN_METRICS} for method, metrics in table.items()}
    whole = {method: metrics for method, metrics in main.items() if not np.isnan(list(metrics.values())).any()}
    return dict.fromkeys(table, float("nan")) | (overall_score(whole) if whole else {})


def confusion(scores: ImageScores, classes: int) -> np.ndarray:
    """(C, C) int counts, rows the true and columns the predicted class; NaN predictions are left out.

    >>> says_1 = ImageScores(np.arange(3), np.array([0, 1, 1]), np.log([[0.2, 0.8]] * 3))
    >>> confusion(says_1, 2).tolist()
    [[0, 1], [0, 2]]
    """
    return confusion_matrix(scores.labels, scores.predictions, labels=np.arange(classes))


def _check_same_images(scores: Mapping[str, ImageScores], reference: Mapping[str, ImageScores]) -> None:
    nothing = ImageScores(np.empty(0, np.int64), np.empty(0, np.int64), np.empty((0, 1)))
    for name in ("forget", "retain", "validation", "test"):
        ours, theirs = scores.get(name, nothing), reference.get(name, nothing)
        if not np.array_equal(ours.ids, theirs.ids) or not np.array_equal(ours.labels, theirs.labels):
            raise UserError(
                f"The reference was scored on other {name} images ({len(theirs.ids)}) than this run's model "
                f"({len(ours.ids)}): give --evaluation.reference a model that was retrained for this run's split."
            )


def _draw(
    scores: Mapping[str, ImageScores], forgotten: tuple[int, ...], attack_samples: int, seed: int
) -> tuple[np.ndarray, np.ndarray]:
    """Positions of members in retain and of strangers in test."""
    kept = np.flatnonzero(~np.isin(scores["test"].labels, forgotten))
    retained = np.arange(len(scores["retain"].ids))
    for what, found in (("retain images", retained), ("test images outside the forgotten classes", kept)):
        if not 2 <= attack_samples <= len(found):  # each half of the cross-fit needs one
            raise UserError(
                f"The membership attack cannot learn from {attack_samples} of {len(found)} {what}: set "
                f"--evaluation.attack_samples to between 2 and {min(len(retained), len(kept))}."
            )
    rng = np.random.default_rng(seed)
    return rng.choice(retained, attack_samples, replace=False), rng.choice(kept, attack_samples, replace=False)


def _accuracies(scores: Mapping[str, ImageScores], forgotten: tuple[int, ...]) -> dict[str, np.ndarray]:
    """By metric, 100 or 0 for each of its images; metrics without images are left out."""
    right = {name: 100.0 * s.correct for name, s in scores.items()}
    gone = {name: np.isin(s.labels, forgotten) for name, s in scores.items()}
    hits = {"UA": 100 - right["forget"], "forget_accuracy": right["forget"], "RA": right["retain"]}
    hits["TA"] = right["test"][~gone["test"]]
    if forgotten:
        hits["TA_all"], hits["TA_forgotten"] = right["test"], right["test"][gone["test"]]
    if "validation" in scores:
        hits["VA"] = right["validation"][~gone["validation"]]
    return {name: values for name, values in hits.items() if len(values)}


def _targets(
    reference: Mapping[str, ImageScores], forgotten: tuple[int, ...], members: np.ndarray, strangers: np.ndarray
) -> dict[str, float]:
    """The retrained model's accuracies and efficacies by metric."""
    accuracies = {name: float(hits.mean()) for name, hits in _accuracies(reference, forgotten).items()}
    return accuracies | _efficacies(reference, members, strangers)


def _features(
    feature: str, scores: Mapping[str, ImageScores], members: np.ndarray, strangers: np.ndarray
) -> list[np.ndarray]:
    """Of members, strangers and forget samples."""
    chosen = {"retain": members, "test": strangers, "forget": np.arange(len(scores["forget"].ids))}
    return [FEATURES[feature](scores[name].log_probs[at], scores[name].labels[at]) for name, at in chosen.items()]


def _efficacies(scores: Mapping[str, ImageScores], members: np.ndarray, strangers: np.ndarray) -> dict[str, float]:
    """By metric."""
    return {name: mia_efficacy(*_features(feature, scores, members, strangers)) for name, feature in ATTACKS.items()}


def _forget_against_test(scores: Mapping[str, ImageScores], forgotten: tuple[int, ...]) -> dict[str, MetricResult]:
    test = scores["test"]
    # A forgotten class is compared with itself: classes differ in difficulty, and the forgotten ones in all else.
    strangers = test.losses[np.isin(test.labels, forgotten)] if forgotten else test.losses
    if not len(strangers):
        return {}
    members = scores["forget"].losses
    n = len(members) + len(strangers)
    return {"forget_test_AUC": MetricResult(auc(members, strangers), n, False, 0.5)}
