"""Real TOFU through the command line against every number that open-unlearning stored for the same models."""

import json

import numpy as np
import pytest
from scipy import stats

from ofmu_pl.cli import main

WHOLE = [pytest.mark.slow, pytest.mark.timeout(900)]  # two whole evaluations


@pytest.fixture(scope="module")
def validate(shared, tmp_path_factory):
    """Evaluates a tiny model as open-unlearning does: our log and theirs of the whole, our summary and theirs."""

    def run(name, *options):
        root = tmp_path_factory.mktemp("tofu")
        words = ["--data", "TOFU", "--data.data", str(shared / "data/tofu"), "--trainer.accelerator", "cpu"]
        words += ["--model", "OFMU", "--model.network", "CausalLM", "--model.network.path"]
        words += [str(shared / f"models/tofu-tiny-{name}"), "--evaluation.definition", "open_unlearning", *options]
        words += ["--evaluation.samples", "full"]
        main(["validate", *words, "--logs", str(root), "--method", name, "--trainer.devices", "1"])
        folders = root / "tofu" / name / "version_0", shared / f"reference/open-unlearning-tiny/{name}"
        return [json.loads((f / file).read_text()) for file in ("TOFU_EVAL.json", "TOFU_SUMMARY.json") for f in folders]

    return run


@pytest.fixture(scope="module")
def logs(shared, validate):
    """By model, what the whole evaluation wrote and what open-unlearning's wrote."""
    reference = shared / "reference/open-unlearning-tiny/retain90/TOFU_EVAL.json"  # their own retain log
    return {"retain90": validate("retain90"), "full": validate("full", "--evaluation.reference", str(reference))}


def items(log):
    """By measure, and by side where it has two, the items of a log."""
    found = {}
    for key, entry in log.items():
        for side in ("forget", "holdout") if key == "mia_min_k" else (None,):
            found[key, side] = (entry[side] if side else entry).get("value_by_index")
    return {key: values for key, values in found.items() if values is not None}


def compared(ours, theirs):
    """Compares the items that both logs have; returns how many numbers and texts."""
    count = 0
    for (key, side), entry in items(theirs).items():
        got = items(ours)[key, side]
        wanted = {i: entry[i] for i in got}
        same = [got[i].get("generation") == wanted[i].get("generation") for i in wanted]
        assert sum(same) >= 0.99 * len(same), f"{key}: other tokens than ties"
        for field in next(iter(wanted.values())):
            pairs = [(got[i][field], wanted[i][field]) for i, s in zip(wanted, same, strict=True) if s]
            count += len(pairs)
            if isinstance(pairs[0][0], str):
                assert all("".join(a.split()) == "".join(b.split()) for a, b in pairs), key
            elif key == "extraction_strength":
                assert np.isclose(*zip(*pairs, strict=True), rtol=1e-6).mean() >= 0.99
            else:
                # Stored losses lie about 1e-5 nats below float64's (tests/evaluation/test_scoring.py), so that
                # the smallest, of 0.01, cannot be met to 1e-4 relative.
                np.testing.assert_allclose(*zip(*pairs, strict=True), rtol=1e-4, atol=2.5e-5, err_msg=key)
    return count


def test_some_items(validate):
    """A quick look at the rows of which the whole evaluation, below, takes minutes."""
    ours, theirs, *_ = validate("full", "--evaluation.rows", "3")
    assert ours.keys() == theirs.keys()
    assert all(len(found) == 3 for found in items(ours).values())
    assert compared(ours, theirs) > 150


@pytest.mark.parametrize("name", [pytest.param("retain90", marks=WHOLE), pytest.param("full", marks=WHOLE)])
def test_every_item_and_total(logs, name):
    ours, theirs, summary, stored = logs[name]
    assert ours.keys() == theirs.keys()
    assert {key: found.keys() for key, found in items(ours).items()} == {k: f.keys() for k, f in items(theirs).items()}
    assert compared(ours, theirs) > 10_000
    assert summary.keys() == stored.keys()
    for key, entry in theirs.items():
        if key == "forget_quality" or entry["agg_value"] is None:
            continue
        assert ours[key]["agg_value"] == pytest.approx(entry["agg_value"], rel=1e-3, abs=1e-3), key
        assert key not in summary or summary[key] == ours[key]["agg_value"]


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_forget_quality_within_one_step(logs):
    """One step of D changes p about twofold: compared is D n, an integer."""
    ours, theirs, *_ = logs["full"]
    reference = logs["retain90"][1]["forget_truth_ratio"]["value_by_index"]
    steps = [
        400 * stats.ks_2samp(*([x["score"] for x in log["value_by_index"].values()] for log in pair)).statistic
        for pair in ((x["forget_truth_ratio"], {"value_by_index": reference}) for x in (ours, theirs))
    ]
    assert abs(steps[0] - steps[1]) <= 1 + 1e-9
    assert ours["forget_quality"]["agg_value"] == pytest.approx(theirs["forget_quality"]["agg_value"], rel=3)
