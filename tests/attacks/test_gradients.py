"""What attacks declare is what they take, and settings out of range are refused."""

from __future__ import annotations

import pytest
import torch
from transformers import LlamaModel

from ofmu_pl import RTT, Confidence, DepthScore, LinearProbe, LogitLens, Prompts, Quantise, Relearn, Sample
from ofmu_pl.support.errors import UserError

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
        (Relearn, {"share": 1.0}, "attacks.share"),
        (RTT, {"rates": []}, "attacks.rates"),
        (RTT, {"every": 0}, "every=0"),
    ],
)
def test_settings_out_of_range(attack, options, named):
    with pytest.raises(UserError, match=named):
        attack(**options)
