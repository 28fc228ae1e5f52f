"""No code of ours runs what it reads; names stay below their folder; sizes are looked at before memory is taken."""

import ast
import json
import pickle
import re
import types
from pathlib import Path

import numpy as np
import pytest
import torch

from ofmu_pl.data import Digits
from ofmu_pl.data.own_files import read_file, read_part
from ofmu_pl.evaluation.reference import read_model_facts, read_reference
from ofmu_pl.metrics import SetScores
from ofmu_pl.networks import SmallCNN
from ofmu_pl.support.errors import UserError
from ofmu_pl.support.files import below, read_json
from tests.helpers.pickled_code import PickledCode

PACKAGE = Path(__file__).parents[2] / "ofmu_pl"

# Our code

FORBIDDEN = {"eval", "exec", "compile", "__import__", "pickle.load", "pickle.loads", "pickle.Unpickler"}
FORBIDDEN |= {"yaml.load", "yaml.unsafe_load", "yaml.full_load", "marshal.loads", "joblib.load"}
FORBIDDEN |= {"os.system", "os.popen"}
NEEDED = {
    "torch.load": {"weights_only": True},
    "np.load": {"allow_pickle": False},
    "AutoModelForCausalLM.from_pretrained": {"use_safetensors": True, "trust_remote_code": "trust_remote_code"},
    "AutoConfig.from_pretrained": {"trust_remote_code": False},
    "AutoModelForCausalLM.from_config": {"trust_remote_code": False},
    "AutoTokenizer.from_pretrained": {"trust_remote_code": False},
    "PeftModel.from_pretrained": {"is_trainable": True},  # of low-rank adapters, which bring no code
    "PeftConfig.from_pretrained": {},
}


def unsafe_calls(source):
    """Names of the calls in a module that run what they read, or that leave it to a default whether they do."""
    found = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ImportFrom) and node.module in ("pickle", "os", "yaml", "subprocess", "torch", "numpy"):
            loose = {alias.name for alias in node.names}
            found += loose & {"load", "loads", "Unpickler", "system", "popen", "unsafe_load", "*"}
        if not isinstance(node, ast.Call):
            continue
        name = ast.unparse(node.func)
        given = {
            k.arg: k.value.value if isinstance(k.value, ast.Constant) else ast.unparse(k.value) for k in node.keywords
        }
        if name in FORBIDDEN or given.get("shell", False) is not False:
            found.append(name)
        wanted = NEEDED.get(name, {"trust_remote_code": "stated"} if name.endswith("from_pretrained") else {})
        found += [f"{name} {k}" for k, v in wanted.items() if given.get(k, "left out") != v]
    return found


@pytest.mark.parametrize("path", sorted(PACKAGE.rglob("*.py")), ids=lambda path: str(path.relative_to(PACKAGE)))
def test_our_code_runs_nothing_that_it_reads(path):
    assert unsafe_calls(path.read_text()) == []


@pytest.mark.parametrize(
    "source",
    [
        "eval('1')",
        "from pickle import loads",
        "torch.load(path)",
        "torch.load(path, weights_only=False)",
        "subprocess.run(words, shell=True)",
        "AutoConfig.from_pretrained(path)",
        "AutoModelForCausalLM.from_pretrained(path, trust_remote_code=self.trust_remote_code)",
    ],
)
def test_the_search_finds(source):
    assert unsafe_calls(source)


# Names and JSON


@pytest.mark.parametrize("name", ["../x", "a/../../x", "/x", "", ".", ".."])
def test_a_name_stays_below_its_folder(name, tmp_path):
    with pytest.raises(UserError, match=re.escape(f"--option '{name}' leads")):
        below(tmp_path, name, "--option")
    assert below(tmp_path, "a/b", "--option") == tmp_path / "a/b"


def test_a_configuration_of_a_corpus_is_no_path(tmp_path):
    (tmp_path / "data").mkdir()
    (tmp_path / "secret.jsonl").write_text('{"text": "secret"}\n')
    with pytest.raises(UserError, match=r"`data.data` '\.\./secret.jsonl' leads"):
        read_part(str(tmp_path / "data"), "../secret.jsonl", "../secret", "test", "data.data")


def huge(path):
    """A file that claims gigabytes and takes no space."""
    with path.open("wb") as file:
        file.truncate(2**40)


def deep(path):
    path.write_text("[" * 10**6)


@pytest.mark.parametrize(("write", "expected"), [(huge, str(2**40)), (deep, "nested")])
def test_json_that_fills_memory_or_stack(write, expected, tmp_path):
    write(tmp_path / "provenance.json")
    with pytest.raises(ValueError, match=expected):
        read_json(tmp_path / "provenance.json")
    with pytest.raises(UserError, match=f"provenance.json.*ValueError.*{expected}"):
        read_model_facts(str(tmp_path))


def test_a_line_that_fills_the_stack(tmp_path):
    (tmp_path / "rows.jsonl").write_text("[" * 10**6)
    with pytest.raises(UserError, match="Line 1 of"):
        read_file(tmp_path / "rows.jsonl", "data.questions")


@pytest.mark.parametrize("ids", [[0, 1, 10**9], [-1, 0, 1], [0, 0, 1], [0, 1], [0, 1, 10**30], [0, 1, 0.5], {"0": 0}])
def test_row_numbers_that_are_not_the_datas(ids, tmp_path):
    rows = [{"question": "Who?", "answer": "I."}] * 3
    data = types.SimpleNamespace(
        evaluation_sets={"forget": rows},
        hashes={"forget_eval": "1", "retain": "2"},
        facts={},
        encoder=types.SimpleNamespace(date_string=None, template_hash="3"),
    )
    facts = {"hashes": data.hashes, "date_string": None, "template_hash": "3", "streams": ["retain"]}

    def write(ids):
        scores = SetScores(np.arange(3), np.ones(3)).as_dict() | {"ids": ids}
        if isinstance(ids, list) and len(ids) != 3:
            scores["answer_loss"] = [1.0] * len(ids)
        content = {"source": "", "model": facts, "evaluation": facts, "values": {}, "scores": {"forget": scores}}
        (tmp_path / "reference.json").write_text(json.dumps(content))

    write([0, 1, 2])
    assert read_reference(tmp_path / "reference.json", data).scores["forget"].ids.tolist() == [0, 1, 2]
    write(ids)
    with pytest.raises(UserError, match="reference.json'"):
        read_reference(tmp_path / "reference.json", data)


# Folders of image classifiers


@pytest.fixture(scope="module")
def digits():
    data = Digits(forget_classes=[0])
    data.setup()
    return data


@pytest.mark.parametrize("how", ["whole", "pickle", "header", "shapes", "facts", "config"])
def test_a_hostile_folder_of_an_image_classifier(how, digits, tmp_path):
    recipe, mark = SmallCNN(width=8), tmp_path / "mark"
    recipe.save(recipe.build(digits, exact=False), tmp_path, digits)
    weights = tmp_path / "model.safetensors"
    facts = {"hashes": digits.hashes}
    if how == "pickle":
        pickle.loads(pickle.dumps(PickledCode(mark)))
        mark.unlink()
        torch.save(PickledCode(mark), weights)
    if how == "header":
        weights.write_bytes((2**40).to_bytes(8, "little") + weights.read_bytes()[8:])
    if how == "shapes":  # config.json says width 8
        wider = SmallCNN(width=16)
        wider.save(wider.build(digits, exact=False), tmp_path, digits)
    if how == "facts":
        facts = ["hashes"]
    if how == "config":
        deep(tmp_path / "config.json")
    (tmp_path / "provenance.json").write_text(json.dumps(facts))
    loaded = SmallCNN(width=8, path=str(tmp_path))
    if how == "shapes":
        (tmp_path / "config.json").write_text(json.dumps(loaded._config(digits)))
    if how == "whole":
        loaded.build(digits, exact=False)
        return
    with pytest.raises(UserError, match=r"(config|provenance)\.json"):
        loaded.build(digits, exact=False)
    assert not mark.exists()
