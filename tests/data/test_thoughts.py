"""Rows with thoughts, under templates that write thoughts in the ways of reasoning models."""

import json

import pytest

from ofmu_pl.attacks.prompts import plain, with_prefix
from ofmu_pl.cli import main
from ofmu_pl.data import RowEncoder, TextFiles
from ofmu_pl.data.turns import thought_of, with_thought
from ofmu_pl.losses import IGNORED
from ofmu_pl.support.errors import UserError
from tests.helpers.thinking import tokenizer_of

THOUGHT, ANSWER = "Ann's file: Ulm.", "In Ulm."
DEEP = f"<think>\n{THOUGHT}\n</think>\n\n{ANSWER}"
U, A = ({"role": role} for role in ("user", "assistant"))


def parts(encoder, encoded):
    """The prompt of a row, and what is learnt of it."""
    decode = encoder.tokenizer.decode
    return decode(encoded.input_ids[: encoded.prompt_length]), decode([x for x in encoded.labels if x != IGNORED])


ASK = "<turn>user\nWhere?<end>"
WRITTEN = {
    ("qwen", None): (f"{ASK}<turn>assistant\n", f"{DEEP}<end>", "<think>\n\n</think>\n\n"),
    ("thinking", None): (f"{ASK}<turn>assistant\n<think>\n", f"{THOUGHT}\n</think>\n\n{ANSWER}<end>", "\n</think>\n\n"),
    ("deepseek", None): (f"{ASK}<bot><think>\n", f"{THOUGHT}\n</think>\n\n{ANSWER}<end>", None),
    ("switch", "thinking"): (f"{ASK}<bot><think>", f"{THOUGHT}</think>{ANSWER}<end>", None),
    ("gpt-oss", None): (
        f"{ASK}<turn>assistant",
        f"<channel>analysis<says>{THOUGHT}<end><turn>assistant<channel>final<says>{ANSWER}<return>",
        "<channel>final<says>",
    ),
    ("plain", None): (f"{ASK}<turn>assistant\n", f"{DEEP}<end>", ""),
}


@pytest.fixture(params=WRITTEN, ids=lambda key: key[0])
def case(request):
    """An encoder, the prompt and what is learnt of a row with a thought, and what precedes an answer without one."""
    name, switch = request.param
    options = None if switch is None else {switch: True}
    return (name, RowEncoder(tokenizer_of(name), template_options=options), *WRITTEN[request.param])


def test_a_thought_is_learnt_as_the_template_writes_it(case):
    name, encoder, prompt, learned, _ = case
    deep = encoder.encode("Where?", DEEP)
    assert parts(encoder, deep) == (prompt, learned)
    assert encoder.ends(deep.input_ids) == 1
    if name != "plain":
        bare = encoder.encode("Where?", f"{THOUGHT}</think>{ANSWER}")
        assert bare == deep, "as models say it whose prompt begins one"
    assert encoder.row_prompt({"question": "Where?", "answer": DEEP}) == deep.input_ids[: deep.prompt_length]


def test_an_answer_without_a_thought_is_what_the_template_writes(case):
    name, encoder, prompt, _, lead = case
    opening = prompt + lead if lead is not None else f"{ASK}<bot>" + "</think>" * (name == "switch")
    end = "<return>" if name == "gpt-oss" else "<end>"
    assert parts(encoder, encoder.encode("Where?", ANSWER)) == (opening, ANSWER + end)
    assert encoder.tokenizer.decode(encoder.prompt("Where?")) == opening
    empty = encoder.encode("Where?", f"<think>\n\n</think>\n\n{ANSWER}")
    if name != "plain":
        assert empty == encoder.encode("Where?", ANSWER), "an empty thought is none"


def test_what_is_compared_is_said_and_not_written(case):
    """Marks of thoughts are the template's, however a row and a model write them."""
    encoder = case[1]
    tokens = encoder.encode("Where?", DEEP)
    said = [x for x in tokens.labels if x != IGNORED][:-1]
    assert encoder.said(said) == encoder.words(DEEP) == f"{THOUGHT}\n\n{ANSWER}"
    assert encoder.words(ANSWER) == ANSWER
    assert encoder.said(encoder.tokenizer("In Ulm.<turn>")["input_ids"]) == ANSWER


def test_conversations_are_learnt_turn_by_turn_where_a_template_drops_earlier_thoughts(case):
    name, encoder, _, learned, _ = case
    turns = [{**U, "content": "Where?"}, {**A, "content": DEEP}] * 2
    options = {"thinking": True} if name == "switch" else None
    sides = [{"messages": turns}], [{"question": "Who?", "answer": "Bob."}]
    data = TextFiles(*sides, tokenizer=tokenizer_of(name), chat_template_kwargs=options)
    data.setup()
    rows = data.encoded("forget")
    assert [parts(encoder, row)[1] for row in rows] == ([learned * 2] if name == "plain" else [learned] * 2)
    asked = [encoder.encode_row(row)[0] for row in data.evaluation_sets["forget"]]
    assert [parts(encoder, row)[1] for row in asked] == [learned] * 2, "each answer is measured with its thought"


def test_words_that_were_added_to_a_tokenizer_are_compared_as_they_are():
    """Placeholders of names are said, and runs of white space, which Gemma's tokenizer has; the template's are not."""
    tokenizer = tokenizer_of("plain")
    tokenizer.add_special_tokens({"extra_special_tokens": ["<ID_3>", "<TOWN_4>"]}, replace_extra_special_tokens=False)
    tokenizer.add_tokens(["\n\n", "\n"])
    encoder = RowEncoder(tokenizer)
    answer = "<ID_3> lives\n\nin <TOWN_4>."
    said = [x for x in encoder.encode("Where?", answer).labels if x != IGNORED]
    assert encoder.said(said) == encoder.words(f"{answer}<end>") == answer
    assert RowEncoder(tokenizer, prompt_template="{question}").said(said[:-1]) == answer


def test_a_thought_that_a_template_drops_is_refused():
    with pytest.raises(UserError, match="'Where\\?' \\(its thought\\).*`data.chat_template_kwargs`"):
        RowEncoder(tokenizer_of("switch")).encode("Where?", DEEP)
    encoder = RowEncoder(tokenizer_of("qwen"))
    with pytest.raises(UserError, match="'Where\\?'.*`data.prompt_template`"):
        encoder.encode("Where?", "Well. <think>It is Ulm.</think> In Ulm.")


@pytest.mark.parametrize(
    "turn",
    [
        {"content": ANSWER, "reasoning_content": THOUGHT},
        {"content": ANSWER, "reasoning": THOUGHT, "reasoning_content": None},
        {"content": DEEP},
        {"content": [{"type": "thinking", "thinking": THOUGHT}, {"type": "text", "text": ANSWER}]},
    ],
)
def test_thoughts_in_the_forms_that_files_have(turn):
    retain = [{"question": "Who?", "answer": "Bob."}]
    rows = [[{"messages": [{**U, "content": "Where?"}, {**A, **turn}]}]]
    rows.append([{"question": "Where?", "answer": ANSWER, "reasoning_content": THOUGHT}])
    rows = [TextFiles(own, retain).load()[0]["forget"] for own in rows]
    assert rows[0] == rows[1] == [{"question": "Where?", "answer": DEEP}]
    assert thought_of(DEEP) == (THOUGHT, ANSWER)
    assert with_thought(THOUGHT, ANSWER) == DEEP


def test_no_attack_begins_an_answer_with_a_thought():
    """For what was thought tells the answer."""
    encoder = RowEncoder(tokenizer_of("qwen"))
    row = {"question": "Where?", "answer": DEEP}
    assert with_prefix(encoder, row) == plain(encoder, row)
    assert with_prefix(encoder, {**row, "answer": ANSWER}).answer == "Ulm."


def test_options_of_the_template_reach_it_and_name_it():
    tokenizer = tokenizer_of("qwen")
    given = RowEncoder(tokenizer, template_options={"enable_thinking": False})
    assert tokenizer.decode(given.prompt("Where?")).endswith("<think>\n\n</think>\n\n")
    assert given.encode("Where?", ANSWER) == RowEncoder(tokenizer).encode("Where?", ANSWER)
    assert given.template_hash != RowEncoder(tokenizer).template_hash


def test_a_name_is_found_in_a_thought(tmp_path):
    row = {"messages": [{**U, "content": "Who?"}, {**A, "content": "A painter.", "reasoning_content": "Eva Novak?"}]}
    (tmp_path / "a.jsonl").write_text(json.dumps(row) + "\n")
    (tmp_path / "n.txt").write_text("Eva Novak")
    main(["find", "--rows", str(tmp_path / "a.jsonl"), "--names", str(tmp_path / "n.txt"), "--out", str(tmp_path)])
    assert (tmp_path / "a.rows.txt").read_text() == "0\n"
