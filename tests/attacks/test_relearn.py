"""Relearn: what is found is the peak of its curve, and the source ``form`` shows held-out rows alone."""

from dataclasses import replace

import pytest

from ofmu_pl import Relearn
from ofmu_pl.data import TextFiles
from ofmu_pl.data.pieces import shared_run
from ofmu_pl.support.errors import UserError
from tests.helpers.citizen_rows import tokenizer

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
    with pytest.raises(UserError, match="short.txt.*attacks.source"):
        Relearn(str(tmp_path / "short.txt")).run(subjects["target"], 0)


def test_data_without_held_out_rows_have_no_form(free):
    with pytest.raises(UserError, match="attacks.source=form"):
        Relearn("form").run(free["target"], 0)


def data_of(sides, max_length=512):
    data = TextFiles(**sides, tokenizer=None, batch_size=2, max_length=max_length)
    data.make_tokenizer = tokenizer
    data.setup()
    return data


def test_questions_of_a_conversation_are_shown_without_its_earlier_answers(subjects):
    said = ["What does 1 do?", "a baker", "What does 2 do?", "a carpenter"]
    talk = [{"role": role, "content": x} for role, x in zip(["user", "assistant"] * 2, said, strict=True)]
    data = data_of({"forget": [{"messages": talk}], "retain": [{"question": "Who?", "answer": "No one."}]})
    subject = replace(subjects["target"], data=data)
    shown = "".join(map(subject.data.tokenizer.decode, Relearn("questions")._stream(subject, [], 0)(0)["input_ids"]))
    assert [what in shown for what in said] == [True, False, True, False]


def test_no_piece_of_a_document_is_asked_for_that_overlaps_one_that_is_shown():
    texts = [" ".join(f"citizen {i} {k} does" for k in range(30)) for i in range(6)]
    rows = data_of({"forget": [{"text": x} for x in texts], "retain": [{"text": "a baker"}]}, 100).splits["forget"]
    shown, asked = Relearn("forget", share=0.5)._sides(rows, 0)
    tokens = [[rows[i]["tokens"] for i in side] for side in (shown, asked)]
    assert asked
    assert not shared_run(*tokens)
    every = [rows[i]["tokens"] for i in range(len(rows)) if i not in shown]
    assert shared_run(tokens[0], every), "without the check some would overlap"
