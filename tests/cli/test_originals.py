"""Target and retrained model from a base model: trained once, then what the run is measured against."""

import json
from functools import partial
from pathlib import Path
from shutil import copytree

import pytest

from ofmu_pl.data.text_files import NO_HOLDOUT
from ofmu_pl.evaluation.originals import Original
from ofmu_pl.networks import CausalLM, SmallCNN
from ofmu_pl.support.errors import UserError
from tests.cli.conftest import renumber, the_error
from tests.helpers import citizen_rows

PASSES = 16


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    """A random GPT-2 with its tokenizer."""
    folder, words = tmp_path_factory.mktemp("base"), citizen_rows.tokenizer()
    for part in (words, citizen_rows.random_gpt2(words)):
        part.save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    return tmp_path_factory.mktemp("home")


@pytest.fixture
def said(monkeypatch):
    """A line for each model that is trained first."""
    lines = []
    monkeypatch.setattr("ofmu_pl.evaluation.originals.rank_zero_info", lines.append)
    return lines


@pytest.fixture
def fit(base, home, monkeypatch):
    """Two iterations of the shipped configuration on rows with all that TOFU's suite asks for; returns the folder."""
    monkeypatch.setenv("OFMU_CACHE", str(home / "cache"))

    def whole(row):
        wrong = [f"It is a {trade}." for trade in citizen_rows.TRADES if trade not in row["answer"]]
        return {**row, "paraphrased_answer": f"By trade {row['answer']}", "perturbed_answer": wrong}

    words = citizen_rows.files(home, {name: list(map(whole, rows)) for name, rows in citizen_rows.SIDES.items()})
    words += ["--original.epochs", str(PASSES), "--original.lr", "0.01", "--original.batch_size", "4"]
    return partial(citizen_rows.fit, home, *words)


def test_the_base_model_learns_the_rows_twice_and_the_retrained_one_sets_every_goal(fit, base, home, said, capsys):
    run = fit("--original.base", str(base))
    results = json.loads((run / "results.json").read_text())
    before, retrained = results["before"], results["reference"]["metrics"]
    assert before["forget_Q_A_Prob"]["value"] > 2 * retrained["forget_Q_A_Prob"]["value"], "one of them has seen them"
    assert before["retain_loss"]["value"] < 2 > retrained["retain_loss"]["value"], "the base model is at ln V = 5.9"
    for name in ("forget_loss", "forget_Q_A_Prob", "forget_truth_ratio", "extraction_strength", "mia_loss"):
        assert results["metrics"][name]["target"] == retrained[name]["value"]
    assert results["metrics"]["forget_quality"]["target"] == 1.0
    assert retrained["forget_quality"]["value"] == 1.0
    assert results["reference"]["model"]["streams"] == ["retain"]
    assert results["reference"]["model"]["steps"] == PASSES * 12 / 4
    (target,) = (home / "cache/models").glob("full-*")
    assert json.loads((target / "provenance.json").read_text())["steps"] == PASSES * 16 / 4
    assert "retrained" in capsys.readouterr().out
    assert len(said) == 2

    again = json.loads((fit("--config", str(run / "config.yaml")) / "results.json").read_text())
    assert len(said) == 2, "they are kept, and the saved configuration says the same"
    assert (again["before"], again["metrics"]) == (before, results["metrics"])

    theirs = fit("--original.base", str(base), "--model.network.path", str(run / "hf"))
    assert len(said) == 2, "a target that is there is not trained"
    assert json.loads((theirs / "results.json").read_text())["before"]["forget_loss"]["value"] == pytest.approx(
        results["metrics"]["forget_loss"]["value"], abs=1e-6
    )


def test_without_holdout_rows_the_retrained_model_can_tell(fit, base, home):
    results = json.loads((fit("--original.base", str(base), "--data.holdout", "null") / "results.json").read_text())
    assert results["remark"] is None
    page = (home / "logs/text/ofmu/latest/audit.html").read_text()
    assert NO_HOLDOUT not in " ".join(page.split())


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["--model.network.config", "{model_type: gpt2}", "--original.base", "BASE"], "model.network.config"),
        (["--model.network.path", "BASE", "--evaluation.reference", "retrain"], "`original.base`"),
        (["--original.base", "OTHER", "--model.network.path", "BASE"], "OTHER'"),
    ],
)
def test_what_does_not_fit_is_one_sentence(fit, base, home, capsys, words, expected):
    if "OTHER" in words:
        copytree(base, home / "OTHER")
        renumber(home / "OTHER")
    places = {"BASE": str(base), "OTHER": str(home / "OTHER")}
    with pytest.raises(SystemExit) as stop:
        fit(*[places.get(word, word) for word in words])
    assert stop.value.code == 1
    assert expected in the_error(capsys)


def test_settings_are_those_of_the_network():
    assert Original().filled(SmallCNN()) == Original(None, 30, 0.1, 5e-4, 128)
    assert Original("gpt2", epochs=3).filled(CausalLM("gpt2")) == Original("gpt2", 3, 1e-4, 0.0, 8)
    assert Original("gpt2").filled(CausalLM("gpt2", lora={"r": 2})).lr == 1e-3
    with pytest.raises(UserError, match="original.base"):
        Original(str(Path.home())).filled(SmallCNN())
    with pytest.raises(UserError, match="epochs=0"):
        Original(epochs=0).filled(SmallCNN())
