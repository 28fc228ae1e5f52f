"""Real images read right, and refused when they are not right."""

import hashlib
import io
import shutil
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from PIL import Image

from ofmu_pl.data import CIFAR10, CIFAR100, Digits, own_files
from ofmu_pl.data.image_files import NAMES
from ofmu_pl.support.errors import UserError

TEST_PIXELS = "76aa83564f941ad86e01dfed404386d23e2cc9da7e8ea06b00926934aea8abca"
"""Of shared/data/cifar10/test.parquet, by its README: SHA-256 over rows of RGB bytes and a label byte."""
COLUMNS = {10: "label", 100: "fine_label"}
SHARDS = ("train-00000-of-00002.parquet", "train-00001-of-00002.parquet")


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "cifar").mkdir()
    return tmp_path / "cifar"


def cifar(folder, classes):
    """What the data module of so many classes reads in a folder."""
    return {10: CIFAR10, 100: CIFAR100}[classes](str(folder)).read()


def pictures(n, seed=0, side=32):
    return np.random.default_rng(seed).integers(0, 256, (n, side, side, 3), dtype=np.uint8)


def encode(pixels, kind="PNG"):
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, kind)
    return file.getvalue()


def write(path, encoded, labels, column="label", **more):
    """A parquet file as the hub has it."""
    path.parent.mkdir(exist_ok=True)
    images = pa.array(
        [{"bytes": e, "path": "x.png"} for e in encoded], pa.struct([("bytes", "binary"), ("path", "string")])
    )
    pq.write_table(pa.table({"img": images, column: pa.array(labels, pa.int64()), **more}), path, row_group_size=3)


def small(folder, classes=10, n=8):
    """A training and a test file; the pixels and labels that are in them."""
    column, made = COLUMNS[classes], {}
    for split, seed in (("train", 1), ("test", 2)):
        pixels, labels = pictures(n, seed), (np.arange(n) * 7 + seed) % classes
        more = {"coarse_label": np.zeros(n, dtype=np.int64)} if classes == 100 else {}
        write(folder / f"{split}.parquet", [encode(p) for p in pixels], labels, column, **more)
        made[split] = pixels, labels
    return made


def same(images, made):
    got = {"train": (images.images, images.labels), "test": (images.test_images, images.test_labels)}
    for split, (pixels, labels) in got.items():
        assert pixels.dtype == torch.uint8
        assert labels.dtype == torch.int64
        assert pixels.is_contiguous()
        assert np.array_equal(pixels.permute(0, 2, 3, 1).numpy(), made[split][0]), split
        assert labels.tolist() == list(made[split][1]), split


def refused(data, message, classes=10):
    with pytest.raises(UserError, match=message):
        cifar(data, classes)


def test_digits_are_real_and_their_test_part_is_fixed():
    images = Digits().read()
    assert images.images.shape == (1438, 1, 8, 8)
    assert set(images.test_labels.bincount().tolist()) == {35, 36, 37}
    assert {0, 16, 128, 239, 255} <= set(images.images.flatten().tolist()) <= {round(255 * v / 16) for v in range(17)}
    assert images.names == tuple("0123456789")
    assert images.hash == "37c6f99ea6bc8855", "the same test part on every machine and in every run"
    means = torch.stack([images.images[images.labels == c].float().mean(0) for c in range(10)])
    nearest = torch.cdist(images.test_images.float().flatten(1), means.flatten(1)).argmin(1)
    assert (nearest == images.test_labels).float().mean() > 0.85, "images and labels belong together"


def test_the_hash_is_of_pixels_labels_and_parts():
    images = Digits().read()
    changed, labels = images.images.clone(), images.test_labels.clone()
    changed[-1, 0, 7, 7] ^= 1
    labels[0] = (labels[0] + 1) % 10
    others = [
        replace(images, images=changed),
        replace(images, test_labels=labels),
        replace(images, images=images.test_images, test_images=images.images),
        replace(images, images=images.images.reshape(-1, 1, 4, 16)),
    ]
    assert len({images.hash, *(other.hash for other in others)}) == 5


@pytest.fixture(scope="module")
def real(shared, tmp_path_factory):
    """A folder with all real test images and the first 200 as training images."""
    source = shared / "data/cifar10/test.parquet"
    if not source.is_file():
        pytest.skip(f"no CIFAR-10 at {source}")
    folder = tmp_path_factory.mktemp("real")
    shutil.copy(source, folder / "test.parquet")
    pq.write_table(pq.read_table(source).slice(0, 200), folder / "train.parquet")
    return folder


def test_real_images_have_the_known_pixels(real):
    images = cifar(real, 10)
    assert images.test_images.shape == (10_000, 3, 32, 32)
    pixels = images.test_images.permute(0, 2, 3, 1).reshape(10_000, -1)
    rows = torch.cat([pixels, images.test_labels[:, None].to(torch.uint8)], dim=1)
    assert hashlib.sha256(rows.numpy().tobytes()).hexdigest() == TEST_PIXELS
    assert images.test_labels.bincount().tolist() == [1000] * 10
    assert torch.equal(images.images, images.test_images[:200])


@pytest.mark.parametrize("classes", [10, 100])
@pytest.mark.parametrize("inner", [".", "plain_text", "data", "cifar100"])
def test_small_files_are_read_as_written(folder, classes, inner):
    made = small(folder / inner, classes)
    images = cifar(folder, classes)
    same(images, made)
    assert images.names == NAMES[classes]
    images.images[0], images.labels[0] = 0, 0  # writable, or torch would warn


def test_shards_are_joined_in_order(folder):
    made = small(folder)
    (folder / "train.parquet").unlink()
    pixels, labels = made["train"]
    for name, part in zip(SHARDS, (slice(0, 5), slice(5, 8)), strict=True):
        write(folder / name, [encode(p) for p in pixels[part]], labels[part])
    (folder / "test.parquet").rename(folder / "test-00000-of-00001-0123456789abcdef.parquet")
    same(cifar(folder, 10), made)


def test_jpeg_and_grey_images_are_read(folder):
    small(folder)
    grey = pictures(1)[0, :, :, 0]
    flat = np.full((32, 32, 3), 90, dtype=np.uint8)
    write(folder / "train.parquet", [encode(grey), encode(flat, "JPEG")], [3, 4])
    images = cifar(folder, 10)
    assert np.array_equal(images.images[0].numpy(), np.stack([grey] * 3))
    assert (images.images[1].int() - 90).abs().max() <= 1


@pytest.mark.parametrize(
    ("row", "label"),
    [
        (b"no picture", 0),
        (encode(pictures(1)[0], "JPEG")[:-300], 0),
        (encode(pictures(1)[0], "BMP"), 0),
        (encode(pictures(1, side=28)[0]), 0),
        *((None, label) for label in (10, -1, None)),
    ],
)
def test_a_bad_image_or_label_is_named_by_file_and_row(folder, row, label):
    small(folder)
    good = encode(pictures(1)[0])
    write(folder / "train.parquet", [good, good, row or good, good], [0, 1, label, 3])
    refused(folder, "cifar' .*image 2 .*train")


def test_files_of_another_schema_are_refused(folder):
    small(folder, 100)
    refused(folder, r"image 0 .*train .* img .* label\b")
    small(folder, 10)
    refused(folder, r"image 0 .*train .* img .* fine_label\b", classes=100)
    pq.write_table(pa.table({"img": [b"x"], "label": [1]}), folder / "test.parquet")
    refused(folder, "image 0 .*test")


def test_unreadable_and_empty_files_are_refused(folder):
    small(folder)
    write(folder / "test.parquet", [], [])
    refused(folder, "image 0 .*test")
    whole = (folder / "train.parquet").read_bytes()
    for content in (b"text", whole[:-9], whole[:4] + b"\0" * 200 + whole[204:]):
        (folder / "train.parquet").write_bytes(content)
        refused(folder, "train")


@pytest.mark.parametrize(
    "names",
    [
        (),
        SHARDS[:1],
        SHARDS[1:],
        ("train.parquet", *SHARDS),
        ("train.parquet", "train_old.parquet"),
        ("train-00000-of-00002-a.parquet", "train-00000-of-00002-b.parquet"),
    ],
)
def test_images_are_neither_left_out_nor_held_twice(folder, names):
    small(folder)
    (folder / "train.parquet").rename(folder / "source")
    for name in names:
        shutil.copy(folder / "source", folder / name)
    refused(folder, "cifar' .*train.parquet")


def test_without_a_folder_the_hubs_rows_are_read(monkeypatch):
    asked = []

    def load(source, config, split):
        asked.append((source, split))
        return [{"img": Image.fromarray(pixels), "label": i} for i, pixels in enumerate(pictures(3))]

    monkeypatch.setattr(own_files, "load_hub_rows", load)
    same(CIFAR10().read(), dict.fromkeys(("train", "test"), (pictures(3), [0, 1, 2])))
    assert asked == [("uoft-cs/cifar10", "train"), ("uoft-cs/cifar10", "test")]
