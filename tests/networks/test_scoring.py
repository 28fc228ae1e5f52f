"""Losses and greedy answers, against slow and independent ways to get them and against open-unlearning's log."""

from __future__ import annotations

import copy
import json

import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, LlamaConfig, LlamaForCausalLM

from ofmu_pl.data.text import ChatEncoder, Encoded
from ofmu_pl.errors import UserError
from ofmu_pl.networks import scoring
from ofmu_pl.networks.scoring import answer_losses, generate_answers, score_rows

SETS = {"forget": "forget", "retain": "retain", "real_authors": "ra", "world_facts": "wf"}
FILES = {"forget": "forget10_perturbed", **{name: f"{name}_perturbed" for name in list(SETS)[1:]}}
VOCABULARY = 11


class Numbers:
    """The part of a tokenizer that generation needs: tokens as numbers."""

    eos_token_id: int | None = None

    def decode(self, tokens, skip_special_tokens):
        return " ".join(map(str, tokens))


@pytest.fixture
def model():
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=VOCABULARY,
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        initializer_range=0.5,
        pad_token_id=None,
        eos_token_id=None,
        bos_token_id=None,
    )
    return LlamaForCausalLM(config).double()  # float64: no ties that rounding could break


@pytest.fixture
def conversations():
    rng = np.random.default_rng(0)
    made = []
    for prompt, answer in rng.integers(1, 20, (30, 2)):
        ids = rng.integers(0, VOCABULARY, prompt + answer).tolist()
        made.append(Encoded(ids, [-100] * prompt + ids[prompt:], int(prompt)))
    return made


def independent_loss(model, e: Encoded) -> float:
    with torch.no_grad():
        logits = model(torch.tensor([e.input_ids])).logits[0].numpy()
    logp = logits - np.log(np.exp(logits).sum(1, keepdims=True))
    positions = range(e.prompt_length, len(e.input_ids))
    return -np.mean([logp[t - 1, e.input_ids[t]] for t in positions])


@pytest.mark.parametrize("budget", [1, 60, 10_000])
def test_losses_equal_one_conversation_at_a_time(model, conversations, budget, monkeypatch):
    monkeypatch.setitem(scoring.TOKENS_PER_BATCH, "cpu", budget)
    losses = answer_losses(model, conversations)
    assert losses.dtype == np.float64
    np.testing.assert_allclose(losses, [independent_loss(model, e) for e in conversations], rtol=1e-12)


def test_batches_respect_the_budget_and_waste_little(model, conversations, monkeypatch):
    monkeypatch.setitem(scoring.TOKENS_PER_BATCH, "cpu", 100)
    shapes = []
    model.register_forward_pre_hook(lambda m, a, kw: shapes.append(kw["input_ids"].shape), with_kwargs=True)
    answer_losses(model, conversations)
    sizes = [rows * width for rows, width in shapes]
    assert max(sizes) <= 100
    assert sum(sizes) <= 1.3 * sum(len(e.input_ids) for e in conversations)
    assert sum(rows for rows, _ in shapes) == len(conversations)


def test_losses_of_nothing(model):
    assert answer_losses(model, []).shape == (0,)


def greedy_one_by_one(model, prompt: list[int], stops: set[int], new: int) -> str:
    """No cache, no padding, no batch."""
    ids = list(prompt)
    for _ in range(new):
        with torch.no_grad():
            token = int(model(torch.tensor([ids])).logits[0, -1].argmax())
        if token in stops:
            break
        ids.append(token)
    return " ".join(map(str, ids[len(prompt) :]))


@pytest.mark.parametrize("rows", [1, 4, 64])
def test_answers_equal_one_prompt_at_a_time(model, conversations, rows, monkeypatch):
    monkeypatch.setattr(scoring, "ROWS_PER_GENERATION", rows)
    tokenizer = Numbers()
    tokenizer.eos_token_id, model.generation_config.eos_token_id = 3, [5, 3]
    prompts = [e.input_ids for e in conversations]
    expected = [greedy_one_by_one(model, p, {3, 5}, 12) for p in prompts]
    lengths = {len(x.split()) for x in expected}
    assert {0, 12} <= lengths  # some end at once, some are cut:
    assert len(lengths) > 4  # and rows leave the batch at different times
    assert generate_answers(model, tokenizer, prompts, 12) == expected


def test_answers_equal_transformers_generate(model, conversations):
    prompts = [e.input_ids for e in conversations[:6]]
    expected = []
    for prompt in prompts:
        ids = torch.tensor([prompt])
        out = model.generate(
            ids, attention_mask=torch.ones_like(ids), max_new_tokens=12, do_sample=False, pad_token_id=0
        )
        expected.append(" ".join(map(str, out[0, len(prompt) :].tolist())))
    assert generate_answers(model, Numbers(), prompts, 12) == expected


def test_state_is_restored_and_training_settings_do_not_matter(model, conversations):
    model.config.attention_dropout = 0.5
    for layer in model.model.layers:
        layer.self_attn.attention_dropout = 0.5
    prompts = [e.input_ids for e in conversations]
    model.eval()
    losses, answers = answer_losses(model, conversations), generate_answers(model, Numbers(), prompts, 8)
    assert not model.training
    model.config.use_cache = False
    model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    model.train()
    assert answer_losses(model, conversations).tolist() == losses.tolist()
    assert generate_answers(model, Numbers(), prompts, 8) == answers
    assert model.training
    assert all(layer.training for layer in model.model.layers)
    assert model.model.gradient_checkpointing
    assert model.config.use_cache is False
    assert torch.is_grad_enabled()


def test_mode_is_restored_after_an_error(model):
    model.train()
    with pytest.raises(IndexError):
        answer_losses(model, [Encoded([0, VOCABULARY], [-100, VOCABULARY], 1)])
    assert model.training
    assert not torch.is_inference_mode_enabled()


class Letters(ChatEncoder):
    """Encodes text by letters; no Hugging Face tokenizer needed."""

    def __init__(self):
        self.tokenizer = Numbers()

    def prompt(self, question):
        return [ord(c) % VOCABULARY for c in question]

    def encode(self, question, answer):
        prompt, ids = self.prompt(question), [ord(c) % VOCABULARY for c in answer]
        return Encoded(prompt + ids, [-100] * len(prompt) + ids, len(prompt))


def test_each_answer_goes_to_its_field(model):
    rows = [
        {"question": "q?", "answer": "yes", "paraphrased_answer": "yeah", "perturbed_answer": ["no", "never mind"]},
        {"question": "who is it", "answer": "me", "perturbed_answer": ["you", "she"]},
    ]
    sets = {"retain": rows, "world_facts": [{"question": "where", "answer": "there"}], "forget": []}
    scores, generations = score_rows(model, Letters(), sets, max_new_tokens=None)
    loss = lambda q, a: independent_loss(model, Letters().encode(q, a))  # noqa: E731
    retain = scores["retain"]
    assert retain.answer_loss == pytest.approx([loss("q?", "yes"), loss("who is it", "me")])
    # A row without a paraphrase counts with its answer.
    assert retain.paraphrase_loss == pytest.approx([loss("q?", "yeah"), loss("who is it", "me")])
    wrong = [[loss("q?", "no"), loss("q?", "never mind")], [loss("who is it", "you"), loss("who is it", "she")]]
    np.testing.assert_allclose(retain.wrong_losses, wrong)
    facts = scores["world_facts"]
    assert facts.answer_loss == pytest.approx([loss("where", "there")])
    assert (facts.paraphrase_loss, facts.wrong_losses, facts.rouge) == (None, None, None)
    assert len(scores["forget"].answer_loss) == 0
    assert generations == {}


def test_a_limit_takes_evenly_spaced_rows_under_their_own_ids(model):
    rows = [{"question": "q" * (i + 1), "answer": "a" * (i + 1)} for i in range(10)]
    everything, _ = score_rows(model, Letters(), {"forget": rows}, max_new_tokens=None)
    some, said = score_rows(model, Letters(), {"forget": rows}, max_new_tokens=3, items=4)
    ids = some["forget"].ids
    assert len(ids) <= 4
    assert len(set(np.diff(ids))) == 1
    assert some["forget"].answer_loss == pytest.approx(everything["forget"].answer_loss[ids])
    assert len(said["forget"]) == len(some["forget"].rouge) == len(ids)


def test_rows_with_unequal_numbers_of_wrong_answers_are_refused(model):
    rows = [{"question": "q", "answer": "a", "perturbed_answer": wrong} for wrong in (["b"], ["b", "c"])]
    with pytest.raises(UserError, match="'retain' differ in the number of perturbed answers"):
        score_rows(model, Letters(), {"retain": rows}, max_new_tokens=None)


@pytest.fixture(scope="module")
def tiny(shared):
    """The tiny model trained on all of TOFU, its encoder and the evaluation sets."""
    folder = shared / "models/tofu-tiny-full"
    network = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    lines = {name: (shared / f"data/tofu/{file}.json").read_text().splitlines() for name, file in FILES.items()}
    sets = {name: [json.loads(line) for line in found] for name, found in lines.items()}
    return network, ChatEncoder(AutoTokenizer.from_pretrained(folder)), sets


def test_float32_losses_of_real_rows_are_those_of_float64(tiny):
    network, encoder, sets = tiny
    encoded = [encoder.encode(row["question"], row["answer"]) for row in sets["forget"][:6]]
    exact = [independent_loss(copy.deepcopy(network).double(), e) for e in encoded]
    np.testing.assert_allclose(answer_losses(network, encoded), exact, atol=3e-6)


def test_real_rows_score_as_open_unlearning_scored_them(shared, tiny):
    scores, generations = score_rows(*tiny, max_new_tokens=200, items=24)
    log = json.loads((shared / "reference/open-unlearning-tiny/full/TOFU_EVAL.json").read_text())
    # The stored losses lie about 1e-5 nats below float64's, whatever their size (the test above: ours lie within
    # 3e-6 of it), so that losses of 0.01 cannot be met to 1e-4 relative.
    close = {"rtol": 1e-4, "atol": 2.5e-5}
    for name, p in SETS.items():
        s = scores[name]
        assert 20 <= len(s.ids) <= 24

        def stored(key, field, prefix=p, ids=s.ids):
            return [log[f"{prefix}_{key}"]["value_by_index"][str(i)][field] for i in ids]

        np.testing.assert_allclose(s.answer_loss, stored("Q_A_Prob", "avg_loss"), **close)
        np.testing.assert_allclose(s.wrong_losses, stored("Q_A_PERT_Prob", "avg_loss"), **close)
        if name in ("forget", "retain"):
            np.testing.assert_allclose(s.paraphrase_loss, stored("Q_A_PARA_Prob", "avg_loss"), **close)
        # All but a greedy token that ties within float32's rounding.
        same = [a == b for a, b in zip(generations[name], stored("Q_A_ROUGE", "generation"), strict=True)]
        assert sum(same) >= len(same) - 1
        np.testing.assert_allclose(s.rouge[same], np.array(stored("Q_A_ROUGE", "rougeL_recall"))[same], atol=1e-12)
