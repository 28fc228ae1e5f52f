"""Writes language models, whole or by ranks that hold shards, as transformers 4.45 to 5 read them."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from transformers import PreTrainedModel

from ofmu_pl.core.vectors import is_sharded
from ofmu_pl.networks.adapters import below, merged, must_part, plain_tensors
from ofmu_pl.networks.rounding import written_in
from ofmu_pl.networks.slices import write_rows
from ofmu_pl.support.files import read_json, write_json
from ofmu_pl.support.processes import from_first, is_first

OWN_ROPE = {"gpt_neox": {"rope_theta": "rotary_emb_base", "partial_rotary_factor": "rotary_pct"}}
"""Architectures that had names of their own for RoPE's keys, by ``model_type``."""


def write_model(model: PreTrainedModel, folder: Path, dtype: torch.dtype | None, dropout: Mapping[str, float]) -> None:
    """Write a model, its adapters merged, and its configuration as it was before training.

    Ranks that hold shards call it together; all their rows are written into the first one's folder.

    Args:
        model: The model, which stays as it is.
        folder: An existing folder.
        dtype: Type of the weights; ``None``: they stay as they are.
        dropout: What the configuration said of dropout, by field.
    """
    config, plain = model.config, below(model)
    before = {name: getattr(config, name) for name in ("use_cache", "tie_word_embeddings", "dtype")}
    before |= dict.fromkeys(dropout, 0.0)
    one = getattr(plain.get_output_embeddings(), "weight", None) is plain.get_input_embeddings().weight
    tied = one and not must_part(plain)  # or a reader would drop one of two matrices
    config.update({"use_cache": True, "tie_word_embeddings": tied, **dropout})  # generation wants a cache
    try:
        if is_sharded([*model.parameters()]):  # it was ``outlined``: its parameters have the names of the files
            write_rows(from_first(lambda: folder), *plain_tensors(model), dtype or torch.float32)
            if is_first():
                config.update({"dtype": dtype or torch.float32})
                config.architectures = [type(plain).__name__.removeprefix("FSDP")]  # FSDP2 makes a class of its own
                config.save_pretrained(folder)
                plain.generation_config.save_pretrained(folder)
        else:
            whole = merged(model)
            with written_in(dtype, whole):
                whole.save_pretrained(folder)
    finally:
        config.update(before)


def add_older_keys(folder: Path, tokenizer: Any) -> None:
    """Complete config.json and tokenizer_config.json in a folder that transformers 5 has written.

    Version 4 takes RoPE's defaults, without a word, where its own keys are missing; it does not know the class of
    version 5's tokenizers, and 4.45 looks for chat templates in tokenizer_config.json alone.

    Args:
        folder: Folder with a model, or adapters, and its tokenizer, the chat template within tokenizer_config.json.
        tokenizer: The tokenizer in the folder.
    """
    if (folder / "config.json").is_file():  # adapters alone have none
        config = read_json(folder / "config.json")
        parts = [part for part in config.values() if isinstance(part, dict) and "model_type" in part]
        for part in (config, *parts):  # models that also see images have their text's fields in a part
            part.update(rope_keys(part))
        write_json(folder / "config.json", config | {"torch_dtype": config["dtype"]})
    fields = read_json(folder / "tokenizer_config.json")
    if isinstance(fields.get("extra_special_tokens"), list):  # version 4 fails on a list under this name
        fields["additional_special_tokens"] = fields.pop("extra_special_tokens")
    fields["model_input_names"] = tokenizer.model_input_names  # version 4 adds token_type_ids, which few models take
    fields["clean_up_tokenization_spaces"] = tokenizer.clean_up_tokenization_spaces  # its default was the opposite
    if tokenizer.is_fast:  # tokenizer.json says it all; classes of architectures build parts of it anew
        fields["tokenizer_class"] = "PreTrainedTokenizerFast"
    write_json(folder / "tokenizer_config.json", fields)


def rope_keys(config: dict[str, Any]) -> dict[str, Any]:
    """RoPE's older keys for the ``rope_parameters`` of a config.json; none where it has none.

    Parameters by layer type (Gemma 3) become those of full attention and the base frequency of sliding attention.

    Example:
        >>> rope_keys({"model_type": "llama", "rope_parameters": {"rope_type": "default", "rope_theta": 5e5}})
        {'rope_theta': 500000.0, 'rope_scaling': None}
    """
    parameters = config.get("rope_parameters")
    if not parameters:
        return {}
    rope, own = parameters.get("full_attention", parameters), OWN_ROPE.get(config["model_type"], {})
    keys = {own.get(k, k): rope[k] for k in ("rope_theta", "partial_rotary_factor") if k in rope}
    # Phi 3 has the original length beside the scaling, which must then not hold it too.
    scaling = {k: v for k, v in rope.items() if k not in ("rope_theta", "partial_rotary_factor", *config)}
    if rope["rope_type"] == "longrope":
        scaling["type"] = scaling.pop("rope_type")  # Phi 3 knows it by this name only, the others by both
    keys["rope_scaling"] = None if rope["rope_type"] == "default" else scaling
    if "sliding_attention" in parameters:
        keys["rope_local_base_freq"] = parameters["sliding_attention"]["rope_theta"]
        if "full_attention" in config["layer_types"]:
            keys["sliding_window_pattern"] = config["layer_types"].index("full_attention") + 1
    return keys
