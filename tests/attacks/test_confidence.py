"""Confidences of forgotten rows, over many runs of one method: images by the command line, figures by hand."""

from __future__ import annotations

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
from ofmu_pl.support.records import AttacksRecord
from tests.helpers.folders import IMAGE_BEFORE, IMAGE_GOAL, results, write

NAME = "confidence_forget"


def finding(values):
    return Finding.of_rows(Confidence().metrics[0], values)


def test_runs_of_a_method_are_compared_example_by_example(tmp_path, capsys):
    rng = np.random.default_rng(0)
    ours, theirs, found = rng.normal(1, 1, (5, 8)), rng.normal(0, 1, (5, 8)), {}
    for i in range(5):
        run = tmp_path / f"bench/method/seed_{i}/version_0"
        write(run / "results.json", results({**IMAGE_GOAL, "RA": 90.0}, IMAGE_BEFORE, IMAGE_GOAL))
        found[run] = {"confidence": {"unlearned": [finding(ours[i])], "retrained": [finding(theirs[i])]}}
    (figures,) = across([Confidence()], found).values()
    expected = compared(ours, theirs) | {"models": 5}
    for name, ends in null(ours, theirs).items():
        expected |= dict(zip((f"{name}_null_low", f"{name}_null_high"), ends, strict=True))
    for end in ("", "_null_low", "_null_high"):  # nine tenths of the retrained models' accuracy is kept
        expected[f"score{end}"] = 0.9 * expected[f"forgetting_score{end}"]
    assert figures["confidence"] == pytest.approx(expected)
    written = json.loads((tmp_path / "bench/method/across.json").read_text())
    assert written["attacks"]["confidence"] == figures["confidence"]
    assert "not comparable" in capsys.readouterr().out


def test_few_runs_are_not_compared(tmp_path):
    runs = [tmp_path / f"method/seed_{i}/version_0" for i in range(3)]
    for run in runs:
        write(run / "results.json", results(IMAGE_GOAL, IMAGE_BEFORE, IMAGE_GOAL))
    found = {run: {"confidence": {m: [finding([0.0])] for m in ("unlearned", "retrained")}} for run in runs}
    assert across([Confidence()], found) == {}


def test_a_model_counts_once_whatever_the_number_of_seeds(tmp_path):
    """Nothing is drawn, so a second seed finds the same once more."""
    rng, found, once = np.random.default_rng(0), {}, {}
    for i in range(4):
        run = tmp_path / f"method/seed_{i}/version_0"
        write(run / "results.json", results(IMAGE_GOAL, IMAGE_BEFORE, IMAGE_GOAL))
        models = {m: [finding(rng.normal(0, 1, 8))] for m in ("unlearned", "retrained")}
        once[run] = {"confidence": models}
        found[run] = {"confidence": {m: 2 * findings for m, findings in models.items()}}
    assert across([Confidence()], found) == across([Confidence()], once)


def test_a_retrained_model_that_runs_share_counts_once():
    """Beside a model without a spread, every row of the others would stand out."""
    ours, theirs = np.random.default_rng(0).normal(0, 1, (2, 5, 8))
    unlearned, retrained = [finding(x) for x in ours], [finding(x) for x in theirs]
    assert Confidence().across(unlearned, retrained[:1] * 5) == {}
    figures = Confidence().across(unlearned, [*retrained[:4], retrained[3]])
    assert figures == Confidence().across(unlearned, retrained[:4])


def test_runs_that_forget_different_rows_are_not_compared(tmp_path):
    found = {}
    for i in range(4):
        run, content = tmp_path / f"method/seed_{i}/version_0", results(IMAGE_GOAL, IMAGE_BEFORE, IMAGE_GOAL)
        content["provenance"]["hashes"]["forget"] = f"draw {i % 2}"
        write(run / "results.json", content)
        found[run] = {"confidence": {m: [finding([0.0, i])] for m in ("unlearned", "retrained")}}
    with pytest.warns(UserWarning, match="forget different rows"):
        assert across([Confidence()], found) == {}


@pytest.mark.parametrize("place", ["digits/method_{}", "list/method/seed_0/request_0{}"])
def test_other_methods_and_other_requests_are_no_seeds_of_one_method(tmp_path, recwarn, place):
    rng, found = np.random.default_rng(0), {}
    for i in range(6):
        run, content = tmp_path / place.format(i) / "version_0", results(IMAGE_GOAL, IMAGE_BEFORE, IMAGE_GOAL)
        if "request" in place:
            content["provenance"]["hashes"]["forget"] = f"request {i}"
        write(run / "results.json", content)
        found[run] = {"confidence": {m: [finding(rng.normal(0, 1, 8))] for m in ("unlearned", "retrained")}}
    assert across([Confidence()], found) == {}
    assert not recwarn.list
    assert not list(tmp_path.rglob("across.json"))


def test_digits_are_attacked_beside_their_originals(tmp_path, capsys):
    words = ["--config", "configs/digits.yaml", "--logs", str(tmp_path), "--trainer.max_steps", "1"]
    words += ["--original.epochs", "2", "--evaluation.every_n_steps", "null"]
    words += ["--data.augment", "true"]
    main(["fit", *words, "--evaluation.attack_samples", "50", "--trainer.enable_progress_bar", "false"])
    relearn = ["--attacks+", "Relearn", "--attacks.steps", "2", "--attacks.rates", "[1e-3]", "--attacks.every", "1"]
    main(["attack", "--runs", str(tmp_path), "--attacks+", "Confidence", *relearn])
    record = AttacksRecord.read(tmp_path / "digits/ofmu/latest/attacks.json")
    values = {m: record.attacks["confidence"].metrics[m][NAME]["value"] for m in ("unlearned", "retrained", "target")}
    assert values["target"] > values["retrained"]  # who was trained on a digit is surer of it
    assert record.attacks["relearn_forget"].x == [0, 1, 2]
    on = of_run(tmp_path / "digits/ofmu/latest")
    images, labels = on.data.images_of("forget")  # as they are, whatever training did to them
    log_p = predict(on.recipes["unlearned"].build(on.data, exact=False), images)[range(len(labels)), labels]
    phi = log_p - torch.log(-torch.expm1(log_p))
    assert values["unlearned"] == pytest.approx(phi.mean().item(), abs=1e-3)
    assert "returns" in capsys.readouterr().out
