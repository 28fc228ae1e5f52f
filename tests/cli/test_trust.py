"""What files say runs nothing: neither words of theirs, nor code beside them, nor what is called by another name.

Each payload would leave the file ``mark``.
"""

import contextlib
import functools
import importlib.machinery
import io
import json
import operator
import os
import re
import sys
from shutil import copytree

import jsonargparse
import pytest
import yaml

from ofmu_pl.benchmark.grid import Cell
from ofmu_pl.benchmark.specs import Planned, Prepare, SearchedMethod
from ofmu_pl.benchmark.specs import check as check_benchmark
from ofmu_pl.cli import main
from ofmu_pl.cli.configured import fit as worker
from ofmu_pl.cli.trust import without_trust
from ofmu_pl.requests.specs import Requests, Retrained
from ofmu_pl.requests.specs import check as check_requests
from ofmu_pl.support.classes import FUNCTIONS, check_classes
from ofmu_pl.support.errors import UserError
from ofmu_pl.support.records.manifest import Method
from ofmu_pl.support.trust import OWN, TRUSTED, libraries_alone, restrict_imports
from tests.cli.conftest import TINY, the_error

EVIL = """
import pathlib
pathlib.Path({mark!r}).touch()
from ofmu_pl import Authors


class Evil(Authors):
    pass
"""


@pytest.fixture
def mark(tmp_path):
    return tmp_path / "mark"


@pytest.fixture(autouse=True)
def _own_trust(monkeypatch):
    for variable in (TRUSTED, OWN):
        monkeypatch.setenv(variable, "")


# Words of files


@pytest.fixture(scope="module")
def flags():
    """All options of ``fit`` that are no option of a run itself."""
    with contextlib.redirect_stdout(io.StringIO()) as said, pytest.raises(SystemExit):
        main(["fit", "--help"])
    options = {word.partition(".")[0] for word in re.findall(r"--([\w.]+)", said.getvalue())}
    run = {"seed_everything", "trainer", "model", "data", "evaluation", "export", "original", "checkpoint"}
    assert run < options
    assert {"logs", "benchmark", "method", "ckpt_path", "dry_run", "config", "print_config"} < options
    return sorted(options - run | {"trust", "c", "trust=subprocess", "data.x=1 --trust", "", "model.", "--trust"})


def benchmark_with(base, **changes):
    grid = {"title": "T", "base": base, "methods": {"m": SearchedMethod()}, "gradients": 1}
    return lambda folder: check_benchmark({"e": Planned(**{**grid, **changes})}, folder)


def list_with(base, options=None, of_method=None, request=None, retrained=None):
    methods = {"m": Method(None, of_method or {})}
    asked = Requests(base, methods, [request or {"forget_rows": [0]}], options or {}, [0], True, retrained)
    return lambda folder: check_requests(asked, folder)


MAPPINGS = {
    "options": lambda base, key: benchmark_with(base, options={key: "subprocess"}),
    "scenarios": lambda base, key: benchmark_with(base, scenarios={"s": {key: "subprocess"}}),
    "methods": lambda base, key: benchmark_with(base, methods={"m": SearchedMethod(options={key: "subprocess"})}),
    "search": lambda base, key: benchmark_with(base, methods={"m": SearchedMethod(search={key: ["subprocess"]})}),
    "searches": lambda base, key: benchmark_with(base, methods={"m": SearchedMethod(search=[{key: "subprocess"}])}),
    "search_options": lambda base, key: benchmark_with(base, search_options={key: "subprocess"}),
    "seeded": lambda base, key: benchmark_with(base, seeded=["seed_everything", key]),
    "prepare": lambda base, key: benchmark_with(base, prepare={"p": Prepare(base, "data.data", {key: "subprocess"})}),
    "gives": lambda base, key: benchmark_with(base, prepare={"p": Prepare(base, key)}),
    "list": lambda base, key: list_with(base, options={key: "subprocess"}),
    "list_methods": lambda base, key: list_with(base, of_method={key: "subprocess"}),
    "retrained": lambda base, key: list_with(base, retrained=Retrained(base, {key: "subprocess"})),
}


@pytest.mark.parametrize("mapping", MAPPINGS)
def test_no_option_of_the_command_itself_is_a_key(mapping, flags, tmp_path):
    base = tmp_path / "base.yaml"
    base.write_text("")
    MAPPINGS[mapping](str(base), "data.seed")(tmp_path / "logs")
    for key in flags:
        with pytest.raises(UserError, match=rf"(^'|runs ){re.escape(key)}['\s]"):
            MAPPINGS[mapping](str(base), key)(tmp_path / "logs")


@pytest.mark.parametrize("key", ["forget_rows --trust", "x=1", "", "a b", "--trust"])
def test_no_key_of_a_request_ends_its_word(key, tmp_path):
    (tmp_path / "base.yaml").write_text("")
    with pytest.raises(UserError, match=re.escape(f"'data.{key}'")):
        list_with(str(tmp_path / "base.yaml"), request={key: [0]})(tmp_path / "logs")


@pytest.mark.parametrize("value", ["--trust=subprocess", "--trust", "--config", ["--trust"], "a --trust b"])
def test_no_value_is_taken_for_an_option(value, tmp_path):
    words = Cell("e/--trust=os", (), {"data.data": value}, {}).words(tmp_path / "--trust")
    assert [word for word in words if word.startswith("--trust")] == []
    assert without_trust(words) == words
    assert os.environ[TRUSTED] == ""


def test_only_the_users_own_line_trusts(capsys):
    with pytest.raises(SystemExit):
        worker(["fit", "--trust", "subprocess"])
    assert " trust" in the_error(capsys)
    assert os.environ[TRUSTED] == ""


@pytest.mark.parametrize("command", ["requests", "benchmark"])
@pytest.mark.parametrize("how", ["key", "value", "config"])
def test_a_list_runs_no_command(command, how, tmp_path, mark, monkeypatch, capsys):
    """The loader of an image folder is called with names of files, one of which is a command."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "images/a").mkdir(parents=True)
    (tmp_path / "images/a/;touch mark;.png").touch()
    folder = {"class_path": "torchvision.datasets.ImageFolder"}
    folder["init_args"] = {"root": "images", "loader": "subprocess.getoutput"}
    rows = {"forget_rows": [0], "mean": [0.5], "std": [0.5], "dataset": folder, "test": folder}
    data = {"class_path": "ImageDatasets", "init_args": rows}
    (tmp_path / "more.yaml").write_text("trust: subprocess\n")
    bad = {"key": {"trust": "subprocess"}, "value": {"evaluation.reference": "--trust=subprocess"}}
    bad["config"] = {"config": "more.yaml"}
    options = {"trainer.max_steps": 1, "original.epochs": 1, "data": data} | bad[how]
    made = {"base": "ofmu_pl:digits.yaml", "methods": {"ofmu": {}}, "options": options}
    alone = {"title": "T", "methods": {"ofmu": {"budgeted": False}}}
    made |= {"requests": [{"forget_rows": [0]}]} if command == "requests" else alone
    asked = {"name": "r"} | (made if command == "requests" else {"experiments": {"e": made}})
    (tmp_path / "r.yaml").write_text(yaml.safe_dump(asked))
    with pytest.raises(SystemExit):
        main([command, "--config", "r.yaml", "--logs", "logs"])
    said = the_error(capsys)
    if how != "value":
        assert {"key": "'trust'", "config": "'config'"}[how] in said
    else:
        (log,) = (tmp_path / "logs").rglob("log.txt")
        assert re.search("'subprocess.getoutput' .*package", log.read_text())
    assert not mark.exists()


# Code beside files


def hostile(folder, mark, name, marked):
    """A folder with code, which is a package where it is ``marked``."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{name}.py").write_text(EVIL.format(mark=str(mark)))
    if marked:
        (folder / "__init__.py").write_text("")


PLACES = {
    "downloaded_a.evil.Evil": ("downloaded_a", False),
    "downloaded_b.evil.Evil": ("downloaded_b", True),
    "foreign_c.deep.evil.Evil": ("foreign_c/deep", True),
    "evil_in_the_working_folder.Evil": (".", False),
    "mine_d.runs.evil.Evil": ("mine_d/runs", False),
}


@pytest.mark.parametrize("path", PLACES)
@pytest.mark.parametrize("part", ["data", "network"])
def test_no_code_beside_an_attacked_run_is_run(models, tmp_path, mark, monkeypatch, capsys, path, part):
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    folder, marked = PLACES[path]
    run = copytree((models / "target/latest").resolve(), tmp_path / folder / "run", ignore=lambda *_: [".lock"])
    hostile(tmp_path / folder, mark, path.split(".")[-2], marked)
    if folder.count("/"):
        (tmp_path / folder).parent.joinpath("__init__.py").write_text("")
    results = json.loads((run / "results.json").read_text())
    (run / "results.json").write_text(json.dumps(results | {"before": results["metrics"]}))  # as if it had unlearned
    config = yaml.safe_load((run / "config.yaml").read_text())
    hostile_part = {"class_path": path}
    if part == "data":
        config["data"] = hostile_part
    else:
        config["model"]["init_args"]["network"] = hostile_part
    (run / "config.yaml").write_text(yaml.safe_dump(config))
    with pytest.raises(SystemExit):
        main(["attack", "--attacks", "[Confidence]", "--runs", folder if folder != "." else "run"])
    assert f"'{path}'" in the_error(capsys)
    with pytest.raises(SystemExit):
        main(["report", folder])
    main(["purge", str(run)])
    assert not mark.exists()


@pytest.mark.parametrize("command", ["fit", "validate", "plan", "test"])
@pytest.mark.parametrize(
    ("place", "path"),
    [
        ("given_a", "given_a.evil.Evil"),
        ("given_b/configs", "given_b.configs.evil.Evil"),
        ("given_c/configs/tiny", "given_c.configs.tiny.evil.Evil"),
    ],
)
def test_no_code_beside_a_configuration_is_run(tmp_path, mark, monkeypatch, capsys, command, place, path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    hostile(tmp_path / place, mark, "evil", marked=True)
    for folder in (tmp_path / place).parents:
        if folder != tmp_path and tmp_path in folder.parents:
            (folder / "__init__.py").write_text("")
    text = TINY.format(method="OFMU", extra="beta: 0", steps=1)
    (tmp_path / place / "config.yaml").write_text(text.replace("class_path: Authors", f"class_path: {path}"))
    with pytest.raises(SystemExit):
        main([command, "--config", f"{place}/config.yaml"])
    assert re.search(f"'{path}' .*package", the_error(capsys))
    assert not mark.exists()


def allowed(path):
    """Whether an option that takes a class may name this one now."""
    parser = jsonargparse.ArgumentParser(exit_on_error=False)
    parser.add_argument("--x", type=type)
    try:
        return isinstance(parser.parse_args(["--x", path]).x, type)
    except (jsonargparse.ArgumentError, ModuleNotFoundError):
        return False


def rows_in(folder, *places):
    """Modules with a class ``Rows``."""
    for place in places:
        (folder / place).parent.mkdir(parents=True, exist_ok=True)
        (folder / place).write_text("class Rows:\n    pass\n")


def test_what_lies_in_the_working_folder_may_be_named_but_not_by_a_run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    places = ("own_package/__init__.py", "own_package/rows.py", "own_package/data/rows.py", "own_bare/rows.py")
    rows_in(tmp_path, "own_plain.py", *places)
    without_trust([])
    restrict_imports()
    paths = ["own_plain.Rows", "own_package.rows.Rows", "own_package.data.rows.Rows", "own_bare.rows.Rows"]
    assert list(map(allowed, paths)) == [True, True, False, False]
    with libraries_alone():
        assert not any(map(allowed, paths))
        assert allowed("torch.nn.Linear")
    assert allowed("own_plain.Rows")
    without_trust(["--trust", "own_plain", "--trust=own_bare.rows"])
    restrict_imports()
    assert list(map(allowed, paths)) == [True, True, False, True]
    with libraries_alone():
        assert allowed("own_plain.Rows")
        assert allowed("own_bare.rows.Rows")


@pytest.mark.parametrize(
    ("word", "file"),
    [
        ("{0}/c.yaml", "c.yaml"),
        ("--config={0}/lr=1.yaml", "lr=1.yaml"),
        ("--config=~/{0}/c.yaml", "c.yaml"),
        ("{0}/a/b/c.yaml", "a/b/c.yaml"),
        ("own.yaml", "c.yaml"),
        ("--runs={0}", "c.yaml"),
        ("link/c.yaml", "c.yaml"),
    ],
)
def test_no_package_is_own_that_holds_what_the_line_names(tmp_path, monkeypatch, word, file):
    name = f"named_{abs(hash(word + file))}"
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.syspath_prepend(tmp_path)
    rows_in(tmp_path, f"{name}/__init__.py", f"{name}/rows.py")
    without_trust([])
    assert os.environ[OWN].split() == [name]
    (tmp_path / name / file).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / name / file).write_text("a: 1\n")
    (tmp_path / "link").symlink_to(name)
    (tmp_path / "own.yaml").write_text(f"data: {name}/c.yaml\n")
    without_trust([word.format(name)])
    restrict_imports()
    assert os.environ[OWN] == ""
    assert not allowed(f"{name}.rows.Rows")


def test_a_linked_package_is_nobodys_own(tmp_path, monkeypatch):
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    rows_in(tmp_path, "elsewhere/__init__.py")
    (tmp_path / "here/linked_package").symlink_to(tmp_path / "elsewhere")
    without_trust([])
    assert os.environ[OWN] == ""


@pytest.mark.parametrize("name", ["pycocotools", "accimage", "wandb", "megatron", "lmdb"])
@pytest.mark.parametrize("package", [True, False])
def test_no_folder_stands_for_a_library_that_is_not_installed(tmp_path, monkeypatch, mark, name, package):
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    if importlib.machinery.PathFinder.find_spec(name, [p for p in sys.path if p != str(tmp_path)]):
        pytest.skip(f"{name} is installed")
    hostile(tmp_path / name, mark, "evil", marked=package)
    (tmp_path / name / "c.yaml").touch()
    without_trust([f"{name}/c.yaml"])
    restrict_imports()
    monkeypatch.chdir(tmp_path / name)  # as parsers do while they read a file
    with pytest.raises(ModuleNotFoundError, match=name):
        importlib.import_module(f"{name}.evil")
    assert not mark.exists()


def test_a_logger_of_a_configuration_runs_no_folder_of_its_name(tmp_path, monkeypatch, mark):
    """jsonargparse imports what a class imports for its types alone."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    if importlib.machinery.PathFinder.find_spec("wandb", [p for p in sys.path if p != str(tmp_path)]):
        pytest.skip("wandb is installed")
    monkeypatch.delitem(sys.modules, "wandb", raising=False)
    (tmp_path / "wandb").mkdir()
    (tmp_path / "wandb/__init__.py").write_text(EVIL.format(mark=str(mark)))
    text = TINY.format(method="OFMU", extra="beta: 0", steps=1)
    logger = "trainer: {logger: {class_path: lightning.pytorch.loggers.WandbLogger}, "
    (tmp_path / "wandb/c.yaml").write_text(text.replace("trainer: {", logger))
    with pytest.raises(SystemExit):
        main(["fit", "--config", "wandb/c.yaml"])
    assert not mark.exists()


FREE = {
    "config": ("--model.network.config", lambda path: {"model_type": "llama", "class_path": path}),
    "lora": ("--model.network.lora", lambda path: {"x": {"class_path": path}}),
    "requests": ("--data.other_requests", lambda path: {1: {"class_path": path}}),
    "rows": ("--data", lambda path: {"class_path": "TextFiles", "init_args": {"forget": [{"class_path": path}]}}),
}


@pytest.mark.parametrize("where", FREE)
@pytest.mark.parametrize("path", ["free_dl.evil.Evil", "free_dl.evil:Evil", "this.s"])
def test_no_name_in_a_free_mapping_is_imported(where, path, tmp_path, monkeypatch, mark, models):
    """By a method whose plan takes little."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    sys.modules.pop("this", None)
    hostile(tmp_path / "free_dl", mark, "evil", marked=False)
    option, value = FREE[where]
    (tmp_path / "tiny.yaml").write_text(TINY.format(method="DoNothing", extra="", steps=1))
    words = ["--config", "tiny.yaml", "--model.network.path", str(models / "target/latest/hf")]
    with contextlib.suppress(SystemExit):
        main(["plan", *words, option, json.dumps(value(path))])
    assert not mark.exists()
    assert "this" not in sys.modules


@pytest.mark.parametrize("command", ["requests", "benchmark"])
def test_workers_trust_no_more_than_the_line(command, tmp_path, monkeypatch, mark, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    hostile(tmp_path / "list_dl", mark, "evil", marked=True)
    options = {"data": {"class_path": "list_dl.evil.Evil"}}
    made = {"base": "ofmu_pl:digits.yaml", "methods": {"ofmu": {"options": options}}}
    made |= {"requests": [{"forget_rows": [0]}]} if command == "requests" else {"title": "T"}
    asked = {"name": "r"} | (made if command == "requests" else {"experiments": {"e": made}})
    (tmp_path / "list_dl/r.yaml").write_text(yaml.safe_dump(asked))
    with pytest.raises(SystemExit):
        main([command, "--config", "list_dl/r.yaml", "--logs", "logs"])
    (log,) = (tmp_path / "logs").rglob("log.txt")
    assert re.search("'list_dl.evil.Evil' .*package", log.read_text())
    assert not mark.exists()


def test_an_attacked_run_has_nothing_downloaded(models, tmp_path, monkeypatch, capsys):
    run = copytree((models / "target/latest").resolve(), tmp_path / "run", ignore=lambda *_: [".lock"])
    results = json.loads((run / "results.json").read_text())
    (run / "results.json").write_text(json.dumps(results | {"before": results["metrics"]}))
    config = yaml.safe_load((run / "config.yaml").read_text())
    root = {"root": str(tmp_path / "outside"), "download": True}
    digits = {"class_path": "torchvision.datasets.MNIST", "init_args": root}
    rows = {"forget_rows": [0], "mean": [0.5], "std": [0.5], "dataset": digits, "test": digits}
    config["data"] = {"class_path": "ImageDatasets", "init_args": rows}
    (run / "config.yaml").write_text(yaml.safe_dump(config))
    with pytest.raises(SystemExit):
        main(["attack", "--attacks", "[Confidence]", "--runs", str(run)])
    assert "downloaded" in the_error(capsys)
    assert not (tmp_path / "outside").exists()


def test_no_link_in_a_runs_folder_leads_writers_out(fit, tmp_path):
    """A folder that others left, to go on in."""
    for name in ("config.yaml", ".lock"):
        (tmp_path / f"my_{name}").write_text("mine")
    version = fit.logs / "authors/ofmu/version_0"
    version.mkdir(parents=True)
    (version / ".lock").touch()
    (version / "config.yaml").symlink_to(tmp_path / "my_config.yaml")
    (version / "metrics.csv").symlink_to(tmp_path / "new.csv")
    assert fit("--ckpt_path", "last", "--trainer.max_steps", "1") == version
    assert (tmp_path / "my_config.yaml").read_text() == "mine"
    assert not (tmp_path / "new.csv").exists()
    other = fit.logs / "authors/ofmu/version_1"
    other.mkdir()
    (other / ".lock").symlink_to(tmp_path / "my_.lock")
    with pytest.raises(SystemExit):
        fit("--ckpt_path", "last", "--trainer.max_steps", "3")
    assert (tmp_path / "my_.lock").read_text() == "mine"


def test_purge_enters_no_link(tmp_path):
    project, bench = tmp_path / "project", tmp_path / "bench"
    run = bench / "e/all/ofmu/seed_0/version_0"
    for folder in (project, run):
        folder.mkdir(parents=True)
    (project / "main.py").write_text("author=me\n")
    (bench / "benchmark.json").write_text("{}")
    (bench / "report").symlink_to(project)
    data = {"class_path": "TextFiles", "init_args": {"forget_where": "author=me"}}
    (run / "config.yaml").write_text(yaml.safe_dump({"model": {"class_path": "OFMU"}, "data": data}))
    main(["purge", str(run)])
    assert (project / "main.py").read_text() == "author=me\n"
    assert "PURGED" in (run / "config.yaml").read_text()


def test_lsun_unpickles_its_cache():
    restrict_imports()
    assert not allowed("torchvision.datasets.LSUN")
    assert not allowed("torchvision.datasets.lsun.LSUNClass")
    assert allowed("torchvision.datasets.ImageFolder")


# What is called


class Called:
    """Of the tests' own, not of a library."""

    def __call__(self):
        pass

    @classmethod
    def made(cls):
        pass


def foreign_callables():
    import peft
    import transformers
    from lightning.pytorch.callbacks import Timer

    load = transformers.AutoModel.from_pretrained
    known = transformers.LlamaConfig()
    instance = type("Instance", (), {"__call__": load, "__module__": "transformers.anything"})()
    return {
        "method": load,
        "peft": peft.PeftModel.from_pretrained,
        "config": transformers.AutoConfig.from_pretrained,
        "partial": functools.partial(load, "x"),
        "nested": functools.partial(functools.partial(load), "x"),
        "argument": functools.partial(map, load),
        "keyword": functools.partial(sorted, key=load),
        "instance": instance,
        "bound": known.save_pretrained,
        "slot": known.__setattr__,
        "function": transformers.set_seed,
        "class": Timer,
        "static": transformers.PreTrainedModel.can_generate,
    }


@pytest.mark.parametrize("name", foreign_callables())
def test_what_a_library_would_call_is_of_the_list(name):
    value = foreign_callables()[name]
    for given in (value, [value], (value,), {"init_args": {"loader": value}}):
        with pytest.raises(UserError, match=", ".join(FUNCTIONS)):
            check_classes(jsonargparse.Namespace(data=given))


def test_functions_of_the_list_and_of_ones_own_are_called():
    import torch
    from torchvision.datasets.folder import default_loader

    own = [Called(), Called.made, functools.partial(Called.made), allowed, operator.itemgetter(0)]
    norm = torch.nn.LayerNorm
    listed = [default_loader, torch.nn.functional.relu, norm, functools.partial(norm, eps=1)]
    check_classes(jsonargparse.Namespace(x=own, y=listed))


@pytest.mark.parametrize("command", ["fit", "plan"])
@pytest.mark.parametrize("loader", ["transformers.AutoModel.from_pretrained", "peft.PeftModel.from_pretrained"])
def test_a_loader_is_no_method_of_a_library(refused, command, loader):
    images = {"class_path": "torchvision.datasets.ImageFolder", "init_args": {"root": ".", "loader": loader}}
    rows = {"dataset": images, "test": images, "forget_rows": [0], "mean": [0.5], "std": [0.5]}
    words = ["--config", "configs/images.yaml", "--model.network.module", "resnet18"]
    words += ["--data", json.dumps({"class_path": "ImageDatasets", "init_args": rows})]
    assert ", ".join(FUNCTIONS) in refused(*words, command=command)
