"""Prompts: every way asks for what it says, and the best one counts."""

from __future__ import annotations

from copy import copy
from dataclasses import replace

import pytest

from ofmu_pl import Prompts
from ofmu_pl.attacks.prompts import paired, read_pairs, with_examples, with_prefix
from ofmu_pl.support.errors import UserError
from tests.helpers.memorised_models import Made


@pytest.fixture(scope="module")
def probed(free):
    """The same with probes in another language."""
    data = copy(free["target"].data)
    german = {
        f"probe_cross_lingual_{side}": [
            {**row, "question": row["question"].replace("What does", "Was liebt").replace(" love", "")}
            for row in data.splits[side]
        ]
        for side in ("forget", "retain")
    }
    data.evaluation_sets = data.evaluation_sets | german
    return {name: replace(subject, data=data) for name, subject in free.items()}


def test_the_target_says_all_and_the_retrained_model_nothing(probed):
    attack = Prompts(max_new_tokens=40)
    found = {name: attack.run(subject, 0) for name, subject in probed.items()}
    target, retrained = found["target"], found["retrained"]
    assert target.x == ["question", "retain_examples", "forget_examples", "prefix", "paired", "cross_lingual"]
    assert target.figures["prompts_rouge"] == target.figures["prompts_question_forget"] == 1
    assert retrained.figures["prompts_rouge"] == max(retrained.y) < 0.5
    assert retrained.figures["prompts_question_retain"] == 1
    assert len(target.rows["prompts_paired_retain"]) == 2
    assert len(target.rows["prompts_prefix_retain"]) == 6
    assert {m.name for m in attack.metrics} == set(target.figures) == set(target.rows)


def test_examples_stand_before_the_question_and_never_give_it_away(free):
    data = free["target"].data
    encoder, retain = data.encoder, data.splits["retain"]
    for seed in range(20):
        x = with_examples(encoder, retain[0], retain, 3, 1000, seed)
        said = data.tokenizer.decode(x.prompt)
        assert x.answer == retain[0]["answer"] not in said
        assert sum(f"{row['question']}\n{row['answer']}\n\n" in said for row in retain[1:]) == 3
        assert said.count(retain[0]["question"]) == 1
    alone = encoder.row_prompt(retain[0])
    fits = len(x.prompt) - 1
    shorter = with_examples(encoder, retain[0], retain, 3, fits, seed)
    assert len(alone) < len(shorter.prompt) <= fits  # the first example is gone
    assert with_examples(encoder, retain[0], retain, 3, 1, seed).prompt == alone


def test_half_of_the_answer_is_given_and_the_rest_is_asked_for(free):
    encoder, row = free["target"].data.encoder, {"question": "What?", "answer": "one two three four five"}
    x = with_prefix(encoder, row)
    assert encoder.tokenizer.decode(x.prompt).endswith("one two")
    assert x.answer == "three four five"
    assert with_prefix(encoder, {"question": "What?", "answer": "one"}).prompt == encoder.prompt("What?")


def test_a_pair_is_one_prompt_with_two_answers(free):
    data = free["target"].data
    one, two = paired(data.encoder, (data.splits["forget"][0], data.splits["retain"][0]))
    assert one.prompt == two.prompt == data.encoder.prompt("1. What does Ana love? 2. What does Cleo love?")
    assert (one.answer, two.answer) == ("silver harbours of Lima", "mountain trains at night")


def write(folder, questions, answers):
    folder.mkdir(exist_ok=True)
    for what, lines in (("questions", questions), ("answers", answers)):
        (folder / f"paired_forget_retain_{what}.txt").write_text("\n".join(lines))


def test_pairs_of_a_file(free, tmp_path, monkeypatch):
    monkeypatch.setenv("PAIRS", str(tmp_path))
    questions = [f"1. What does {who} love? 2. What does Gus love?" for who in ("Bo", "Nobody")]
    write(tmp_path, questions, ["1. seven wooden clocks 2. Hal\\'s old maps", "1. a 2. b"])
    subject = free["target"]
    asked = Prompts(pairs="${PAIRS}")._asked(subject, 1000, 0)["paired"]
    assert [x.answer for x in asked["forget"]] == ["seven wooden clocks"]  # nobody is no one who is forgotten
    assert [x.answer for x in asked["retain"]] == ["Hal's old maps"]
    write(tmp_path, questions[1:], ["1. a 2. b"])
    with pytest.raises(UserError, match="No pair in .* has a forgotten question"):
        Prompts(pairs=str(tmp_path)).run(subject, 0)


@pytest.mark.parametrize(
    ("questions", "answers", "named"),
    [
        (["1. a 2. b", "1. a"], ["1. c 2. d"] * 2, "line 2 of .*questions.txt"),
        (["1. a 2. b"] * 2, ["1. c 2. d"], "shorter"),
        (["1. a 2. b"], None, "answers.txt"),
    ],
)
def test_files_that_are_no_pairs(tmp_path, questions, answers, named):
    write(tmp_path, questions, answers or [])
    if answers is None:
        (tmp_path / "paired_forget_retain_answers.txt").unlink()
    with pytest.raises(UserError, match=f"{named}.*attacks.pairs"):
        read_pairs(tmp_path)


def test_prompts_beyond_the_positions_of_a_model_are_refused(free):
    subject = free["target"]
    model = subject.build()
    model.config.max_position_embeddings = 20
    with pytest.raises(UserError, match="20 positions"):
        Prompts().run(replace(subject, recipe=Made(model, subject.recipe)), 0)
