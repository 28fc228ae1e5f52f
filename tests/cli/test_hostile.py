"""Hostile configurations, checkpoints and model folders: one sentence, and nothing of theirs is executed.

Each payload would leave the file ``mark``; where it is not obvious, a test first lets it.
"""

import json
import os
import pickle
import shutil
import threading
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer

import pytest
import torch
from jsonargparse import ArgumentError, ArgumentParser

from ofmu_pl import Authors, CausalLM, Confidence, Subject
from ofmu_pl.benchmark.command import benchmark
from ofmu_pl.benchmark.specs import Planned, Prepare, SearchedMethod
from ofmu_pl.cli import main
from ofmu_pl.cli.configured import fit
from ofmu_pl.cli.trust import without_trust
from ofmu_pl.support.errors import UserError
from ofmu_pl.support.trust import restrict_imports
from tests.helpers.pickled_code import PickledCode


@pytest.fixture
def mark(tmp_path):
    return tmp_path / "mark"


@pytest.fixture
def refused(refused, mark):
    """Runs a command that must fail in one sentence, with nothing executed; returns the sentence."""

    def run(*options, **more):
        line = refused(*options, **more)
        assert not mark.exists()
        return line

    return run


# Configurations


def touch(mark, path="os.system"):
    return {"class_path": path, "init_args": {"command": f"touch {mark}"}}


@pytest.mark.parametrize(
    ("option", "value", "code", "expected"),
    [
        ("model.optimizer", touch, 2, "--trust os"),
        ("model.optimizer", lambda _: "torch.load", 2, "--trust torch"),
        (
            "model.scheduler",
            lambda _: {"class_path": "torch.optim.lr_scheduler.LambdaLR", "init_args": {"lr_lambda": "os.system"}},
            2,
            "--trust os",
        ),
        ("model.optimizer", partial(touch, path="uuid.UUID"), 2, "--trust uuid"),
        ("trainer.callbacks", lambda mark: [touch(mark)], 2, "--trust os"),
        ("model.network.lora", touch, 2, "--trust os"),
        ("benchmark", lambda _: "../../x", 1, "'../../x' leads"),
        pytest.param("method", lambda _: "/x", 1, "'/x' leads", marks=pytest.mark.slow),
        ("export.folder", lambda _: "../..", 1, "--export.folder '../..' leads"),
    ],
)
def test_a_hostile_configuration_is_refused(refused, mark, option, value, code, expected):
    made = value(mark)
    assert expected in refused(f"--{option}", made if isinstance(made, str) else json.dumps(made), code=code)


@pytest.mark.parametrize("command", ["plan", "fit", pytest.param("dry", marks=pytest.mark.slow)])
@pytest.mark.parametrize(
    ("path", "arguments", "expected"),
    [
        ("torch.utils.data.datapipes.map.SequenceWrapper", {"sequence": [1]}, "torch.utils.data"),
        ("torchvision.datasets.DatasetFolder", {"root": ".", "loader": "joblib.load"}, "'joblib.load'"),
        ("torchvision.datasets.DatasetFolder", {"root": ".", "loader": "yaml.unsafe_load"}, "'yaml.unsafe_load'"),
        (
            "torchvision.datasets.DatasetFolder",
            {"root": ".", "loader": "lightning.pytorch.core.saving.os.system"},
            "posix",
        ),
        (
            "torchvision.datasets.DatasetFolder",
            {"root": ".", "loader": "ofmu_pl.training.run_folders.discard"},
            "discard",
        ),
    ],
)
def test_what_a_nested_class_is_given_is_of_the_list_too(refused, command, path, arguments, expected):
    images = {"class_path": path, "init_args": arguments}
    rows = {"dataset": images, "test": images, "forget_rows": [0], "mean": [0.5], "std": [0.5]}
    words = ["--config", "configs/images.yaml", "--model.network.module", "resnet18"]
    words += ["--data", json.dumps({"class_path": "ImageDatasets", "init_args": rows})]
    code = 1 if expected == "discard" else 2
    dry = ["--dry_run"] if command == "dry" else []
    assert expected in refused(*words, *dry, command="plan" if command == "plan" else "fit", code=code)


def test_trusted_modules_and_those_of_the_working_folder_may_be_named(tmp_path, monkeypatch):
    for name in ("mine", "elsewhere"):
        (tmp_path / name).mkdir()
        (tmp_path / name / f"{name}_rows.py").write_text("class Rows:\n    pass\n")
    (tmp_path / "mine/os.py").write_text("")  # does not open the module of that name
    monkeypatch.chdir(tmp_path / "mine")
    monkeypatch.syspath_prepend(tmp_path / "elsewhere")
    monkeypatch.syspath_prepend(tmp_path / "mine")
    monkeypatch.setenv("OFMU_PL_TRUST", "")

    def allowed(path):
        without_trust([])
        restrict_imports()
        return jsonargparse_allows(path)

    assert allowed("mine_rows.Rows")
    assert allowed("torchvision.datasets.ImageFolder")
    assert not allowed("os.system")
    assert "os" not in os.environ["OFMU_PL_OWN"].split()
    assert not allowed("elsewhere_rows.Rows")
    assert without_trust(["a", "--trust", "elsewhere_rows", "--b"]) == ["a", "--b"]
    assert allowed("elsewhere_rows.Rows")
    with pytest.raises(SystemExit):
        without_trust(["--trust"])


def jsonargparse_allows(path):
    """Whether an option of a value's type may name a class."""
    parser = ArgumentParser(exit_on_error=False)
    parser.add_argument("--x", type=type)
    try:
        return isinstance(parser.parse_args(["--x", path]).x, type)
    except ArgumentError:
        return False


def test_a_function_is_no_class_wherever_it_lives(refused, fit, mark, tmp_path, monkeypatch):
    """Deny lists end somewhere; without the check for classes jsonargparse calls this one."""
    (tmp_path / "innocent.py").write_text("import os\n\n\ndef make(command):\n    os.system(command)\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("OFMU_PL_TRUST", "innocent")
    option = ["--model.optimizer", json.dumps(touch(mark, "innocent.make"))]
    assert "class_path 'innocent.make'" in refused(*option)
    monkeypatch.setattr("ofmu_pl.cli.app.check_classes", lambda _: None)
    with pytest.raises(SystemExit):
        fit(*option)
    assert mark.exists()


def test_tags_and_interpolations_of_yaml_are_not_followed(refused, mark, tmp_path, monkeypatch):
    config = tmp_path / "tag.yaml"
    config.write_text(f"model: {{init_args: {{beta: !!python/object/apply:os.system ['touch {mark}']}}}}")
    assert "constructor" in refused("--config", str(config), code=2)
    monkeypatch.setenv("HF_TOKEN", "sentinel-of-a-token")
    text = refused("--model.network.path", "${oc.env:HF_TOKEN}/x/y", "--model.network.tokenizer", "${oc.env:HF_TOKEN}")
    assert "sentinel" not in text


def test_names_in_a_benchmark_stay_below_its_folder(tmp_path):
    base = tmp_path / "base.yaml"
    base.write_text("")
    grid = {"title": "T", "base": str(base), "methods": {"m": SearchedMethod()}, "gradients": 1}
    for name, experiment, changes in (
        ("../x", "e", {}),
        ("b", "../x", {}),
        ("b", "e", {"scenarios": {"../../x": {}}}),
        ("b", "e", {"methods": {"m": SearchedMethod(), "/x": SearchedMethod()}}),
        ("b", "e", {"prepare": {"../x": Prepare(str(base), "model.network.path")}}),
    ):
        with pytest.raises(UserError, match="leads"):
            benchmark(name, {experiment: Planned(**{**grid, **changes})}, logs=tmp_path / "logs", fit=fit)
    assert not (tmp_path / "logs").exists()


# Checkpoints


@pytest.mark.parametrize("how", ["torch.save", "pickle"])
def test_a_checkpoint_with_a_payload(refused, mark, tmp_path, how):
    path = tmp_path / "evil.ckpt"
    content = {"state_dict": {}, "callbacks": PickledCode(mark)}
    if how == "pickle":
        path.write_bytes(pickle.dumps(content))
        pickle.loads(path.read_bytes())
    else:
        torch.save(content, path)
        torch.load(path, weights_only=False)
    assert mark.exists()
    mark.unlink()
    for command in ("fit", "validate", "test") if how == "torch.save" else ("fit",):
        text = refused("--ckpt_path", str(path), command=command)
        assert f"'{path}' " in text
        assert ("truncated" if how == "pickle" else "numbers") in text


def test_a_checkpoint_from_an_address(refused, mark, tmp_path, monkeypatch):
    """Lightning's default for these is to unpickle anything."""
    monkeypatch.setenv("TORCH_HOME", str(tmp_path / "home"))
    torch.save({"state_dict": {}, "callbacks": PickledCode(mark)}, tmp_path / "evil.ckpt")
    asked = []

    class Handler(SimpleHTTPRequestHandler):
        def do_GET(self):
            asked.append(self.path)
            super().do_GET()

    handler = partial(Handler, directory=str(tmp_path))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        text = refused("--ckpt_path", f"http://127.0.0.1:{server.server_port}/evil.ckpt")
        server.shutdown()
    assert "evil.ckpt' " in text
    assert not asked


def test_the_index_of_a_folder_of_shards_is_not_run(refused, mark, tmp_path):
    (tmp_path / "shards").mkdir()
    (tmp_path / "shards/.metadata").write_bytes(pickle.dumps(PickledCode(mark)))
    (tmp_path / "shards/meta.pt").write_bytes(b"")
    assert "numbers" in refused("--ckpt_path", str(tmp_path / "shards"))


def test_a_checkpoint_does_not_change_the_configuration(refused, tmp_path):
    options = {"_class_path": "OFMU", "network": {"class_path": "CausalLM", "init_args": {"trust_remote_code": True}}}
    torch.save({"state_dict": {}, "hyper_parameters": options}, tmp_path / "options.ckpt")
    assert "hyper_parameters" in refused("--ckpt_path", str(tmp_path / "options.ckpt"))


def test_weights_only_is_no_option(refused):
    assert "weights_only" in refused("--weights_only", "false", code=2)


# Model folders


@pytest.fixture
def folder(models, tmp_path):
    """A copy of the tiny target."""
    sums = shutil.ignore_patterns("SHA256SUMS")  # whoever changes a model can write sums, too
    return shutil.copytree((models / "target/latest/hf").resolve(), tmp_path / "model", ignore=sums)


def edit(path, **changes):
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


CODE = """
import pathlib
pathlib.Path({mark!r}).touch()
from transformers import LlamaConfig, LlamaForCausalLM

class OwnConfig(LlamaConfig):
    model_type = "own"

class OwnModel(LlamaForCausalLM):
    config_class = OwnConfig
"""


@pytest.fixture
def own(folder, mark, tmp_path, monkeypatch):
    """The folder of a model that needs Python code of its own, which leaves the mark."""
    monkeypatch.setattr("transformers.dynamic_module_utils.HF_MODULES_CACHE", str(tmp_path / "modules"))
    classes = {"AutoConfig": "own.OwnConfig", "AutoModelForCausalLM": "own.OwnModel"}
    edit(folder / "config.json", model_type="own", architectures=["OwnModel"], auto_map=classes)
    (folder / "own.py").write_text(CODE.format(mark=str(mark)))
    return folder


def test_code_of_a_model_is_run_only_when_asked(refused, fit, own, mark):
    path = ["--model.network.path", str(own)]
    assert "trust_remote_code" in refused(*path)
    # Asked for, with a warning that says whose code it is.
    with pytest.warns(UserWarning, match=f"'{own}' .*rights"):
        run = fit(*path, "--model.network.trust_remote_code", "true", "--trainer.max_steps", "1")
    assert mark.exists()
    assert (run / "results.json").is_file()


def test_attacks_and_references_run_no_code_and_say_what_can_be_done(refused, own, mark, capsys):
    (own / "provenance.json").unlink()  # which says that it is no retrained model
    text = refused("--evaluation.reference", str(own))
    assert f"reference '{own}' " in text
    assert "`validate`" in text
    data = ["--data", "Authors", "--data.authors", "6", "--data.forget_authors", "1"]
    with pytest.raises(SystemExit):
        main(["attack", "--attacks", "[Confidence]", "--model.network.path", str(own), *data])
    text = capsys.readouterr().err.strip().splitlines()[-1]
    assert f"CausalLM('{own}', trust_remote_code=True)" in text
    assert not mark.exists()
    rows = Authors(authors=6, forget_authors=1, batch_size=4, tokenizer=str(own))
    rows.setup()
    with pytest.warns(UserWarning, match="rights"):
        found = Confidence().run(Subject(CausalLM(str(own), trust_remote_code=True), rows), seed=0)
    assert found.rows


def test_code_of_a_tokenizer_is_never_run(refused, folder, mark):
    edit(folder / "tokenizer_config.json", tokenizer_class="Own", auto_map={"AutoTokenizer": ["own.Own", None]})
    (folder / "own.py").write_text(CODE.format(mark=str(mark)))
    text = refused("--model.network.path", str(folder), "--model.network.trust_remote_code", "true")
    assert "`tokenizer`" in text


def test_weights_in_pickles_are_refused(refused, folder, mark):
    (folder / "model.safetensors").unlink()
    torch.save({"weight": PickledCode(mark)}, folder / "pytorch_model.bin")
    assert "readable" in refused("--model.network.path", str(folder))


@pytest.mark.parametrize(
    "name",
    [
        "../elsewhere.safetensors",
        3,
        *(pytest.param(n, marks=pytest.mark.slow) for n in ("/elsewhere.safetensors", "..")),
    ],
)
def test_an_index_names_only_files_beside_it(refused, folder, name):
    (folder / "model.safetensors").rename(folder.parent / "elsewhere.safetensors")
    index = {"metadata": {}, "weight_map": {"lm_head.weight": name}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    assert f"model.safetensors.index.json names the file '{name}'" in refused("--model.network.path", str(folder))


def test_a_header_that_claims_gigabytes(refused, folder):
    whole = (folder / "model.safetensors").read_bytes()
    (folder / "model.safetensors").write_bytes((2**40).to_bytes(8, "little") + whole[8:])
    assert "readable" in refused("--model.network.path", str(folder))


def test_a_vocabulary_that_claims_terabytes(refused, folder):
    edit(folder / "config.json", vocab_size=10**12)
    assert "readable" in refused("--model.network.path", str(folder))


# Tokens


def test_tokens_are_never_written(fit, monkeypatch, capfd, tmp_path):
    names = ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN", "WANDB_API_KEY")
    for name in names:
        monkeypatch.setenv(name, "sentinel-of-a-token")
    run = fit("--trainer.max_steps", "1")
    with pytest.raises(SystemExit):
        main(["fit", "--model.network.path", "no/such", "--model.network", "CausalLM"])
    captured = capfd.readouterr()
    assert "sentinel" not in captured.out + captured.err
    files = [path for path in (tmp_path / "logs").rglob("*") if path.is_file()]
    assert run / "config.yaml" in files
    assert run / "results.json" in files
    assert not [path for path in files if b"sentinel" in path.read_bytes()]
