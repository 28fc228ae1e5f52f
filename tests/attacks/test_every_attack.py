"""What holds of every attack: gradients as declared, the same again, broken models, settings out of range."""

import json
from dataclasses import asdict, replace
from inspect import signature

import numpy as np
import pytest
import torch
from transformers import LlamaModel

import ofmu_pl
from ofmu_pl import (
    RTT,
    Attack,
    Confidence,
    DepthScore,
    LinearProbe,
    LogitLens,
    Prompts,
    Prune,
    Quantise,
    Relearn,
    Sample,
    Traces,
)
from ofmu_pl.support.errors import UserError
from tests.helpers.memorised_models import Made

SMALL = {"steps": 5, "every": 2, "rates": [1e-4, 1e-3], "rows": 3, "fit_rows": 5, "widths": [8, 4], "k": [4]}
SMALL |= {"samples": 4, "max_new_tokens": 5}


def small(attack, **more):
    """An attack with as little to do as its options allow."""
    return attack(**{name: value for name, value in SMALL.items() if name in signature(attack).parameters}, **more)


SHOWN = [getattr(ofmu_pl, name) for name in ofmu_pl.__all__]
KINDS = [x for x in SHOWN if isinstance(x, type) and issubclass(x, Attack) and x is not Attack]
MADE = [small(kind) for kind in KINDS]
UNDRAWN = (Confidence, DepthScore, LinearProbe, LogitLens, Prune, Quantise, Traces)
"""Attacks that find the same at every seed."""
SLOW = [pytest.param(small(Relearn, source=x), marks=pytest.mark.slow) for x in ("retain", "questions", "form")]


@pytest.mark.parametrize("attack", [*MADE, *SLOW], ids=lambda attack: attack.name)
def test_an_attack_takes_the_gradients_that_it_declares_and_finds_the_same_again(attack, subjects, monkeypatch):
    taken, forward = [], LlamaModel.forward

    def counting(self, *args, **kwargs):
        taken.append(torch.is_grad_enabled())
        return forward(self, *args, **kwargs)

    monkeypatch.setattr(LlamaModel, "forward", counting)
    found = attack.run(subjects["target"], seed=0)
    assert attack.gradients == sum(taken) == found.gradients
    assert taken
    assert attack.run(subjects["target"], seed=0) == found
    if isinstance(attack, UNDRAWN):
        assert attack.run(subjects["target"], seed=5) == found
    json.dumps(asdict(found))  # a finding is kept as JSON


@pytest.mark.parametrize("attack", [x for x in MADE if x.name != "confidence"], ids=lambda attack: attack.name)
def test_a_broken_model_is_a_result(attack, subjects):
    subject = subjects["target"]
    model = subject.build()
    with torch.no_grad():
        model.model.embed_tokens.weight.fill_(float("nan"))
    found = attack.run(replace(subject, recipe=Made(model, subject.recipe)), 0)
    assert "finite" in found.broken
    if not attack.gradients:
        assert np.isfinite([*found.figures.values(), *found.y]).all()


@pytest.mark.parametrize(
    ("attack", "options", "named"),
    [
        (Prompts, {"max_new_tokens": 0}, "max_new_tokens=0"),
        (LogitLens, {"rows": 0}, "rows=0"),
        (LinearProbe, {"fit_rows": 0}, "fit_rows=0"),
        (Sample, {"k": [64]}, "k=64"),
        (Sample, {"k": []}, "attacks.k"),
        (Sample, {"threshold": 0}, "threshold=0"),
        (Quantise, {"widths": []}, "attacks.widths"),
        (Quantise, {"widths": [1]}, "widths=1"),
        (Quantise, {"widths": ["int4"]}, "'int4'"),
        (Prune, {"shares": []}, "attacks.shares"),
        (Prune, {"shares": [0.5, 1.0]}, "attacks.shares"),
        (Relearn, {"share": 1.0}, "attacks.share"),
        (RTT, {"rates": []}, "attacks.rates"),
        (RTT, {"every": 0}, "every=0"),
    ],
)
def test_settings_out_of_range(attack, options, named):
    with pytest.raises(UserError, match=named):
        attack(**options)
