"""What a language model reads: how many positions it has, and that it does not see what follows."""

import sys
from typing import Any

import torch
from transformers import PretrainedConfig, PreTrainedModel

from ofmu_pl.support.errors import UserError


def positions_of(config: PretrainedConfig) -> int:
    """The most tokens that a row may have by a Hugging Face configuration; ``sys.maxsize`` where it sets no bound.

    Learned positions (GPT-2's ``n_positions``) end there with an ``IndexError``; rotary ones go on without a word, at
    angles that the model was never trained on.
    """
    return getattr(config.get_text_config(), "max_position_embeddings", None) or sys.maxsize


def check_readable(config: PretrainedConfig, data: Any) -> None:
    """Refuse rows that the model cannot read to their end, and tokens that it has no embedding of.

    Args:
        config: Configuration of the model.
        data: A ``TextDataModule`` after ``setup``; the rows of its ``streams`` and evaluation sets are checked.
    """
    positions = positions_of(config)
    seen = {name: x for name, x in data.lengths.items() if name in data.streams or name.endswith("_eval")}
    long = {name: x.read for name, x in seen.items() if x.read > positions}
    if long:
        name, option = max(long, key=long.__getitem__), data.length_argument
        shorten = f"set `data.{option}={positions}` or less, " if option else ""
        raise UserError(
            f"The longest row of {name} has {long[name]} tokens, and the model has {positions} positions "
            f"(max_position_embeddings): {shorten}remove what is longer, or take a model with more."
        )
    vocabulary = getattr(config.get_text_config(), "vocab_size", None) or sys.maxsize
    tops = {f"rows of {name} have": x.top_token for name, x in seen.items()}
    tops["tokenizer pads with"] = getattr(getattr(data, "tokenizer", None), "pad_token_id", None) or 0
    where = max(tops, key=tops.__getitem__)
    if tops[where] >= vocabulary:
        raise UserError(
            f"The {where} a token of number {tops[where]}, and the model knows {vocabulary} tokens (vocab_size), from "
            "0: give the data the model's own `tokenizer`, make its end token its pad token, or resize the embeddings."
        )


@torch.no_grad()
def require_causal(model: PreTrainedModel) -> None:
    """Refuse a model whose logits depend on what follows, by one pass over two tokens of which the second differs.

    Transformers loads a masked language model (BERT) as a causal one, and only warns. Such a model has read the answer
    that it is asked for.
    """
    vocabulary = model.config.get_text_config().vocab_size
    pairs = torch.tensor([[5, 6], [5, 7]], device=model.device) % vocabulary
    one, other = model(input_ids=pairs, use_cache=False).logits.float()
    before, at = (one - other).abs().amax(1).tolist()
    if before > 1e-3 * at:  # rounding makes a thousandth of this
        raise UserError(
            f"{type(model).__name__} (model_type '{model.config.model_type}') sees the tokens that follow, so it reads "
            "each answer before it gives it: give a causal language model, a decoder."
        )
