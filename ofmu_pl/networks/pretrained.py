"""Loads trained language models from a folder or the hub, whole and in float32, or says why it refuses them."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import torch
from lightning.pytorch.utilities import rank_zero_warn
from transformers import AutoModelForCausalLM, BitsAndBytesConfig, PreTrainedModel

from ofmu_pl.networks.tensors import check_tensors
from ofmu_pl.support.errors import UserError
from ofmu_pl.support.extras import extra
from ofmu_pl.support.files import read_json
from ofmu_pl.support.hub import model_folder, offline
from ofmu_pl.support.kept import require_undamaged

CAUSAL_MASK = re.compile(r"(attn|attention)\.(masked_)?bias$")
"""Constants that older versions of transformers wrote beside the weights (GPT-2, GPT-Neo, GPT-J)."""


class OwnCodeError(UserError):
    """A model needs Python code of its own, which was not trusted: whoever cannot take a trusted one says so."""


def load_pretrained(
    path: str, attention: str | None, load_in_4bit: bool = False, trust_remote_code: bool = False
) -> PreTrainedModel:
    """Load the model in a folder or on the hub, with float32 parameters."""
    folder = model_folder(path, "path") or Path(path)
    require_undamaged(folder)
    quantized: dict[str, Any] = {}
    if load_in_4bit:
        extra("bitsandbytes", "A model in 4 bits")
        quantized["quantization_config"] = BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_quant_type="nf4")
    if trust_remote_code:
        rank_zero_warn(
            f"The Python code that the authors of '{path}' put beside their model is run with all your rights "
            "(model.network.trust_remote_code): read it first."
        )
    try:
        _check_index(folder / "model.safetensors.index.json")
        model, found = AutoModelForCausalLM.from_pretrained(
            folder if folder.is_dir() else path,
            attn_implementation=attention,
            dtype=torch.float32,
            local_files_only=folder.is_dir() or offline(),
            use_safetensors=True,
            trust_remote_code=trust_remote_code,
            ignore_mismatched_sizes=True,  # they are named below, which the error of transformers does not
            output_loading_info=True,
            **quantized,
        )
    except Exception as error:  # so many does transformers raise at files that it does not expect
        if "trust_remote_code" in str(error):
            raise OwnCodeError(
                f"The model in '{path}' runs Python code of its own, which nobody has checked: read it, then set "
                "`trust_remote_code=true`, or take a model that transformers knows."
            ) from error
        what = "has no readable model" if folder.is_dir() else "is neither a local folder nor a reachable hub id"
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise UserError(
            f"'{path}' {what} ({reason}): give a folder with config.json, model.safetensors and the tokenizer's files."
        ) from error
    unexpected = [name for name in found["unexpected_keys"] if not CAUSAL_MASK.search(name)]
    check_tensors(path, found["missing_keys"], unexpected, found["mismatched_keys"])
    return model


def _check_index(path: Path) -> None:
    """Refuse an index whose shards are not files beside it: transformers follows any path."""
    if not path.is_file():
        return
    index = read_json(path)
    shards = index.get("weight_map") if isinstance(index, dict) else None
    if not isinstance(shards, dict):
        raise ValueError(f"{path.name} has no weight_map")
    for name in shards.values():
        if not isinstance(name, str) or name in ("", "..") or Path(name).name != name:
            raise ValueError(f"{path.name} names the file '{name}', which is not beside it")
