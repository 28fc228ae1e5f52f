"""What verdicts say of tiny models whose numbers are kept, by the functions that write docs/results/statistics.md."""

import importlib
from itertools import pairwise, permutations, product
from pathlib import Path

import numpy as np
import pytest

SCRIPTS = Path(__file__).parents[2] / "scripts"


@pytest.fixture
def kept(monkeypatch):
    monkeypatch.syspath_prepend(SCRIPTS)
    return importlib.import_module("nulls_over_models")


def test_who_forgot_nothing_is_not_nearer_and_who_did_is(kept):
    targets, retrained = kept.of("target", 380), kept.of("retrained", 380)
    still = [(f"{t}, noise 0.03", r, t) for t, r in product(targets, retrained)]
    other = [(u, r, t) for (u, t), r in product(permutations(targets, 2), retrained)]
    for cases in (still, other):
        found = [kept.way(*case) for case in cases]
        assert not any(map(kept.is_nearer, found))
        assert max(share.value for share in found) < 0.005
    for ours in kept.unlearned()[1:]:
        assert all(kept.is_nearer(kept.way(ours, r, targets[0])) for r in retrained)


def test_a_second_retrained_model_quiets_the_page_and_what_is_left_is_found(kept):
    (target, *_), retrained = kept.of("target", 380), kept.of("retrained", 380)
    half = [(u, r, target) for u, r in permutations(kept.of("retrained", 100), 2)]

    def wrong(cases):
        return np.mean([{*kept.page(*case)} != {"no difference"} for case in cases])

    assert wrong(half) > 0.8
    assert wrong(kept.with_second(half)) < 0.35
    assert wrong([(u, r, target, s) for u, r, s in kept.some(list(permutations(retrained, 3)))]) <= 0.05
    relearn = next(a for a in kept.ATTACKS if a.name == "relearn_forget")
    *npo, ofmu = kept.unlearned()
    for r, s in pairwise(retrained):
        assert all(kept.page(ours, r, target, s).count("more is left") >= 6 for ours in npo)
        said = [kept.verdict(relearn, ours, r, target, s) for ours in (*npo, ofmu)]
        assert said == ["as without", "more", "more", "more"], "the first has hardly begun to forget"


def test_half_trained_models_are_said_to_differ_as_wholes(kept):
    rates = {}
    for steps in (380, 100):
        losses = [kept.scores(name)["forget"].answer_loss for name in kept.of("retrained", steps)]
        found = [kept.nearness(r, r, second=s)["forget_apart"].value < 0.05 for r, s in permutations(losses, 2)]
        rates[steps] = np.mean(found)
    assert rates[380] < 0.075
    assert rates[100] > 0.9
