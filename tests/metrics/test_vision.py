"""The suite of image classifiers, against numbers worked out by hand."""

import math
import warnings
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from scipy import special
from sklearn.svm import SVC

from ofmu_pl.metrics import ImageScores, auc, interval, overall_score, vision, vision_metrics
from ofmu_pl.metrics.membership import auc_interval
from ofmu_pl.support.errors import UserError

CLASSES = 5
ACCURACIES = {"UA", "forget_accuracy", "RA", "TA", "TA_all", "TA_forgotten", "VA"}
EFFICACIES = {"MIA", "MIA_correctness", "MIA_entropy", "MIA_modified_entropy", "MIA_probability"}


def images(labels: Sequence[int], right: Sequence[bool], margin: float, seed: int = 0, first: int = 0) -> ImageScores:
    """A model that is right where ``right`` says so, the surer the larger ``margin``."""
    labels, rng = np.asarray(labels, dtype=np.int64), np.random.default_rng(seed)
    said = np.where(right, labels, (labels + 1) % CLASSES)
    logits = rng.uniform(0, 1, (len(labels), CLASSES))
    logits[np.arange(len(labels)), said] += margin * rng.uniform(1, 2, len(labels))
    log_probs = special.log_softmax(logits, axis=1).astype(np.float32)
    return ImageScores(first + np.arange(len(labels)), labels, log_probs)


def made_up(forget_right: int = 15, margin: float = 3.0, seed: int = 0) -> dict[str, ImageScores]:
    """Forgets class 0: 20 forget images, 60 others of which 57 are right, 10 validation, 50 test images.

    Of the test images 10 are of class 0, 3 of them right, and of the other 40 32 are.
    """
    others = 1 + np.arange(60) % (CLASSES - 1)
    test = np.repeat(np.arange(CLASSES), 10)
    return {
        "forget": images(np.zeros(20, int), np.arange(20) < forget_right, margin, seed),
        "retain": images(others, np.arange(60) >= 3, 2 * margin, seed + 1, first=100),
        "validation": images([0, 0, *others[:8]], [True, False, *[True] * 6, False, False], margin, seed + 2),
        "test": images(test, np.where(test == 0, np.arange(50) < 3, np.arange(50) % 5 > 0), margin, seed + 3),
    }


def confidences(s: ImageScores) -> np.ndarray:
    return np.array([math.exp(row[y]) for row, y in zip(s.log_probs, s.labels, strict=True)])


def values(metrics: dict) -> dict[str, float]:
    return {name: result.value for name, result in metrics.items()}


def test_image_scores_are_kept_once_and_in_order():
    log_probs = np.log([[0.1, 0.9], [0.75, 0.25], [0.5, 0.5], [0.2, 0.8]], dtype=np.float32)
    s = ImageScores(np.array([7, 3, 7, 5]), np.array([1, 1, 0, 0]), log_probs)
    assert s.ids.tolist() == [3, 5, 7]
    assert s.labels.tolist() == [1, 0, 1]
    assert s.predictions.tolist() == [0, 1, 1]
    assert s.correct.tolist() == [False, False, True]
    assert s.losses == pytest.approx([math.log(4), math.log(5), -math.log(0.9)], rel=1e-6)
    assert s.losses.dtype == np.float64
    nan = ImageScores(np.arange(2), np.array([0, 0]), np.array([[math.nan, math.nan], [-0.1, math.nan]]))
    assert nan.predictions.tolist() == [-1, -1], "no class"


def test_what_another_request_named_has_an_accuracy_of_its_own():
    """Class 4 was forgotten before: its test images are kept ones no more, and no strangers for class 0."""
    alone, other = made_up(), images(np.full(8, 4), np.arange(8) < 2, 3.0, first=200)
    before, found = (
        vision_metrics(scores, forgotten=forgotten, attack_samples=20)
        for scores, forgotten in ((alone, (0,)), (alone | {"request_01": other}, (0, 4)))
    )
    accuracy = found["request_01_accuracy"]
    assert (accuracy.value, accuracy.n, accuracy.group, accuracy.unit) == (25.0, 8, "requests", "%")
    assert found["forget_test_AUC"] == before["forget_test_AUC"]
    assert (found["TA"].n, before["TA"].n) == (30, 40)


def test_accuracies_of_classwise_forgetting():
    metrics = vision_metrics(made_up(), forgotten=(0,), attack_samples=40)
    expected = {
        "UA": (25.0, 20),
        "forget_accuracy": (75.0, 20),
        "RA": (95.0, 60),
        "TA": (80.0, 40),
        "TA_all": (70.0, 50),
        "TA_forgotten": (30.0, 10),
        "VA": (75.0, 8),
    }
    assert {name: (metrics[name].value, metrics[name].n) for name in expected} == expected
    assert set(metrics) == ACCURACIES | EFFICACIES | {"MIA_attack_accuracy", "MIA_attack_AUC", "forget_test_AUC"}
    assert {metrics[name].n for name in EFFICACIES} == {20}
    assert metrics["MIA_attack_accuracy"].n == metrics["MIA_attack_AUC"].n == 80
    assert metrics["forget_test_AUC"].n == 30


def test_accuracies_of_random_forgetting():
    metrics = vision_metrics(made_up(), attack_samples=50)
    assert (metrics["TA"].value, metrics["TA"].n) == (70.0, 50)
    assert (metrics["VA"].value, metrics["VA"].n) == (70.0, 10)
    assert not {"TA_all", "TA_forgotten"} & set(metrics)
    assert metrics["forget_test_AUC"].n == 70
    goals = {name: r.target for name, r in metrics.items() if r.target is not None}
    assert goals == {"UA": 30.0, "forget_accuracy": 70.0, "forget_test_AUC": 0.5}, "those of held-out images"


def test_several_forgotten_classes_and_sets_that_are_empty():
    scores = made_up()
    metrics = vision_metrics(scores, forgotten=(0, 4), attack_samples=30)
    assert (metrics["TA"].value, metrics["TA"].n) == (80.0, 30)
    assert (metrics["TA_forgotten"].value, metrics["TA_forgotten"].n) == (55.0, 20)

    empty = images([], [], 1.0)
    for validation in ({}, {"validation": empty}):
        rest = {name: s for name, s in scores.items() if name != "validation"} | validation
        assert "VA" not in vision_metrics(rest, rest, forgotten=(0,), attack_samples=9)
    only_others = vision_metrics(scores, forgotten=(CLASSES,), attack_samples=9)
    assert not {"TA_forgotten", "forget_test_AUC"} & set(only_others)


def test_attacks_with_all_samples_are_scikit_learn_called_by_hand():
    scores = made_up(seed=2)
    scores["retain"] = images(1 + np.arange(40) % 4, np.arange(40) > 0, 4.0, first=100)
    metrics = vision_metrics(scores, forgotten=(0,), attack_samples=40)
    kept = scores["test"].labels != 0
    assert kept.sum() == 40
    sides = [confidences(scores["retain"]), confidences(scores["test"])[kept]]
    machine = SVC(C=3, gamma="auto", kernel="rbf").fit(np.concatenate(sides)[:, None], np.repeat([1, 0], 40))
    verdicts = machine.predict(confidences(scores["forget"])[:, None])
    assert 0 < np.mean(verdicts == 0) < 1
    assert metrics["MIA"].value == 100 * np.mean(verdicts == 0)
    # 39 of 40 members are right, 32 of 40 strangers: who is right passes for a member, and 15 of 20 are.
    assert metrics["MIA_correctness"].value == 25.0


def test_attack_sets_are_drawn_without_replacement_from_the_kept(monkeypatch):
    scores, attacked, assessed = made_up(), [], []
    monkeypatch.setattr(vision, "mia_efficacy", lambda *sides: attacked.append(sides) or 0.0)
    monkeypatch.setattr(vision, "attack_quality", lambda *sides: assessed.append(sides) or (0.0, 0.0))
    for seed in (5, 5, 6):
        vision_metrics(scores, scores, forgotten=(0,), attack_samples=25, seed=seed)
    assert [seed for _, _, seed in assessed] == [5, 5, 6]
    pools = [confidences(scores["retain"]), confidences(scores["test"])[scores["test"].labels != 0]]
    for side, pool in zip(assessed[0], pools, strict=False):
        assert len(np.unique(side)) == len(side) == 25
        assert np.isin(side.round(6), pool.round(6)).all()
    for first, again, other in list(zip(*assessed, strict=True))[:2]:
        np.testing.assert_array_equal(first, again)
        assert (first != other).any()
    at = list(vision.ATTACKS).index("confidence")
    for sides in attacked[at : 2 * len(EFFICACIES) : len(EFFICACIES)]:  # of the two models, whichever comes first
        for side, drawn in zip(sides, [*assessed[0][:2], confidences(scores["forget"])], strict=True):
            np.testing.assert_allclose(side, drawn, rtol=1e-6)


def test_forget_test_auc_compares_the_forgotten_class_with_itself():
    scores = made_up()
    losses = {name: -np.log(confidences(s)) for name, s in scores.items()}
    of_class = scores["test"].labels == 0
    by_class = vision_metrics(scores, forgotten=(0,), attack_samples=9)["forget_test_AUC"]
    assert by_class.value == auc(losses["forget"], losses["test"][of_class])
    at_random = vision_metrics(scores, attack_samples=9)["forget_test_AUC"]
    assert at_random.value == auc(losses["forget"], losses["test"])
    assert by_class.value > 0.6  # forget images are right more often
    assert (by_class.target, by_class.higher_is_better) == (0.5, False)


def test_single_images_beside_a_forgotten_class_are_compared_alone():
    """Forgotten class 4 is unknown to the model, in the test set, too; the others are known as well as there."""
    known = np.repeat(np.arange(CLASSES), 20)
    alike = {name: images(known, known < 4, 3.0, seed) for seed, name in enumerate(("test", "retain"))}
    few = np.concatenate([np.arange(80) % 4, [4, 4]])
    scores = alike | {"forget": images(few, few < 4, 3.0, 5)}
    got = vision_metrics(scores, forgotten=(4,), attack_samples=9, intervals=True)["forget_test_AUC"]
    losses = {name: -np.log(confidences(s)) for name, s in scores.items()}
    assert got.value == auc(losses["forget"][few < 4], losses["test"][known < 4])
    assert got.n == 160
    assert got.interval[0] < 0.5 < got.interval[1]


def test_targets_and_gap_of_a_retrained_model():
    ours, retrained = made_up(), made_up(forget_right=0, seed=10)
    metrics = vision_metrics(ours, retrained, forgotten=(0,), attack_samples=30)
    theirs = vision_metrics(retrained, forgotten=(0,), attack_samples=30)
    for name in ACCURACIES | EFFICACIES:
        assert metrics[name].target == theirs[name].value, name
    assert metrics["UA"].target == 100.0
    assert [metrics[name].target for name in ("MIA_attack_accuracy", "MIA_attack_AUC")] == [None, None]
    assert values(metrics) == values(vision_metrics(ours, forgotten=(0,), attack_samples=30)) | {
        "avg_gap": metrics["avg_gap"].value
    }
    assert all(theirs[name].target is None for name in ACCURACIES | EFFICACIES)

    mia = metrics["MIA"].value - theirs["MIA"].value
    assert mia != 0
    gap = metrics["avg_gap"]  # RA and TA are the same in both
    assert gap.value == pytest.approx((abs(25 - 100) + 0 + 0 + abs(mia)) / 4, rel=1e-12)
    assert (gap.n, gap.target, gap.higher_is_better) == (20 + 60 + 40, 0.0, False)
    assert vision_metrics(ours, ours, forgotten=(0,), attack_samples=30)["avg_gap"].value == 0.0


def test_arrows_say_on_which_side_a_model_that_forgot_too_little_lies():
    """Here it learnt everything and forgot nothing; retraining knows the class not at all."""
    before, retrained = made_up(forget_right=20), made_up(forget_right=0, seed=10)
    labels = before["test"].labels
    retrained["test"] = images(labels, (labels > 0) & (np.arange(50) % 5 > 0), 3.0)
    metrics = vision_metrics(before, retrained, forgotten=(0,), attack_samples=40)
    for name in ("UA", "forget_accuracy", "TA_forgotten", "MIA", "MIA_correctness", "MIA_modified_entropy"):
        value, target = metrics[name].value, metrics[name].target
        assert value != target
        assert metrics[name].higher_is_better == (value < target), name
    assert all(metrics[name].higher_is_better for name in ("RA", "TA", "TA_all", "VA", *EFFICACIES))


def test_intervals_are_of_accuracies_and_of_forget_against_test():
    scores = made_up()
    metrics = vision_metrics(scores, scores, forgotten=(0,), attack_samples=9, intervals=True)
    assert {name for name, m in metrics.items() if m.interval} == ACCURACIES - {"VA"} | {"forget_test_AUC"}
    low, high = metrics["TA"].interval
    expected = interval([scores["test"].correct[scores["test"].labels != 0]])
    assert (low, high) == pytest.approx((100 * expected[0], 100 * expected[1]), rel=1e-12)
    for name in ACCURACIES - {"VA"}:
        assert 0 <= metrics[name].interval[0] < metrics[name].value < metrics[name].interval[1] <= 100
    losses, of_class = {name: -np.log(confidences(s)) for name, s in scores.items()}, scores["test"].labels == 0
    assert metrics["forget_test_AUC"].interval == auc_interval(losses["forget"], losses["test"][of_class])
    without = vision_metrics(scores, attack_samples=9)
    assert not any(m.interval for m in without.values())


@pytest.mark.parametrize(
    ("attack_samples", "forgotten", "most"), [(41, (0,), 40), (51, (), 50), (61, (), 50), (1, (), 50)]
)
def test_too_few_images_for_the_attack(attack_samples, forgotten, most):
    with pytest.raises(UserError, match=rf"evaluation.attack_samples .*\b{most}\b"):
        vision_metrics(made_up(), forgotten=forgotten, attack_samples=attack_samples)


@pytest.mark.parametrize("name", ["forget", "retain", "validation", "test"])
def test_a_reference_of_other_images_is_refused(name):
    scores = made_up()
    s = scores[name]
    fewer = ImageScores(s.ids[1:], s.labels[1:], s.log_probs[1:])
    for other in (fewer, None, replace(s, ids=s.ids + 1), replace(s, labels=(s.labels + 1) % CLASSES)):
        with pytest.raises(UserError, match=f" {name} .*evaluation.reference"):
            vision_metrics(scores, {**scores, name: other}, attack_samples=9)


def test_a_broken_model_is_wrong_and_not_attacked():
    retrained = made_up()
    broken = {name: replace(s, log_probs=np.full_like(s.log_probs, np.nan)) for name, s in retrained.items()}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        metrics = vision_metrics(broken, retrained, forgotten=(0,), attack_samples=9, intervals=True)
    wrong = {"UA": 100.0} | dict.fromkeys(("forget_accuracy", "RA", "TA", "TA_all", "TA_forgotten", "VA"), 0.0)
    assert {name: metrics[name].value for name in wrong} == wrong
    rest = set(metrics) - set(wrong)
    assert rest == EFFICACIES | {"MIA_attack_accuracy", "MIA_attack_AUC", "forget_test_AUC", "avg_gap"}
    assert all(math.isnan(metrics[name].value) for name in rest)

    one = made_up()
    one["forget"].log_probs[4] = np.nan
    metrics = vision_metrics(one, forgotten=(0,), attack_samples=9)
    assert metrics["forget_accuracy"].value == 70.0
    assert all(math.isnan(metrics[name].value) for name in EFFICACIES)
    assert metrics["MIA_attack_accuracy"].value > 0, "it does not look at forget images"


def test_overall_score_of_the_papers_class_wise_table():
    """CIFAR-10's columns as printed, with Retrain in the maximum."""
    rows = {
        "Retrain": (100.0, 94.80, 91.82, 100.0),
        "FT": (42.43, 94.19, 94.61, 56.51),
        "IU": (89.31, 92.19, 90.63, 55.22),
        "OFMU": (81.51, 93.51, 86.88, 59.76),
    }
    table = {name: dict(zip(("UA", "RA", "TA", "MIA"), row, strict=True)) for name, row in rows.items()}
    scores = overall_score(table)
    by_hand = (0.8151 + 93.51 / 94.80 + 86.88 / 94.61 + 0.5976) / 4
    assert scores["OFMU"] == pytest.approx(by_hand, rel=1e-12)
    assert {name: round(score, 3) for name, score in scores.items() if name != "FT"} == {
        "Retrain": 0.993,
        "IU": 0.844,
        "OFMU": 0.829,
    }
    without = overall_score({name: table[name] for name in ("IU", "OFMU")})
    assert without["IU"] == pytest.approx((1 + 92.19 / 93.51 + 1 + 55.22 / 59.76) / 4, rel=1e-12)


def test_overall_score_of_a_broken_method_does_not_touch_the_others():
    good, broken = (
        {"UA": 50.0, "RA": 80.0, "TA": 80.0, "MIA": 0.0},
        {"UA": 100.0, "RA": 0.0, "TA": 0.0, "MIA": math.nan},
    )
    for table in ({"broken": broken, "good": good}, {"good": good, "broken": broken}):
        scores = overall_score(table)
        assert list(scores) == list(table)
        assert math.isnan(scores["broken"])
        assert scores["good"] == 0.75, "a metric that is 0 everywhere counts as 0"
    assert math.isnan(overall_score({"broken": broken})["broken"])
