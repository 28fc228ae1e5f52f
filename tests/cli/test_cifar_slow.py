"""CIFAR-10's real images end to end, reduced so that two cores do it: `pytest -m slow`."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from ofmu_pl.cli import main

ROOT = Path(__file__).parent.parent.parent
DATA = Path(os.environ.get("OFMU_SHARED", ROOT.parent / "shared")) / "data/cifar10"
REDUCED = [
    *("--data.data", str(DATA), "--data.train_items", "10000", "--data.batch_size", "64"),
    *("--model.network.width", "16", "--original.epochs", "5"),
    *("--trainer.max_steps", "15", "--evaluation.every_n_steps", "null", "--evaluation.attack_samples", "1000"),
]


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.skipif(not DATA.is_dir(), reason=f"no CIFAR-10 images in {DATA}: set OFMU_SHARED")
@pytest.mark.parametrize("overlay", [None, "random"])
def test_real_images_end_to_end(overlay, tmp_path):
    configs = ["--config", str(ROOT / "configs/cifar.yaml")]
    if overlay:
        configs += ["--config", str(ROOT / f"configs/cifar/{overlay}.yaml")]
    main(["fit", *configs, *REDUCED, "--logs", str(tmp_path)])
    results = json.loads((tmp_path / "cifar10/ofmu/version_0/results.json").read_text())
    before, after = ({k: m["value"] for k, m in results[side].items()} for side in ("before", "metrics"))
    assert before["TA"] > 45  # chance: 10
    assert after["UA"] > before["UA"]
    if overlay is None:  # at random a model of five epochs has nothing memorised that could be forgotten
        assert results["reference"]["metrics"]["UA"]["value"] == 100
        assert after["avg_gap"] < 0.5 * before["avg_gap"]
