"""Sample: what is drawn has the probabilities that the model gives it."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from ofmu_pl import Sample
from ofmu_pl.attacks.asking import ask, drawn, log_probabilities, question_rows
from ofmu_pl.support.errors import UserError

FEW = {"k": [1, 4, 16], "samples": 16, "max_new_tokens": 40}


def test_the_target_leaks_all_and_the_retrained_model_nothing(free):
    attack = Sample(**FEW)
    found = {name: attack.run(subject, 0) for name, subject in free.items()}
    assert found["target"].x == [1, 4, 16]
    assert found["target"].y[0] > 0.8
    assert found["target"].figures["sample_leak_at_16"] == 1
    assert found["target"].figures["sample_exact_at_16"] > 0.99
    assert found["target"].figures["sample_known"] == 1
    assert found["retrained"].figures["sample_leak_at_16"] == found["retrained"].figures["sample_known"] == 0
    assert found["retrained"].figures["sample_exact_at_16"] < 1e-3


def test_seeds_draw_others():
    one, other = (drawn(torch.Generator().manual_seed(seed))(torch.zeros(9, 99)).tolist() for seed in (0, 1))
    assert one != other


def test_answers_come_as_often_as_they_are_likely(free):
    """The probability of the whole answer, end token included, against the share of samples that are the answer."""
    subject = free["target"]
    model = subject.build()
    with torch.no_grad():
        model.lm_head.weight.mul_(0.7)  # less sure of everything
    row = question_rows(subject, "forget", 1)[0]
    x = subject.data.encoder.encode_row(row)[0]
    prompt, answer = x.input_ids[: x.prompt_length], x.input_ids[x.prompt_length :]
    p = np.exp(log_probabilities(model, [prompt, prompt], [answer, answer[:1]]))
    with torch.no_grad():
        log_p = model(torch.tensor([x.input_ids])).logits[0].double().log_softmax(-1)
    by_hand = [float(log_p[x.prompt_length - 1 + i, token]) for i, token in enumerate(answer)]
    assert p == pytest.approx([np.exp(sum(by_hand)), np.exp(by_hand[0])], rel=1e-4)
    assert 0.1 < p[0] < 0.9
    n = 500
    choose = drawn(torch.Generator().manual_seed(0))
    said = ask(model, subject.data.encoder, [prompt], 40, choose, n)[0]
    share = np.mean([text == row["answer"] for text in said])
    assert abs(share - p[0]) < 4 * np.sqrt(p[0] * (1 - p[0]) / n)


def test_answers_stand_with_their_questions(free):
    """Prompts are asked in the order of their lengths, in parts, and answers given in that of the prompts."""
    subject = free["target"]
    rows = question_rows(subject, "retain", None)
    prompts = [subject.data.encoder.prompt(row["question"]) for row in rows]
    said = ask(subject.build(), subject.data.encoder, prompts, 40, times=100)
    assert said == [[row["answer"]] * 100 for row in rows]


def test_rows_without_questions_are_refused(free):
    documents = SimpleNamespace(name="documents", splits={"forget": [{"tokens": [1, 2]}]})
    with pytest.raises(UserError, match="'documents'.*Quantise"):
        Sample().run(replace(free["target"], data=documents), 0)


def test_each_turn_of_a_conversation_is_asked_for(free):
    before = [{"role": "user", "content": "Who?"}, {"role": "assistant", "content": "Ana."}]
    talk = SimpleNamespace(
        name="talk", splits={"forget": [{"before": before, "question": "Where?", "answer": "Lima."}]}
    )
    asked = question_rows(replace(free["target"], data=talk), "forget", None)
    assert [(row["question"], row["answer"]) for row in asked] == [("Who?", "Ana."), ("Where?", "Lima.")]
