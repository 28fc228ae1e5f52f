"""Images of any data set of PyTorch's kind, of which some rows are to be forgotten."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from typing import Any

from torch.utils.data import Dataset, Subset

from ofmu_pl.data.own_files import forgotten_rows
from ofmu_pl.data.own_images import Item, OwnImages, Picture
from ofmu_pl.support.errors import UserError, reason


def class_names(datasets: Iterable[Any]) -> list[str]:
    """The names of classes that data sets of torchvision's kind give; none: their numbers are all that is known.

    Raises:
        UserError: Two number different classes: an ``ImageFolder`` numbers the sub-folders that it has.
    """
    whole = list(map(_whole, datasets))
    known = [list(x.classes) for x in whole if getattr(x, "classes", None) and not getattr(x, "target_transform", 0)]
    if any(names != known[0] for names in known):
        raise UserError(
            "Two data sets have different `classes`, so that one number means two: give each ImageFolder an empty "
            "sub-folder for every class that it lacks (`allow_empty`), or take parts of one (torch.utils.data.Subset)."
        )
    return known[0] if known else []


def _whole(dataset: Any) -> Any:
    """What a ``Subset`` is a part of."""
    return _whole(dataset.dataset) if isinstance(dataset, Subset) else dataset


class ImageDatasets(OwnImages):
    """Map-style data sets of (image, class) pairs, and the numbers of the rows to forget.

    An item is an image of PIL's, an (H, W, C) array or a (C, H, W) tensor (uint8, or floating in [0, 1], not
    normalised), and its class's number. Each is asked for once, so a random transform is drawn once. Classes are named
    by the data set's ``classes``, as torchvision's have them, or numbered; the argument ``classes`` orders these names.

    Args:
        dataset: Data set that the network was trained on, a ``class_path`` in files.
        test: Data set of images that no model has seen.
        forget_rows: Numbers from 0 of the rows of ``dataset`` to forget, or a text file with one a line; all other rows
            are kept.
        validation: Data set of more images that no model has seen, by which settings are chosen; ``null``: none.
        kwargs: See ``OwnImages``.

    Example:
        >>> import torch
        >>> rows = [(torch.full((1, 8, 8), i / 10), i % 2) for i in range(6)]
        >>> data = ImageDatasets(rows[:4], test=rows[4:], forget_rows=[1, 3], mean=[0.5], std=[0.25])
        >>> data.setup()
        >>> data.split.forgotten, data.images_of("forget")[1].tolist(), data.images_of("retain")[1].tolist()
        ((1,), [1, 1], [0, 0])
    """

    def __init__(
        self,
        # Not Dataset[Any], whose subclasses jsonargparse (4.53) lets have no arguments.
        dataset: Dataset,  # type: ignore[type-arg]
        test: Dataset,  # type: ignore[type-arg]
        forget_rows: list[int] | str,
        validation: Dataset | None = None,  # type: ignore[type-arg]
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        given = {"dataset": dataset, "test": test, "validation": validation}
        self.datasets: dict[str, Any] = {option: found for option, found in given.items() if found is not None}
        for option, found in self.datasets.items():
            if not hasattr(found, "__len__"):
                raise UserError(f"`data.{option}` {type(found).__name__} has no length: give a map-style one.")
        self.forget_rows = forget_rows

    def read_parts(self) -> tuple[dict[str, list[Picture]], tuple[str, ...]]:
        """Read every row of every data set."""
        n = len(self.datasets["dataset"])
        forget = forgotten_rows(self.forget_rows, n)
        parts = {"forget": self._items("dataset", forget)}
        parts["retain"] = self._items("dataset", sorted(set(range(n)) - set(forget)))
        for option in list(self.datasets)[1:]:
            parts[option] = self._items(option, range(len(self.datasets[option])))
        read = {part: self.pictures(items) for part, items in parts.items()}
        numbered = range(max(label for _, label, _ in chain.from_iterable(read.values())) + 1)
        return read, tuple(map(str, class_names(self.datasets.values()) or numbered))

    def _items(self, option: str, numbers: Sequence[int]) -> Iterator[Item]:
        rows = self.datasets[option]
        for i in numbers:
            place = f"row {i} of `{option}`"
            try:
                row = rows[i]
            except Exception as error:  # whatever its own code raises
                raise UserError(
                    f"{place} cannot be read ({type(error).__name__}: {reason(error)}): mend it, or leave it out."
                ) from error
            if not isinstance(row, tuple | list) or len(row) != 2:
                raise UserError(f"{place} is {type(row).__name__}, no pair of an image and a class: give such pairs.")
            yield row[0], row[1], place
