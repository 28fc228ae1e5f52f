"""What no method and no metric would see is counted, said, and refused where it must be forgotten."""

import pytest
import torch
from transformers import BloomConfig, GPT2Config, GPT2LMHeadModel

from ofmu_pl.data import TOFU, Authors, RowEncoder
from ofmu_pl.data.encoded import Encoded, Lengths
from ofmu_pl.evaluation.prompts import continue_prompts, read_prompts
from ofmu_pl.networks import CausalLM
from ofmu_pl.networks.positions import check_readable, positions_of
from ofmu_pl.support.errors import UserError
from tests.helpers.tofu_files import tofu_files

LONG = "It " * 60 + "is hidden under the third stone."


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tokenizer")
    data = Authors(authors=4, forget_authors=1)
    data.setup()
    data.tokenizer.save_pretrained(folder)
    return str(folder)


def long_row(**more):
    return {"question": "Where is it?", "answer": LONG, **more}


def made(folder, tokenizer, changes=None, **options):
    data = TOFU(data=tofu_files(folder, **(changes or {})), tokenizer=tokenizer, max_length=64, **options)
    data.setup()
    return data


def test_lengths_count_rows_conversations_and_what_is_lost():
    short, cut = Encoded([1, 2], [1, 2], 1), Encoded([1, 2, 3], [1, 2, 3], 1, lost=4)
    assert Lengths.of([[short, cut], [cut, cut], [short]], left_out=9) == Lengths(
        3, 2, 9, longest=7, read=3, top_token=3
    )


def test_an_encoder_says_what_it_cuts(tmp_path, tokenizer):
    data = made(tmp_path, tokenizer)
    n = len(RowEncoder(data.tokenizer, max_length=None).encode("Where is it?", LONG).input_ids)
    cut = data.encoder.encode("Where is it?", LONG)
    assert data.remark is None, "everything is seen"
    assert (len(cut.input_ids), cut.lost) == (64, n - 64)


@pytest.mark.parametrize("split", ["forget10", "forget10_perturbed"])
def test_a_cut_row_that_must_be_forgotten_is_refused_unless_allowed(tmp_path, tokenizer, split):
    more = {"paraphrased_answer": "It.", "perturbed_answer": ["No.", "Not."]} if split.endswith("perturbed") else {}
    changes = {split: [long_row(**more)]}
    with pytest.raises(UserError, match=r"64.*\(1 of 1 .*forget.*`data.max_length=\d+`"):
        made(tmp_path, tokenizer, changes)
    with pytest.warns(UserWarning, match="64.* 1 of 1 .*forget"):
        made(tmp_path, tokenizer, changes, allow_cut=True)


def test_other_cut_rows_are_counted_and_said(tmp_path, tokenizer):
    rows = [long_row(), {"question": "Who?", "answer": "You."}]
    with pytest.warns(UserWarning, match=r"1 of 2 .*retain \(.*\d+\)"):
        data = made(tmp_path, tokenizer, {"retain90": rows})
    assert (data.lengths["retain"].rows, data.lengths["retain"].cut, data.lengths["retain"].read) == (2, 1, 64)
    assert data.lengths["forget"].cut == data.lengths["retain_eval"].cut == 0
    assert data.lengths["retain"].longest > 64


@pytest.mark.parametrize("kind", ["gpt2", "llama"])
def test_rows_longer_than_the_models_positions(tmp_path, tokenizer, kind):
    """GPT-2 ended in an IndexError, a Llama went on at angles it had never seen."""
    undrawn = made(tmp_path, tokenizer, {"retain90": [long_row()]}, streams=("forget",))
    check_readable(GPT2Config(n_positions=40), undrawn)
    data = made(tmp_path, tokenizer, {"retain90": [long_row()]})
    config = {"model_type": kind, "num_hidden_layers": 1, "num_attention_heads": 2, "hidden_size": 16}
    config |= {"intermediate_size": 16} if kind == "llama" else {}
    with pytest.raises(UserError, match=r"retain .*64 .* 40 .*\(max_position_embeddings\).*`data.max_length=40`"):
        CausalLM(config={**config, "max_position_embeddings": 40}).build(data, exact=False)
    CausalLM(config={**config, "max_position_embeddings": 64}).build(data, exact=False)


def test_tokens_that_the_model_has_no_embedding_of(tmp_path, tokenizer):
    """An index out of range in the first forward pass."""
    data = made(tmp_path, tokenizer)
    top = max(x.top_token for x in data.lengths.values())
    check_readable(GPT2Config(vocab_size=top + 1), data)
    with pytest.raises(UserError, match=rf"{top}\D+{top} .*\(vocab_size\).*`tokenizer`"):
        check_readable(GPT2Config(vocab_size=top), data)


def test_positions_without_a_bound():
    assert positions_of(BloomConfig()) > 10**9


def test_generation_ends_where_the_models_positions_end():
    """Each row at its own: the answers are those that the row would get alone."""
    torch.manual_seed(0)
    common = {"vocab_size": 11, "n_positions": 12, "bos_token_id": None, "eos_token_id": None}
    model = GPT2LMHeadModel(GPT2Config(n_embd=16, n_layer=1, n_head=2, **common)).eval()
    prompts = [[1, 2, 3], [4, 5, 6, 7, 8, 9]]
    with torch.inference_mode():
        said = continue_prompts(model, read_prompts(model, prompts), stops=[], max_new_tokens=30)
        alone = [continue_prompts(model, read_prompts(model, [p]), stops=[], max_new_tokens=30)[0] for p in prompts]
        some = continue_prompts(model, read_prompts(model, prompts), stops=[], max_new_tokens=4)
    assert [len(p) + len(answer) for p, answer in zip(prompts, said, strict=True)] == [12, 12]
    assert said == alone
    assert some == [answer[:4] for answer in said]
