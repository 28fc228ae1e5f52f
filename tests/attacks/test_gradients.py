"""The number of gradients that an attack declares is the number that it takes."""

from __future__ import annotations

import pytest
import torch
from transformers import LlamaModel

from ofmu_pl import RTT, Confidence, DepthScore, LinearProbe, LogitLens, Prompts, Quantise, Relearn, Sample

TRAINING = {"steps": 5, "every": 2, "rates": [1e-4, 1e-3]}
ATTACKS = [
    Relearn("forget", **TRAINING),
    *(pytest.param(Relearn(kind, **TRAINING), marks=pytest.mark.slow) for kind in ("retain", "questions")),
    RTT(**TRAINING),
    Quantise([8, 4]),
    Confidence(),
    LogitLens(rows=3),
    DepthScore(),
    LinearProbe(rows=3, fit_rows=5),
    Sample([4], samples=4, rows=3, max_new_tokens=5),
    Prompts(rows=3, max_new_tokens=5),
]


@pytest.mark.parametrize("attack", ATTACKS, ids=lambda attack: attack.name)
def test_an_attack_takes_the_gradients_that_it_declares(attack, subjects, monkeypatch):
    taken, forward = [], LlamaModel.forward

    def counting(self, *args, **kwargs):
        taken.append(torch.is_grad_enabled())
        return forward(self, *args, **kwargs)

    monkeypatch.setattr(LlamaModel, "forward", counting)
    found = attack.run(subjects["target"], seed=0)
    assert attack.gradients == sum(taken) == found.gradients
    assert taken
