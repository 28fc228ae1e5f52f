"""Images of the user's own: any picture as pixels of one size, and what no such data may have."""

import hashlib
import operator
from abc import abstractmethod
from collections.abc import Iterable, Sequence
from itertools import chain
from typing import Any, SupportsIndex

import numpy as np
import torch
from lightning.pytorch.utilities import rank_zero_info
from PIL import Image
from torch import Tensor

from ofmu_pl.data.class_order import Order, in_order
from ofmu_pl.data.encoded import first_copies
from ofmu_pl.data.image_base import SplitImages
from ofmu_pl.data.image_files import Images
from ofmu_pl.data.split import Split
from ofmu_pl.support.errors import UserError, check_range
from ofmu_pl.support.extras import extra

PARTS = ("forget", "retain", "validation", "test")
Item = tuple[object, SupportsIndex, str]  # a picture, its class's number, and what a message calls it
Picture = tuple[Tensor, int, str]  # the same as the network will see it: (channels, height, width) uint8 pixels


class OwnImages(SplitImages):
    """Images whose forget, retain and test parts are given, not drawn.

    All images are read once and kept in memory as bytes, in the size that the network takes.

    Args:
        mean: Mean of each channel, of pixels in [0, 1], that the network's training subtracted: three numbers, or one,
            which makes the images grey. Zeros where the network normalises by itself.
        std: Deviation of each channel by which it divided; ones where the network normalises by itself.
        size: Height and width that images are resized to (bilinear, antialiased, whatever their sides' ratio); one
            number for both; ``null``: all have one size already.
        augment: Crop (by up to 4 pixels) and flip training images at random; off, for a mirrored image may be another
            thing.
        classes: Names of all classes in the order of the network's outputs, a class without images too; ``natural``:
            by the numbers in their names, as timm's folders (class_2 before class_10); ``null``: as the images have it.
        kwargs: See ``SplitImages``, which has the attributes too.
    """

    name = "images"

    def __init__(
        self,
        mean: Sequence[float],
        std: Sequence[float],
        size: int | tuple[int, int] | None = None,
        augment: bool = False,
        classes: Order = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(augment=augment, **kwargs)
        if self.other_requests:
            raise UserError(
                "Requests one after another are for images of which classes are forgotten (Digits, CIFAR10, CIFAR100), "
                "not for images whose parts are given: make one request of them."
            )
        counts = [len(x) if hasattr(x, "__len__") else 0 for x in (mean, std)]
        if counts not in ([1, 1], [3, 3]):
            raise UserError(f"`data.mean` is {mean!r} and `data.std` {std!r}: give three numbers each, or one (grey).")
        self.mean, self.std = tuple(mean), tuple(std)
        for average, deviation in zip(self.mean, self.std, strict=True):
            check_range(0, 1, mean=average)
            check_range(0, above=True, std=deviation)
        self.classes = classes
        self.size = (size, size) if isinstance(size, int) else size
        for side in self.size or ():
            check_range(1, size=side)

    @abstractmethod
    def read_parts(self) -> tuple[dict[str, list[Picture]], tuple[str, ...]]:
        """Read the pictures of ``forget``, ``retain``, ``test`` and perhaps ``validation``, and the classes' names.

        Labels are places in these names, whatever the order that the network has them in.
        """

    def read_split(self) -> tuple[Images, Split]:
        """Read all pictures: what is forgotten, retained and kept for validation, in this order."""
        parts, known = self.read_parts()
        check_parts(parts, known)
        names = in_order(known, self.classes)
        if self.classes is not None:
            numbers = [names.index(name) for name in known]
            for part, pictures in parts.items():
                parts[part] = [(pixels, numbers[label], place) for pixels, label, place in pictures]
        rank_zero_info(f"Read: {', '.join(f'{part} {len(images)} image(s)' for part, images in parts.items())}.")
        for part, pictures in parts.items():
            digests = [_digest(pixels) for pixels, _, _ in pictures]
            parts[part] = [pictures[i] for i in first_copies(part, digests)]
        train = [parts[name] for name in PARTS[:3] if name in parts]
        ends = np.cumsum([len(pictures) for pictures in train])
        forget, retain, *validation = np.split(np.arange(ends[-1]), ends[:-1])
        split = Split(
            full=np.arange(ends[1]),
            forget=forget,
            retain=retain,
            validation=np.concatenate([np.arange(0), *validation]),
            test=np.arange(len(parts["test"])),
            forgotten=tuple(sorted(_classes(parts["forget"]) - _classes(parts["retain"]))),
        )
        return Images(*_tensors(list(chain.from_iterable(train))), *_tensors(parts["test"]), names), split

    def blank(self) -> None:
        """Set up as always: only the images themselves say how many classes there are, and how large they are."""
        self.setup()

    @property
    def facts(self) -> dict[str, object]:
        """Classes that are forgotten whole, by number since names may be people's, and how images are prepared."""
        prepared = {"mean": list(self.mean), "std": list(self.std), "size": self.size and list(self.size)}
        return {"forgotten": list(self.split.forgotten), "augment": self.augment, **prepared}

    def pictures(self, items: Iterable[Item]) -> list[Picture]:
        """Read items one by one."""
        found = []
        for picture, label, place in items:
            pixels = as_pixels(picture, len(self.mean), self.size, place)
            try:
                found.append((pixels, operator.index(label), place))
            except TypeError:
                raise UserError(f"The class of {place} is {label!r}: give whole numbers from 0.") from None
        return found


def as_pixels(picture: object, channels: int, size: tuple[int, int] | None, place: str) -> Tensor:
    """Turn PIL's, a (H, W, C) array or a (C, H, W) tensor, uint8 or in [0, 1], into a (C, H, W) uint8 tensor."""
    functional = extra("torchvision.transforms.functional", "Reading images of your own")
    if isinstance(picture, np.ndarray) and picture.dtype.kind == "f" and picture.ndim in (2, 3):
        picture = torch.from_numpy(np.atleast_3d(picture).astype(np.float32)).movedim(-1, 0)
    if isinstance(picture, Tensor) and picture.is_floating_point():
        low, high = picture.aminmax() if picture.numel() else (picture.new_zeros(()),) * 2
        if not (low >= 0 and high <= 1):  # NaN too
            raise UserError(
                f"The pixels of {place} lie from {float(low):.3g} to {float(high):.3g}, not in [0, 1]: leave the "
                "normalisation out of the data set's transform, and give it as `data.mean` and `data.std`."
            )
        picture = (picture * 255).round().to(torch.uint8)
    try:
        image = picture if isinstance(picture, Image.Image) else functional.to_pil_image(picture)
    except (TypeError, ValueError) as error:
        raise UserError(f"{place} is no image ({' '.join(str(error).split())[:100]}): give PIL's or pixels.") from error
    if image.mode.startswith(("I", "F")):  # PIL would cut off, without a word, what 8 bits do not hold
        values = np.asarray(image)
        if not (values.min() >= 0 and values.max() <= 255):  # NaN too
            raise UserError(f"{place} has values from {values.min():g} to {values.max():g}, not 0 to 255: give 8 bits.")
    image = image.convert("RGB" if channels == 3 else "L")
    if size is not None:
        image = functional.resize(image, list(size))
    pixels: Tensor = functional.pil_to_tensor(image)
    return pixels


def check_parts(parts: dict[str, list[Picture]], names: Sequence[str]) -> None:
    """Refuse images that cannot be unlearned or judged."""
    for part, pictures in parts.items():
        if not pictures:
            raise UserError(f"There are no {part} images: point `data.{part}` at some.")
    first, _, first_place = parts["forget"][0]
    trained = _classes(parts["forget"]) | _classes(parts["retain"])
    for part, pictures in parts.items():
        for pixels, label, place in pictures:
            if pixels.shape != first.shape:
                sides = ["{2} x {1}".format(*x.shape) for x in (pixels, first)]
                raise UserError(
                    f"{place} is {sides[0]} pixels wide and high, {first_place} {sides[1]}: set `data.size` for all."
                )
            if not 0 <= label < len(names):
                raise UserError(f"The class of {place} is {label}: give whole numbers from 0 to {len(names) - 1}.")
            if label not in trained:
                raise UserError(
                    f"The {part} images have the class '{names[label]}' ({place}), which no forget or retain image "
                    "has: take it out, or add retain images of it."
                )
    _refuse_overlap(parts)


def _refuse_overlap(parts: dict[str, list[Picture]]) -> None:
    """Refuse an image that is in two parts, pixel by pixel: to forget and to stay, or to test and learnt."""
    places: dict[bytes, tuple[str, str]] = {}
    for part in PARTS:
        here = {}
        for pixels, _, place in parts.get(part, []):
            here[_digest(pixels)] = part, place
        shared = [digest for digest in here if digest in places]
        if shared:
            other, place = places[shared[0]]
            raise UserError(
                f"{len(shared)} of {len(here)} {part} images are among the {other} images too, the first as "
                f"{here[shared[0]][1]} and {place}: take them out of one of the two."
            )
        places |= here


def _digest(pixels: Tensor) -> bytes:
    return hashlib.sha256(pixels.numpy().tobytes()).digest()


def _classes(pictures: list[Picture]) -> set[int]:
    return {label for _, label, _ in pictures}


def _tensors(pictures: list[Picture]) -> tuple[Tensor, Tensor]:
    pixels, labels, _ = zip(*pictures, strict=True)
    return torch.stack(pixels), torch.tensor(labels)
