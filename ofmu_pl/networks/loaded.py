"""A language model that is in memory already, for notebooks and other programs."""

import copy
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from torch import nn
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from ofmu_pl.networks.adapters import is_adapted, require_separate, require_weights
from ofmu_pl.networks.base import Network
from ofmu_pl.networks.language import CausalLM
from ofmu_pl.networks.positions import check_readable
from ofmu_pl.support.errors import UserError


class LoadedLM(CausalLM):
    """A language model of Hugging Face's that is loaded already, with or without adapters of peft's.

    The model itself is trained, in place: a second copy of it may not fit the memory. Its parameters become float32.
    Of a ``PeftModel`` the adapters alone are trained, as peft has set them.

    Args:
        model: The model, an ``AutoModelForCausalLM`` or a ``PeftModel`` of one.
        tokenizer: Its tokenizer, loaded or the folder or hub id of one; ``None``: the data has one.

    Example:
        >>> from transformers import LlamaConfig, LlamaForCausalLM
        >>> shape = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
        >>> model = LlamaForCausalLM(LlamaConfig(vocab_size=1000, **shape))
        >>> from ofmu_pl import Authors
        >>> data = Authors(authors=2, forget_authors=1, batch_size=2)
        >>> data.setup()
        >>> LoadedLM(model).build(data, exact=False) is model
        True
    """

    takes_objects = True
    """Whether only a program can make one: the command line does not offer it."""

    def __init__(self, model: nn.Module, tokenizer: PreTrainedTokenizerBase | str | None = None) -> None:
        if not hasattr(model, "generate") or not hasattr(model, "config"):
            raise UserError(
                f"The model is a {type(model).__name__}, no language model of Hugging Face's: load one by "
                "AutoModelForCausalLM.from_pretrained."
            )
        if getattr(model.config, "is_encoder_decoder", False):
            raise UserError(
                f"The model is a {type(model).__name__}, whose encoder reads what its decoder answers, and what is "
                "unlearned here is a decoder alone: load a model by AutoModelForCausalLM.from_pretrained."
            )
        if not any(p.requires_grad for p in model.parameters()):
            raise UserError(
                "No parameter of the model is trained: load a PeftModel with is_trainable=True, or call requires_grad_."
            )
        if len({p.device for p in model.parameters()}) > 1:
            raise UserError("The model lies on several devices: load it without device_map, on one of them.")
        if next(model.parameters()).is_meta:
            raise UserError("The model has no weights yet (torch.device 'meta'): load them, by from_pretrained.")
        if is_adapted(model):
            require_weights(model)
            require_separate(model)
        super().__init__(path=getattr(model.config, "_name_or_path", "") or type(model).__name__)
        self.tokenizer_source = tokenizer
        self.model: PreTrainedModel = model
        self._given = False

    build_in_shards = Network.build_in_shards  # of the model itself, not of the files that it may come from

    def build(self, datamodule: Any, *, exact: bool) -> nn.Module:
        """Give the model itself, with float32 parameters, and whoever asks again a copy as it is then."""
        if self._given:
            return copy.deepcopy(self.model)
        check_readable(self.model.config, datamodule)
        self._given = True
        if not getattr(self.model, "is_quantized", False):  # what bitsandbytes holds stays as it is
            self.model.float()
        if exact:
            self.model.set_attn_implementation("eager")
        return self._prepared(self.model)


@contextmanager
def restored(model: PreTrainedModel) -> Iterator[None]:
    """A context after which a loaded model is on its device, in its mode and with its attention kernel again."""
    device, training = next(model.parameters()).device, model.training
    use_cache = getattr(model.config, "use_cache", True)
    kernel = getattr(model.config, "_attn_implementation", None)
    try:
        yield
    finally:
        model.zero_grad(set_to_none=True)
        model.to(device).train(training)
        model.config.update({"use_cache": use_cache})
        if kernel is not None and model.config._attn_implementation != kernel:
            model.set_attn_implementation(kernel)
