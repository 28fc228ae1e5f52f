"""Writes the keys that transformers 4.45 to 4.57 read beside those that transformers 5 reads.

Version 5 renamed keys of config.json and tokenizer_config.json. Version 4 refuses the new class of tokenizers, 4.45
looks for the chat template in tokenizer_config.json alone, and all take RoPE's defaults, without a word, where its keys
are missing. Version 5 reads the old keys too, so one folder serves all; but 4.45 does not know YaRN's original length.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ofmu_pl.support.files import read_json, write_json

OWN_ROPE = {"gpt_neox": {"rope_theta": "rotary_emb_base", "partial_rotary_factor": "rotary_pct"}}
"""Architectures that had names of their own for RoPE's keys, by ``model_type``."""


def add_older_keys(folder: Path, tokenizer: Any) -> None:
    """Complete config.json and tokenizer_config.json in a folder that transformers 5 has written.

    Args:
        folder: Folder with a model and its tokenizer.
        tokenizer: The tokenizer in the folder.
    """
    config = read_json(folder / "config.json")
    write_json(folder / "config.json", config | {"torch_dtype": config["dtype"]} | rope_keys(config))
    fields = read_json(folder / "tokenizer_config.json")
    if isinstance(fields.get("extra_special_tokens"), list):  # version 4 fails on a list under this name
        fields["additional_special_tokens"] = fields.pop("extra_special_tokens")
    write_json(folder / "tokenizer_config.json", fields | tokenizer_keys(tokenizer))


def rope_keys(config: dict[str, Any]) -> dict[str, Any]:
    """RoPE's older keys for the ``rope_parameters`` of a config.json; none where it has none.

    Args:
        config: Fields of the config.json. Parameters by layer type (Gemma 3) become those of full attention and the
            base frequency of
            sliding attention, which is all that version 4 has.
    """
    parameters = config.get("rope_parameters")
    if not parameters:
        return {}
    rope = parameters.get("full_attention", parameters)
    own = OWN_ROPE.get(config["model_type"], {})
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


def tokenizer_keys(tokenizer: Any) -> dict[str, Any]:
    """Keys of a tokenizer_config.json with which version 4 makes the same tokenizer."""
    keys: dict[str, Any] = {
        "model_input_names": tokenizer.model_input_names,  # version 4 adds token_type_ids, which few models take
        "clean_up_tokenization_spaces": tokenizer.clean_up_tokenization_spaces,  # its default was the opposite
    }
    if tokenizer.is_fast:  # tokenizer.json says it all; classes of architectures build parts of it anew
        keys["tokenizer_class"] = "PreTrainedTokenizerFast"
    template = tokenizer.chat_template
    if template is not None:
        named = isinstance(template, dict)
        keys["chat_template"] = [{"name": k, "template": v} for k, v in template.items()] if named else template
    return keys
