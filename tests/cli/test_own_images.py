"""Images and a classifier of the user's own through the real command line: photographs of CIFAR-10 in folders."""

import json
import re
import shutil
import sys
from pathlib import Path

import pyarrow.parquet as parquet
import pytest
import torch
from torch import nn

from ofmu_pl.cli import main
from tests.cli.conftest import the_error

ROOT = Path(__file__).parent.parent.parent
NETS = '''
from collections.abc import Callable
from functools import partial

import torch
from torch import nn

class SmallCNN(nn.Module):
    """ReLU, BatchNorm, pooling and dropout, as most have them; its norm has no name, as a torchvision ViT's."""

    def __init__(
        self, classes: int = 3, width: int = 8, norm: Callable[..., nn.Module] = partial(nn.BatchNorm2d, eps=1e-5)
    ):
        super().__init__()
        self.features = nn.Sequential(nn.Conv2d(3, width, 3, 2, 1), norm(width), nn.ReLU(), nn.MaxPool2d(2))
        self.head = nn.Sequential(nn.Flatten(), nn.Dropout(), nn.Linear(width * 16, classes))

    def forward(self, x):
        return self.head(self.features(x))

class NoNetwork:
    pass
'''
CLASSES = ("airplane", "frog", "ship")


@pytest.fixture(scope="module")
def place(shared, tmp_path_factory):
    """A folder where photographs, a network and its weights lie, as another program left them."""
    place = tmp_path_factory.mktemp("place")
    rows = parquet.ParquetFile(shared / "data/cifar10/train.parquet")
    found = {name: [] for name in CLASSES}
    for row in rows.read().slice(0, 50_000).to_pylist():
        name = row["img"]["path"].split("/")[1]
        if name in found and len(found[name]) < 24:
            found[name].append(row["img"]["bytes"])
    for name, files in found.items():
        for i, content in enumerate(files):
            part = "test" if i < 8 else "forget" if name == "ship" else "retain"
            (place / part / name).mkdir(parents=True, exist_ok=True)
            (place / part / name / f"{i:02d}.jpg").write_bytes(content)
    (place / "my_nets.py").write_text(NETS)
    return place


@pytest.fixture
def words(place, tmp_path, monkeypatch):
    """A run's words, in the folder where the network's file lies."""
    monkeypatch.chdir(place)
    monkeypatch.syspath_prepend(str(place))
    monkeypatch.delitem(sys.modules, "my_nets", raising=False)
    monkeypatch.setenv("OFMU_PL_OWN", "my_nets")  # as a command finds
    weights = place / "weights.pth"
    if not weights.exists():
        _train(place, weights)
    shutil.copy(weights, tmp_path / "weights.pth")
    options = {
        **{f"data.{part}": str(place / part) for part in ("forget", "retain", "test")},
        **{"model.network.module": "my_nets.SmallCNN", "model.network.path": str(tmp_path / "weights.pth")},
        **{"data.size": "16", "data.batch_size": "8", "logs": str(tmp_path / "logs")},
        **{"trainer.max_steps": "2", "trainer.enable_progress_bar": "false", "trainer.accelerator": "cpu"},
    }

    def make(**more):
        given = options | {name.replace("__", "."): value for name, value in more.items()}
        pairs = [word for name, value in given.items() for word in (f"--{name}", value) if value is not None]
        return ["fit", "--config", str(ROOT / "configs/images.yaml"), *pairs]

    return make


def _train(place, path):
    """What another program does: torch alone, wrapped for several devices, the weights in a larger checkpoint."""
    from my_nets import SmallCNN
    from torchvision.datasets import ImageFolder
    from torchvision.transforms import v2

    torch.manual_seed(0)
    normalize = v2.Normalize([0.485, 0.456, 0.406], [0.229, 0.224, 0.225])
    prepare = v2.Compose([v2.ToImage(), v2.Resize(16), v2.ToDtype(torch.float32, scale=True), normalize])
    rows = []
    for part in ("forget", "retain"):
        folder = ImageFolder(place / part, prepare)
        rows += [(x, CLASSES.index(folder.classes[label])) for x, label in folder]
    images, labels = torch.stack([x for x, _ in rows]), torch.tensor([label for _, label in rows])
    model = nn.DataParallel(SmallCNN())
    optimizer = torch.optim.AdamW(model.parameters(), 1e-2)
    for _ in range(60):
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(images), labels).backward()
        optimizer.step()
    torch.save({"state_dict": model.state_dict(), "optimizer": optimizer.state_dict()}, path)


def results(tmp_path):
    return json.loads((tmp_path / "logs/images/ofmu/version_0/results.json").read_text())


def test_a_strangers_classifier_forgets_a_class(words, tmp_path, monkeypatch, capsys):
    main(words(trainer__max_steps="6"))
    table = capsys.readouterr().out
    found = results(tmp_path)
    assert found["before"]["UA"]["value"] < 10, "the weights are those that knew the ships, in the order of classes"
    assert found["before"]["RA"]["value"] > 90
    assert found["metrics"]["UA"]["value"] > 50
    assert found["provenance"]["forgotten"] == [2]
    assert found["metrics"]["UA"]["target"] is None
    assert "avg_gap" not in found["metrics"]
    low, high = found["metrics"]["forget_test_AUC"]["interval"]
    assert low < found["metrics"]["forget_test_AUC"]["value"] < high
    assert found["metrics"]["MIA_attack_accuracy"]["n"] == 2 * 16, "all test images of what is kept"
    assert re.findall(r"\b[A-Z]{2,}\b", found["remark"])[:4] == ["UA", "RA", "TA", "MIA"]
    assert found["remark"].rstrip(".") in " ".join(table.split())
    attack = ["attack", "--runs", str(tmp_path / "logs"), "--attacks+", "Confidence"]
    with pytest.raises(SystemExit):  # whose run it is, and so whose code, the command cannot know
        main(attack)
    assert "--trust" in capsys.readouterr().err
    monkeypatch.setenv("OFMU_PL_TRUST", "")
    main([*attack, "--trust", "my_nets"])
    assert re.search(r"^ *confidence +-?\d", capsys.readouterr().out, re.MULTILINE), "the attack has a row"


def test_the_order_of_classes_is_kept_by_a_run_that_goes_on_and_read_again_by_attacks(
    words, tmp_path, monkeypatch, capsys
):
    weights = torch.load(tmp_path / "weights.pth")
    for name in ("module.head.2.weight", "module.head.2.bias"):
        weights["state_dict"][name] = weights["state_dict"][name][[2, 0, 1]]
    torch.save(weights, tmp_path / "weights.pth")
    order = ["--data.classes", "[ship, airplane, frog]"]
    main([*words(trainer__max_steps="2", checkpoint__every_n_train_steps="1"), *order])
    found = results(tmp_path)
    assert found["before"]["UA"]["value"] < 10
    assert found["before"]["RA"]["value"] > 90
    assert found["provenance"]["forgotten"] == [0]
    model = tmp_path / "logs/images/ofmu/version_0/model"
    assert not any("airplane" in path.read_text() for path in model.glob("*.json")), "names stay with the run"
    capsys.readouterr()
    go_on = [*words(trainer__max_steps="3", checkpoint__every_n_train_steps="1"), "--ckpt_path", "last"]
    with pytest.raises(SystemExit):
        main(go_on)
    assert "data.init_args.classes" in the_error(capsys)
    main([*go_on, *order])
    assert json.loads((tmp_path / "logs/images/ofmu/version_1/results.json").read_text())["provenance"]["steps"] == 3
    capsys.readouterr()
    monkeypatch.setenv("OFMU_PL_TRUST", "")
    main(["attack", "--runs", str(tmp_path / "logs"), "--attacks+", "Confidence", "--trust", "my_nets"])
    assert re.search(r"^ *confidence +-?\d", capsys.readouterr().out, re.MULTILINE), "the attack has a row"


def test_the_gap_to_a_retrained_model(words, tmp_path):
    retrain = {"evaluation__reference": "retrain", "original__epochs": "20", "original__batch_size": "16"}
    main(words(**retrain))
    found = results(tmp_path)
    assert found["reference"]["model"]["streams"] == ["retain"]
    assert found["metrics"]["UA"]["target"] == found["reference"]["metrics"]["UA"]["value"] == 100
    assert found["remark"] is None
    model = tmp_path / "logs/images/ofmu/version_0/model"
    given = {"model__network__path": str(model), "evaluation__reference": str(tmp_path / "weights.pth")}
    main(words(logs=str(tmp_path / "again"), trainer__max_steps="1", **given))
    again = json.loads((tmp_path / "again/images/ofmu/version_0/results.json").read_text())
    before = again["before"]["UA"]["value"]
    assert before == found["metrics"]["UA"]["value"], "what a run leaves is a model to go on with"
    known = again["reference"]["metrics"]["UA"]["value"]
    assert known == found["before"]["UA"]["value"], "a reference may be another program's file, too"
    assert again["reference"]["model"] is None


@pytest.mark.parametrize(
    ("more", "code", "expected"),
    [
        ({"data__size": "20"}, 1, "3 x 20 x 20"),
        ({"model__network__module": '{"class_path": "my_nets.NoNetwork"}'}, 2, "my_nets.NoNetwork"),
        ({"model__network__path": None}, 1, "model.network.path"),
    ],
)
def test_bad_input_is_one_sentence(more, code, expected, words, tmp_path, capsys):
    with pytest.raises(SystemExit) as stop:
        main(words(**more))
    assert stop.value.code == code
    assert expected in the_error(capsys)
    assert not list(tmp_path.rglob("results.json"))
