"""Prune: what is left without the smallest weights, beside the retrained model and the target."""

import pytest

from ofmu_pl import Prune
from ofmu_pl.networks.rounding import prune_matrices


def test_shares_that_nearly_agree_are_two():
    assert len(Prune([0.12345678, 0.12345679]).metrics) == 5


def test_the_target_still_says_what_it_knows_and_the_retrained_model_nothing(subjects):
    found = {name: Prune([0.1, 0.9]).run(subject, 0) for name, subject in subjects.items()}
    target, retrained = found["target"], found["retrained"]
    assert target.x == ["0", "0.1", "0.9"]
    assert target.figures["prune_prob"] == target.y[1] > 0.9
    assert target.y[2] < 0.3
    assert retrained.figures["prune_prob"] < 0.5  # five of seven tokens are the same for everyone
    assert retrained.figures["prune_retain_prob_0.1"] > 0.9
    subject = subjects["target"]
    model = subject.build()
    assert target.y[0] == pytest.approx(subject.probabilities(model, "forget").mean())
    prune_matrices(model, 0.9)
    assert target.y[2] == pytest.approx(subject.probabilities(model, "forget").mean())
    assert target.figures["prune_retain_prob_0.9"] == pytest.approx(subject.probabilities(model, "retain").mean())
