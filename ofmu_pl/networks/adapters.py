"""Which parameters are trained: all, some by name, or low-rank adapters beside frozen ones."""

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from copy import copy, deepcopy
from pathlib import Path
from typing import Any, cast

from lightning.pytorch.utilities import rank_zero_warn
from safetensors.torch import save_file
from torch import Tensor, nn
from torch.distributed.tensor import DTensor
from transformers import PreTrainedModel

from ofmu_pl.networks.rounding import widen
from ofmu_pl.networks.slices import exchange
from ofmu_pl.networks.state_files import check_tensors
from ofmu_pl.support.errors import UserError, reason
from ofmu_pl.support.files import read_json
from ofmu_pl.support.kept import require_undamaged
from ofmu_pl.support.limits import within
from ofmu_pl.support.processes import is_first

ADAPTERS = "adapter_config.json"  # what describes the adapters in a folder of peft's
WEIGHTS_OF_ADAPTERS = "adapter_model.safetensors"

FROM_NOTHING = {"r", "lora_alpha", "lora_dropout", "target_modules", "exclude_modules", "layers_to_transform"}
FROM_NOTHING |= {"layers_pattern", "rank_pattern", "alpha_pattern", "use_rslora", "task_type", "init_lora_weights"}
"""Fields of adapters that can be made before weights are read; DoRA, PiSSA and others begin from them."""


def made_from_nothing(fields: dict[str, Any] | None) -> bool:
    """Whether adapters of these fields do not depend on the weights that they stand beside."""
    return (fields or {}).keys() <= FROM_NOTHING and has_usual_start(fields)


def has_usual_start(fields: dict[str, Any] | None) -> bool:
    """Whether adapters of these fields leave the weights below them as they are; PiSSA and others rewrite them."""
    return (fields or {}).get("init_lora_weights", True) in (True, False, "gaussian")


def add_adapters(model: PreTrainedModel, fields: dict[str, Any]) -> PreTrainedModel:
    """Add low-rank adapters by peft; their parameters are then the only trainable ones (and the theta of Phi).

    Args:
        model: A Hugging Face model.
        fields: Fields of ``peft.LoraConfig``; without ``target_modules`` every linear layer but the last gets an
            adapter, since peft knows the names of the layers of some architectures alone.
    """
    from peft import LoraConfig, get_peft_model  # imports bitsandbytes, which is slow and talks: only where needed

    own = deepcopy(fields)  # peft adds to lists in it
    each = 0.05 if has_usual_start(own) else 60.0  # seconds; others begin from singular values of a layer's weights
    try:
        # Some fields are expressions, each in another form, by which peft searches the names of modules.
        with within("Making the adapters of model.network.lora", more=each * len([*model.modules()])):
            config = LoraConfig(**{"task_type": "CAUSAL_LM", "target_modules": "all-linear", **own})
            adapted = get_peft_model(model, config)
    except (TypeError, ValueError, ImportError, re.error) as error:
        raise UserError(
            f"The adapters cannot be made ({reason(error)}): set model.network.lora to fields of peft's LoraConfig, "
            "with target_modules that the network has (or 'all-linear')."
        ) from error
    wrapped = [m.base_layer for m in adapted.modules() if hasattr(m, "base_layer")]
    if own.get("lora_bias") and any(getattr(layer, "bias", None) is None for layer in wrapped):
        raise UserError("lora_bias of peft's LoraConfig cannot be merged into layers without a bias: leave it out.")
    require_separate(adapted)
    experts = [name for name, p in adapted.named_parameters() if p.dim() == 3 and "lora_" not in name]
    if experts and not own.get("target_parameters"):
        rank_zero_warn(
            f"{len(experts)} tensors of experts get no adapters and stay as they are (such as {experts[0]}): name them "
            "by target_parameters in model.network.lora if what must go may live there."
        )
    return adapted


def base_of(folder: Path) -> str:
    """The folder or hub id of the model that the adapters in a folder stand on."""
    try:
        base = Path(read_json(folder / ADAPTERS)["base_model_name_or_path"]).expanduser()
    except (OSError, ValueError, TypeError, KeyError):
        base = folder
    if (base / ADAPTERS).is_file():
        raise UserError(f"'{folder / ADAPTERS}' names no model as base_model_name_or_path: name its folder or hub id.")
    return str(base)


def load_adapters(model: PreTrainedModel, folder: Path) -> PreTrainedModel:
    """Put the adapters in a folder of peft's on their model, to be trained; on a skeleton without their numbers."""
    from peft import PeftConfig, PeftModel, get_peft_model, get_peft_model_state_dict, load_peft_weights

    require_undamaged(folder)
    try:
        described = read_json(folder / ADAPTERS)
        # The field megatron_config names a module to import.
        if described.get("peft_type") != "LORA" or described.get("megatron_config"):
            raise ValueError("these are no plain low-rank adapters, which alone are read")
        if not (folder / WEIGHTS_OF_ADAPTERS).is_file():
            raise ValueError(f"there is no {WEIGHTS_OF_ADAPTERS}")
        with within(f"Making the adapters in '{folder}'", more=0.05 * len([*model.modules()])):
            if next(model.parameters()).is_meta:
                config = PeftConfig.from_pretrained(str(folder))
                config.inference_mode = False  # which would freeze them
                return get_peft_model(model, config)
            adapted = PeftModel.from_pretrained(model, str(folder), is_trainable=True)
            stored = load_peft_weights(str(folder), device="cpu").keys()
    except Exception as error:  # so many does peft raise at files that it does not expect
        raise UserError(
            f"'{folder}' has no readable adapters ({reason(error)}): give what peft's save_pretrained wrote, with "
            f"{ADAPTERS} and {WEIGHTS_OF_ADAPTERS}."
        ) from error
    require_separate(adapted)
    wanted = get_peft_model_state_dict(adapted, save_embedding_layers=False).keys()
    base = {plain_name(name) for name, _ in adapted.named_parameters()}  # peft may store embeddings beside adapters
    unexpected = [name for name in stored - wanted if plain_name(name) not in base]
    check_tensors(folder, wanted - stored, unexpected, (), f"its {ADAPTERS}")
    return adapted


def write_adapters(model: PreTrainedModel, folder: Path, base: str) -> None:
    """Write adapters alone, in their type, as peft does; where ranks hold shards it takes all, and the first writes."""
    from peft import get_peft_model_state_dict

    name = model.active_adapter
    state = get_peft_model_state_dict(model, adapter_name=name, save_embedding_layers=False)
    whole = {n: (x.full_tensor() if isinstance(x, DTensor) else x).detach().cpu().clone() for n, x in state.items()}
    if is_first():
        config = copy(model.peft_config[name])
        config.base_model_name_or_path, config.inference_mode = base, True
        config.save_pretrained(folder)
        save_file({n: x.contiguous() for n, x in whole.items()}, folder / WEIGHTS_OF_ADAPTERS, {"format": "pt"})


def require_separate(model: PreTrainedModel) -> None:
    """Refuse adapters of which two are one memory, as peft's ``ensure_weight_tying`` makes them on tied embeddings.

    One is a view of the other and a parameter of its own, so that every step would move both twice, and no copy could
    be made of the model.
    """
    if not any(getattr(config, "ensure_weight_tying", False) for config in model.peft_config.values()):
        return
    layers = model.get_base_model().get_input_embeddings(), model.get_base_model().get_output_embeddings()
    if all(hasattr(layer, "base_layer") for layer in layers) and layers[0].weight is layers[1].weight:
        raise UserError(
            "ensure_weight_tying of peft's LoraConfig makes one memory of two parameters, the adapters on tied "
            "embeddings, so that every step would move it twice: leave it out, and each layer has its own adapter."
        )


def require_weights(model: PreTrainedModel) -> None:
    """Refuse adapters that are no weights beside weights but tokens before each row (peft's prompt learning).

    Every row would be longer than what was encoded, and no plain model computes the same.
    """
    kinds = [type(config).__name__ for config in model.peft_config.values() if config.is_prompt_learning]
    if kinds:
        raise UserError(
            f"The model's adapters ({kinds[0]}) are tokens before each row and cannot be merged into the weights: give "
            "a model with LoRA or other adapters beside its layers, or the model without them."
        )


def train_only(model: nn.Module, pattern: str) -> None:
    """Freeze every parameter whose name a regular expression does not match anywhere; it may not take too long."""
    known = [name for name, p in model.named_parameters() if p.requires_grad]
    try:
        with within(f"The expression '{pattern}' in model.network.trainable"):
            names = [name for name in known if re.search(pattern, name)]
    except re.error as error:
        raise UserError(f"model.network.trainable '{pattern}' is no regular expression ({error}).") from error
    if not names:
        example = next(name for name, _ in model.named_parameters())
        raise UserError(f"model.network.trainable '{pattern}' matches no parameter: match names such as '{example}'.")
    for name, p in model.named_parameters():
        p.requires_grad_(name in names)


def is_adapted(model: PreTrainedModel) -> bool:
    """Whether a model has adapters (``peft.PeftModel``)."""
    return hasattr(model, "disable_adapter")


def below(model: PreTrainedModel) -> PreTrainedModel:
    """The model that adapters were put on, or the model itself."""
    return model.get_base_model() if is_adapted(model) else model


@contextmanager
def without_adapters(model: PreTrainedModel) -> Iterator[None]:
    """A context in which a model computes what it does below its adapters; what is trained of it stays so."""
    # peft itself would train every adapter from then on, also those that were frozen.
    trained = [(p, p.requires_grad) for p in model.parameters()]
    try:
        with model.disable_adapter():
            yield
    finally:
        for p, was in trained:
            p.requires_grad_(was)


def merged(model: PreTrainedModel, copies: bool = True) -> PreTrainedModel:
    """The plain model that computes the same: on the host a copy with adapters added, or the model itself.

    The copy is in float32, except for what bitsandbytes holds in 4 bits. Without ``copies`` it is made of the model.
    """
    if not is_adapted(model):
        return model
    device = next(model.parameters()).device
    if copies and device.type != "cpu":  # where there may be no room for another model
        model.cpu()
    copied = deepcopy(model) if copies else model
    if copies and device.type != "cpu":
        model.to(device)
    widen(copied)
    untie(copied.get_base_model())
    return copied.merge_and_unload()


def plain_name(name: str) -> str:
    """The name that a parameter of a model with adapters has in the model below them.

    Example:
        >>> plain_name("base_model.model.model.layers.0.mlp.up_proj.base_layer.weight")
        'model.layers.0.mlp.up_proj.weight'
    """
    return name.removeprefix("base_model.model.").replace(".base_layer.", ".")


def plain_tensors(model: PreTrainedModel) -> tuple[dict[str, Tensor], Callable[[str], Tensor]]:
    """What ``merged`` has, of a model that ranks hold shards of: no more than one layer is ever whole.

    Returns:
        The parameters below the adapters, by plain name, and a function that gives one of them with its adapter added:
        whole, on all ranks, which it takes; without an adapter the shards as they are.
    """
    plain = below(model)
    layers, added = {}, set()
    for name, layer in plain.named_modules():
        if hasattr(layer, "base_layer"):
            layers[plain_name(f"{name}.base_layer.weight")] = layer
            added |= {*layer.parameters()} - {*layer.base_layer.parameters()}
    named = plain.named_parameters(remove_duplicate=not must_part(plain))
    tensors: dict[str, Tensor] = {plain_name(name): p for name, p in named if p not in added}
    return tensors, lambda name: _merged_weight(layers[name]) if name in layers else tensors[name]


def _merged_weight(layer: Any) -> Tensor:
    """The weight of a layer with its adapter added, computed from whole tensors, as ``merged`` does."""
    whole = deepcopy(layer)
    exchange(whole, lambda _, p: nn.Parameter(cast(DTensor, p).full_tensor(), requires_grad=False))
    widen(whole)
    whole.merge()
    return whole.get_base_layer().weight


def must_part(model: PreTrainedModel) -> bool:
    """Whether the output layer shares the embedding's weights and one of the two has an adapter.

    An adapter changes what its own layer computes, and merged into weights that both hold it would change both.
    """
    inputs, outputs = model.get_input_embeddings(), model.get_output_embeddings()
    adapted = any(hasattr(layer, "base_layer") for layer in (inputs, outputs))
    return adapted and getattr(outputs, "weight", None) is inputs.weight


def untie(model: PreTrainedModel) -> None:
    """Give the output layer weights of its own where an adapter makes them differ from the embedding's."""
    if not must_part(model):
        return
    outputs = model.get_output_embeddings()
    layer = getattr(outputs, "base_layer", outputs)
    layer.weight = nn.Parameter(layer.weight.detach().clone(), requires_grad=layer.weight.requires_grad)
