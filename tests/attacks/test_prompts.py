"""Prompts: every way asks for what it says, and the best one counts."""

from copy import copy
from dataclasses import replace

import pytest

from ofmu_pl import Prompts
from ofmu_pl.attacks.prompts import WAYS, Asked, paired, read_pairs, with_examples, with_prefix, worst_case
from ofmu_pl.support.errors import UserError
from tests.helpers.memorised_models import Made

OTHERWISE = {"cross_lingual": "Was liebt {}?", "multi_hop": "What does the friend of {} love?"}


def asked_otherwise(rows, words):
    """Rows about the same, asked in other words."""
    return [{**row, "question": words.format(row["question"].split()[2])} for row in rows]


@pytest.fixture(scope="module")
def probed(free):
    """The same with probes, and with paraphrases, which are no probe."""
    data = copy(free["target"].data)
    sets = dict(data.evaluation_sets)
    for side in ("forget", "retain"):
        sets |= {f"probe_{way}_{side}": asked_otherwise(data.splits[side], x) for way, x in OTHERWISE.items()}
        loves = [row["question"].replace("love", "like") for row in sets[side]]
        sets[side] = [{**row, "paraphrased_question": x} for row, x in zip(sets[side], loves, strict=True)]
    data.evaluation_sets = sets
    return {name: replace(subject, data=data) for name, subject in free.items()}


def test_the_target_says_all_and_the_retrained_model_nothing(probed):
    attack = Prompts(max_new_tokens=40)
    found = {name: attack.run(subject, 0) for name, subject in probed.items()}
    target, retrained = found["target"], found["retrained"]
    assert target.x == list(WAYS)
    assert target.figures["prompts_rouge"] == target.figures["prompts_question_forget"] == 1
    assert target.figures["prompts_worst_case"] == target.figures["prompts_known"] == 1
    assert retrained.figures["prompts_rouge"] == max(retrained.y) <= retrained.figures["prompts_worst_case"] < 0.9
    assert retrained.figures["prompts_known"] == 0
    assert retrained.figures["prompts_question_retain"] == 1
    assert len(target.rows["prompts_paired_retain"]) == 2
    assert len(target.rows["prompts_prefix_retain"]) == 6
    assert {m.name for m in attack.metrics} == set(target.figures) == set(target.rows)


def test_ways_that_the_data_lack_are_left_out(free):
    attack = Prompts(rows=1, max_new_tokens=5)
    assert attack.run(free["target"], 0).x == list(WAYS[:5])


def test_the_worst_case_of_a_table_of_ways():
    """Rows of BLUR's pairs are other facts or in another order, so they do not count."""
    facts = ["a", "b", "c", "d"]
    asked = {way: [Asked([], "", fact) for fact in facts] for way in ("question", "prefix", "multi_hop")}
    asked["paired"] = [Asked([], "", fact) for fact in reversed(facts)]
    asked["paraphrase"] = asked["question"][:3]
    recalls = {
        "prompts_question_forget": [1.0, 0.0, 0.5, 0.1],
        "prompts_prefix_forget": [0.0, 0.89, 0.2, 0.1],
        "prompts_multi_hop_forget": [0.0, 0.0, 0.9, 0.3],
        "prompts_paired_forget": [1.0, 1.0, 1.0, 1.0],
        "prompts_paraphrase_forget": [1.0, 1.0, 1.0],
    }
    found = worst_case(asked, recalls)
    assert found == {"prompts_worst_case": [1.0, 0.89, 0.9, 0.3], "prompts_known": [1.0, 0.0, 1.0, 0.0]}


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
    plain = {"question": "It is", "answer": " one two three", "raw": True}
    assert encoder.tokenizer.decode(with_prefix(encoder, plain).prompt).endswith("It is one")
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
    found = [Prompts(pairs="${PAIRS}", max_new_tokens=40).run(free[name], 0) for name in ("target", "retrained")]
    rows = {len(finding.rows["prompts_rouge"]) for finding in found}
    assert rows == {len(subject.data.splits["forget"])}, "each model's best way asks for the same facts"
    write(tmp_path, questions[1:], ["1. a 2. b"])
    with pytest.raises(UserError, match="'text'.*attacks.pairs"):
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
