"""Quantise: what rounding gives back, beside the retrained model and the target."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from ofmu_pl import Quantise, UserError
from ofmu_pl.attacks.base import Finding
from ofmu_pl.attacks.summary import summary
from ofmu_pl.networks.rounding import round_matrices
from tests.helpers.memorised_models import Made


def test_the_target_still_says_what_it_knows_and_the_retrained_model_nothing(subjects):
    attack = Quantise([8, 4, "nf4"])
    found = {name: attack.run(subject, 0) for name, subject in subjects.items()}
    target, retrained = found["target"], found["retrained"]
    assert target.x == ["32", "8", "4", "nf4"]
    assert target.y[1] == pytest.approx(target.y[0], abs=0.05)  # eight bits change little,
    assert target.y[1] != target.y[0]  # but something
    assert target.figures["quantise_prob"] == pytest.approx(max(target.y[1:]))
    assert target.figures["quantise_prob"] > 0.9
    assert retrained.figures["quantise_prob"] < 0.5  # five of seven tokens are the same for everyone
    assert retrained.figures["quantise_retain_prob_8"] > 0.9
    subject = subjects["target"]
    assert target.y[0] == pytest.approx(subject.probabilities(subject.build(), "forget").mean())


def test_figures_are_those_of_rounded_models(subjects):
    subject = subjects["target"]
    found = Quantise([3, 2], rows=4).run(subject, 0)
    model = subject.build()
    round_matrices(model, 2)
    kept = subject.probabilities(model, "retain", [0, 6, 12, 18]).mean()
    assert found.figures["quantise_retain_prob_2"] == pytest.approx(kept)
    assert found.y[2] == pytest.approx(subject.probabilities(model, "forget", [0, 2, 4, 6]).mean())
    assert kept < found.figures["quantise_retain_prob_3"] < found.figures["quantise_retain_prob_32"]


def test_what_rounding_gives_back_by_hand():
    attack = Quantise([4])
    found = {
        "unlearned": [Finding.of_rows(attack.metrics[0], [0.5, 0.7], x=["32", "4"], y=[0.2, 0.6])],
        "target": [Finding.of_rows(attack.metrics[0], [0.9, 0.9], x=["32", "4"], y=[1.0, 0.9])],
    }
    metrics = summary(attack, found, [0]).metrics["unlearned"]
    assert metrics["quantise_given_back"]["value"] == pytest.approx((0.6 - 0.2) / (1.0 - 0.2))
    assert attack.compare({"unlearned": found["target"], "target": found["target"]}) == {}


def test_nothing_to_round(subjects):
    subject = replace(subjects["target"], recipe=Made(torch.nn.Embedding(2, 2), subjects["target"].recipe))
    subject.probabilities = lambda *_: np.zeros(2)
    with pytest.raises(UserError, match="'quantise'"):
        Quantise().run(subject, 0)
