"""Makes language models in float32, trained ones from a folder or the hub, or says why it refuses them."""

import re
from pathlib import Path
from typing import Any

import torch
from huggingface_hub import snapshot_download
from lightning.pytorch.utilities import rank_zero_warn
from transformers import AutoConfig, AutoModelForCausalLM, BitsAndBytesConfig, PretrainedConfig, PreTrainedModel

from ofmu_pl.networks.adapters import ADAPTERS
from ofmu_pl.networks.slices import INDEX, WEIGHTS, shapes_in
from ofmu_pl.networks.state_files import check_tensors
from ofmu_pl.support.errors import UserError, reason
from ofmu_pl.support.extras import extra
from ofmu_pl.support.files import DAY, read_json
from ofmu_pl.support.hub import local_folder, offline
from ofmu_pl.support.kept import require_undamaged
from ofmu_pl.support.limits import within

CONSTANTS = re.compile(r"(^|\.)(attn|attention)\.(masked_)?bias$|rotary_emb\.inv_freq$")
"""Names that older versions of transformers wrote beside the weights (GPT-2, GPT-Neo, GPT-J; Llama)."""

MOST_LAYERS = 1_000
"""Each layer takes time to be made, and a configuration is quickly written; the deepest models have 126."""
SLOWEST = 5e6  # bytes of weights that a slow disk and a busy machine read in a second
SHAPES = Path(__file__).parent / "shapes"
"""Folders with config.json of the paper's models, named by what the hub ids of a model's variants have in common."""


class OwnCodeError(UserError):
    """A model needs Python code of its own, which was not trusted: whoever cannot take a trusted one says so."""


def load_pretrained(
    path: str, attention: str | None, load_in_4bit: bool = False, trust_remote_code: bool = False
) -> PreTrainedModel:
    """Load the model in a folder or on the hub, with float32 parameters."""
    folder = local_folder(path, "path") or Path(path)
    require_undamaged(folder)
    quantized: dict[str, BitsAndBytesConfig] = {}
    if load_in_4bit:
        extra("bitsandbytes", "A model in 4 bits")
        quantized["quantization_config"] = BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_quant_type="nf4")
    if trust_remote_code:
        rank_zero_warn(
            f"The Python code that the authors of '{path}' put beside their model is run with all your rights "
            "(model.network.trust_remote_code): read it first."
        )
    try:
        if (folder / "config.json").is_file() and not trust_remote_code:
            buildable(AutoConfig.from_pretrained(folder, trust_remote_code=False))
        _check_index(folder / INDEX)
        size = sum(file.stat().st_size for file in folder.glob("*.safetensors"))
        with within(f"Making the model in '{path}'", more=size / SLOWEST if folder.is_dir() else DAY):
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
        if isinstance(error, ImportError):
            raise UserError(
                f"'{path}' needs what is not installed ({reason(error)}): install it, or set `model.network.attention` "
                "sdpa if it is a kernel."
            ) from error
        what = "has no readable model" if folder.is_dir() else "is neither a local folder nor a reachable hub id"
        raise UserError(
            f"'{path}' {what} ({reason(error)}): give a folder with config.json, model.safetensors and a tokenizer."
        ) from error
    unexpected = [name for name in found["unexpected_keys"] if not CONSTANTS.search(name)]
    check_tensors(path, found["missing_keys"], unexpected, found["mismatched_keys"])
    return model


def outlined(path: str, attention: str | None) -> tuple[PreTrainedModel, dict[str, Path]] | None:
    """Make the model in a folder or on the hub with parameters on the meta device and all buffers; takes all ranks.

    Returns:
        The model and the file of each parameter; ``None`` where its safetensors files do not hold exactly the model's
        parameters, under their names: ``load_pretrained`` then converts them, or says what is wrong.
    """
    from accelerate import init_empty_weights  # peft requires it

    folder = local_folder(path, "path")
    if folder is not None:
        require_undamaged(folder, together=True)
    try:
        if folder is None:
            wanted = ["*.json", "model*.safetensors"]
            folder = Path(snapshot_download(path, allow_patterns=wanted, local_files_only=offline()))
        if (folder / ADAPTERS).is_file():
            return None
        files = [folder / WEIGHTS]
        if not files[0].is_file():
            _check_index(folder / INDEX)
            files = sorted({folder / name for name in read_json(folder / INDEX)["weight_map"].values()})
        found = {name: at for name, at in shapes_in(files).items() if not CONSTANTS.search(name)}
        with init_empty_weights():
            model = described(str(folder), attention)
        model.config.name_or_path = path
        if (folder / "generation_config.json").is_file():
            model.generation_config = model.generation_config.from_dict(read_json(folder / "generation_config.json"))
    except Exception:  # the same ones as in load_pretrained, which says what they mean
        return None
    model.tie_weights()
    wanted_shapes = {name: list(p.shape) for name, p in model.named_parameters()}
    experts = any(len(shape) > 2 for shape in wanted_shapes.values())  # which transformers may keep in other ways
    buffers = len(model.state_dict()) > len([*model.named_parameters(remove_duplicate=False)])
    if experts or buffers or wanted_shapes != {name: shape for name, (_, shape) in found.items()}:
        return None
    return model, {name: path for name, (path, _) in found.items()}


def own_type(path: str) -> torch.dtype | None:
    """The type of 16 bits that a model's config.json names; ``None``: another, or none."""
    folder = local_folder(path, "path")
    fields, _ = PretrainedConfig.get_config_dict(folder or path, local_files_only=folder is not None or offline())
    parts = (fields, fields.get("text_config") or {})
    said = [part.get("dtype") or part.get("torch_dtype") for part in parts]
    return {"bfloat16": torch.bfloat16, "float16": torch.float16}.get(str(next(filter(None, said), None)))


def described(path: str, attention: str | None) -> PreTrainedModel:
    """Make the model that a folder or the hub has, untrained, from its config.json alone."""
    folder = local_folder(path, "path") or known_shape(path)
    try:
        local = folder is not None or offline()
        config = AutoConfig.from_pretrained(folder or path, local_files_only=local, trust_remote_code=False)
        with within(f"Making the model that '{path}' describes", more=50.0):
            return _untrained(config, attention)
    except Exception as error:  # so many does transformers raise at a config.json
        raise UserError(
            f"'{path}' has no config.json of a language model that can be read ({reason(error)}): point `path` at a "
            "folder with one, or at a hub id."
        ) from error


def random_model(fields: dict[str, Any], tokenizer: Any, attention: str | None) -> PreTrainedModel:
    """Make a random model of fields of a configuration, with a tokenizer's vocabulary and special ids, in eval mode."""
    own = {
        "vocab_size": len(tokenizer),
        "bos_token_id": tokenizer.bos_token_id,
        "eos_token_id": tokenizer.eos_token_id,
        "pad_token_id": tokenizer.pad_token_id,
        **fields,
    }
    model_type = own.pop("model_type", None)
    try:
        known = AutoConfig.for_model(model_type)
        unknown = [name for name in own if not (hasattr(known, name) or name.startswith("rope_"))]
        if unknown:
            raise ValueError(f"'{model_type}' has no field {', '.join(unknown)}")
        model = _untrained(AutoConfig.for_model(model_type, **own), attention)
        if not next(model.parameters()).is_meta:  # only a run shows that some fields contradict each other
            with torch.no_grad():
                model(input_ids=torch.ones(1, 2, dtype=torch.long))
    except Exception as error:  # whatever transformers raises at them
        lines = str(error).strip().splitlines() or ["no reason given"]
        said = f"{type(error).__name__}: {lines[-1].strip()}"[:300].rstrip(".")
        raise UserError(f"The fields of model.network.config make no language model ({said}): mend them.") from error
    return model


def _untrained(config: PretrainedConfig, attention: str | None) -> PreTrainedModel:
    """Make the model of a configuration, in eval mode."""
    return AutoModelForCausalLM.from_config(
        buildable(config), attn_implementation=attention, dtype=torch.float32, trust_remote_code=False
    ).eval()


def buildable(config: PretrainedConfig) -> PretrainedConfig:
    """Refuse the configuration of a model that would take hours to make."""
    layers = getattr(config.get_text_config(), "num_hidden_layers", None) or 0
    if layers > MOST_LAYERS:
        raise ValueError(f"num_hidden_layers={layers} is more than {MOST_LAYERS}")
    return config


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


def known_shape(source: str) -> Path | None:
    """The folder with config.json of one of the paper's models, so that planning it needs nothing from the hub.

    Example:
        >>> known_shape("open-unlearning/tofu_Llama-2-7b-chat-hf_full").name
        'llama-2-7b'
    """
    if source.count("/") != 1:
        return None
    return next((folder for folder in sorted(SHAPES.iterdir()) if folder.name in source.lower()), None)
