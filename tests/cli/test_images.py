"""Images through the real command line: originals made once, results, bad input."""

import json
import os
import signal
from pathlib import Path

import pytest

from ofmu_pl.cli import main
from ofmu_pl.modules import FineTune
from tests.cli.conftest import the_error

ROOT = Path(__file__).parent.parent.parent
FAST = [
    *("--config", str(ROOT / "configs/digits.yaml"), "--original.epochs", "6", "--data.train_items", "600"),
    *("--trainer.max_steps", "4", "--trainer.enable_progress_bar", "false", "--model.network.width", "8"),
    *("--evaluation.every_n_steps", "2", "--evaluation.attack_samples", "100"),
    *("--checkpoint.every_n_train_steps", "2"),
]


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A finished run: its log folder."""
    logs = tmp_path_factory.mktemp("logs")
    main(["fit", *FAST, "--logs", str(logs)])
    return logs / "digits/ofmu/version_0"


def test_a_run_leaves_results(run):
    results = json.loads((run / "results.json").read_text())
    assert results["before"]["UA"]["value"] < 30
    assert results["metrics"]["UA"]["target"] == results["reference"]["metrics"]["UA"]["value"]
    assert results["reference"]["metrics"]["avg_gap"]["value"] == 0
    assert results["reference"]["model"]["streams"] == ["retain"]
    assert results["reference"]["model"]["cost"]["gradient_evaluations"] > 0
    gaps = [abs(results["metrics"][k]["value"] - results["metrics"][k]["target"]) for k in ("UA", "RA", "TA", "MIA")]
    assert results["metrics"]["avg_gap"]["value"] == pytest.approx(sum(gaps) / 4)
    assert [h["step"] for h in results["history"]] == [2]
    assert set(results["history"][0]["metrics"]) == {"forget_accuracy", "RA", "VA"}
    sides = (results["metrics"], results["before"], results["reference"]["metrics"])
    after, before, retrained = (side["gradient_alignment"] for side in sides)
    assert after["target"] == before["target"] == retrained["value"] != before["value"]
    curves = results["curves"]
    telemetry = {"L_f", "L_r", "Sim", "grad_Phi", "grad_L_r", "rho", "penalty", "curvature", "gradient_norm"}
    assert set(curves) >= telemetry
    always = {"inner/L_f", "inner/distance", "L_r", "rho", "gradient_norm"}  # one iteration of five is whole
    assert all(points["step"] == ([1, 2, 3, 4] if name in always else [1]) for name, points in curves.items())
    assert curves["rho"]["value"] == pytest.approx([0.3 * 1.5**k for k in range(3)] + [1.0])
    assert results["provenance"]["forgotten"] == [0]
    assert results["provenance"]["bn_mode"] == "frozen"
    assert "image-classification" in (run / "model/README.md").read_text()
    assert "recoloured" in (run / "audit.html").read_text()


def test_attacks_on_more_images_than_there_are_are_refused_before_anything_is_trained(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr("ofmu_pl.cli.app.original", pytest.fail)
    words = ["fit", *FAST, "--logs", str(tmp_path)]
    with pytest.raises(SystemExit):
        main([*words, "--evaluation.attack_samples", "600"])
    assert "evaluation.attack_samples" in the_error(capsys)


def test_the_originals_are_made_once_and_a_run_goes_on_where_it_stopped(run, monkeypatch, tmp_path):
    monkeypatch.setattr("ofmu_pl.evaluation.originals.rank_zero_info", pytest.fail)  # it tells of each training
    checkpoint = sorted((run / "checkpoints").glob("*.ckpt"))[0]
    main(["fit", *FAST, "--logs", str(tmp_path), "--trainer.max_steps", "6", "--ckpt_path", str(checkpoint)])
    before, after = (json.loads((f / "results.json").read_text()) for f in (run, tmp_path / "digits/ofmu/version_0"))
    assert before["before"] == after["before"]
    assert after["curves"]["L_r"]["step"] == [1, 2, 3, 4, 5, 6], "those of the first part, too"
    assert after["curves"]["L_r"]["value"][:2] == before["curves"]["L_r"]["value"][:2]


def test_sigterm_while_the_originals_are_trained(monkeypatch, capsys, tmp_path):
    """Nothing of such a training is kept, so nothing waits for its end."""
    iterate = FineTune.iterate

    def and_terminate(self, batch):
        os.kill(os.getpid(), signal.SIGTERM)
        return iterate(self, batch)

    monkeypatch.setattr(FineTune, "iterate", and_terminate)
    with pytest.raises(SystemExit) as stop:
        main(["fit", *FAST, "--logs", str(tmp_path), "--seed_everything", "9"])
    assert stop.value.code == 143
    assert "SIGTERM" in capsys.readouterr().err
    assert not list(tmp_path.rglob("results.json"))


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["--model.network.path", "MODEL", "--original", "null"], "'retrain'"),
        (["--evaluation.reference", "MODEL"], "['forget', 'retain']"),
        (["-c", str(ROOT / "configs/methods/rmu.yaml")], "'digits'"),
        (["--evaluation", "TextEvaluation"], "ImageEvaluation"),
    ],
)
def test_bad_input_is_one_sentence(run, tmp_path, capsys, words, expected):
    words = [str(run / "model") if w == "MODEL" else w for w in words]
    with pytest.raises(SystemExit) as stop:
        main(["fit", *FAST, "--logs", str(tmp_path), *words])
    assert stop.value.code == 1
    assert expected in the_error(capsys)
