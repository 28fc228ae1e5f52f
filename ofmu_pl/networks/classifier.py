"""Any image classifier as a network to unlearn: a class of the user's own, an object, or a name of torchvision's."""

import copy
import inspect
import re
from collections.abc import Callable
from functools import partial
from types import ModuleType
from typing import Any, Self

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from ofmu_pl.networks.vision import ImageNetwork
from ofmu_pl.support.errors import UserError
from ofmu_pl.support.extras import extra
from ofmu_pl.support.files import text_hash


class Classifier(ImageNetwork):
    """Any module that gives one row of logits an image, (B, classes) for (B, channels, height, width).

    Of transformers' classifiers the ``logits`` of the output are taken. Probabilities are refused.

    Images come normalised by the data's ``mean`` and ``std``. The network stays in eval mode, as every network here,
    but for BatchNorm's statistics where ``bn_mode`` says so.

    Args:
        module: Class of the network with its arguments (``class_path`` and ``init_args`` in files), or a name of a
            classifier of torchvision's, such as ``resnet18``, made with as many outputs as the data has classes. In
            Python also any function without arguments that makes a network, or a network itself, which is copied.
        kwargs: See ``ImageNetwork``; ``path`` may be a file of the weights that another program saved.

    Example:
        >>> from ofmu_pl import Digits
        >>> data = Digits(forget_classes=[3])
        >>> data.setup()
        >>> own = Classifier(lambda: nn.Sequential(nn.Flatten(), nn.Linear(64, 10)))
        >>> model = own.build(data, exact=True)
        >>> own.sample_losses(model, data.iteration(0)["forget"][0]).shape
        torch.Size([64])
    """

    def __init__(self, module: Callable[[], nn.Module] | str, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        if isinstance(module, str) and module not in _theirs(module).list_models(_theirs(module)):
            raise UserError(
                f"`module` '{module}' is neither a torch.nn.Module that can be imported from here nor a "
                "classifier of torchvision's: give the class as FILE.CLASS and run where the file lies (of a file "
                "elsewhere on PYTHONPATH add --trust FILE), or a name such as resnet18."
            )
        if isinstance(module, nn.Module) and not any(p.requires_grad for p in module.parameters()):
            raise UserError("No parameter of the network is trained: call its requires_grad_(True).")
        self.module = module

    @property
    def architecture(self) -> dict[str, object]:
        """Name of the class, and a digest of its layers and arguments; of torchvision's networks the name alone."""
        if isinstance(self.module, str):
            return {"module": self.module}
        made = self._digested()
        arguments = self.module.keywords if isinstance(self.module, partial) else {}
        shapes = {name: tuple(x.shape) for name, x in made.state_dict().items()}
        text = re.sub(r" at 0x[0-9a-f]+", "", f"{made} {sorted(arguments.items())} {shapes}")
        return {"module": f"{type(made).__module__}.{type(made).__qualname__}", "layers": text_hash(text)}

    @property
    def identity(self) -> list[object]:
        """What a trained model is kept by: the source of the class too, since the layers do not tell all."""
        if isinstance(self.module, str):
            return super().identity
        try:
            source = inspect.getsource(type(self._digested()))
        except (OSError, TypeError):  # typed into a shell
            source = ""
        return [*super().identity, text_hash(source)]

    def at(self, path: str | None) -> Self:
        """Copy the recipe, with weights from another place, or without any."""
        if path is None and isinstance(self.module, nn.Module):
            raise UserError(
                "A network that is there already cannot be trained from scratch: give Classifier its class, so that "
                "the retrained model begins anew, or give the retrained model as the reference."
            )
        return super().at(path)

    def body(self, channels: int, classes: int) -> nn.Module:
        """Make the network; whoever wrote it says how it is initialised."""
        if isinstance(self.module, str):
            return _theirs(self.module).get_model(self.module, num_classes=classes)
        if isinstance(self.module, nn.Module):
            return copy.deepcopy(self.module).float().cpu()
        made = self.module()
        if not isinstance(made, nn.Module):
            raise UserError(f"`module` makes a {type(made).__name__}, no torch.nn.Module: give a network's class.")
        return made.float()

    def build(self, datamodule: Any, *, exact: bool) -> nn.Module:
        """Make the network in eval mode, and try it on an image."""
        network = super().build(datamodule, exact=exact)
        *_, body = network.children()
        if exact and isinstance(body, PreTrainedModel):
            body.set_attn_implementation("eager")
        self._try(network, datamodule)
        return network

    def skeleton(self, datamodule: Any, *, exact: bool) -> nn.Module:
        """Make the network on the meta device, by way of the CPU: not every class can be made there at once."""
        return self._untrained(datamodule).to("meta")

    def _digested(self) -> nn.Module:
        """A network that is only looked at; making it draws no random number."""
        if isinstance(self.module, nn.Module):
            return self.module
        with torch.random.fork_rng(devices=[]):
            return self.body(3, 2)

    def _try(self, network: nn.Module, datamodule: Any) -> None:
        """Refuse what gives no logits of the data's classes for one of its images."""
        like = next(network.parameters())
        image = datamodule.images[:1].to(like.device).to(like.dtype) / 255
        shape, name = " x ".join(map(str, image.shape[1:])), type(list(network.children())[1]).__name__
        try:
            with torch.no_grad():
                logits = network(image)
        except (RuntimeError, ValueError, TypeError, IndexError, AssertionError) as error:
            reason = " ".join(str(error).split())[:120]
            raise UserError(
                f"{name} cannot take images of {shape} ({reason}): set `size` to what it was trained on."
            ) from error
        found = tuple(logits.shape) if isinstance(logits, Tensor) else type(logits).__name__
        if found != (1, self._classes):
            raise UserError(
                f"{name} gives {found} for one image, and '{datamodule.name}' has {self._classes} classes: give the "
                "network as many outputs a row, or name the class of each output in `data.classes`."
            )
        outputs = network(datamodule.images[:8].to(like.device).to(like.dtype) / 255)
        ending = type(outputs.grad_fn).__name__  # of the last operator
        shares = bool((outputs >= 0).all()) and torch.allclose(
            outputs.sum(1), outputs.new_ones(len(outputs)), atol=1e-4
        )
        if shares or ending.startswith(("Sigmoid", "Softmax")):
            raise UserError(
                f"{name} gives probabilities, no logits (they are not negative{' and sum to 1' if shares else ''}), of "
                "which a loss would take the softmax once more: take the softmax or sigmoid off its end."
            )

    def _untrained(self, datamodule: Any) -> nn.Sequential:
        network = super()._untrained(datamodule)
        network[1].register_forward_hook(_logits)
        return network


def _logits(_: nn.Module, __: Any, output: Any) -> Any:
    """The logits of what transformers' classifiers give; any other output as it is."""
    return getattr(output, "logits", output)


def _theirs(name: str) -> ModuleType:
    """Torchvision's models, for one by name."""
    return extra("torchvision.models", f"The network '{name}'")
