"""Tokens, labels and masks of conversations."""

import copy

import pytest
import torch

from ofmu_pl.data import Authors, ChatEncoder, collate
from ofmu_pl.data.row_encoder import RowEncoder
from ofmu_pl.data.tokenizers import load_tokenizer
from ofmu_pl.losses import IGNORED
from ofmu_pl.support.errors import UserError


@pytest.fixture(scope="module")
def authors():
    data = Authors(authors=6, forget_authors=1)
    data.setup()
    return data


def test_the_loss_is_on_the_answer_and_its_end_token(authors):
    tokenizer, encoder = authors.tokenizer, authors.encoder
    row = authors.splits["forget"][0]
    e = encoder.encode(row["question"], row["answer"])
    assert e.labels[: e.prompt_length] == [IGNORED] * e.prompt_length
    assert e.labels[e.prompt_length :] == e.input_ids[e.prompt_length :]
    assert tokenizer.decode(e.input_ids[e.prompt_length :]) == row["answer"] + tokenizer.eos_token
    assert e.input_ids[: e.prompt_length] == encoder.prompt(row["question"])
    assert e.input_ids.count(tokenizer.bos_token_id) == 1


def test_collate_masks_by_length_even_if_padding_is_the_end_token(authors):
    eos = authors.tokenizer.eos_token_id
    rows = authors.splits["retain"][:3]
    examples = [authors.encoder.encode(r["question"], r["answer"]) for r in rows]
    batch = collate(examples, [4, 5, 6], pad_id=eos)
    lengths = [len(e.input_ids) for e in examples]
    assert batch["attention_mask"].sum(1).tolist() == lengths
    assert set(batch) == {"input_ids", "attention_mask", "labels", "ids"}
    assert batch["ids"].tolist() == [4, 5, 6]
    for i, e in enumerate(examples):
        assert batch["input_ids"][i, : lengths[i]].tolist() == e.input_ids
        assert batch["labels"][i].tolist() == e.labels + [IGNORED] * (max(lengths) - lengths[i])
        assert torch.all(batch["input_ids"][i, lengths[i] :] == eos)


def test_template_hash_changes_with_what_changes_tokens(authors):
    base = authors.encoder.template_hash
    assert ChatEncoder(authors.tokenizer).template_hash == base
    assert ChatEncoder(authors.tokenizer, system_prompt="x").template_hash != base
    assert ChatEncoder(authors.tokenizer, date_string="1 Jan 2025").template_hash != base


def test_a_template_with_a_date_gets_the_fixed_one(authors):
    class Dated:
        chat_template = "x"
        name_or_path = "dated"
        eos_token = "."

        def apply_chat_template(self, turns, date_string="today", **_):
            return f"{date_string}: {turns[-1]['content']}"

        def __call__(self, texts, add_special_tokens):
            return {"input_ids": [list(text.encode()) for text in texts]}

    assert bytes(ChatEncoder(Dated()).prompt("q")).decode() == "10 Apr 2025: q"


def test_an_answer_without_tokens_is_refused(authors):
    with pytest.raises(UserError, match="no token to learn from"):
        authors.encoder.encode("Who?", "  ")
    with pytest.raises(UserError, match="max_length=8"):
        ChatEncoder(authors.tokenizer, max_length=8).encode("Who was it that wrote this?", "Nobody.")


def test_a_tokenizer_without_template_is_refused(authors):
    class Bare:
        chat_template = None
        name_or_path = "bare"

    with pytest.raises(UserError, match="'bare' has no chat template"):
        ChatEncoder(Bare())


NO_SYSTEM = (
    "{% if messages[0].role == 'system' %}{{ raise_exception('No system role') }}{% endif %}{{ messages[0].content }}"
)


def test_a_template_that_refuses_the_turns_says_so_in_a_sentence(authors):
    """Gemma's and old Mistral's know no system turn; some tokenizers have several templates, and none by default."""
    tokenizer = copy.deepcopy(authors.tokenizer)
    tokenizer.chat_template = NO_SYSTEM
    assert tokenizer.decode(ChatEncoder(tokenizer).prompt("Who?")) == "Who?"
    for make in (ChatEncoder, RowEncoder):
        with pytest.raises(UserError, match=r"refuses the roles system, user \(No system role\): "):
            make(tokenizer, system_prompt="Be kind.").encode("Who?", "I.")
    with pytest.raises(UserError, match="set `system_prompt` to null"):
        ChatEncoder(tokenizer, system_prompt="Be kind.").encode("Who?", "I.")
    tokenizer.chat_template = {"rag": "{{ messages }}", "tool_use": "{{ messages }}"}
    for make in (ChatEncoder, RowEncoder):
        with pytest.raises(UserError, match=r"refuses the roles user \(.*no default.*rag"):
            make(tokenizer).encode("Who?", "I.")


def test_load_tokenizer_round_trip_and_missing(authors, tmp_path):
    authors.tokenizer.save_pretrained(tmp_path / "t")
    again = load_tokenizer(str(tmp_path / "t"))
    assert ChatEncoder(again).template_hash == authors.encoder.template_hash
    (tmp_path / "empty").mkdir()
    with pytest.raises(UserError, match=r"empty' has no tokenizer"):
        load_tokenizer(str(tmp_path / "empty"))


def test_tokens_of_the_shared_model(shared):
    """The stored model's own template: the prompt that its README describes."""
    tokenizer = load_tokenizer(str(shared / "models/tofu-tiny-full"))
    e = ChatEncoder(tokenizer).encode("Who?", "Me.")
    assert tokenizer.decode(e.input_ids) == (
        "<|begin_of_text|><|start_header_id|>user<|end_header_id|>\n\nWho?<|eot_id|>"
        "<|start_header_id|>assistant<|end_header_id|>\n\nMe.<|eot_id|>"
    )


def test_many_rows_are_encoded_as_each_alone(authors, monkeypatch):
    monkeypatch.setattr("ofmu_pl.data.text.ROWS_PER_CALL", 2)
    asked = {"question": "Who?", "answer": "Nobody.", "paraphrased_answer": "No one.", "perturbed_answer": ["You."]}
    rows = [*authors.splits["forget"][:4], asked, {"tokens": [1, 2, 3]}]
    encoder = authors.encoder
    assert encoder.encode_rows(rows) == [encoder.encode_row(row) for row in rows]
    assert encoder.encode_training_rows(rows) == [encoder.encode_training(row) for row in rows]
    assert [len(x) for x in encoder.encode_rows(rows[4:])] == [3, 1]


def test_evaluation_rows_are_encoded_once(authors, monkeypatch):
    encoder = ChatEncoder(authors.tokenizer)
    texts, tokens = [], encoder._tokens
    monkeypatch.setattr(encoder, "_tokens", lambda x: [texts.append(x), tokens(x)][1])
    rows = authors.evaluation_sets["forget"][:4]
    first = encoder.encode_rows(rows)
    assert sum(map(len, texts)) == sum(1 + len(x) for x in first), "a prompt and its answers each"
    assert encoder.encode_rows([*rows[2:], *rows]) == [*first[2:], *first]
    assert len(texts) == 1
    other = {**rows[0], "answer": "Another."}
    assert encoder.encode_rows([other]) == [encoder.encode_row(other)] != first[:1]
    monkeypatch.setattr("ofmu_pl.data.text.ROWS_KEPT", 5)
    assert encoder.encode_rows([{**other, "question": "Who else?"}, *rows])[1:] == first
    assert len(encoder._kept) == 5


@pytest.mark.parametrize(
    "template",
    [
        "{{ 1 / 0 }}",
        "{{ messages[0].content + 3 }}",
        "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}",
        "{% include 'x' %}",
    ],
)
def test_a_template_that_fails_is_one_sentence(authors, template):
    tokenizer = copy.deepcopy(authors.tokenizer)
    tokenizer.chat_template = template
    with pytest.raises(UserError, match="refuses the roles user"):
        ChatEncoder(tokenizer).encode("Who?", "I.")
