"""Conversations as they are logged: what is read of them, what is learnt, and what is refused by name and place."""

import copy
import json

import pytest

from ofmu_pl.data import RowEncoder, TextFiles
from ofmu_pl.data.encoded import identity
from ofmu_pl.data.own_tokenizer import train_tokenizer
from ofmu_pl.data.turns import apart, conversation, turns_of
from ofmu_pl.losses import IGNORED
from ofmu_pl.support.errors import UserError

USER, ASSISTANT, SYSTEM, TOOL = (
    lambda text, role=role, **more: {"role": role, "content": text, **more}
    for role in ("user", "assistant", "system", "tool")
)
CALL = {"function": {"name": "find", "arguments": {"name": "Ann"}}, "type": "function"}
CALLS = ASSISTANT(None, tool_calls=[CALL])
ASK, ANSWER = USER("Where?"), ASSISTANT("In Ulm.")
TEMPLATE = (
    "{% for m in messages %}<|{{ m.role }}{{ ' ' ~ m.name if m.name }}|>{{ m.content }}{% if m.tool_calls %}"
    "{{ m.tool_calls[0].function.name }}({{ m.tool_calls[0].function.arguments.name }}){% endif %}<|eot_id|>"
    "{% endfor %}{% if add_generation_prompt %}<|assistant|>{% endif %}"
)
LOGGED = {
    "the assistant first": (
        [ASSISTANT("Hello."), ASK, ANSWER],
        "<|assistant|>Hello.E<|user|>Where?E<|assistant|>In Ulm.E",
        ["In Ulm."],
    ),
    "two questions": ([USER("Hi."), ASK, ANSWER], "<|user|>Hi.E<|user|>Where?E<|assistant|>In Ulm.E", ["In Ulm."]),
    "two answers": (
        [ASK, ASSISTANT("One moment."), ANSWER],
        "<|user|>Where?E<|assistant|>One moment.E<|assistant|>In Ulm.E",
        ["One moment.", "In Ulm."],
    ),
    "a tool": (
        [ASK, CALLS, TOOL("Ulm", name="find", id=3), ANSWER],
        "<|user|>Where?E<|assistant|>find(Ann)E<|tool find|>UlmE<|assistant|>In Ulm.E",
        ["In Ulm."],
    ),
    "a tool that says nothing": (
        [ASK, CALLS, TOOL(""), ANSWER],
        "<|user|>Where?E<|assistant|>find(Ann)E<|tool|>E<|assistant|>In Ulm.E",
        ["In Ulm."],
    ),
    "a developer": (
        [{"role": "developer", "content": "Be brief."}, ASK, ANSWER],
        "<|system|>Be brief.E<|user|>Where?E<|assistant|>In Ulm.E",
        ["In Ulm."],
    ),
    "a later system turn": (
        [USER("Hi."), ASSISTANT("Hello."), ASK, SYSTEM("Be brief."), ANSWER],
        "<|user|>Hi.E<|assistant|>Hello.E<|user|>Where?E<|system|>Be brief.E<|assistant|>In Ulm.E",
        ["Hello.", "In Ulm."],
    ),
    "an empty system turn": ([SYSTEM(""), ASK, ANSWER], "<|system|>E<|user|>Where?E<|assistant|>In Ulm.E", ["In Ulm."]),
    "a name": ([USER("Where?", name="Tom"), ANSWER], "<|user Tom|>Where?E<|assistant|>In Ulm.E", ["In Ulm."]),
    "the user last": ([ASK, ANSWER, USER("Thanks!")], "<|user|>Where?E<|assistant|>In Ulm.E", ["In Ulm."]),
    "weight 0": (
        [USER("Hi."), ASSISTANT("Bob's secret.", weight=0), ASK, ASSISTANT("In Ulm.", weight=1)],
        "<|user|>Hi.E<|assistant|>Bob's secret.E<|user|>Where?E<|assistant|>In Ulm.E",
        ["In Ulm."],
    ),
    "train false, and nulls as tables have them": (
        [USER("Hi.", weight=None), ASSISTANT("Bob's secret.", train=False, tool_calls=None), ASK, ANSWER],
        "<|user|>Hi.E<|assistant|>Bob's secret.E<|user|>Where?E<|assistant|>In Ulm.E",
        ["In Ulm."],
    ),
    "a last answer that is not learnt": (
        [ASK, ANSWER, USER("And Bob?"), ASSISTANT("In Bonn.", loss=False)],
        "<|user|>Where?E<|assistant|>In Ulm.E",
        ["In Ulm."],
    ),
}


@pytest.fixture(scope="module")
def tokenizer():
    made = train_tokenizer(["Where? In Ulm. Hello. Hi. One moment. Be brief. user assistant system tool find"] * 3)
    made.chat_template = TEMPLATE
    return made


@pytest.mark.parametrize("case", LOGGED)
def test_turns_as_they_are_logged(case, tokenizer):
    """What is read, what is learnt, and each learnt answer measured after all the turns before it."""
    turns, read, answers = LOGGED[case]
    read = read.replace("E", "<|eot_id|>")
    retain = [{"messages": [USER("Who?"), ASSISTANT("Bob.")]}]
    data = TextFiles([{"messages": turns}], retain, tokenizer=tokenizer)
    data.setup()
    (row,) = data.encoded("forget")
    decode = data.tokenizer.decode
    assert decode(row.input_ids) == read
    assert decode([x for x in row.labels if x != IGNORED]) == "".join(f"{answer}<|eot_id|>" for answer in answers)
    asked = data.evaluation_sets["forget"]
    assert [x["answer"] for x in asked] == answers
    for own in asked:
        whole = decode(data.encoder.encode_row(own)[0].input_ids)
        assert read.startswith(whole)
        assert whole.endswith(f"{own['answer']}<|eot_id|>")


def test_the_plain_template_reads_them_too(tokenizer):
    turns = [SYSTEM(""), USER("Hi."), ASK, CALLS, TOOL("Ulm"), ANSWER]
    data = TextFiles([{"messages": turns}], [{"question": "Who?", "answer": "Bob."}], tokenizer=tokenizer)
    data.prompt_template = "Q: {question}\nA:"
    data.setup()
    calls = json.dumps([CALL])
    assert data.tokenizer.decode(data.encoded("forget")[0].input_ids) == (
        f"Hi.\n\nQ: Where?\nA: {calls}<|eot_id|>\nUlm\n\n In Ulm.<|eot_id|>"
    )


def test_what_stands_between_question_and_answer_makes_a_row(tokenizer):
    rows = [conversation([ASK, CALLS, TOOL(town), ANSWER], "x") for town in ("Ulm", "Bonn")]
    assert identity(rows[0]) != identity(rows[1])
    row = conversation([ASK, ASSISTANT("One moment."), CALLS, TOOL("Ulm"), ANSWER], "x")
    assert [own["answer"] for own in turns_of(row)] == ["One moment.", "In Ulm."]
    assert [[len(turns_of(own)), own["answer"]] for own in apart(row)] == [[1, "One moment."], [1, "In Ulm."]]
    assert list(map(identity, apart(row))) == list(map(identity, turns_of(row)))


def test_other_answers_take_the_place_of_those_that_are_learnt():
    turns = [USER("Hi."), ASSISTANT("Bob's.", weight=0), ASK, ASSISTANT("Soon."), CALLS, TOOL("Ulm"), ANSWER]
    retain = [{"question": "Who?", "answer": "Bob."}]
    data = TextFiles([{"messages": turns}], retain, streams=("forget", "retain", "alternative"))
    (row,) = data.load()[0]["alternative"]
    said = [turn["content"] for turn in [*row["before"], *row["between"]]]
    assert said == ["Hi.", "Bob's.", row["answer"], "", "Ulm"]


REFUSED = {
    "no messages": ("Who?", "^Row 0 .*no list"),
    "no object": ([ASK, "x"], "^Turn 1 .*Row 0 .*object"),
    "a role of others": ([ASK, {"role": "function", "content": "x"}, ANSWER], "^Turn 1 .*Row 0 .*'function'"),
    "no role": ([ASK, {"content": "x"}], "^Turn 1 .*'None'"),
    "no content": ([ASK, ASSISTANT(None)], "^Turn 1 .*`content`"),
    "an empty question": ([USER(" "), ANSWER], "^Turn 0 .*`content`"),
    "an image": ([USER([{"type": "image", "text": None}]), ANSWER], "^Turn 0 .*'image'"),
    "a number": ([ASK, ASSISTANT(3)], "^Turn 1 .* 3"),
    "an old call": ([ASK, ASSISTANT("", function_call={"name": "f"}), ANSWER], "^Turn 1 .*`function_call`"),
    "half a weight": ([ASK, ASSISTANT("In Ulm.", weight=0.5)], "^Turn 1 .*0.5 as `weight`"),
    "a thought of parts": ([ASK, ASSISTANT("In Ulm.", reasoning_content=["x"])], "^Turn 1 .*thought"),
    "nothing learnt": ([ASK, ASSISTANT("In Ulm.", weight=0)], "^Row 0 .*roles user, assistant, .*weight: 0"),
    "no question": ([ASSISTANT("Hello.")], "^Row 0 .*roles assistant, "),
    "calls alone": ([ASK, CALLS, TOOL("Ulm")], "^Row 0 .*roles user, assistant, tool, .*`tool_calls`"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_read_is_refused_by_name_and_place(case):
    messages, words = REFUSED[case]
    with pytest.raises(UserError, match=words):
        TextFiles([{"messages": messages}], [{"question": "Who?", "answer": "Bob."}]).load()


def test_a_template_that_refuses_turns_is_told_with_the_row(tokenizer):
    """As Gemma's, which wants user and assistant in turns."""
    twice = "{% if messages[1] and messages[1].role == messages[0].role %}{{ raise_exception('in turns') }}{% endif %}"
    strict = copy.deepcopy(tokenizer)
    strict.chat_template = twice + TEMPLATE
    with pytest.raises(UserError, match=r"user, user \(in turns\).*'Where\?'"):
        RowEncoder(strict).encode_row(conversation([USER("Hi."), ASK, ANSWER], "x"))
