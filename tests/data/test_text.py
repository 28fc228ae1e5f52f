"""Tokens, labels and masks of conversations."""

import copy

import pytest
import torch
from tokenizers.processors import TemplateProcessing

from ofmu_pl.data import Authors, RowEncoder, collate
from ofmu_pl.data.own_tokenizer import train_tokenizer
from ofmu_pl.data.pieces import pieces
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
    assert RowEncoder(authors.tokenizer).template_hash == base
    assert RowEncoder(authors.tokenizer, system_prompt="x").template_hash != base
    assert RowEncoder(authors.tokenizer, date_string="1 Jan 2025").template_hash != base


SAID = "{% for m in messages %}{{ m.content }}{% endfor %}"


def test_a_template_with_a_date_gets_the_fixed_one(authors):
    tokenizer = copy.deepcopy(authors.tokenizer)
    tokenizer.chat_template = f"{{{{ date_string }}}}: {SAID}"
    assert tokenizer.decode(RowEncoder(tokenizer).prompt("q")) == "10 Apr 2025: q"
    tokenizer.chat_template = f"{{{{ strftime_now('%d (%b)') }}}}: {SAID}"
    assert tokenizer.decode(RowEncoder(tokenizer).prompt("q")) == "10 (Apr): q"
    assert tokenizer.decode(RowEncoder(tokenizer, date_string="today").prompt("q")) == "today: q"


def test_an_answer_without_tokens_is_refused(authors):
    with pytest.raises(UserError, match="'Who\\?'.*`data.max_length`"):
        authors.encoder.encode("Who?", "  ")
    with pytest.raises(UserError, match="max_length=8"):
        RowEncoder(authors.tokenizer, max_length=8).encode("Who was it that wrote this?", "Nobody.")


NO_SYSTEM = f"{{% if messages[0].role == 'system' %}}{{{{ raise_exception('No system role') }}}}{{% endif %}}{SAID}"


def test_a_template_that_refuses_the_turns_says_so_in_a_sentence(authors):
    """Gemma's and old Mistral's know no system turn; some tokenizers have several templates, and none by default."""
    tokenizer = copy.deepcopy(authors.tokenizer)
    tokenizer.chat_template = NO_SYSTEM
    assert tokenizer.decode(RowEncoder(tokenizer).prompt("Who?")) == "Who?"
    with pytest.raises(UserError, match=r"system, user \(No system role\).*`data.system_prompt`"):
        RowEncoder(tokenizer, system_prompt="Be kind.").encode("Who?", "I.")
    tokenizer.chat_template = {"rag": "{{ messages }}", "tool_use": "{{ messages }}"}
    with pytest.raises(UserError, match="chat_template.*rag"):
        RowEncoder(tokenizer).encode("Who?", "I.")


def test_tokens_of_the_shared_model(shared):
    """The stored model's own template: the prompt that its README describes."""
    tokenizer = load_tokenizer(str(shared / "models/tofu-tiny-full"))
    e = RowEncoder(tokenizer).encode("Who?", "Me.")
    assert tokenizer.decode(e.input_ids) == (
        "<|begin_of_text|><|start_header_id|>user<|end_header_id|>\n\nWho?<|eot_id|>"
        "<|start_header_id|>assistant<|end_header_id|>\n\nMe.<|eot_id|>"
    )


def test_many_rows_are_encoded_as_each_alone(authors, monkeypatch):
    monkeypatch.setattr("ofmu_pl.data.row_encoder.ROWS_PER_CALL", 2)
    asked = {"question": "Who?", "answer": "Nobody.", "paraphrased_answer": "No one.", "perturbed_answer": ["You."]}
    rows = [*authors.splits["forget"][:4], asked, {"tokens": [1, 2, 3]}]
    encoder = authors.encoder
    assert encoder.encode_rows(rows) == [encoder.encode_row(row) for row in rows]
    assert encoder.encode_training_rows(rows) == [encoder.encode_training_rows([row])[0] for row in rows]
    assert [len(x) for x in encoder.encode_rows(rows[4:])] == [3, 1]


def test_evaluation_rows_are_encoded_once(authors, monkeypatch):
    encoder = RowEncoder(authors.tokenizer)
    texts, tokens = [], encoder._tokens
    monkeypatch.setattr(encoder, "_tokens", lambda x: [texts.append(x), tokens(x)][1])
    rows = authors.evaluation_sets["forget"][:4]
    first = encoder.encode_rows(rows)
    assert sum(map(len, texts)) == sum(1 + len(x) for x in first), "a prompt and its answers each"
    assert encoder.encode_rows([*rows[2:], *rows]) == [*first[2:], *first]
    assert len(texts) == 1
    other = {**rows[0], "answer": "Another."}
    assert encoder.encode_rows([other]) == [encoder.encode_row(other)] != first[:1]
    monkeypatch.setattr("ofmu_pl.data.row_encoder.ROWS_KEPT", 5)
    assert encoder.encode_rows([{**other, "question": "Who else?"}, *rows])[1:] == first
    assert len(encoder._kept) == 5


BEGIN, END = "<|begin_of_text|>", "<|eot_id|>"
TURNS = "{% for m in messages %}"
ASK = "{% endfor %}{% if add_generation_prompt %}"
TEMPLATES = {
    # As Gemma's: turns end with a token that is not the tokenizer's end token.
    "Gemma": (
        f"{TURNS}<turn>{{{{ m.role }}}}/{{{{ m.content | trim }}}}<end>\n{ASK}<turn>assistant/{{% endif %}}",
        "<turn>user/one<end>\n<turn>assistant/",
        "two<end>",
    ),
    # As Llama 2's: a space before the answer, which belongs to its first word.
    "Llama 2": (
        f"{TURNS}{{% if m.role == 'user' %}}<turn>{{{{ m.content }}}}.{{% else %}} {{{{ m.content }}}} <|eot_id|>"
        "{% endif %}{% endfor %}",
        "<turn>one.",
        " two <|eot_id|>",
    ),
    # As Qwen 3's: an empty thought, which the prompt lacks.
    "Qwen 3": (
        f"{TURNS}<turn>{{{{ m.role }}}}/{{% if loop.last and m.role != 'user' %}}<think></think>{{% endif %}}"
        f"{{{{ m.content }}}}<end>\n{ASK}<turn>assistant/{{% endif %}}",
        "<turn>user/one<end>\n<turn>assistant/<think></think>",
        "two<end>",
    ),
    # As Phi 3's: the whole text has an end token of its own.
    "Phi 3": (
        f"{TURNS}<turn>{{{{ m.role }}}}/{{{{ m.content }}}}<end>\n{ASK}<turn>assistant/{{% else %}}<|eot_id|>"
        "{% endif %}",
        "<turn>user/one<end>\n<turn>assistant/",
        "two<end>",
    ),
    # A space before the answer that the prompt has, too: it is a part of the answer's first token.
    "space": (
        f"{TURNS}<turn>{{{{ m.role }}}}: {{{{ m.content }}}}<end>{ASK}<turn>assistant: {{% endif %}}",
        "<turn>user: one<end><turn>assistant:",
        " two<end>",
    ),
    # One that ends no answer leaves it to the tokenizer's end token.
    "none": (f"{TURNS}{{{{ m.role }}}}/{{{{ m.content }}}}\n{ASK}assistant/{{% endif %}}", "user/one\nassistant/",
             "two<|eot_id|>"),
}  # fmt: skip


def tokenizer_of(name):
    tokenizer = train_tokenizer(["one two three four", "user assistant system think . / "])
    tokenizer.chat_template = TEMPLATES[name][0]
    tokenizer.add_special_tokens({"additional_special_tokens": ["<turn>", "<end>"]})
    return tokenizer


@pytest.mark.parametrize("name", list(TEMPLATES))
def test_what_is_around_an_answer_is_what_the_template_writes(name):
    tokenizer, (_, prompt, answer) = tokenizer_of(name), TEMPLATES[name]
    made = RowEncoder(tokenizer)
    e = made.encode("one", "two")
    assert tokenizer.decode(e.input_ids[: e.prompt_length]) == prompt
    assert tokenizer.decode([x for x in e.labels if x != IGNORED]) == answer
    assert made.mark == e.input_ids[-len(made.mark) :]
    assert tokenizer.decode(made.mark).strip() in ("<end>", END)
    assert made.stops == {tokenizer.eos_token_id, made.mark[-1]}, "what is said ends there, too"
    for end in {END, tokenizer.decode(made.mark)}:  # rows that were formatted before
        assert made.encode("one", f" two{end}\n") == e


def test_earlier_turns_end_as_the_template_has_it():
    """Phi 3's was refused, for the end of the whole text stands after an answer that is the last."""
    tokenizer = tokenizer_of("Phi 3")
    before = [{"role": "user", "content": "one"}, {"role": "assistant", "content": "two"}]
    e = RowEncoder(tokenizer).encode_training_rows([{"question": "three", "answer": "four", "before": before}])[0]
    assert tokenizer.decode([x for x in e.labels if x != IGNORED]) == "two<end>four<end>"
    with pytest.raises(UserError, match="'three'.*`data.prompt_template`"):
        RowEncoder(tokenizer_of("Qwen 3")).encode_training_rows(
            [{"question": "three", "answer": "four", "before": before}]
        )[0]


def test_base_models_end_answers_by_their_template_as_chat_models_do():
    """As Qwen's: one template and vocabulary, and the base model's end token is that of a text."""
    chat, base = tokenizer_of("Gemma"), tokenizer_of("Gemma")
    chat.eos_token, base.eos_token = "<end>", chat.pad_token
    assert RowEncoder(base).encode("one", "two") == RowEncoder(chat).encode("one", "two")
    assert RowEncoder(base).stops > RowEncoder(chat).stops


def test_a_template_that_asks_the_clock_has_the_same_prompts_every_day():
    tokenizer = tokenizer_of("Gemma")
    tokenizer.chat_template = "{{ strftime_now('%f') }}" + tokenizer.chat_template
    assert len({RowEncoder(tokenizer).template_hash for _ in range(3)}) == 1
    tokenizer.chat_template = "{% set form = '%f' %}{{ strftime_now(form) }}" + tokenizer.chat_template
    with pytest.raises(UserError, match="today's date"):
        RowEncoder(tokenizer).prompt("one")


def test_no_begin_token_twice():
    tokenizer = tokenizer_of("Gemma")
    begin = TemplateProcessing(single=f"{BEGIN} $A", special_tokens=[(BEGIN, tokenizer.bos_token_id)])
    tokenizer.backend_tokenizer.post_processor = begin
    plain = RowEncoder(tokenizer, prompt_template=f"{BEGIN}{{question}}").encode("one", "two")
    raw = RowEncoder(tokenizer).encode_row({"question": f"{BEGIN}one", "answer": f" two{END}", "raw": True})[0]
    assert tokenizer.decode(plain.input_ids) == tokenizer.decode(raw.input_ids) == f"{BEGIN}one two{END}"
    own = RowEncoder(tokenizer).encode_row({"question": "one", "answer": " two<end>", "raw": True})[0]
    assert tokenizer.decode(own.input_ids) == f"{BEGIN}one two<end>", "a completion keeps the end that it has"
    ((written,), (bare,)) = pieces(tokenizer, [f"{BEGIN}one two", "one two"], 9)
    assert written == bare


def test_the_end_mark_is_counted_row_by_row():
    """Llama 2's template ends an answer with two tokens, a completion with one; a row that is cut has no end."""
    encoder = RowEncoder(tokenizer_of("Llama 2"))
    asked, raw = {"question": "one", "answer": "two three"}, {"question": "one", "answer": " two three", "raw": True}
    ends = [encoder.ends(encoder.encode_row(row)[0].input_ids) for row in (asked, raw)]
    assert ends == [2, 1]
    whole = encoder.encode_row(asked)[0].input_ids
    assert encoder.ends(whole[:-2]) == 0
    encoder.tokenizer.eos_token = None
    assert RowEncoder(encoder.tokenizer, prompt_template="{question}").ends(whole[:-2]) == 0


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
    with pytest.raises(UserError, match="user .*`data.system_prompt`"):
        RowEncoder(tokenizer).encode("Who?", "I.")
