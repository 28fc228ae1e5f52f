"""Evaluation without training: any model's folder, references of three kinds, a cache, several ranks."""

import json
import re
import shutil

import pytest
from safetensors.torch import load_file, save_file
from transformers import AutoTokenizer

from ofmu_pl.metrics.verdicts import ONE_RETRAINED
from tests.cli.conftest import renumber
from tests.helpers.process import two_ranks


@pytest.fixture
def form(first_order):
    return first_order


@pytest.fixture
def validate(fit):
    """Runs ``validate`` on the tiny target; returns its folder."""
    return lambda *options: fit(*options, command="validate")


def read(folder, name="results.json"):
    return json.loads((folder / name).read_text())


def test_values_are_those_of_the_run_that_made_the_model(validate, models):
    folder = validate("--evaluation.reference", str(models / "retrained/latest/hf"))
    target = read(models / "target/latest")
    assert read(folder)["metrics"]["model_utility"] == target["metrics"]["model_utility"]
    assert read(folder)["provenance"]["weights"] == target["provenance"]["weights"]
    assert read(folder)["provenance"]["steps"] == 0


def test_evaluating_a_retrained_model_writes_a_reference_file(fit, models):
    retrained = models / "retrained/latest/hf"
    folder = fit("--model.network.path", str(retrained), command="validate")
    reference = read(folder, "reference.json")
    assert reference["model"]["streams"] == ["retain"]
    facts = {"weights", "dtype", "max_new_tokens", "hidden_token", "date_string", "template_hash", "hashes", "versions"}
    assert facts <= reference["evaluation"].keys()
    results = read(fit("--evaluation.reference", str(folder / "reference.json"), command="test"))
    by_model = read(fit("--evaluation.reference", str(retrained), command="validate"))
    assert results["metrics"] == by_model["metrics"]
    assert results["reference"]["metrics"] == by_model["reference"]["metrics"]
    aligned = results["metrics"]["gradient_alignment"]
    assert aligned["target"] == results["reference"]["metrics"]["gradient_alignment"]["value"] != aligned["value"]
    older = {name: x for name, x in reference.items() if name != "values"}
    for scores in older["scores"].values():
        del scores["repetition"], scores["entropy"]
    (folder / "older.json").write_text(json.dumps(older))
    results = read(fit("--evaluation.reference", str(folder / "older.json"), command="test"))
    assert results["metrics"]["gradient_alignment"] == aligned | {"target": None}
    assert "gradient_alignment" not in results["reference"]["metrics"]
    entropy = by_model["metrics"]["forget_entropy"] | {"target": None}
    assert entropy.pop("verdict") == "too few"
    assert results["metrics"]["forget_entropy"] == entropy, "without a goal there is no verdict"


def test_a_checkpoint_that_is_not_there_is_not_measured(refused):
    """``last`` begins a run of fit where there is none yet; what has no weights of its own has nothing to measure."""
    said = refused("--method", "another", "--ckpt_path", "last", command="validate")
    assert "authors/another'" in said


def test_a_quick_look_at_some_rows(validate, refused, models):
    retrained = ["--evaluation.reference", str(models / "retrained/latest/hf")]
    whole, quick = validate(*retrained), validate(*retrained, "--evaluation.rows", "3")
    assert [read(folder)["metrics"]["forget_Q_A_Prob"]["n"] for folder in (whole, quick)] == [8, 3]
    assert read(quick)["provenance"]["rows"] == read(quick, "reference.json")["evaluation"]["rows"] == 3
    words = ["--evaluation.reference", str(whole / "reference.json"), "--evaluation.rows", "3"]
    assert re.search("rows None,.* 3", refused(*words, command="validate"))


def test_open_unlearning_s_definition_writes_its_logs_and_reads_them(validate, models):
    compatible = ["--evaluation.definition", "open_unlearning"]
    reference = validate("--model.network.path", str(models / "retrained/latest/hf"), *compatible)
    log, summary = read(reference, "TOFU_EVAL.json"), read(reference, "TOFU_SUMMARY.json")
    results = read(reference)
    assert results["definition"] == "open_unlearning"
    assert summary["model_utility"] == log["model_utility"]["agg_value"] == results["metrics"]["model_utility"]["value"]
    assert log["forget_Q_A_ROUGE"]["value_by_index"]["0"].keys() >= {"input", "ground_truth", "generation"}
    by_log = read(validate("--evaluation.reference", str(reference / "TOFU_EVAL.json"), *compatible))["metrics"]
    by_file = read(validate("--evaluation.reference", str(reference / "reference.json"), *compatible))["metrics"]
    for name in ("forget_quality", "forget_quality_D", "forget_truth_ratio", "forget_Q_A_Prob"):
        for entry in (by_log[name], by_file[name]):
            entry.pop("verdict", None)  # a log has no values of some rows
        assert by_log[name] == by_file[name], name
    assert not (validate() / "TOFU_EVAL.json").exists(), "other numbers under its file names would mislead"


def test_two_ranks_give_the_values_of_one(validate, models, tmp_path):
    folder = validate("--evaluation.reference", str(models / "retrained/latest/hf"))
    alone = read(folder)["metrics"]
    words = ["validate", "--config", str(folder / "config.yaml"), "--logs", str(tmp_path / "two")]
    words += ["--trainer.devices", "2", "--trainer.strategy", "ddp"]
    assert two_ranks(words, tmp_path / "said.txt") == [0, 0], (tmp_path / "said.txt").read_text()[-2000:]
    together = read(tmp_path / "two/authors/ofmu/version_0")["metrics"]
    assert together.keys() == alone.keys()
    for name, result in alone.items():
        assert together[name]["value"] == pytest.approx(result["value"], rel=1e-6), name
        assert together[name]["n"] == result["n"], name


def other_template(folder):
    tokenizer = AutoTokenizer.from_pretrained(folder)
    tokenizer.chat_template = tokenizer.chat_template.replace("assistant", "model")
    tokenizer.save_pretrained(folder)


@pytest.fixture
def changed(models, tmp_path):
    """Makes the retrained model with something else about it."""

    def make(change):
        alone = shutil.ignore_patterns("provenance.json", "SHA256SUMS")  # else these tell of the change
        change(shutil.copytree(models / "retrained/latest/hf", tmp_path / "other", ignore=alone))
        return str(tmp_path / "other")

    return make


@pytest.mark.parametrize(("change", "words"), [(renumber, "tokenizer"), (other_template, "chat template")])
def test_a_reference_that_reads_other_tokens_is_refused(refused, changed, change, words):
    assert f"another {words}" in refused("--evaluation.reference", changed(change), command="validate")


def test_a_second_retrained_model_sets_the_noise(fit, validate, refused, models, changed):
    def otherwise(folder):
        weights = load_file(folder / "model.safetensors")
        weights["model.norm.weight"] *= 1.1
        save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})

    retrained, second = str(models / "retrained/latest/hf"), changed(otherwise)
    references = ["--trainer.max_steps", "1", "--evaluation.reference", retrained, "--evaluation.second_reference"]
    folder = fit(*references, second)
    found = read(folder)
    near = {name for name, entry in found["metrics"].items() if entry["group"] == "nearness"}
    assert near == {"forget_distance", "forget_nearer", "forget_beyond", "forget_apart", "retain_distance"}
    noise = read(validate("--model.network.path", second, "--evaluation.reference", retrained))["metrics"]
    assert found["metrics"]["forget_distance"]["target"] == noise["forget_distance"]["value"] > 0
    assert found["provenance"]["second_reference"] == second
    page = (folder / "audit.html").read_text()
    assert "a second retrained model (p =" in page
    assert "a second one" in page
    assert ONE_RETRAINED not in page
    folder = fit(*references[:-1])
    alone, said = (
        read(folder)["metrics"],
        [page.read_text() for page in (folder / "audit.html", folder / "hf/README.md")],
    )
    assert [page.count(ONE_RETRAINED.partition(" (")[0]) for page in said] == [1, 1]
    assert alone["forget_nearer"]["value"] == found["metrics"]["forget_nearer"]["value"]
    assert found["metrics"]["forget_Q_A_Prob"]["apart"] == pytest.approx(
        abs(noise["forget_Q_A_Prob"]["value"] - noise["forget_Q_A_Prob"]["target"])
    )
    assert not {"forget_beyond", "forget_apart", "retain_distance"} & alone.keys()
    assert "evaluation.second_reference" in refused(*references, retrained, command="validate")
    assert "evaluation.reference" in refused("--evaluation.second_reference", second)


def test_a_reference_that_knows_less_than_nothing_is_remarked(validate, models, changed):
    def broken(folder):
        weights = load_file(folder / "model.safetensors")
        weights["model.norm.weight"] *= -5
        save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})

    found = read(validate("--evaluation.reference", changed(broken)))
    assert "chance" in found["remark"]
    assert "chance" not in (read(models / "target/latest").get("remark") or "")
