"""Killed at any of its file operations, a command given again leaves what an undisturbed one does, in every detail."""

import json
import re
import shutil

import pytest
import torch

from tests.cli.conftest import lasting
from tests.cli.test_images import FAST
from tests.cli.test_record import record
from tests.helpers.process import FORKSERVER, fallen, start_server

FIT, REPORT = 48, 12


@pytest.fixture(scope="module")
def command(tmp_path_factory):
    """Runs a command's words in a process of its own, which is killed at a file operation if a number is given."""
    start_server()
    outputs = tmp_path_factory.mktemp("outputs")

    def start(words, folder, number=None):
        output = outputs / f"{folder.name}.txt"
        process = FORKSERVER.Process(target=fallen, args=(words, output, folder, number or 0))
        process.start()
        process.join(300)
        assert process.exitcode == (-9 if number else 0), output.read_text()[-2000:]
        return None if number else int((outputs / f"{output.name}.count").read_text())

    return start


def fit_words(folder):
    return ["fit", *FAST, "--original.epochs", "1", "--logs", str(folder / "logs"), "--ckpt_path", "last"]


@pytest.fixture(scope="module")
def whole(command, tmp_path_factory):
    """Folder of a run that nobody disturbed, and the number of its file operations."""
    folder = tmp_path_factory.mktemp("whole")
    return folder, command(fit_words(folder), folder)


def spread(most, kills):
    """Numbers of operations from the first to the last, or as many as there are."""
    return sorted({1 + round(k * (most - 1) / (kills - 1)) for k in range(kills)})


def files(folder):
    """Names of all files; event files, which each process has of its own, by what they hold together."""
    return {re.sub(r"tfevents\..*", "tfevents", str(p.relative_to(folder))) for p in folder.rglob("*")}


def flat(x, place=""):
    """The values of a nested one by place, without times and memory; NaN is equal to itself."""
    if not isinstance(x, dict | list):
        return {} if "seconds" in place or "peak_memory" in place else {place: repr(x)}
    parts = x.items() if isinstance(x, dict) else enumerate(x)
    return {k: v for name, part in parts for k, v in flat(part, f"{place}.{name}").items()}


def plain(x):
    """A checkpoint's content as values that can be compared, without paths and Lightning's count of what it began."""
    if isinstance(x, torch.Tensor):
        return x.tolist()
    if isinstance(x, dict):
        left_out = ("started", "ready", "dirpath", "best_model_path", "last_model_path", "kth_best_model_path")
        left_out += ("best_k_models",)
        return {str(k): plain(v) for k, v in x.items() if k not in left_out}
    return [plain(v) for v in x] if isinstance(x, list | tuple) else x


def details(folder):
    """All that a run left, but times and places."""
    version = folder / "logs/digits/ofmu/version_0"
    checkpoints = {p.name: plain(torch.load(p, weights_only=True)) for p in (version / "checkpoints").iterdir()}
    results = lasting(json.loads((version / "results.json").read_text()))
    return {
        "files": files(folder / "logs"),
        "results": flat(json.loads(json.dumps(results).replace(str(folder), ""))),
        "checkpoints": flat(checkpoints),
        "weights": (version / "model/model.safetensors").read_bytes(),
        **record(version),
    }


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_fit_killed_at_file_operations(command, whole, tmp_path):
    undisturbed, most = details(whole[0]), whole[1]
    differing = {}
    numbers = spread(most, FIT)
    for number in numbers:
        folder = tmp_path / f"fit{number}"
        command(fit_words(folder), folder, number)
        command(fit_words(folder), folder)
        found = details(folder)
        for name, x in found.items():
            if x != undisturbed[name]:
                places = x.keys() | undisturbed[name].keys() if isinstance(x, dict) else ()
                values = {k: (x.get(k), undisturbed[name].get(k)) for k in places}
                differing[number, name] = {k: pair for k, pair in values.items() if pair[0] != pair[1]} or x
        shutil.rmtree(folder)
    assert not differing
    assert len(numbers) == FIT


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_report_killed_at_file_operations(command, whole):
    folder = whole[0]
    words = ["report", str(folder / "logs/digits")]

    def contents():
        return {str(p.relative_to(folder)): p.is_file() and p.read_bytes() for p in (folder / "logs").rglob("*")}

    command(words, folder)
    undisturbed, numbers = contents(), spread(command(words, folder), REPORT)
    for number in numbers:
        command(words, folder, number)
        command(words, folder)
        assert contents() == undisturbed, number
    assert len(numbers) == REPORT
