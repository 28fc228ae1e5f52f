"""IDX files read right, packed and not, and refused when they are not right."""

import gzip

import pytest
import torch

from ofmu_pl.data import FashionMNIST
from ofmu_pl.data.fashion_mnist import FILES
from ofmu_pl.support.errors import UserError


def idx(array, kind=8):
    sizes = b"".join(size.to_bytes(4) for size in array.shape)
    return bytes([0, 0, kind, array.dim()]) + sizes + array.numpy().tobytes()


@pytest.fixture
def arrays():
    generator = torch.Generator().manual_seed(0)
    pixels = [torch.randint(0, 256, (n, 28, 28), dtype=torch.uint8, generator=generator) for n in (20, 10)]
    labels = [torch.arange(n, dtype=torch.uint8) % 10 for n in (20, 10)]
    return dict(zip(FILES, (pixels[0], labels[0], pixels[1], labels[1]), strict=True))


@pytest.fixture
def folder(arrays, tmp_path):
    for name, array in arrays.items():
        (tmp_path / f"{name}.gz").write_bytes(gzip.compress(idx(array)))
    return tmp_path


def test_images_and_labels_are_those_of_the_files(folder, arrays):
    data = FashionMNIST(str(folder), forget_classes=[3], validation_fraction=0.1)
    data.setup()
    assert torch.equal(data.images[:, 0], arrays[FILES[0]])
    assert torch.equal(data.labels, arrays[FILES[1]].long())
    images, _ = data.images_of("test")
    assert torch.equal(images[:, 0], arrays[FILES[2]][torch.from_numpy(data.evaluation_sets["test"].copy())])
    assert data.class_names[3] == "dress"
    assert (data.images_of("forget")[1] == 3).all()
    assert 3 not in data.images_of("retain")[1]


def test_files_need_not_be_packed(folder, arrays):
    whole = FashionMNIST(str(folder), forget_classes=[3]).read()
    for name, array in arrays.items():
        (folder / f"{name}.gz").unlink()
        (folder / name).write_bytes(idx(array))
    assert FashionMNIST(str(folder), forget_classes=[3]).read().hash == whole.hash


@pytest.mark.parametrize(
    ("name", "content"),
    [
        (FILES[0], None),
        (FILES[0], gzip.compress(idx(torch.zeros(20, 28, 28, dtype=torch.uint8)))[:-9]),
        (FILES[0], gzip.compress(idx(torch.zeros(20, 28, 28, dtype=torch.uint8))[:-1])),
        (FILES[0], gzip.compress(idx(torch.zeros(20, 28, 28, dtype=torch.uint8)) + b"\0")),
        (FILES[0], gzip.compress(idx(torch.zeros(20, 28, 28, dtype=torch.uint8), kind=9))),
        (FILES[0], gzip.compress(bytes([0, 0, 8, 3]) + b"\xff" * 12)),
        (FILES[0], gzip.compress(b"")),
        (FILES[0], b"no gzip"),
        (FILES[0], gzip.compress(idx(torch.zeros(20, 32, 32, dtype=torch.uint8)))),
        (FILES[1], gzip.compress(idx(torch.zeros(19, dtype=torch.uint8)))),
        (FILES[3], gzip.compress(idx(torch.full((10,), 10, dtype=torch.uint8)))),
    ],
    ids="missing cut short long floats huge empty raw size lengths class".split(),
)
def test_files_that_are_not_right_are_refused(folder, name, content):
    path = folder / f"{name}.gz"
    path.unlink()
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(UserError, match=name if content is None else str(folder)):
        FashionMNIST(str(folder), forget_classes=[3]).read()
