"""Hugging Face causal language models as networks to unlearn."""

import copy
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal, Self, cast

import torch
from lightning.pytorch.utilities import rank_zero_info
from torch import Tensor, nn
from transformers import PreTrainedModel

from ofmu_pl.core.vectors import is_sharded, local
from ofmu_pl.losses import IGNORED, shifted
from ofmu_pl.networks import adapters
from ofmu_pl.networks.base import Batch, Network
from ofmu_pl.networks.layers import silence_dropout
from ofmu_pl.networks.positions import check_readable
from ofmu_pl.networks.predictions import Predictions, predict
from ofmu_pl.networks.pretrained import described, load_pretrained, outlined, own_type, random_model
from ofmu_pl.networks.rounding import keep_differentiable, store_in_bfloat16, widen
from ofmu_pl.networks.saving import add_older_keys, write_model
from ofmu_pl.networks.slices import exchange, read_rows
from ofmu_pl.support.errors import UserError
from ofmu_pl.support.processes import gathered, is_first
from ofmu_pl.support.provenance import config_hash, weights_hash


class CausalLM(Network):
    """A causal language model from the hub, from a folder, or randomly initialised from a configuration.

    Args:
        path: Hub id or local folder of a model with its tokenizer; ``None`` needs ``config``. Of a folder of peft's
            adapters, which names its base model, these adapters are trained (with ``lora`` they are merged first).
        config: Fields of a Hugging Face configuration for a random network, with ``model_type`` (for example
            ``{model_type: llama, hidden_size: 128, ...}``); vocabulary and special ids come from the tokenizer.
        tokenizer: Hub id or folder of the tokenizer, if it is not ``path``'s.
        attention: Attention kernel; ``None`` takes ``eager`` for exact derivatives (fused kernels have no second
            one), and for gradients alone torch's fused ``sdpa`` where the architecture has it (Gemma 2 has not).
        activation_checkpointing: Recompute activations in the backward pass (never reentrantly), which saves memory for
            first-order gradients only.
        trainable: Regular expression; only parameters whose name it matches are trained. ``None``: all.
        lora: Fields of peft's ``LoraConfig`` (``{r: 8, lora_alpha: 16}``): only adapters are trained, beside every
            linear layer but the last unless ``target_modules`` says which, and the exported model has them merged.
        base_dtype: ``bfloat16`` keeps the matrices of frozen linear layers in half the memory; needs ``lora``. Products
            are computed in the run's precision, and adapters are merged in float32 for the exported model.
        load_in_4bit: Keep the frozen weights in 4 bits by bitsandbytes (QLoRA); needs ``lora``.
        trust_remote_code: Run the Python files that come with the model in ``path``, with all that you may do; never
            those of a tokenizer or a reference.

    Example:
        A random Llama with the data's vocabulary; ``CausalLM("FOLDER_OR_HUB_ID")`` would read a trained model.

        >>> from ofmu_pl import Authors
        >>> data = Authors(authors=2, forget_authors=1, batch_size=2)
        >>> data.setup()
        >>> shape = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
        >>> recipe = CausalLM(config={"model_type": "llama", **shape})
        >>> model = recipe.build(data, exact=True)
        >>> recipe.sample_losses(model, data.iteration(0)["forget"][0]).shape
        torch.Size([2])
    """

    modality = "text"

    def __init__(
        self,
        path: str | None = None,
        config: dict[str, Any] | None = None,
        tokenizer: str | None = None,
        attention: Literal["eager", "sdpa", "flash_attention_2"] | None = None,
        activation_checkpointing: bool = False,
        trainable: str | None = None,
        lora: dict[str, Any] | None = None,
        base_dtype: Literal["float32", "bfloat16"] = "float32",
        load_in_4bit: bool = False,
        trust_remote_code: bool = False,
    ) -> None:
        if (path is None) == (config is None):
            raise UserError(
                "A language model needs a path or a config: give a folder or a hub's id as --model.network.path "
                "(`path=` from Python), or the fields of a random model as `config`, not both."
            )
        self.path, self.config, self.trust_remote_code = path, config, trust_remote_code
        own = self.own_adapters
        if load_in_4bit and (path is None or (lora is None) == (own is None)):
            raise UserError("Weights in 4 bits cannot be trained: give a `path` with adapters, or `path` and `lora`.")
        if base_dtype == "bfloat16" and ((lora is None and own is None) or load_in_4bit):
            raise UserError("Weights in bfloat16 cannot be trained, and are not in 4 bits: give `lora`, or neither.")
        self.trainable, self.lora = trainable, lora
        self.base_dtype, self.load_in_4bit = base_dtype, load_in_4bit
        lacks = own is not None and not (own / "tokenizer_config.json").is_file()
        self.tokenizer_source = tokenizer or (adapters.base_of(own) if own is not None and lacks else path)
        self.adds_adapters = lora is not None
        trains_base = lora is not None and lora.get("bias", "none") != "none"
        self.starts_from_base = self.adds_adapters and adapters.has_usual_start(lora) and not trains_base
        self.attention = attention
        self.activation_checkpointing = activation_checkpointing
        self._dropout: dict[str, float] = {}
        self._merges, self._frozen = lora is not None, False
        self._own_type: torch.dtype | None = None

    @classmethod
    def plain(cls, path: str) -> Self:
        """The recipe of a model that is measured or attacked as it is served: its own adapters, if any, are merged."""
        recipe = cls(path)
        recipe._merges = True
        return recipe

    @property
    def own_adapters(self) -> Path | None:
        """The local folder that the path names, if it holds adapters instead of a model."""
        folder = Path(self.path).expanduser() if self.path else None
        return folder if folder is not None and (folder / adapters.ADAPTERS).is_file() else None

    @property
    def source(self) -> str:
        """The folder or hub id of the weights, below the model's own adapters."""
        return str(self.path) if self.own_adapters is None else adapters.base_of(self.own_adapters)

    def _read(self, attention: str | None) -> PreTrainedModel:
        """The model as it lies in its folder, with its own adapters, or merged with them."""
        model = load_pretrained(self.source, attention, self.load_in_4bit, self.trust_remote_code)
        self._own_type = own_type(self.source)
        if self.own_adapters is None:
            return model
        model = adapters.load_adapters(model, self.own_adapters)
        return adapters.merged(model, copies=False).requires_grad_(True) if self._merges else model

    @property
    def identity(self) -> list[object]:
        """What a model that is trained from this one is kept by, beside its data and its training; reads weights."""
        whole = copy.copy(self)
        whole.load_in_4bit = False
        base = whole._read(None)
        hashes = [weights_hash(base), config_hash(base, generates=True)]
        return [type(self).__name__, *hashes, self.trainable, self.lora, self.base_dtype, self.load_in_4bit]

    def build(self, datamodule: Any, *, exact: bool) -> nn.Module:
        """Make the model with float32 parameters, in eval mode unless activation checkpointing needs train mode."""
        attention = self.attention or ("eager" if exact else None)
        model = self._read(attention) if self.path else random_model(self.config or {}, datamodule.tokenizer, attention)
        check_readable(model.config, datamodule)
        return self._stored(self._prepared(model))

    @property
    def reads_rows(self) -> bool:
        """Whether ranks can each read their rows of the files, if these have transformers' own names."""
        apart = not (self.load_in_4bit or self.trust_remote_code)
        return bool(self.path) and apart and adapters.made_from_nothing(self.lora)

    def build_in_shards(self, datamodule: Any, *, exact: bool, cut: Callable[[nn.Module], object]) -> nn.Module:
        """Make the model in shards; each rank reads its rows alone where the files hold the parameters as they are."""
        attention = self.attention or ("eager" if exact else None)
        found = outlined(str(self.path), attention) if self.reads_rows else None
        if not all(gathered(found is not None)):  # a node may lack a file, and all must save alike
            found = None
        self.in_shards = found is not None
        if found is None:
            if self.path:
                rank_zero_info(
                    f"Every rank reads all of '{self.path}' before it keeps its share: its files or the adapters are "
                    "of a kind that cannot be read in parts (docs/hardware.md)."
                )
            return super().build_in_shards(datamodule, exact=exact, cut=cut)
        model, files = found
        self._own_type = own_type(self.source)
        check_readable(model.config, datamodule)
        # Adapters get numbers only beside parameters that have some: zeros, which take no memory.
        exchange(model, lambda _, p: nn.Parameter(torch.zeros((), dtype=p.dtype).expand(p.shape)))
        model = self._prepared(model)
        exchange(model, lambda name, p: _on_meta(p) if adapters.plain_name(name) in files else p)
        model = self._stored(model)
        cut(model)
        read_rows(model, files, adapters.plain_name)
        return model

    def skeleton(self, datamodule: Any, *, exact: bool) -> nn.Module:
        """Make the model on the meta device from config.json alone, or a random one with the tokenizer's vocabulary."""
        # Torch's fused kernel keeps as much memory as another, and needs neither a GPU nor a package here.
        attention = "eager" if self.attention == "eager" or (exact and self.attention is None) else None
        with torch.device("meta"):
            if self.path is None:
                model = random_model(self.config or {}, datamodule.make_tokenizer(), attention)
            else:
                model = described(self.source, attention)
                if self.own_adapters is not None and not self._merges:
                    model = adapters.load_adapters(model, self.own_adapters)
            check_readable(model.config, datamodule)
            return self._stored(self._prepared(model))

    def never_trained(self) -> Self:
        """Copy the recipe; matrices of linear layers are kept in bfloat16, to which bf16-mixed rounds them anyway."""
        recipe = copy.copy(self)
        recipe.base_dtype, recipe._frozen = "bfloat16", True
        return recipe

    def _stored(self, model: PreTrainedModel) -> PreTrainedModel:
        """The model with its frozen matrices as they are kept; after adapters are added, which take a base's type."""
        if self.base_dtype == "bfloat16" and not store_in_bfloat16(model) and self.lora is not None:
            raise UserError("No frozen linear layer is there to keep in bfloat16: leave out model.network.base_dtype.")
        if self.load_in_4bit:
            keep_differentiable(model)
        return model

    def _prepared(self, model: PreTrainedModel) -> PreTrainedModel:
        """The model with adapters, frozen parameters and checkpointing as configured."""
        model.config.update({"use_cache": False})
        if self.lora is not None:
            model = adapters.add_adapters(model, self.lora)
        if self.trainable is not None:
            adapters.train_only(model, self.trainable)
        if self._frozen and self.lora is None:
            model.requires_grad_(False)
        if self.activation_checkpointing:
            model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
            self._dropout = silence_dropout(model)
        return model.train(self.activation_checkpointing)

    def check_form(self, dtype: str | None = None, alone: bool = False) -> None:
        """Refuse adapters alone that stand on no model which lies somewhere, and another type than 4 bits."""
        if dtype is not None and self.load_in_4bit:
            raise UserError("A model in 4 bits is exported in 4 bits: leave out export.dtype.")
        on_model = self.path and (self.lora is None) != (self.own_adapters is None)
        if alone and not (on_model and adapters.has_usual_start(self.lora)):
            raise UserError(
                "export.adapters writes adapters that fit a model in a folder: set model.network.lora, without "
                "init_lora_weights, where model.network.path is a model, and leave it out where that is adapters."
            )

    def become_saved(self, module: nn.Module, dtype: str | None = None, alone: bool = False) -> None:
        """Merge adapters and round to the type; in float32, or with adapters alone, nothing would change."""
        model: PreTrainedModel = module
        kind = self._type(dtype)
        if alone or (kind is None and not self.load_in_4bit):
            return
        if adapters.is_adapted(model):
            if is_sharded([*model.parameters()]) and (adapters.must_part(model) or not self.in_shards):
                return  # FSDP2 knows no parameter that is made now, and cuts what DoRA needs whole
            if kind not in (None, torch.bfloat16):
                widen(model)
            adapters.untie(adapters.below(model))
            model.merge_adapter()
        for p in model.parameters() if kind is not None else ():
            local(p.detach()).copy_(local(p.detach()).to(kind))

    def _type(self, name: str | None) -> torch.dtype | None:
        """The type of that name, or that of the model which was read; ``None``: as the weights are."""
        own = None if self.load_in_4bit else self._own_type
        return own if name is None else cast(torch.dtype, getattr(torch, name))

    def save(
        self, module: nn.Module, folder: Path, datamodule: Any, dtype: str | None = None, alone: bool = False
    ) -> None:
        """Write model (adapters merged) and tokenizer in Hugging Face's format, as transformers 4.45 to 5 read it.

        ``dtype`` names the type of the weights (``None``: that of the model which was read). With ``alone`` the
        adapters are written as they were trained, in peft's format, for the model in ``source``.
        """
        model: PreTrainedModel = module
        if alone:
            base = Path(self.source).expanduser()
            adapters.write_adapters(model, folder, str(base.absolute() if base.is_dir() else base))
        else:
            write_model(model, folder, self._type(dtype), self._dropout)
        if not is_sharded([*model.parameters()]) or is_first():
            datamodule.tokenizer.save_pretrained(folder, save_jinja_files=False)
            add_older_keys(folder, datamodule.tokenizer)

    def logits(self, module: nn.Module, batch: Batch) -> tuple[Tensor, Tensor]:
        """All logits (B, K, V) from the first label on, and the labels (B, K); ``predict`` takes less memory."""
        said, targets = self.predict(module, batch)
        return said.logits(), targets

    def predict(self, module: nn.Module, batch: Batch) -> tuple[Predictions, Tensor]:
        """Hidden states from the first label on, and the labels (B, K); logits are made at places with a label."""
        labels = batch["labels"]
        first = int((labels != IGNORED).int().argmax(dim=1).min())
        keep = labels.shape[1] - first + 1  # the logit before the first label predicts it
        inputs = {name: batch[name] for name in ("input_ids", "attention_mask")}
        return predict(module, **inputs, logits_to_keep=keep, use_cache=False), shifted(labels[:, -keep:])

    def split(self, batch: Batch, size: int | None) -> list[Batch]:
        """Cut a batch into micro-batches of like length, each cut to its longest row: less padding, the same mean."""
        lengths = batch["attention_mask"].sum(1)
        order = lengths.argsort(stable=True)
        parts = []
        for rows in order.split(size or len(order)):
            longest = int(lengths[rows].max())
            parts.append({k: x[rows, :longest] if x.dim() == 2 else x[rows] for k, x in batch.items()})
        return parts

    def uniform_loss(self, module: nn.Module) -> float:
        """``ln V``."""
        return math.log(module.config.get_text_config().vocab_size)  # type: ignore[union-attr,operator]


def _on_meta(p: nn.Parameter) -> nn.Parameter:
    return nn.Parameter(torch.empty(p.shape, dtype=p.dtype, device="meta"), requires_grad=p.requires_grad)
