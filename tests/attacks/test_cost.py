"""What attacks plan is what they take, and seconds are sums over kinds of work."""

from __future__ import annotations

import pytest
import torch
from transformers import LlamaModel

from ofmu_pl import (
    RTT,
    AttackCost,
    Confidence,
    DepthScore,
    LinearProbe,
    LogitLens,
    Prompts,
    Quantise,
    Relearn,
    Sample,
    UserError,
)
from ofmu_pl.attacks.pace import Pace
from ofmu_pl.attacks.subject import Subject
from ofmu_pl.data import TextFiles
from tests.helpers.citizens import tokenizer

TRAINING = {"steps": 5, "every": 2, "rates": [1e-4, 1e-3], "batch_size": 4}


@pytest.fixture
def taken(monkeypatch):
    """What all Llamas did: batches with a gradient and without, and tokens one at a time."""
    seen = {"gradients": 0, "passes": 0, "tokens": 0}
    forward = LlamaModel.forward

    def counting(self, input_ids=None, **others):
        rows, length = input_ids.shape
        if length == 1:
            seen["tokens"] += rows
        else:
            seen["gradients" if torch.is_grad_enabled() else "passes"] += 1
        return forward(self, input_ids=input_ids, **others)

    monkeypatch.setattr(LlamaModel, "forward", counting)
    return seen


@pytest.mark.parametrize(
    "attack",
    [
        Relearn("forget", **TRAINING),
        *(pytest.param(Relearn(kind, **TRAINING), marks=pytest.mark.slow) for kind in ("retain", "questions")),
        RTT(**TRAINING),
        Quantise([8, 4]),
        Confidence(),
        LogitLens(rows=3),
        DepthScore(),
        LinearProbe(rows=3, fit_rows=5),
    ],
    ids=lambda attack: attack.name,
)
def test_attacks_take_what_they_plan(attack, subjects, taken):
    planned = attack.planned(subjects["target"])
    attack.run(subjects["target"], seed=0)
    assert taken == {"gradients": planned.gradients, "passes": planned.passes, "tokens": 0}
    assert planned.batch_size == (TRAINING["batch_size"] if planned.gradients else 0)


@pytest.mark.parametrize(
    ("attack", "tokens"),
    [
        (Sample([4], samples=4, rows=3, max_new_tokens=5), 3 * 4 * 5),
        (Prompts(examples=1, rows=3, max_new_tokens=5), 4 * 6 * 5 + 3 * 10),  # both sides of a pair are asked at once
    ],
    ids=["sample", "prompts"],
)
def test_answers_are_planned_as_long_as_they_may_be(attack, tokens, subjects, taken):
    planned = attack.planned(subjects["retrained"])
    attack.run(subjects["retrained"], seed=0)
    assert planned.tokens == tokens >= taken["tokens"] > 0
    assert planned.passes > 0 == taken["gradients"] == planned.gradients


def test_seconds_are_sums_over_kinds_of_work(subjects, monkeypatch):
    pace = Pace(subjects["target"])
    pace.taken = {"gradient of 4": 3.0, "pass": 0.5, "token": 0.01}
    assert pace.seconds(AttackCost(2, 4, 10, 100)) == pytest.approx(2 * 3 + 10 * 0.5 + 100 * 0.01)
    assert pace.seconds(AttackCost()) == 0


def test_each_kind_is_timed_once_and_only_if_needed(subjects, taken):
    pace = Pace(subjects["target"])
    for _ in range(2):
        assert pace.seconds(AttackCost(passes=2)) == 2 * pace.taken["pass"] > 0
    assert taken == {"gradients": 0, "passes": 4, "tokens": 0}
    pace.seconds(AttackCost(gradients=1, batch_size=20))  # more rows than there are
    assert taken["gradients"] == 4
    assert taken["tokens"] == 0
    pace.seconds(AttackCost(tokens=1))
    assert set(pace.taken) == {"pass", "gradient of 20", "token"}
    assert taken["tokens"] > 0


def test_rows_that_are_no_questions_cannot_be_planned(subjects):
    data = TextFiles(forget=[{"text": "One two."}], retain=[{"text": "Three four."}], tokenizer=None)
    data.make_tokenizer = tokenizer
    data.setup()
    documents = Subject(subjects["target"].recipe, data)
    with pytest.raises(UserError, match="no questions"):
        Sample().planned(documents)
