"""Confidences of forgotten rows, over many runs of one method: images by the command line, figures by hand."""

import json

import numpy as np
import pytest
import torch

from ofmu_pl import Confidence, Finding
from ofmu_pl.attacks.across import across
from ofmu_pl.attacks.attacked import of_run
from ofmu_pl.cli.commands import main
from ofmu_pl.metrics.per_example import compared, null
from ofmu_pl.networks.vision import predict
from ofmu_pl.support.records.results import AttacksRecord
from tests.helpers.folders import IMAGE_BEFORE, IMAGE_GOAL, results, write

SIDES = ("unlearned", "retrained")


def finding(values):
    return Finding.of_rows(Confidence().metrics[0], values)


def made(places, content=None, values=None):
    """Findings on runs, whose files are written; by default of chance."""
    rng, found = np.random.default_rng(0), {}
    for k, run in enumerate(places):
        write(run / "results.json", content(k) if content else results(IMAGE_GOAL, IMAGE_BEFORE, IMAGE_GOAL))
        sides = [v[k] for v in values] if values else rng.normal(0, 1, (2, 8))
        found[run] = {"confidence": {m: [finding(x)] for m, x in zip(SIDES, sides, strict=True)}}
    return found


def seeds(folder, n):
    return [folder / f"method/seed_{i}/version_0" for i in range(n)]


def test_runs_of_a_method_are_compared_example_by_example(tmp_path, capsys):
    rng = np.random.default_rng(0)
    ours, theirs = rng.normal(1, 1, (5, 8)), rng.normal(0, 1, (5, 8))
    kept = lambda _: results({**IMAGE_GOAL, "RA": 90.0}, IMAGE_BEFORE, IMAGE_GOAL)  # noqa: E731
    (figures,) = across([Confidence()], made(seeds(tmp_path, 5), kept, (ours, theirs))).values()
    expected = compared(ours, theirs) | {"models": 5}
    for name, ends in null(ours, theirs).items():
        expected |= dict(zip((f"{name}_null_low", f"{name}_null_high"), ends, strict=True))
    for end in ("", "_null_low", "_null_high"):  # nine tenths of the retrained models' accuracy is kept
        expected[f"score{end}"] = 0.9 * expected[f"forgetting_score{end}"]
    assert figures["confidence"] == pytest.approx(expected)
    written = json.loads((tmp_path / "method/across.json").read_text())
    assert written["attacks"]["confidence"] == figures["confidence"]
    assert str(tmp_path / "method/across.json") in capsys.readouterr().out


def test_few_runs_are_not_compared_and_a_model_counts_once(tmp_path):
    """Nothing is drawn, so a second seed finds the same once more."""
    assert across([Confidence()], made(seeds(tmp_path, 3))) == {}
    once, twice = made(seeds(tmp_path, 4)), {}
    for run, found in once.items():
        twice[run] = {"confidence": {m: 2 * findings for m, findings in found["confidence"].items()}}
    assert across([Confidence()], twice) == across([Confidence()], once) != {}


def test_a_retrained_model_that_runs_share_counts_once():
    """Beside a model without a spread, every row of the others would stand out."""
    ours, theirs = np.random.default_rng(0).normal(0, 1, (2, 5, 8))
    unlearned, retrained = [finding(x) for x in ours], [finding(x) for x in theirs]
    assert Confidence().across(unlearned, retrained[:1] * 5) == {}
    figures = Confidence().across(unlearned, [*retrained[:4], retrained[3]])
    assert figures == Confidence().across(unlearned, retrained[:4])


def forgets(k):
    """Results of a run that forgets rows of its own."""
    content = results(IMAGE_GOAL, IMAGE_BEFORE, IMAGE_GOAL)
    content["provenance"]["hashes"]["forget"] = f"draw {k}"
    return content


def test_runs_that_forget_different_rows_are_not_compared(tmp_path):
    with pytest.warns(UserWarning, match=str(tmp_path / "method")):
        assert across([Confidence()], made(seeds(tmp_path, 4), forgets)) == {}


@pytest.mark.parametrize("place", ["digits/method_{}", "list/method/seed_0/request_0{}"])
def test_other_methods_and_other_requests_are_no_seeds_of_one_method(tmp_path, recwarn, place):
    places = [tmp_path / place.format(i) / "version_0" for i in range(6)]
    assert across([Confidence()], made(places, forgets if "request" in place else None)) == {}
    assert not recwarn.list
    assert not list(tmp_path.rglob("across.json"))


def test_digits_are_attacked_beside_their_originals(tmp_path, capsys):
    words = ["--config", "configs/digits.yaml", "--logs", str(tmp_path), "--trainer.max_steps", "1"]
    words += ["--original.epochs", "2", "--evaluation.every_n_steps", "null"]
    words += ["--data.augment", "true"]
    main(["fit", *words, "--evaluation.attack_samples", "50", "--trainer.enable_progress_bar", "false"])
    relearn = ["--attacks+", "Relearn", "--attacks.steps", "2", "--attacks.rates", "[1e-3]", "--attacks.every", "1"]
    main(["attack", "--runs", str(tmp_path), "--attacks+", "Confidence", *relearn, "--attacks+", "Quantise"])
    record = AttacksRecord.read(tmp_path / "digits/ofmu/latest/attacks.json")
    values = {
        m: record.attacks["confidence"].metrics[m]["confidence_forget"]["value"]
        for m in ("unlearned", "retrained", "target")
    }
    assert values["target"] > values["retrained"]  # who was trained on a digit is surer of it
    assert record.attacks["relearn_forget"].x == [0, 1, 2]
    whole, eight, *_ = record.attacks["quantise"].curves["target"]
    assert eight == pytest.approx(whole, abs=0.05)
    on = of_run(tmp_path / "digits/ofmu/latest")
    images, labels = on.data.images_of("forget")  # as they are, whatever training did to them
    log_p = predict(on.recipes["unlearned"].build(on.data, exact=False), images)[range(len(labels)), labels]
    phi = log_p - torch.log(-torch.expm1(log_p))
    assert values["unlearned"] == pytest.approx(phi.mean().item(), abs=1e-3)
    assert "recovered" in capsys.readouterr().out
