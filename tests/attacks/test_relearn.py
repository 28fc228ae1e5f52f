"""Relearn: what is found is the peak of its curve, and the source ``form`` shows held-out rows alone."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ofmu_pl import Relearn
from ofmu_pl.support.errors import UserError

SHORT = {"steps": 6, "every": 2}


def test_what_is_found_is_the_peak_over_looks_and_rates(subjects):
    subject = subjects["retrained"]
    rates = [1e-4, 3e-3]
    alone = [Relearn("forget", rates=[rate], **SHORT).run(subject, 0) for rate in rates]
    both = Relearn("forget", rates=rates, **SHORT).run(subject, 0)
    peaks = [found.figures["relearn_forget_prob"] for found in alone]
    assert peaks == [max(found.y) for found in alone]
    assert both == replace(alone[peaks.index(max(peaks))], gradients=12), "the curve is the peak's"


def test_the_form_is_that_of_held_out_rows_and_teaches_no_forgotten_fact(subjects):
    attack = Relearn("form", rates=[1e-3], **SHORT)
    subject = subjects["target"]
    draw = attack._stream(subject, [], 0)
    shown = "".join(map(subject.data.tokenizer.decode, draw(0)["input_ids"]))
    told = {side: [row["question"] in shown for row in subject.data.splits[side]] for side in ("forget", "holdout")}
    assert not any(told["forget"])
    assert all(told["holdout"])
    found = {name: attack.run(one, 0) for name, one in subjects.items()}
    assert len(found["target"].rows["relearn_form_prob"]) == 8, "every forgotten row is asked for"
    assert found["retrained"].figures["relearn_form_prob"] < 0.6 < 0.9 < found["target"].figures["relearn_form_prob"]


def test_texts_of_one_token_teach_nothing(subjects, tmp_path):
    (tmp_path / "short.txt").write_text("a")
    with pytest.raises(UserError, match="two tokens"):
        Relearn(str(tmp_path / "short.txt")).run(subjects["target"], 0)


def test_data_without_held_out_rows_have_no_form(free):
    with pytest.raises(UserError, match="attacks.source=form"):
        Relearn("form").run(free["target"], 0)
