"""Caches that change in place, against transformers' own, which copy."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from transformers import MambaConfig, MambaForCausalLM, RwkvConfig, RwkvForCausalLM
from transformers.cache_utils import DynamicLayer

from ofmu_pl.evaluation.columns import ROOM, RoomyLayer, filled
from ofmu_pl.evaluation.prompts import continue_prompts, read_prompts, score_answers
from tests.helpers.texts import VOCABULARY, conversations, greedy, make_model, token_losses


@pytest.fixture(autouse=True)
def _inference():
    with torch.inference_mode():
        yield


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


def test_a_step_copies_neither_columns_nor_rows():
    layer = DynamicLayer()
    layer.update(*states(6, 4))
    roomy = RoomyLayer(layer)
    roomy.update(*states(6, 1))
    places = roomy.keys.data_ptr(), roomy.values.data_ptr()
    roomy.batch_select_indices(torch.tensor(filled([0, 1, 3, 5])))
    for _ in range(ROOM - 1):
        roomy.update(*states(4, 1))
        assert (roomy.keys.data_ptr(), roomy.values.data_ptr()) == places


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


SMALL = {"vocab_size": VOCABULARY, "hidden_size": 16, "num_hidden_layers": 2}


@pytest.mark.parametrize(
    "model", [RwkvForCausalLM(RwkvConfig(**SMALL, attention_hidden_size=16)), MambaForCausalLM(MambaConfig(**SMALL))]
)
def test_a_row_is_read_as_if_it_were_alone(model):
    """RWKV reads padding in spite of the mask; Mamba's layers take it out."""
    torch.manual_seed(0)
    for p in model.eval().parameters():
        p.normal_(0.0, 0.5)
    pairs = conversations(5)
    read = read_prompts(model, [p for p, _ in pairs])
    scored = score_answers(model, read, [a for _, a in pairs])
    for row, (prompt, answer) in zip(scored.nll, pairs, strict=True):
        np.testing.assert_allclose(row[: len(answer)], token_losses(model, prompt, answer), rtol=1e-4, atol=1e-4)
    said = continue_prompts(model, read_prompts(model, [p for p, _ in pairs]), [3], 6)
    assert said == [greedy(model, p, [3], 6) for p, _ in pairs]
