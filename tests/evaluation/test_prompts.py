"""Prompts read once and continued, against one whole sequence at a time."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from transformers import AutoConfig, AutoModelForCausalLM, GPT2Config, GPT2LMHeadModel
from transformers.cache_utils import DynamicLayer

from ofmu_pl.evaluation.columns import ROOM, ReadAgain, RoomyLayer
from ofmu_pl.evaluation.prompts import continue_prompts, read_prompts, score_answers, stops_of
from tests.helpers.texts import VOCABULARY, conversations, greedy, make_model, token_losses


@pytest.fixture
def model():
    return make_model().eval()


@pytest.fixture(autouse=True)
def _inference():
    with torch.inference_mode():
        yield


def test_token_losses_equal_one_conversation_at_a_time(model):
    pairs = conversations()
    read = read_prompts(model, [p for p, _ in pairs])
    rows = torch.tensor([3, 0, 3, 17, 29])
    scored = score_answers(model, read.rows(rows), [pairs[i][1] for i in rows.tolist()])
    for b, i in enumerate(rows.tolist()):
        n = len(pairs[i][1])
        np.testing.assert_allclose(scored["nll"][b, :n], token_losses(model, *pairs[i]), rtol=1e-10)
        assert not scored["nll"][b, n:].any()
    # The prompts are not spent by rows(): scoring again gives the same.
    again = score_answers(model, read.rows(rows), [pairs[i][1] for i in rows.tolist()])
    assert torch.equal(again["nll"], scored["nll"])


def test_padding_stays_within_learned_positions():
    """Both rows fill GPT-2's positions, and the shorter answer's padding would go beyond them."""
    torch.manual_seed(0)
    shape = {"n_positions": 16, "n_embd": 8, "n_layer": 1, "n_head": 2, "bos_token_id": 0, "eos_token_id": 0}
    gpt2 = GPT2LMHeadModel(GPT2Config(vocab_size=VOCABULARY, **shape)).double().eval()
    pairs = [([k % VOCABULARY for k in range(n)], [k % 7 for k in range(16 - n)]) for n in (12, 4)]
    scored = score_answers(gpt2, read_prompts(gpt2, [p for p, _ in pairs]), [a for _, a in pairs])
    for b, (prompt, answer) in enumerate(pairs):
        np.testing.assert_allclose(scored["nll"][b, : len(answer)], token_losses(gpt2, prompt, answer), rtol=1e-10)


def test_logits_exist_for_answer_tokens_and_the_last_that_is_read_of_a_prompt(model):
    """The latter is not made, but its layer is called, since a network in shards must be called as a whole."""
    (prompt, _), (other, _) = conversations(2)
    seen, _ = [], read_prompts(model, [prompt])  # whose first pass looks at what the model does with logits
    model.lm_head.register_forward_hook(lambda m, a, out: seen.append(out.shape[:-1].numel()))
    model.base_model.register_forward_pre_hook(lambda m, a, kw: seen.append(kw["input_ids"].numel()), with_kwargs=True)
    read = read_prompts(model, [prompt, other])
    score_answers(model, read, [[1, 2, 3], [4]])
    assert seen == [2 * (max(len(prompt), len(other)) - 1), 0, 6, 0, 4]


def test_half_precision_logits_are_scored_in_float32(model):
    half = make_model().bfloat16().eval()
    prompt, answer = conversations()[0]
    nll = score_answers(half, read_prompts(half, [prompt]), [answer])["nll"][0]
    assert nll.dtype == torch.float32
    np.testing.assert_allclose(nll, token_losses(half, prompt, answer), atol=0.08)
    assert len(set((nll * 256).frac().tolist())) > 1, "not rounded to bfloat16"


@pytest.mark.parametrize("rows", [1, 4, 30])
def test_continuations_equal_one_prompt_at_a_time(model, rows):
    prompts = [p + a for p, a in conversations()]
    expected = [greedy(model, p, {3, 5}, 12) for p in prompts]
    lengths = {len(x) for x in expected}
    assert {0, 12} <= lengths  # some end at once, some are cut:
    assert len(lengths) > 4  # and rows leave the batch at different times
    got = []
    for i in range(0, len(prompts), rows):
        got += continue_prompts(model, read_prompts(model, prompts[i : i + rows]), [3, 5], 12)
    assert got == expected


def test_continuations_equal_transformers_generate(model):
    """Which skips hidden positions as well."""
    prompt = [1, 2, 7, 3, 7, 4]
    ids = torch.tensor([prompt])
    for hidden in (None, 7):
        mask = (ids != hidden).long() if hidden else torch.ones_like(ids)
        out = model.generate(ids, attention_mask=mask, max_new_tokens=9, do_sample=False, pad_token_id=0)
        read = read_prompts(model, [prompt], hidden=hidden, skip_hidden=True)
        assert continue_prompts(model, read, [], 9) == [out[0, len(prompt) :].tolist()]


@pytest.mark.parametrize(("ends", "stops"), [(None, [3]), (3, [3]), ([5, 2], [2, 3, 5])])
def test_answers_end_where_tokenizer_or_model_say(model, ends, stops):
    model.generation_config.eos_token_id = ends
    assert stops_of(model, SimpleNamespace(stops={3})) == stops


IDS = {"bos_token_id": None, "eos_token_id": None, "pad_token_id": None}
HEADS = {"num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 48}
RECURRENT = {
    "rwkv": {"attention_hidden_size": 32},  # reads padding in spite of the mask
    "mamba": {"state_size": 4},  # no attention, hence no keys and values
    "falcon_h1": {**HEADS, "mamba_d_ssm": 32, "mamba_n_heads": 4, "mamba_d_state": 4, "head_dim": 8},  # both in each
}


@pytest.mark.parametrize("kind", ["rwkv", "mamba", pytest.param("falcon_h1", marks=pytest.mark.slow)])
def test_recurrent_layers_whose_states_are_of_no_column(kind):
    """Rows are read again with each token: their states cannot be taken apart as keys and values can."""
    torch.manual_seed(0)
    shape = {**IDS, "vocab_size": VOCABULARY, "hidden_size": 32, "num_hidden_layers": 2, **RECURRENT[kind]}
    model = AutoModelForCausalLM.from_config(AutoConfig.for_model(kind, **shape)).eval()
    for p in model.parameters() if kind == "rwkv" else ():
        p.normal_(0.0, 0.5)
    pairs = [*conversations(8), ([3], [5, 1])]
    read = read_prompts(model, [p for p, _ in pairs])
    assert isinstance(read.cache, ReadAgain)
    rows = torch.tensor([3, 0, 3, 8, 7])
    scored = score_answers(model, read.rows(rows), [pairs[i][1] for i in rows.tolist()])
    for b, (prompt, answer) in enumerate(pairs[i] for i in rows.tolist()):
        np.testing.assert_allclose(
            scored["nll"][b, : len(answer)], token_losses(model, prompt, answer), rtol=1e-4, atol=1e-4
        )
    assert continue_prompts(model, read, [2, 5], 8) == [greedy(model, p, (2, 5), 8) for p, _ in pairs]


def test_a_hidden_token_is_attended_to_by_no_one(model):
    prompt, answer = [1, 2, 7, 3, 7, 4], [5, 6]
    nll = score_answers(model, read_prompts(model, [prompt], hidden=7), [answer])["nll"][0]
    mask = torch.tensor([[int(t != 7) for t in prompt] + [1, 1]])
    np.testing.assert_allclose(nll, token_losses(model, prompt, answer, attention_mask=mask), rtol=1e-10)
    assert abs(nll.numpy() - token_losses(model, prompt, answer)).max() > 1e-3


def states(rows, columns):
    return torch.rand(rows, 2, columns, 3), torch.rand(rows, 2, columns, 3)


def test_columns_and_rows_are_those_of_a_plain_layer():
    torch.manual_seed(0)
    plain, given = DynamicLayer(), DynamicLayer()
    first = states(7, 4)
    plain.update(*first)
    given.update(*first)
    roomy = RoomyLayer(given)
    for columns, going in [(1, [0, 2, 4, 6]), (3, [3, 1]), (ROOM, [0, 1]), (1, [1]), (2 * ROOM, [0])]:
        new = states(len(plain.keys), columns)
        for ours, theirs in zip(roomy.update(*new), plain.update(*new), strict=True):
            assert torch.equal(ours, theirs)
        assert roomy.get_mask_sizes(1) == plain.get_mask_sizes(1)
        for layer in (roomy, plain):
            layer.batch_select_indices(torch.tensor(going))
        assert torch.equal(roomy.keys, plain.keys)
        assert torch.equal(roomy.values, plain.values)
    assert torch.equal(given.keys, first[0]), "what others may hold is left alone"


def test_a_rule_that_draws_sees_the_prompts_in_their_order():
    model, ends = make_model().eval(), {3}
    prompts = [p for p, _ in conversations(24)]

    def draws():
        generator = torch.Generator().manual_seed(0)
        return lambda logits: torch.multinomial(logits.softmax(-1), 1, generator=generator)[:, 0]

    choose, expected, running = draws(), [[] for _ in prompts], list(range(len(prompts)))
    left = []
    for _ in range(12):
        whole = [torch.tensor([prompts[i] + expected[i]]) for i in running]
        tokens = choose(torch.cat([model(x).logits[:, -1] for x in whole])).tolist()
        for i, token in zip(list(running), tokens, strict=True):
            if token in ends:
                running.remove(i)
                left.append(i)
            else:
                expected[i].append(token)
    assert running, "some go on to the end"
    assert left != sorted(left), "and others leave in another order"
    assert continue_prompts(model, read_prompts(model, prompts), sorted(ends), 12, draws()) == expected
