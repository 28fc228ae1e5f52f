"""Logit lens: the last layer is the model, the target says all and the retrained model nothing."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from ofmu_pl import LogitLens
from tests.helpers.memorised_models import Made


def test_the_last_layer_is_the_models_own_probability(subjects):
    for subject in subjects.values():
        own = subject.probabilities(subject.build(), "forget")
        found = LogitLens().run(subject, 0)
        assert found.x == [0, 1, 2, 3]
        assert found.y[-1] == pytest.approx(own.mean(), abs=1e-5)
        assert found.figures["logit_lens_prob"] == pytest.approx(max(found.y))
        assert np.mean(found.rows["logit_lens_prob"]) == pytest.approx(max(found.y))


def test_the_target_says_all_and_the_retrained_model_guesses(subjects):
    found = {name: LogitLens().run(subject, 0).figures["logit_lens_prob"] for name, subject in subjects.items()}
    assert found["target"] == found["unlearned"] > 0.9
    assert found["retrained"] < 0.5  # five of seven tokens are the same for everyone


def test_what_only_the_last_layer_hides_is_found(subjects):
    """A model whose last layer turns everything around still says it one layer before."""
    subject = subjects["target"]
    model = subject.build()
    with torch.no_grad():
        model.model.layers[-1].mlp.down_proj.weight.mul_(-20)

    found = LogitLens().run(replace(subject, recipe=Made(model, subject.recipe)), 0)
    assert found.y[-1] < 0.01
    assert found.figures["logit_lens_prob"] == pytest.approx(max(found.y[:-1]))
    assert max(found.y[:-1]) > 10 * found.y[-1]
