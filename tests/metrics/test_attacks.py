"""Attack features against exact arithmetic, the attack against scikit-learn called by hand."""

import math
import warnings
from decimal import Decimal, localcontext
from itertools import product

import numpy as np
import pytest
from scipy import special
from sklearn.svm import SVC

from ofmu_pl.metrics.attacks import FEATURES, attack_quality, entropy, mia_efficacy, modified_entropy

LOGITS = [
    [0.0, 0.0, 0.0],
    [3.0, -1.0, 0.5],
    [20.0, 0.0, -3.0],  # p rounds near 1
    [60.0, 0.0, 1.0],  # 1 - p is 0 in float64
    [60.0, 60.0, 0.0],  # p_3 near 0, two halves
    [0.0, -700.0, -690.0],
]


def exact(logits: list[float], label: int) -> tuple[list[float], dict[str, float]]:
    """The log-probabilities, and the definitions term by term, to 400 digits."""
    with localcontext() as context:
        context.prec = 400
        weights = [Decimal(z).exp() for z in logits]
        p = [w / sum(weights) for w in weights]
        modified = -(1 - p[label]) * p[label].ln()
        for i in range(len(p)):
            if i != label:
                modified -= p[i] * (1 - p[i]).ln()
        return [float(x.ln()) for x in p], {
            "correctness": float(max(range(len(p)), key=p.__getitem__) == label),
            "confidence": float(p[label]),
            "entropy": float(-sum(x * x.ln() for x in p)),
            "modified_entropy": float(modified),
        }


def made_up(n: int = 300, classes: int = 10, scale: float = 3.0, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    return special.log_softmax(scale * rng.normal(size=(n, classes)), axis=1), rng.integers(0, classes, n)


def by_hand(member: np.ndarray, stranger: np.ndarray, forget: np.ndarray) -> float:
    """Jia et al.'s efficacy, written out."""
    columns = [x.reshape(len(x), -1) for x in (member, stranger, forget)]
    truth = [1] * len(member) + [0] * len(stranger)
    machine = SVC(C=3, gamma="auto", kernel="rbf").fit(np.vstack(columns[:2]), truth)
    return 100 * sum(int(verdict) == 0 for verdict in machine.predict(columns[2])) / len(forget)


@pytest.mark.parametrize("label", [0, 1, 2])
@pytest.mark.parametrize("logits", LOGITS)
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_features_are_the_definitions_to_the_last_digits(logits, label, dtype):
    log_probs, values = exact(logits, label)
    for name, value in values.items():
        if name == "correctness" and len(set(logits)) < 3:
            continue  # a tie has no likeliest class
        ours = FEATURES[name](np.array([log_probs], dtype), np.array([label]))
        assert ours.shape == (1,)
        assert ours.dtype == np.float64
        # log p is stored with an error in proportion to itself, which is an error of p in proportion to |log p|.
        error = float(np.finfo(dtype).eps) * 4 * max(1.0, -min(log_probs))
        assert ours[0] == pytest.approx(value, rel=error, abs=1e-37), name


def test_a_batch_gives_what_its_rows_give_alone():
    log_probs, labels = made_up()
    for feature in FEATURES.values():
        alone = np.concatenate([feature(log_probs[i : i + 1], labels[i : i + 1]) for i in range(len(labels))])
        np.testing.assert_array_equal(feature(log_probs, labels), alone)
    np.testing.assert_array_equal(FEATURES["probability"](log_probs, labels), np.exp(log_probs))


def test_modified_entropy_of_two_classes_has_a_closed_form():
    p = np.array([1e-12, 0.1, 0.5, 0.9, 1 - 1e-12])
    log_probs = np.log(np.column_stack([p, 1 - p]))
    np.testing.assert_allclose(modified_entropy(log_probs, np.zeros(5, int)), -2 * (1 - p) * np.log(p), rtol=1e-9)


def test_certainty_gives_limits_without_a_warning():
    certain = np.array([[0.0, -np.inf, -np.inf]])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert entropy(certain, np.array([0]))[0] == 0.0
        assert modified_entropy(certain, np.array([0]))[0] == 0.0
        assert modified_entropy(certain, np.array([1]))[0] == math.inf


def test_nan_stays_in_its_row_even_where_argmax_finds_the_label():
    log_probs, labels = made_up(4)
    log_probs[1] = np.nan
    labels[1] = 0  # argmax of a row of NaN
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for name, feature in FEATURES.items():
            broken = np.isnan(feature(log_probs, labels)).reshape(4, -1).all(axis=1)
            assert broken.tolist() == [False, True, False, False], name


@pytest.mark.parametrize("name", list(FEATURES))
def test_efficacy_is_what_scikit_learn_says(name):
    scales = {"member": 8.0, "stranger": 3.0, "forget": 5.0}
    features = []
    for seed, scale in enumerate(scales.values()):
        log_probs, labels = made_up(150 + 10 * seed, 10, scale, seed)
        labels = np.where(np.arange(len(labels)) % 10 < scale, log_probs.argmax(axis=1), labels)
        features.append(FEATURES[name](log_probs, labels))
    expected = by_hand(*features)
    assert 0 < expected < 100
    assert mia_efficacy(*features) == pytest.approx(expected, rel=1e-12)


def test_constant_features_follow_the_larger_side_as_libsvm_does():
    forget = np.array([1.0, 1.0, 0.0])
    assert mia_efficacy(np.ones(30), np.ones(30), forget) == 0.0
    # Here libsvm's own answer would depend on rounding: it finds 0.5 a stranger, and 0 and 1 members.
    assert mia_efficacy(np.zeros(20), np.zeros(20), np.array([0.0, 0.5, 1.0])) == 0.0
    assert mia_efficacy(np.ones(30), np.ones(20), forget) == 0.0 == by_hand(np.ones(30), np.ones(20), forget)
    assert mia_efficacy(np.ones(20), np.ones(30), forget) == 100.0 == by_hand(np.ones(20), np.ones(30), forget)
    assert attack_quality(np.ones(30), np.ones(30), seed=0) == (50.0, 0.5)
    assert attack_quality(np.ones((30, 4)), np.ones((20, 4)), seed=0) == (50.0, 0.5)


def test_features_that_are_not_finite_and_empty_sides_give_nan():
    good, bad = np.linspace(0, 1, 10), np.array([0.5, math.nan])
    for sides in ((bad, good, good), (good, bad, good), (good, good, bad), (good, good, np.array([math.inf]))):
        assert math.isnan(mia_efficacy(*sides))
    assert math.isnan(mia_efficacy(good, good, np.array([])))
    assert all(map(math.isnan, attack_quality(good, bad, seed=0)))
    assert all(map(math.isnan, attack_quality(good, good[:1], seed=0)))


def test_quality_is_that_of_machines_that_have_not_seen_what_they_judge(monkeypatch):
    rng = np.random.default_rng(0)
    member, stranger = rng.normal(0, 1, 41), rng.normal(1, 1, 30)
    seen, judged, decisions = [], [], []

    class Recorded(SVC):
        def fit(self, x, y):
            seen.append(set(x[:, 0]))
            assert abs(sum(y == 1) - 20.5) < 1, "half of each side"
            return super().fit(x, y)

        def decision_function(self, x):
            judged.append(set(x[:, 0]))
            decisions.append(dict(zip(x[:, 0], super().decision_function(x), strict=True)))
            return super().decision_function(x)

    monkeypatch.setattr("sklearn.svm.SVC", Recorded)
    accuracy, area = attack_quality(member, stranger, seed=3)
    assert len(seen) == len(judged) == 2
    assert not any(a & b for a, b in zip(seen, judged, strict=True))
    assert not judged[0] & judged[1]
    assert judged[0] | judged[1] == {*member, *stranger}

    says = decisions[0] | decisions[1]
    found = np.mean([says[x] >= 0 for x in member])
    cleared = np.mean([says[x] < 0 for x in stranger])
    assert accuracy == pytest.approx(50 * (found + cleared), rel=1e-12)
    areas = []
    for d in decisions:
        pairs = product([d[x] for x in member if x in d], [d[x] for x in stranger if x in d])
        areas.append(np.mean([(m > s) + 0.5 * (m == s) for m, s in pairs]))
    assert area == pytest.approx(np.mean(areas), rel=1e-12)
    assert 55 < accuracy < 95


def test_quality_is_seeded():
    member, stranger = np.random.default_rng(1).random((2, 100))
    first, again, other = (attack_quality(member, stranger, seed) for seed in (0, 0, 1))
    assert first == again != other
