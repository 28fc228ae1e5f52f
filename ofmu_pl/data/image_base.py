"""Labelled images in memory with a split, wherever both come from: batches for methods, sets for judges."""

import hashlib
from abc import abstractmethod
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from ofmu_pl.data.base import PairedDataModule
from ofmu_pl.data.image_files import Images
from ofmu_pl.data.split import Split
from ofmu_pl.support.errors import UserError


class SplitImages(PairedDataModule):
    """Labelled images, all in memory, of which some are to be forgotten.

    Args:
        batch_size: Images per batch.
        augment: Crop (by up to 4 pixels) and flip training images at random.
        kwargs: See ``PairedDataModule``.

    Attributes:
        splits: Positions of ``full``, ``forget`` and ``retain`` training images, and of ``test`` images like forget.
        split: The split itself.
        class_names: Name of each class.
    """

    modality = "images"
    mean: Sequence[float]
    std: Sequence[float]
    split_seed = 0
    """Seed of what is drawn to evaluate with."""
    split: Split

    def __init__(self, batch_size: int = 128, augment: bool = True, **kwargs: Any) -> None:
        super().__init__(batch_size, **kwargs)
        self.augment = augment

    @abstractmethod
    def read_split(self) -> tuple[Images, Split]:
        """Read all images and labels, and say who of them is forgotten, retained, kept for validation and tested on."""

    def setup(self, stage: str | None = None) -> None:
        """Read the images, take their split, check and hash it; once."""
        if self.splits:
            return
        data, self.split = self.read_split()
        theirs = {name: other.read_split()[1] for name, other in self.others().items()}
        for other in theirs.values():
            if not np.array_equal(other.full, self.split.full):
                raise UserError(
                    "Another request draws other validation images, so what it names is not this target's: give all "
                    "requests one split_seed, validation_fraction and train_items."
                )
            self.split = self.split.without(other)
        self.images, self.labels = data.images, data.labels
        self.test_images, self.test_labels, self.class_names = data.test_images, data.test_labels, data.names
        self.hashes = self.split.hashes(data.hash)
        s = self.split
        splits = {"full": s.full, "forget": s.forget, "retain": s.retain}
        self.require(splits)
        named, tested = self.labels.numpy()[s.forget], self.test_labels.numpy()[s.test]
        single = named[~np.isin(named, s.forgotten)]
        like_forget = np.isin(tested, single if self.names_single_images else named)
        splits["test"] = s.test[like_forget]  # nothing is trained on it
        self.evaluation_sets = {name: getattr(s, name) for name in ("forget", "retain", "validation", "test")}
        self.evaluation_sets |= {name: other.forget for name, other in theirs.items()}
        self.splits = splits  # last: it marks a set-up that went well

    @property
    def names_single_images(self) -> bool:
        """Whether any image to forget is of a class that is not forgotten whole."""
        return not np.isin(self.labels.numpy()[self.split.forget], self.split.forgotten).all()

    @property
    def never_seen(self) -> str | None:
        """The test images of the forgotten images' classes, but of classes that are forgotten whole."""
        return "test" if self.names_single_images and len(self.splits.get("test", ())) else None

    @property
    def why_no_never_seen(self) -> str:
        """Why the test images say nothing of how far to forget."""
        if not self.names_single_images:
            return "Whole classes are forgotten, of which a model that knows them knows the test images as well"
        return "There are no test images of the forgotten images' classes"

    @property
    def channels(self) -> int:
        """Number of channels of an image."""
        return self.images.shape[1]

    def images_of(self, name: str) -> tuple[Tensor, Tensor]:
        """(N, C, H, W) uint8 images and (N,) labels of an evaluation set."""
        index = torch.from_numpy(self.evaluation_sets[name].copy())
        if name == "test":
            return self.test_images[index], self.test_labels[index]
        return self.images[index], self.labels[index]

    def collate(self, stream: str, index: list[int], number: int) -> dict[str, Tensor]:
        """``images`` (B, C, H, W) in [0, 1], augmented if asked; ``labels`` (B,); ``ids`` (B,), places in the stream.

        Test images are augmented, too, since forget images are augmented when a run compares the two.
        """
        batch = self.plain(stream, index)
        if self.augment:
            key = hashlib.sha256(f"{self.seed}/augment/{stream}/{number}".encode()).digest()[:8]
            generator = torch.Generator().manual_seed(int.from_bytes(key, "little") >> 1)
            batch["images"] = augmented(batch["images"], generator)
        return batch

    def plain(self, stream: str, index: list[int]) -> dict[str, Tensor]:
        """The same without augmentation."""
        rows = torch.from_numpy(self.splits[stream][index])
        test = stream == "test"
        images, labels = (self.test_images, self.test_labels) if test else (self.images, self.labels)
        return {"images": images[rows].float() / 255, "labels": labels[rows], "ids": torch.tensor(index)}


def augmented(images: Tensor, generator: torch.Generator, pad: int = 4) -> Tensor:
    """Crops at random offsets of the zero-padded images, half of them mirrored; all images at once."""
    b, _, h, w = images.shape
    top, left = torch.randint(0, 2 * pad + 1, (2, b, 1), generator=generator)
    mirror = torch.rand(b, 1, generator=generator) < 0.5
    rows = top + torch.arange(h)
    columns = left + torch.where(mirror, torch.arange(w - 1, -1, -1), torch.arange(w))
    padded = F.pad(images, (pad, pad, pad, pad))
    item = torch.arange(b).view(b, 1, 1)
    return padded[item, :, rows.unsqueeze(2), columns.unsqueeze(1)].permute(0, 3, 1, 2)
