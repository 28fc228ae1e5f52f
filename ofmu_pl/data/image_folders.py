"""Images in folders, one sub-folder a class."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from PIL import Image

from ofmu_pl.data.image_files import FORMATS
from ofmu_pl.data.own_folders import hidden
from ofmu_pl.data.own_images import Item, OwnImages, Picture
from ofmu_pl.support.errors import UserError
from ofmu_pl.support.extras import extra
from ofmu_pl.support.files import regular


class ImageFolders(OwnImages):
    """A folder of images to forget, one of images to keep, one that no model has seen; a sub-folder a class.

    Classes are the sub-folders' names of all folders together, in alphabetical order, as torchvision's ``ImageFolder``
    numbers them, or in another (``classes``); a class that one of them lacks is no matter, and an empty sub-folder
    names one too. Whole classes are forgotten where ``retain`` has no image of them. Every file must be an image that
    PIL reads, but for hidden ones.

    Args:
        forget: Folder of the images to forget.
        retain: Folder of the images to keep; the network was trained on both.
        test: Folder of images that no model has seen.
        validation: Folder of more such images, by which settings are chosen; ``null``: none.
        kwargs: See ``OwnImages``.

    Example:
        >>> import tempfile
        >>> from pathlib import Path
        >>> from PIL import Image
        >>> root = Path(tempfile.mkdtemp())
        >>> for shade, place in enumerate(["forget/cat", "retain/cat", "retain/dog", "test/dog"]):
        ...     (root / place).mkdir(parents=True)
        ...     Image.new("RGB", (40, 30), (shade, 0, 0)).save(root / place / "1.png")
        >>> folders = {part: str(root / part) for part in ("forget", "retain", "test")}
        >>> data = ImageFolders(**folders, size=8, mean=[0.5] * 3, std=[0.25] * 3)
        >>> data.setup()
        >>> data.class_names, data.images.shape, {name: rows.tolist() for name, rows in data.splits.items()}
        (('cat', 'dog'), torch.Size([3, 3, 8, 8]), {'full': [0, 1, 2], 'forget': [0], 'retain': [1, 2], 'test': []})
        >>> other = ImageFolders(**folders, size=8, mean=[0.5] * 3, std=[0.25] * 3, classes=["dog", "cat"])
        >>> other.setup()
        >>> data.labels.tolist(), other.labels.tolist()  # cat, cat, dog
        ([0, 0, 1], [1, 1, 0])
    """

    def __init__(self, forget: str, retain: str, test: str, validation: str | None = None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        given = {"forget": forget, "retain": retain, "validation": validation, "test": test}
        self.folders = {part: Path(folder).expanduser() for part, folder in given.items() if folder is not None}

    def read_parts(self) -> tuple[dict[str, list[Picture]], tuple[str, ...]]:
        """Read every file, folder by folder."""
        names = self._names()
        return {part: self.pictures(self._items(part, names)) for part in self.folders}, names

    def _names(self) -> tuple[str, ...]:
        """Collect the classes from the sub-folders."""
        names: set[str] = set()
        for part, folder in self.folders.items():
            if not folder.is_dir():
                raise UserError(f"`data.{part}` '{folder}' is no folder: give one with a sub-folder of images a class.")
            for entry in folder.iterdir():
                if hidden(entry, folder):
                    continue
                if not entry.is_dir():
                    raise UserError(f"'{entry}' lies in no class's sub-folder: move it into one, or take it out.")
                names.add(entry.name)
        return tuple(sorted(names))

    def _items(self, part: str, names: tuple[str, ...]) -> Iterator[Item]:
        folder = self.folders[part]
        numbers = {name: i for i, name in enumerate(names)}
        listed = extra("torchvision.datasets", "Reading folders of images").ImageFolder.make_dataset
        shown = lambda path: not hidden(Path(path), folder)  # noqa: E731
        files = listed(str(folder), numbers, is_valid_file=shown, allow_empty=True) if names else []
        if not files:
            raise UserError(f"`data.{part}` '{folder}' holds no image: put some there, in a sub-folder for each class.")
        for path, number in files:
            yield read_image(Path(path)), number, f"'{path}'"


def read_image(path: Path) -> Image.Image:
    """Decode an image file."""
    try:
        with Image.open(regular(path), formats=FORMATS) as image:
            image.load()
            return image
    except (OSError, ValueError, SyntaxError, RuntimeError, Image.DecompressionBombError) as error:
        raise UserError(
            f"'{path}' is no image that PIL can read ({' '.join(str(error).split())}): convert it, or take it out."
        ) from error
