"""Evaluation without training: any model's folder, references of three kinds, a cache, several ranks."""

import json
import shutil
from pathlib import Path

import pytest
from safetensors.torch import load_file, save_file
from transformers import AutoTokenizer

from ofmu_pl.evaluation import scoring
from tests.helpers.process import two_ranks


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


@pytest.mark.slow
def test_a_reference_file_stands_for_its_model(validate, fit, models):
    folder = validate("--evaluation.reference", str(models / "retrained/latest/hf"))
    metrics = read(folder)["metrics"]
    for file in (folder / "reference.json", models / "retrained/latest/reference.json"):
        again = fit("--evaluation.reference", str(file), command="test")
        assert read(again)["metrics"] == metrics


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
    before = {**reference, "evaluation": {**reference["evaluation"], "results_version": 1}}
    (folder / "before.json").write_text(json.dumps(before))
    with pytest.raises(SystemExit):
        fit("--evaluation.reference", str(folder / "before.json"), command="test")
    older = {name: x for name, x in reference.items() if name != "values"}
    (folder / "older.json").write_text(json.dumps(older))
    results = read(fit("--evaluation.reference", str(folder / "older.json"), command="test"))
    assert results["metrics"]["gradient_alignment"] == aligned | {"target": None}
    assert "gradient_alignment" not in results["reference"]["metrics"]


def test_a_reference_is_scored_in_the_number_format_of_the_run(validate, models):
    retrained = ["--evaluation.reference", str(models / "retrained/latest/hf")]
    single, double = validate(*retrained), validate(*retrained, "--trainer.precision", "64-true")
    assert read(double, "reference.json")["evaluation"]["dtype"] == read(double)["provenance"]["dtype"] == "float64"
    assert read(double)["metrics"]["forget_quality"]["value"] == pytest.approx(
        read(single)["metrics"]["forget_quality"]["value"], rel=1e-3
    )


def test_a_checkpoint_of_any_method_is_measured(fit):
    run = fit("--trainer.max_steps", "1")
    checkpoint = str(run / "checkpoints/step=1.ckpt")
    measured = {
        method: read(fit("--model", method, "--ckpt_path", checkpoint, "--method", "ofmu", command="validate"))
        for method in ("PDU", "FineTune")
    }
    for method, results in measured.items():
        assert results["metrics"] == read(run)["metrics"], method


def test_a_checkpoint_that_is_not_there_is_not_measured(validate, capsys):
    """``last`` begins a run of fit where there is none yet; what has no weights of its own has nothing to measure."""
    with pytest.raises(SystemExit):
        validate("--method", "another", "--ckpt_path", "last")
    said = capsys.readouterr().err
    assert "There is no sound checkpoint in " in said
    assert "authors/another' that could be measured: name another folder with --logs, --benchmark" in said


def test_a_quick_look_at_some_rows(validate, models, capsys):
    retrained = ["--evaluation.reference", str(models / "retrained/latest/hf")]
    whole, quick = validate(*retrained), validate(*retrained, "--evaluation.rows", "3")
    assert [read(folder)["metrics"]["forget_Q_A_Prob"]["n"] for folder in (whole, quick)] == [8, 3]
    assert read(quick)["provenance"]["rows"] == read(quick, "reference.json")["evaluation"]["rows"] == 3
    for options, sentence in (
        (["--evaluation.reference", str(whole / "reference.json"), "--evaluation.rows", "3"],
         "was scored with rows None, this run has 3"),
        (["--evaluation.rows", "0"], "rows=0 is out of range"),
    ):  # fmt: skip
        with pytest.raises(SystemExit):
            validate(*options)
        assert sentence in capsys.readouterr().err


def test_probes_are_in_the_results(validate, models, tmp_path):
    file = tmp_path / "mine.jsonl"
    file.write_text('{"side": "forget", "question": "Who?", "answer": "Nobody."}\n')
    retrained = str(models / "retrained/latest/hf")
    folder = validate("--evaluation.reference", retrained, "--data.probes", f"{{mine: {file}}}")
    metrics = read(folder)["metrics"]
    assert metrics["probe_mine_forget_Q_A_Prob"]["n"] == 1
    for probe in ("paraphrase", "multi_hop", "cross_lingual"):
        found = metrics[f"probe_{probe}_forget_Q_A_ROUGE"]
        assert found["n"] == 8
        assert not found["higher_is_better"]
        assert found["target"] == read(folder)["reference"]["metrics"][f"probe_{probe}_forget_Q_A_ROUGE"]["value"]
        assert found["interval"][0] <= found["value"] <= found["interval"][1]
        assert metrics[f"probe_{probe}_retain_Q_A_Prob"]["target"] is None
    asked = [json.loads(line)["set"] for line in (folder / "samples.jsonl").read_text().splitlines()]
    assert asked.count("probe_multi_hop_forget") == 8
    own = read(validate("--data.probes", "true"))["metrics"]
    assert {name for name in own if name.startswith("probe_")} == {
        name for name in metrics if name.startswith("probe_") and "mine" not in name and "quality" not in name
    } - {f"probe_{probe}_forget_truth_ratio_gap" for probe in ("paraphrase", "multi_hop", "cross_lingual")}


def test_an_unchanged_model_is_not_scored_twice(validate, monkeypatch, tmp_path):
    cache = tmp_path / "cache"
    monkeypatch.setenv("OFMU_CACHE", str(cache))
    first = validate()
    calls = []
    scored = scoring.score_rows
    monkeypatch.setattr(scoring, "score_rows", lambda *args, **kwargs: calls.append(1) or scored(*args, **kwargs))
    assert read(validate())["metrics"] == read(first)["metrics"]
    assert not calls
    other = validate("--evaluation.max_new_tokens", "7")
    assert len(calls) == 1, "other settings are scored anew"
    kept = [path.name.partition("-")[0] for path in cache.iterdir()]
    assert sorted(kept) == ["alignment", "scores", "scores"], "gradients do not depend on what is generated"
    for path in cache.iterdir():
        path.write_text(path.read_text()[:100])
    assert read(validate("--evaluation.max_new_tokens", "7"))["metrics"] == read(other)["metrics"]
    assert len(calls) == 2, "a damaged file is no result"
    monkeypatch.setenv("OFMU_CACHE", "")
    assert read(validate())["metrics"] == read(first)["metrics"]
    assert len(calls) == 3, "no cache"


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
        assert by_log[name] == by_file[name], name
    assert not (validate() / "TOFU_EVAL.json").exists(), "other numbers under its file names would mislead"


def test_two_ranks_give_the_values_of_one(validate, models, tmp_path):
    alone = read(validate("--evaluation.reference", str(models / "retrained/latest/hf")))["metrics"]
    config = validate().joinpath("config.yaml")
    words = ["validate", "--config", str(config), "--logs", str(tmp_path / "two")]
    words += ["--trainer.devices", "2", "--trainer.strategy", "ddp"]
    words += ["--evaluation.reference", str(models / "retrained/latest/hf")]
    assert two_ranks(words, tmp_path / "said.txt") == [0, 0], (tmp_path / "said.txt").read_text()[-2000:]
    together = read(tmp_path / "two/authors/ofmu/version_0")["metrics"]
    assert together.keys() == alone.keys()
    for name, result in alone.items():
        assert together[name]["value"] == pytest.approx(result["value"], rel=1e-6), name
        assert together[name]["n"] == result["n"], name


def test_cheap_measurements_and_open_unlearning_s_logs_leave_probes_out(fit):
    options = ["--data.probes", "true", "--evaluation.definition", "open_unlearning"]
    folder = fit(*options, "--evaluation.every_n_steps", "2")
    results = read(folder)
    assert "probe_multi_hop_forget_Q_A_Prob" in results["before"].keys() & results["metrics"].keys()
    (cheap,) = results["history"]
    assert "forget_Q_A_Prob" in cheap["metrics"]
    assert not [name for name in [*cheap["metrics"], *read(folder, "TOFU_EVAL.json")] if name.startswith("probe_")]


@pytest.fixture
def renumbered(models, tmp_path):
    """Makes the retrained model with another tokenizer of the same size."""

    def make(change):
        shutil.copytree(models / "retrained/latest/hf", tmp_path / "other")
        (tmp_path / "other/provenance.json").unlink()
        (tmp_path / "other/SHA256SUMS").unlink(missing_ok=True)
        change(tmp_path / "other")
        return str(tmp_path / "other")

    return make


def other_numbers(folder):
    """As many tokens, of which two have changed places."""
    words = read(folder, "tokenizer.json")
    vocabulary = words["model"]["vocab"]
    one, two = sorted(vocabulary, key=vocabulary.get)[-2:]
    vocabulary[one], vocabulary[two] = vocabulary[two], vocabulary[one]
    (folder / "tokenizer.json").write_text(json.dumps(words))


def other_special(folder):
    """As many tokens, of which two special ones have changed places."""
    text = (folder / "tokenizer.json").read_text()
    for old, new in (
        ("<|start_header_id|>", "<|x|>"),
        ("<|end_header_id|>", "<|start_header_id|>"),
        ("<|x|>", "<|end_header_id|>"),
    ):
        text = text.replace(old, new)
    (folder / "tokenizer.json").write_text(text)


def other_template(folder):
    tokenizer = AutoTokenizer.from_pretrained(folder)
    tokenizer.chat_template = tokenizer.chat_template.replace("assistant", "model")
    tokenizer.save_pretrained(folder)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (other_numbers, "another tokenizer"),
        (other_special, "another tokenizer"),
        (other_template, "another chat template"),
    ],
)
def test_a_reference_that_reads_other_tokens_is_refused(validate, renumbered, capsys, change, words):
    with pytest.raises(SystemExit):
        validate("--evaluation.reference", renumbered(change))
    assert words in capsys.readouterr().err


def test_a_reference_with_another_pad_token_or_no_tokenizer_is_scored(validate, renumbered):
    def padded(folder):
        tokenizer = AutoTokenizer.from_pretrained(folder)
        tokenizer.add_special_tokens({"pad_token": "<|another|>"})
        tokenizer.save_pretrained(folder)

    folder = renumbered(padded)
    found = read(validate("--evaluation.reference", folder))["reference"]["metrics"]
    for path in Path(folder).glob("*token*"):
        path.unlink()
    assert read(validate("--evaluation.reference", folder))["reference"]["metrics"] == found


def test_a_reference_that_knows_less_than_nothing_is_remarked(validate, renumbered):
    def broken(folder):
        weights = load_file(folder / "model.safetensors")
        weights["model.norm.weight"] *= -5
        save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})

    found = read(validate("--evaluation.reference", renumbered(broken)))
    assert "worse than chance on retained rows" in found["remark"]
    assert "worse than chance" not in (read(validate()).get("remark") or "")
