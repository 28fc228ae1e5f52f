"""Image classifiers as networks to unlearn, with a policy for BatchNorm's statistics."""

import math
from abc import abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any, ClassVar, Literal

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from ofmu_pl.networks.base import Batch, Network
from ofmu_pl.networks.state_files import fill, read_state
from ofmu_pl.support.errors import UserError, check_range, reason
from ofmu_pl.support.extras import extra
from ofmu_pl.support.files import read_json, regular, write_json
from ofmu_pl.support.kept import require_undamaged
from ofmu_pl.support.records.results import PROVENANCE, ModelRecord

BatchNormMode = Literal["frozen", "retain", "both"]
AT_A_TIME = 8_000_000  # values of images that are predicted at a time: 500 of CIFAR's, 53 of 224 x 224 pixels


class Normalize(nn.Module):
    """``(x - mean) / std`` per channel (C,), inside the network, so that weights and pixels cannot be mismatched."""

    mean: Tensor
    std: Tensor

    def __init__(self, mean: Sequence[float], std: Sequence[float]) -> None:
        super().__init__()
        self.register_buffer("mean", torch.tensor(mean).view(-1, 1, 1))
        self.register_buffer("std", torch.tensor(std).view(-1, 1, 1))

    def forward(self, x: Tensor) -> Tensor:
        """Normalise images, (B, C, H, W) to (B, C, H, W)."""
        return (x - self.mean) / self.std


class ImageNetwork(Network):
    """An image classifier, randomly initialised or from the folder of a trained one.

    Args:
        path: Folder with config.json, model.safetensors and provenance.json, as a run leaves it; or a file of weights
            that another program saved (safetensors, or a state dict by torch.save). ``None``: a method that unlearns
            takes the model that the configuration's ``original`` trains (once; kept by content), any other method a
            random one.
        bn_mode: What BatchNorm does in first-order training passes. ``frozen``: it normalises by its running statistics
            and never moves them. ``retain``: on retain (and full) batches it normalises by the batch's and moves the
            running ones. ``both``: on forget batches too, as most published code does; class-wise ascent then forgets
            largely through the statistics, which alone took a small CNN's accuracy on a class of CIFAR-10 from 76 to
            16 %. Second-order passes are always frozen. Of a batch that is cut into micro-batches or shared among ranks
            each part is normalised by itself; ranks keep the mean of their running statistics.
    """

    modality = "images"
    shaped_by: ClassVar[tuple[str, ...]]
    """Names of the arguments that fix the shapes of the parameters, all of them: trained models are kept by these."""

    def __init__(self, path: str | None = None, bn_mode: BatchNormMode = "frozen") -> None:
        self.path, self.bn_mode, self._classes = path, bn_mode, 0

    @property
    def architecture(self) -> dict[str, object]:
        """Values of the arguments that fix the shapes of the parameters, beside the data's channels and classes."""
        return {name: getattr(self, name) for name in self.shaped_by}

    @abstractmethod
    def body(self, channels: int, classes: int) -> nn.Module:
        """Make the network after normalisation, randomly initialised."""

    @property
    def identity(self) -> list[object]:
        """What a trained model is kept by, beside its data and its training."""
        return [type(self).__name__, self.architecture]

    def build(self, datamodule: Any, *, exact: bool) -> nn.Module:
        """Make the network in eval mode.

        Raises:
            UserError: The folder or file is missing, unreadable or damaged, or holds another architecture, other
                tensors than the network's, or a model that was trained on other images than this run's.
        """
        module = self._untrained(datamodule)
        if self.path == "":
            raise UserError("`path` is empty: give a folder or a file.")
        path = None if self.path is None else Path(self.path).expanduser()
        if path is not None and path.is_file():
            fill(module[1], read_state(path, module[1].state_dict().keys()), path, "`network`")
        elif path is not None:
            self._load(module, path, datamodule)
        return module

    def skeleton(self, datamodule: Any, *, exact: bool) -> nn.Module:
        """Make the network in eval mode on the meta device, whatever is in its folder."""
        with torch.device("meta"):
            return self._untrained(datamodule)

    def _untrained(self, datamodule: Any) -> nn.Sequential:
        self._classes = len(datamodule.class_names)
        body = self.body(datamodule.channels, self._classes)
        return nn.Sequential(Normalize(datamodule.mean, datamodule.std), body).eval()

    def _load(self, module: nn.Module, folder: Path, datamodule: Any) -> None:
        require_undamaged(folder)
        try:
            config = dict(read_json(folder / "config.json"))
            hashes = ModelRecord.read(folder / PROVENANCE).hashes
            state = load_file(regular(folder / "model.safetensors"))
        except UserError:
            raise
        except (OSError, ValueError, KeyError, TypeError, SafetensorError) as error:
            raise UserError(
                f"'{folder}' holds no readable model ({reason(error)}): give a folder "
                "with config.json, model.safetensors and provenance.json, a file of weights (.safetensors, .pt, .pth), "
                "or leave it out to train one."
            ) from error
        ours = self._config(datamodule)
        for name, value in ours.items():
            if config.get(name) != value:
                raise UserError(
                    f"The model in '{folder}' has {name} {config.get(name)}, this run's network has {value}: give "
                    "the network the same architecture and the data it was trained on."
                )
        for split in ("full", "validation", "test"):
            if hashes.get(split) != datamodule.hashes[split]:
                raise UserError(
                    f"The model in '{folder}' belongs to another {split} split (hash {hashes.get(split)}, "
                    f"here {datamodule.hashes[split]}), so some forget images were never in it: give the data the "
                    "arguments that it was trained with (`split_seed`, `validation_fraction`)."
                )
        fill(module, state, folder, "its config.json")

    def _config(self, datamodule: Any) -> dict[str, object]:
        shape = {"channels": datamodule.channels, "classes": len(datamodule.class_names)}
        return {"network": type(self).__name__, **self.architecture, **shape}

    def save(self, module: nn.Module, folder: Path, datamodule: Any) -> None:
        """Write the weights as safetensors beside what names the architecture."""
        write_json(folder / "config.json", self._config(datamodule))
        save_file({k: v.clone().contiguous() for k, v in module.state_dict().items()}, folder / "model.safetensors")

    def logits(self, module: nn.Module, batch: Batch) -> tuple[Tensor, Tensor]:
        """Logits (B, 1, C), one position per sample, and its class, (B, 1)."""
        return module(batch["images"]).unsqueeze(1), batch["labels"].unsqueeze(1)

    def split(self, batch: Batch, size: int | None) -> list[Batch]:
        """Cut a batch into micro-batches in order."""
        cut = [x.split(size or len(x)) for x in batch.values()]
        return [dict(zip(batch, part, strict=True)) for part in zip(*cut, strict=True)]

    def uniform_loss(self, module: nn.Module) -> float:
        """``ln C``, of the data that the network was built for."""
        return math.log(self._classes)

    @contextmanager
    def statistics(self, module: nn.Module, stream: str) -> Iterator[None]:
        """Switch BatchNorm as ``bn_mode`` says; every other module stays as it is."""
        moving = self.bn_mode == "both" or (self.bn_mode == "retain" and stream != "forget")
        layers = batch_norms(module) if moving else []
        for m in layers:
            m.train()
        try:
            yield
        finally:
            for m in layers:
                m.eval()


class ResNet18(ImageNetwork):
    """CIFAR's ResNet-18 (11.17 M parameters, ReLU and BatchNorm: OFMU's printed penalty needs the exact engine).

    Args:
        width: Channels of the first stage.
        kwargs: See ``ImageNetwork``.

    Example:
        >>> from ofmu_pl import Digits
        >>> data = Digits(forget_classes=[3])
        >>> data.setup()
        >>> model = ResNet18(width=8, bn_mode="retain").build(data, exact=False)
        >>> predict(model, data.test_images[:2]).shape
        torch.Size([2, 10])
    """

    shaped_by = ("width",)

    def __init__(self, width: int = 64, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        check_range(1, width=width)
        self.width = width

    def body(self, channels: int, classes: int) -> nn.Module:
        """Make it: 3 x 3 stem of stride 1, no pooling after it; 11,173,962 parameters for CIFAR-10.

        The blocks are torchvision's. Its whole ``resnet18`` is not used, as it is always 64 channels wide and names its
        weights otherwise than the models that runs have saved.
        """
        block = extra("torchvision.models.resnet", "ResNet18").BasicBlock
        widths = [self.width, self.width, 2 * self.width, 4 * self.width, 8 * self.width]
        stem = nn.Conv2d(channels, self.width, 3, 1, 1, bias=False)
        layers: list[nn.Module] = [stem, nn.BatchNorm2d(self.width), nn.ReLU()]
        for i, (n, m) in enumerate(pairwise(widths)):
            shortcut = nn.Sequential(nn.Conv2d(n, m, 1, 2, bias=False), nn.BatchNorm2d(m)) if i else None
            first = block(n, m, stride=2 if i else 1, downsample=shortcut)
            layers.append(nn.Sequential(first, block(m, m)))
        network = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(widths[-1], classes))
        for module in network.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
        return network


class SmallCNN(ImageNetwork):
    """Three convolutions with SiLU: smooth, so that every engine serves.

    Args:
        width: Channels of the first convolution.
        norm: ``group`` (groups of 8 channels; no running statistics) or ``batch``.
        kwargs: See ``ImageNetwork``.

    Example:
        >>> from ofmu_pl import Digits
        >>> data = Digits(forget_classes=[3])
        >>> data.setup()
        >>> recipe = SmallCNN(width=8)
        >>> model = recipe.build(data, exact=True)
        >>> recipe.sample_losses(model, data.iteration(0)["forget"][0]).shape
        torch.Size([64])
    """

    shaped_by = ("width", "norm")

    def __init__(self, width: int = 32, norm: Literal["group", "batch"] = "group", **kwargs: Any) -> None:
        super().__init__(**kwargs)
        check_range(1, width=width)
        if width % 8:
            raise UserError(f"SmallCNN has groups of 8 channels, width {width} has none: set a multiple of 8.")
        self.width, self.norm = width, norm

    def body(self, channels: int, classes: int) -> nn.Module:
        """Make it: three 3 x 3 convolutions with a norm and SiLU each, for 8 x 8 to 32 x 32 images."""
        layers: list[nn.Module] = []
        wide = 2 * self.width
        for n, m, stride in ((channels, self.width, 1), (self.width, wide, 2), (wide, wide, 2)):
            norm = nn.BatchNorm2d(m) if self.norm == "batch" else nn.GroupNorm(m // 8, m)
            layers += [nn.Conv2d(n, m, 3, stride, 1, bias=False), norm, nn.SiLU()]
        return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(wide, classes))


def batch_norms(module: nn.Module) -> list[nn.Module]:
    """The layers that hold running statistics."""
    return [m for m in module.modules() if isinstance(m, _BatchNorm)]


@torch.no_grad()
def predict(module: nn.Module, images: Tensor) -> Tensor:
    """Log-probabilities of the classes, (N, C) float64, without augmentation."""
    device = next(module.parameters()).device
    size = max(1, min(500, AT_A_TIME // math.prod(images.shape[1:])))
    parts = [module(part.to(device).float() / 255).double().log_softmax(1).cpu() for part in images.split(size)]
    return torch.cat(parts) if parts else torch.empty(0, 0, dtype=torch.float64)
