"""Images of the user's own: folders and data sets become splits, and what cannot be unlearned is refused by name."""

import shutil

import numpy as np
import pytest
import torch
from PIL import Image, UnidentifiedImageError
from torch.utils.data import Subset
from torchvision.datasets import ImageFolder

from ofmu_pl.data import ImageDatasets, ImageFolders
from ofmu_pl.data.image_datasets import class_names
from ofmu_pl.networks import Classifier
from ofmu_pl.support.errors import UserError

PREPARED = {"mean": [0.5] * 3, "std": [0.25] * 3}
LAYOUT = {"forget": {"ant": 3}, "retain": {"bee": 4, "cow": 2}, "test": {"ant": 2, "bee": 2}}


@pytest.fixture
def root(tmp_path):
    """Folders of 12 x 8 noise as ``LAYOUT`` says."""
    rng = np.random.default_rng(0)
    for part, classes in LAYOUT.items():
        for name, count in classes.items():
            (tmp_path / part / name).mkdir(parents=True)
            for i in range(count):
                pixels = rng.integers(0, 256, (8, 12, 3), np.uint8)
                Image.fromarray(pixels).save(tmp_path / part / name / f"{i}.png")
    return tmp_path


def folders(root, **options):
    data = ImageFolders(**{part: str(root / part) for part in LAYOUT} | PREPARED | options)
    data.setup()
    return data


def rows(n, start=0):
    """Small images, no two alike, of classes 0 and 1."""
    return [(torch.full((3, 4, 4), start + i, dtype=torch.uint8), i % 2) for i in range(n)]


def datasets(**options):
    data = ImageDatasets(**{"dataset": rows(6), "test": rows(4, 100), "forget_rows": [4, 0]} | PREPARED | options)
    data.setup()
    return data


def test_data_sets_whose_classes_have_other_numbers_are_refused(root):
    every, (forget, retain, test) = ["ant", "bee", "cow"], (ImageFolder(root / p) for p in ("forget", "retain", "test"))
    with pytest.raises(UserError, match="`classes`"):  # bees are 0 here and 1 there
        class_names([retain, test])
    with pytest.raises(UserError, match="`classes`"):
        class_names([Subset(Subset(retain, [0]), [0]), test])
    forget.target_transform = every.index
    assert class_names([forget, retain, rows(2)]) == retain.classes
    assert class_names([rows(2)]) == []


def test_folders_become_splits(root):
    data = folders(root, batch_size=2)
    assert data.class_names == ("ant", "bee", "cow"), "of all folders together, in alphabetical order"
    sizes = {name: len(found) for name, found in data.evaluation_sets.items()}
    assert sizes == {"forget": 3, "retain": 6, "validation": 0, "test": 4}
    assert data.split.forgotten == (0,), "retain has no ants"
    assert data.images_of("test")[1].tolist() == [0, 0, 1, 1]
    (batch,) = data.iteration(0)["retain"]
    assert batch["images"].shape == (2, 3, 8, 12)
    pixels = np.asarray(Image.open(root / "retain/cow/1.png"))
    assert torch.equal(data.images_of("retain")[0][5], torch.from_numpy(pixels.transpose(2, 0, 1).copy()))
    (root / "retain/ant").mkdir()
    (root / "forget/ant/0.png").rename(root / "retain/ant/0.png")
    assert folders(root).split.forgotten == (), "the class is retained, too"


def test_single_images_beside_a_whole_class_have_held_out_images():
    one_of_two = [(image, 2 if i == 5 else label) for i, (image, label) in enumerate(rows(6))]
    tested = [*rows(4, 100), (torch.full((3, 4, 4), 200, dtype=torch.uint8), 2)]
    data = datasets(dataset=one_of_two, test=tested, forget_rows=[0, 5])
    assert data.split.forgotten == (2,)
    assert data.never_seen == "test"
    assert data.images_of("test")[1].tolist() == [0, 1, 0, 1, 2], "all are evaluated"
    assert data.test_labels[data.splits["test"]].tolist() == [0, 0], "a class forgotten whole says no level"
    assert datasets(dataset=one_of_two, test=tested, forget_rows=[5]).never_seen is None


def test_an_empty_sub_folder_names_a_class_and_hidden_files_are_none(root):
    (root / "retain/bat").mkdir()
    (root / "retain/.cache").touch()
    (root / "retain/bat/.DS_Store").touch()
    shutil.copytree(root / "retain/bee", root / "forget/ant/.thumbnails")  # would be forgotten, and retained
    data = folders(root)
    assert data.class_names == ("ant", "bat", "bee", "cow")
    assert len(data.splits["forget"]) == 3


def test_size_and_channels(root):
    data = folders(root, size=(5, 7), mean=[0.5], std=[0.25])
    assert data.images.shape == (9, 1, 5, 7)
    assert data.facts["size"] == [5, 7]


def named(data, side):
    """Each image of a side with the name of its class."""
    images, labels = data.images_of(side)
    return [(image.tolist(), data.class_names[label]) for image, label in zip(images, labels, strict=True)]


@pytest.mark.parametrize("order", [["cow", "ant", "bee"], ["owl", "bee", "cow", "ant"]])
def test_classes_in_the_order_of_the_networks_outputs(root, order):
    plain, other = folders(root), folders(root, classes=order)
    assert other.class_names == tuple(order)
    assert all(named(plain, side) == named(other, side) for side in ("forget", "retain", "test"))
    assert [order[i] for i in other.split.forgotten] == ["ant"]
    assert other.hashes["full"] != plain.hashes["full"], "a model of one order is not taken for the other's"
    assert folders(root, classes=["ant", "bee", "cow"]).hashes == plain.hashes
    assert "ant" not in repr(other.facts), "names may be people's, and facts leave with the model"


def test_timms_folders_count_digits_as_numbers(root):
    for i, name in enumerate(["ant", "bee", "cow"]):
        for part in LAYOUT:
            if (root / part / name).exists():
                (root / part / name).rename(root / part / f"{'Cc'[i % 2]}lass_{[10, 2, 1][i]}")
    data = folders(root, classes="natural")
    assert data.class_names == ("Class_1", "class_2", "Class_10")
    assert data.split.forgotten == (2,)
    (root / "retain/class_02").mkdir()
    with pytest.raises(UserError, match="'class_02' and 'class_2'.*`data.classes`"):
        folders(root, classes="natural")


@pytest.mark.parametrize(
    ("order", "words"),
    [
        (["ant", "bee", "crow"], "lacks 'cow'.*'crow'"),
        (["cow", "bee"], "lacks 'ant'"),
        (["ant", "bee", "cow", "bee"], "'bee' and 'bee'"),
        ([], "lacks 'ant'"),
    ],
)
def test_an_order_that_leaves_a_class_out_or_names_it_twice_is_refused(root, order, words):
    with pytest.raises(UserError, match=words):
        folders(root, classes=order)


def test_a_network_of_another_number_of_outputs_than_the_order_names_is_refused(root):
    body = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(288, 3))
    with pytest.raises(UserError, match=r"\(1, 3\).* 4 classes.*`data.classes`"):
        Classifier(body).build(folders(root, classes=["owl", "bee", "cow", "ant"]), exact=False)


def test_data_sets_take_an_order_of_their_names_or_of_their_numbers(root):
    plain, other = datasets(), datasets(classes=[1, 0])
    assert other.labels.tolist() == [1 - label for label in plain.labels.tolist()]
    for part in ("retain", "test"):
        (root / part / "ant").mkdir(exist_ok=True)
        (root / part / "cow").mkdir(exist_ok=True)
    train, test = (ImageFolder(root / part, allow_empty=True) for part in ("retain", "test"))
    data = ImageDatasets(train, test=test, forget_rows=[0], classes=["cow", "bee", "ant"], **PREPARED)
    with pytest.raises(UserError, match="class 'ant'"):  # names in messages are those of the images
        data.setup()
    data.datasets["test"] = Subset(test, [2, 3])
    data.setup()
    assert data.images_of("retain")[1].tolist() == [1, 1, 1, 0, 0]


def test_a_validation_folder_is_seen_by_no_method(root):
    (root / "more").mkdir()
    (root / "test/ant").rename(root / "more/ant")
    data = folders(root, validation=str(root / "more"))
    assert len(data.evaluation_sets["validation"]) == 2
    assert not set(data.evaluation_sets["validation"]) & set(data.splits["full"])


def test_rows_of_a_data_set(tmp_path):
    data = datasets()
    assert data.images_of("forget")[0][:, 0, 0, 0].tolist() == [0, 4]
    assert data.images_of("retain")[0][:, 0, 0, 0].tolist() == [1, 2, 3, 5]
    (tmp_path / "rows.txt").write_text("4\n\n0\n")
    assert datasets(forget_rows=str(tmp_path / "rows.txt")).hashes == data.hashes
    (tmp_path / "rows.txt").write_text("4\nfive\n")
    with pytest.raises(UserError, match="Line 2 of '.*rows.txt'"):
        datasets(forget_rows=str(tmp_path / "rows.txt"))


def test_every_kind_of_picture_has_the_same_pixels():
    pixels = torch.arange(3 * 4 * 4, dtype=torch.uint8).view(3, 4, 4)
    array = pixels.permute(1, 2, 0).numpy()
    kinds = [pixels, pixels.float() / 255, array, array / np.float32(255), Image.fromarray(array)]
    found = datasets(test=[(kind, 0) for kind in kinds]).test_images
    assert all(torch.equal(image, pixels) for image in found)
    with pytest.raises(UserError, match=r"row 0 of `test`.*\[0, 1\].*`data.mean`"):
        datasets(test=[(array.astype(np.float32), 0)])
    with pytest.raises(UserError, match="row 0 of `test`.*PIL"):
        datasets(test=[(np.zeros(48, ">f4"), 0)])


def empty(name):
    return lambda root: [shutil.rmtree(path) for path in (root / name).iterdir()]


def put(name, content=b"no image"):
    return lambda root: (root / name).write_bytes(content)


def copy(source, place):
    return lambda root: (root / place).write_bytes((root / source).read_bytes())


def new_class(root):
    (root / "test/dog").mkdir()
    Image.new("RGB", (12, 8)).save(root / "test/dog/7.png")


@pytest.mark.parametrize(
    ("change", "options", "words"),
    [
        (lambda root: None, {"forget": "nowhere"}, "`data.forget` 'nowhere'"),
        (empty("forget"), {}, "`data.forget` '.*/forget'"),
        (put("retain/bee/9.png", b"\x89PNG\r\n\x1a\n\0\0"), {}, "retain/bee/9.png'.*PIL"),
        (put("retain/9.png"), {}, "retain/9.png'.*folder"),
        (new_class, {}, "test .*class 'dog' .*dog/7.png"),
        (copy("forget/ant/1.png", "retain/bee/x.png"), {}, "1 of .* retain .*bee/x.png' .*ant/1.png'"),
        (copy("retain/bee/1.png", "test/bee/x.png"), {}, "1 of 5 test .*retain.*bee/x.png' .*retain/bee/1.png'"),
        (put("forget/ant/9.png", b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n"), {}, "ant/9.png'.*PIL"),
        (
            lambda root: Image.new("RGB", (9, 8)).save(root / "test/bee/x.png"),
            {},
            "x.png' .*9 x 8 .*`data.size`",
        ),
        (lambda root: None, {"mean": [0.5]}, "`data.mean` is"),
        (lambda root: None, {"std": [0.5, 0.5, 0.0]}, "std=0.0"),
    ],
)
def test_bad_folders_are_one_sentence(root, change, options, words):
    change(root)
    with pytest.raises(UserError, match=words):
        folders(root, **options)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"forget_rows": [6]}, "data.forget_rows=6"),
        ({"test": []}, "`data.test`"),
        ({"dataset": iter(rows(6))}, "`data.dataset` list_iterator"),
        ({"dataset": [*rows(5), "x"]}, "row 5 of `dataset` .*str,"),
        ({"dataset": [*rows(5), ("x", 0)]}, "row 5 of `dataset` .*PIL"),
        ({"dataset": [*rows(5), (torch.zeros(3, 4, 4), 0.5)]}, "class .*row 5 of `dataset` .*0.5"),
        ({"dataset": [*rows(5), (torch.full((3, 4, 4), -2.0), 0)]}, "row 5 of `dataset` .*-2 .*-2.*`data.mean`"),
        ({"dataset": [*rows(5), (Image.fromarray(np.full((4, 4), 30_000, np.uint16)), 0)]}, "30000 .* 8 bits"),
        ({"dataset": [*rows(5), rows(1)[0]]}, "1 of 4 retain .*forget .*row 5 of `dataset` .*row 0 of `dataset`"),
        ({"test": [(torch.zeros(3, 4, 4), 2)]}, "test .*class '2' .row 0 of `test`."),
    ],
)
def test_bad_data_sets_are_one_sentence(options, words):
    with pytest.raises(UserError, match=words):
        datasets(**options)


POSTSCRIPT = b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 8 8\n%%EndComments\n(mark) run\nshowpage\n%%EOF\n"


@pytest.fixture
def started(tmp_path, monkeypatch):
    """Whether any of the programs that PIL knows was started."""
    for name in ("gs", "gswin64c", "djpeg", "ppmtogif", "ppmquant"):
        (tmp_path / "bin").mkdir(exist_ok=True)
        (tmp_path / "bin" / name).write_text(f"#!/bin/sh\ntouch {tmp_path}/started\nexit 1\n")
        (tmp_path / "bin" / name).chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path / "bin"), prepend=":")
    monkeypatch.setattr("PIL.EpsImagePlugin.gs_binary", None)
    return (tmp_path / "started").exists


@pytest.mark.parametrize("head", [b"", b"\xc5\xd0\xd3\xc6\x1e\x00\x00\x00\x60\x00\x00\x00" + b"\0" * 18])
@pytest.mark.parametrize("name", ["0.png", "0.jpg", "0.eps", "0.tiff"])
def test_no_image_starts_a_program(root, started, head, name):
    (root / "retain/bee/0.png").unlink()
    place = root / "retain/bee" / name
    place.write_bytes(head + POSTSCRIPT)
    with pytest.raises(UserError, match=rf"bee/{name}'.*PIL"):
        folders(root)
    loaded = ImageFolder(str(root / "retain"), is_valid_file=lambda path: True)
    with pytest.raises(UserError, match="row 0 of `dataset`.*UnidentifiedImageError"):
        ImageDatasets(loaded, test=loaded, forget_rows=[0], **PREPARED).setup()
    with pytest.raises(UnidentifiedImageError):
        Image.open(place)
    assert not started()


def test_a_data_set_whose_own_code_fails_is_one_sentence():
    class Broken(list):
        def __getitem__(self, i):
            raise KeyError("pixels")

    with pytest.raises(UserError, match="row 1 of `dataset`.*KeyError: 'pixels'"):
        ImageDatasets(Broken([0, 1, 2]), test=rows(2), forget_rows=[1], **PREPARED).setup()


def test_copies_of_an_image_count_once():
    twice = [*rows(6), rows(6)[4], rows(6)[1]]
    data = datasets(dataset=twice, forget_rows=[0, 4, 6], test=[*rows(4, 100), *rows(4, 100)])
    assert {name: len(data.splits[name]) for name in ("forget", "retain")} == {"forget": 2, "retain": 4}
    assert {name: len(x) for name, x in data.evaluation_sets.items() if len(x)} == {"forget": 2, "retain": 4, "test": 4}
