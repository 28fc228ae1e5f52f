"""A real language model learns people and forgets some, by the shipped script: `pytest -m slow`, minutes."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent
NAME = "SmolLM2-135M-Instruct"
MODEL = Path(os.environ.get("OFMU_SMOLLM2", ROOT / "logs/smollm2" / NAME))
STEPS = os.environ.get("OFMU_SMOLLM2_STEPS")
"""Iterations of each training for a look at whether all of it runs; unset: the script's own."""


@pytest.mark.slow
@pytest.mark.timeout(7200)
@pytest.mark.skipif(
    not (MODEL / "config.json").is_file(),
    reason=f"no {NAME} in {MODEL}: make it by `python scripts/make_smollm2.py FOLDER` and set OFMU_SMOLLM2=FOLDER",
)
def test_people_are_learnt_and_some_of_them_forgotten(shared, tmp_path):
    (tmp_path / "scripts").mkdir()
    shutil.copy(ROOT / "scripts/example_smollm2.sh", tmp_path / "scripts")
    shutil.copy(ROOT / "scripts/make_smollm2.py", tmp_path / "scripts")
    (tmp_path / "scripts/venv.sh").write_text("# the environment of this test serves\n")
    (tmp_path / "configs").symlink_to(ROOT / "configs")
    runs = tmp_path / "logs/smollm2"
    runs.mkdir(parents=True)
    (runs / NAME).symlink_to(MODEL.resolve())
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    environment = os.environ | {"PATH": path, "PYTHONPATH": str(ROOT), "DATA": str(shared / "data/lume")}
    words = [] if STEPS is None else ["--trainer.max_steps", STEPS]
    subprocess.run(["bash", "scripts/example_smollm2.sh", *words], cwd=tmp_path, env=environment, check=True)

    found = {m: json.loads((runs / m / "latest/results.json").read_text()) for m in ("target", "retrained", "ofmu")}
    rows = {name: found["ofmu"]["metrics"][f"{name}_loss"]["n"] for name in ("forget", "retain", "holdout")}
    assert rows == {"forget": 20, "retain": 40, "holdout": 40}
    assert (runs / "report/index.html").is_file()
    assert (runs / "ofmu/latest/audit.html").is_file()
    if STEPS is None:
        before, after = found["ofmu"]["before"], found["ofmu"]["metrics"]
        assert before["forget_Q_A_Prob"]["value"] > 2 * before["holdout_Q_A_Prob"]["value"], "it knew them"
        assert after["forget_Q_A_Prob"]["value"] < 0.5 * before["forget_Q_A_Prob"]["value"]
        assert after["retain_Q_A_Prob"]["value"] > 0.8 * before["retain_Q_A_Prob"]["value"]
