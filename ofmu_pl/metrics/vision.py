r"""The suite of image classification: UA, RA, TA, MIA-Efficacy and their gap to the retrained model.

As in Jia et al. 2023 (arXiv 2304.04934) and SalUn (Fan et al. 2024, arXiv 2310.12508): accuracies in per cent, and a
number is good where it is near the retrained model's, not where it is high.
"""

from collections.abc import Mapping
from functools import partial

import numpy as np

from ofmu_pl.metrics.attacks import FEATURES, attack_quality, mia_efficacy
from ofmu_pl.metrics.membership import auc_result
from ofmu_pl.metrics.result import Metric, MetricResult, by_name
from ofmu_pl.metrics.scores import ImageScores
from ofmu_pl.support.errors import UserError
from ofmu_pl.support.sets import is_request

_better = partial(Metric, higher_is_better=True, unit="%")
_worse = partial(Metric, higher_is_better=False, unit="%")
AVG_GAP = _worse(
    "avg_gap",
    group="forgotten",
    column=1,
    says="UA, RA, TA and MIA are {value} (points) away from the retrained model's, on average.",
)
UA = _better(
    "UA", group="forgotten", column=2, says="The model takes {value} of the forgotten images for another class."
)
FORGET_ACCURACY = _worse(
    "forget_accuracy", group="forgotten", says="The model names the right class of {value} of the forgotten images."
)
FORGET_TEST_AUC = Metric(
    "forget_test_AUC",
    higher_is_better=False,
    group="forgotten",
    column=6,
    chance=True,
    says="Shown a forgotten image and a held-out one, an attacker who goes by how little an image surprises the "
    "model picks the forgotten one in {value} of cases; 50 % is chance.",
)
_RIGHT = "The model names the right class of {{value}} of {images}.".format
RA = _better("RA", group="kept", column=3, says=_RIGHT(images="the images that must stay"))
TA = _better("TA", group="kept", column=4, says=_RIGHT(images="held-out images of the classes that must stay"))
VA = _better("VA", group="kept", says=_RIGHT(images="the validation images of the classes that must stay"))
TA_ALL = _better("TA_all", group="kept")  # a model that is ruined has the lowest
# Mostly above the retrained model's, as forget_accuracy is: something of the forgotten classes is left.
TA_FORGOTTEN = _worse("TA_forgotten", group="kept")
MIA = _better(
    "MIA",
    group="attacks",
    column=5,
    says="An attacker who has learnt to tell trained from held-out images by the model's confidence takes {value} of "
    "the forgotten ones for never seen.",
)
"""Efficacy of the confidence attack, the one that papers report."""
ATTACKS = {"confidence": MIA} | {f: _better(f"MIA_{f}", group="attacks") for f in FEATURES if f != "confidence"}
"""Efficacies by the feature that the attack learns from."""
ATTACK_ACCURACY = _better("MIA_attack_accuracy", group="attacks")
ATTACK_AUC = Metric("MIA_attack_AUC", higher_is_better=True, group="attacks")

MAIN_METRICS = ("UA", "RA", "TA", "MIA")  # metrics that the average gap and the overall score are made of


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
    - ``forget_test_AUC``: whether losses tell forget from test images of the same classes (1: forget images always have
      the lower loss); the goal is 0.5.
    - ``avg_gap``, with a reference: mean over UA, RA, TA and MIA of ``|value - retrained model's value|``, SalUn's Avg.
      Gap.

    Without a reference the goal of ``UA`` is ``100 - TA`` where no classes are forgotten as a whole.

    NaN predictions are wrong ones; attacks on a model with NaN give NaN.

    Args:
        scores: Scores by set: ``forget``, ``retain``, ``test``, ``validation`` where there is one, and what other
            requests named.
        reference: Scores of the retrained model on the same images, which give goals and the gap.
        forgotten: Classes that are forgotten as a whole; empty for a random forget set.
        attack_samples: Number of members, drawn from retain, and of strangers, drawn from the test images of the
            classes that are kept, that an attack learns from. Efficacies with different numbers do not compare.
        seed: Seed of these draws, the same for both models, and of the attack's halves.
        intervals: Compute intervals of accuracies (not of ``VA``) and of ``forget_test_AUC``.
        targets: The retrained model's values where they are known already (the attacks on CIFAR take half a minute).

    Raises:
        UserError: There are too few images for the attack, or the reference has others.
    """
    if reference:
        _check_same_images(scores, reference)
    members, strangers = _draw(scores, forgotten, attack_samples, seed)

    results: dict[str, MetricResult] = {}
    if targets is None:
        targets = {m.name: x for m, x in _efficacies(reference, members, strangers).items()} if reference else {}
    wanted = _accuracies(reference, forgotten) if reference else {}
    if not (reference or targets or forgotten):  # images like others are named as often as held-out ones
        seen = _accuracies(scores, forgotten)[TA]
        wanted = {UA: 100 - seen, FORGET_ACCURACY: seen}
    for metric, hits in _accuracies(scores, forgotten).items():
        goal = wanted.get(metric, targets.get(metric.name))
        told = intervals and metric is not VA
        results[metric.name] = metric.of_items(hits, goal, intervals=told, same_items=bool(reference))
    for metric, value in _efficacies(scores, members, strangers).items():
        results[metric.name] = metric.result(value, len(scores["forget"].ids), targets.get(metric.name))
    member, stranger, _ = _features("confidence", scores, members, strangers)
    accuracy, area = attack_quality(member, stranger, seed)
    n = 2 * attack_samples
    results |= by_name(ATTACK_ACCURACY.result(accuracy, n), ATTACK_AUC.result(area, n))
    results |= _forget_against_test(scores, forgotten, intervals)

    if reference:
        gaps = [abs(results[name].value - (results[name].target or 0.0)) for name in MAIN_METRICS]
        n = sum(results[name].n for name in ("UA", "RA", "TA"))  # MIA judges the images of UA
        results |= by_name(AVG_GAP.result(float(np.mean(gaps)), n, 0.0))
    return results


def _check_same_images(scores: Mapping[str, ImageScores], reference: Mapping[str, ImageScores]) -> None:
    for name in ("forget", "retain", "validation", "test"):
        if not np.array_equal(_names(scores.get(name)), _names(reference.get(name))):
            raise UserError(
                f"The reference was scored on other {name} images than this run's model: give evaluation.reference a "
                "model that was retrained for this run's split."
            )


def _names(s: ImageScores | None) -> np.ndarray:
    """Numbers and labels of images, (2, N)."""
    return np.empty((2, 0)) if s is None else np.stack([s.ids, s.labels])


def require_samples(attack_samples: int, members: int, strangers: int) -> None:
    """Refuse attacks that would learn from more images than there are.

    Raises:
        UserError: There are fewer members or strangers, or fewer than two are asked for.
    """
    most = min(members, strangers)
    if not 2 <= attack_samples <= most:  # each half of the cross-fit needs one
        remedy = f"set evaluation.attack_samples to between 2 and {most}" if most >= 2 else "give two of each at least"
        raise UserError(
            f"The membership attack cannot learn from {attack_samples} of {members} retain images, and as many of "
            f"{strangers} test images outside the forgotten classes: {remedy}."
        )


def _draw(
    scores: Mapping[str, ImageScores], forgotten: tuple[int, ...], attack_samples: int, seed: int
) -> tuple[np.ndarray, np.ndarray]:
    """Draw positions of members in retain and of strangers in test."""
    kept = np.flatnonzero(~np.isin(scores["test"].labels, forgotten))
    retained = np.arange(len(scores["retain"].ids))
    require_samples(attack_samples, len(retained), len(kept))
    rng = np.random.default_rng(seed)
    return rng.choice(retained, attack_samples, replace=False), rng.choice(kept, attack_samples, replace=False)


def _accuracies(scores: Mapping[str, ImageScores], forgotten: tuple[int, ...]) -> dict[Metric, np.ndarray]:
    """100 or 0 for each image of a metric, by metric; metrics without images are left out."""
    right = {name: 100.0 * s.correct for name, s in scores.items()}
    gone = {name: np.isin(s.labels, forgotten) for name, s in scores.items()}
    hits = {UA: 100 - right["forget"], FORGET_ACCURACY: right["forget"], RA: right["retain"]}
    hits[TA] = right["test"][~gone["test"]]
    if forgotten:
        hits[TA_ALL], hits[TA_FORGOTTEN] = right["test"], right["test"][gone["test"]]
    for name in filter(is_request, scores):
        hits[FORGET_ACCURACY.of(name, "forget", group="requests", family=name)] = right[name]
    if "validation" in scores:
        hits[VA] = right["validation"][~gone["validation"]]
    return {metric: values for metric, values in hits.items() if len(values)}


def _features(
    feature: str, scores: Mapping[str, ImageScores], members: np.ndarray, strangers: np.ndarray
) -> list[np.ndarray]:
    """A feature of members, strangers and forget samples."""
    chosen = {"retain": members, "test": strangers, "forget": np.arange(len(scores["forget"].ids))}
    return [FEATURES[feature](scores[name].log_probs[at], scores[name].labels[at]) for name, at in chosen.items()]


def _efficacies(scores: Mapping[str, ImageScores], members: np.ndarray, strangers: np.ndarray) -> dict[Metric, float]:
    """Efficacies by metric."""
    return {m: mia_efficacy(*_features(feature, scores, members, strangers)) for feature, m in ATTACKS.items()}


def _forget_against_test(
    scores: Mapping[str, ImageScores], forgotten: tuple[int, ...], intervals: bool
) -> dict[str, MetricResult]:
    test = scores["test"]
    # A forgotten class is compared with itself: classes differ in difficulty, and the forgotten ones in all else.
    # (Which of them this run forgets, its images say: others may have been forgotten before.)
    labels, losses = scores["forget"].labels, scores["forget"].losses
    whole = np.isin(labels, forgotten)
    if whole.all():
        held_out = test.losses[np.isin(test.labels, labels)]
    elif whole.any() or not forgotten:  # single images alone are compared
        losses, held_out = losses[~whole], test.losses[~np.isin(test.labels, forgotten)]
    else:
        return {}
    if not len(held_out):
        return {}
    return by_name(auc_result(FORGET_TEST_AUC, (losses, held_out), 0.5, intervals=intervals))
