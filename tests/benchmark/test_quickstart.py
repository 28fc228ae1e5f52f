"""The quickstart is a benchmark: what its runs find side by side, each finds alone."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from ofmu_pl.attacks.relearn import Relearn
from ofmu_pl.cli import commands, main
from tests.helpers.training import TINY

CONFIGS = Path(__file__).parents[2] / "configs"
SMALL = {"data.authors": 12, "data.forget_authors": 1, "data.holdout_authors": 1, "evaluation.max_new_tokens": 2}
NETWORK = TINY | {"tie_word_embeddings": True, "max_position_embeddings": 512}
TRAINING = {"model.network.config": NETWORK, "model.scheduler.total_steps": 4, "trainer.max_steps": 4}


def small(folder):
    """The shipped file with a few rows and steps."""
    benchmark = yaml.safe_load((CONFIGS / "benchmarks/quickstart.yaml").read_text())
    (experiment,) = benchmark["experiments"].values()
    for made in experiment["prepare"].values():
        made["options"] |= SMALL | TRAINING
    experiment["options"] |= SMALL | {"trainer.max_steps": 3}
    experiment["methods"]["npo"]["options"]["trainer.max_steps"] = 3
    attacks = yaml.safe_load((CONFIGS / "attacks_quickstart.yaml").read_text())
    attacks["attacks"][0]["init_args"] |= {"steps": 2, "every": 1}
    experiment["attacks"] = str(folder / "attacks.yaml")
    (folder / "attacks.yaml").write_text(yaml.safe_dump(attacks))
    (folder / "quickstart.yaml").write_text(yaml.safe_dump(benchmark))
    return folder / "quickstart.yaml"


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_runs_side_by_side_find_what_each_finds_alone_to_the_bit(tmp_path, monkeypatch, capfd):
    monkeypatch.setenv("OFMU_CACHE", str(tmp_path / "cache"))
    together, alone = tmp_path / "together", tmp_path / "alone"
    main(["benchmark", "--config", str(small(tmp_path)), "--logs", str(together)])
    printed = capfd.readouterr()
    env = os.environ | {"OMP_NUM_THREADS": "1", "OFMU_CACHE": str(tmp_path / "cache-alone")}
    jobs = sorted((together / "quickstart").rglob("cell.json"), key=lambda path: path.stat().st_mtime)
    assert len(jobs) == 6
    for job in jobs:
        words = [word.replace(str(together), str(alone)) for word in json.loads(job.read_text())["words"]]
        subprocess.run([sys.executable, "-m", "ofmu_pl", *words], env=env, check=True, capture_output=True)
    for found in ("hf/model.safetensors", "results.json", "attacks.json"):
        paths = [path.relative_to(together) for path in together.rglob(f"latest/{found}")]
        assert len(paths) == (2 if found == "attacks.json" else 4)
        for path in paths:
            one, other = (folder / path for folder in (together, alone))
            if path.suffix == ".safetensors":
                assert one.read_bytes() == other.read_bytes()
            else:
                assert numbers(one) == numbers(other)
    assert "retrained" in printed.out
    assert len(re.findall(r"^\[\d/6\] attacks/authors/all/", printed.err, re.MULTILINE)) == 2
    assert "prepared/authors/target/once: begins" in printed.err


def numbers(path):
    """What a run or an attack found, without its times and places."""
    found = json.loads(path.read_text())
    if path.name == "attacks.json":
        return {name: (a["metrics"], a["curves"]) for name, a in found["attacks"].items()}
    return {side: found.get(side) for side in ("metrics", "before", "reference")} | {"reference": None}


def test_the_command_names_the_shipped_benchmark_with_folder_and_seed(monkeypatch, capsys, tmp_path):
    ran = []
    monkeypatch.setattr(commands, "_run", ran.append)
    main(["quickstart", "--seed", "3", "--logs", str(tmp_path / "my logs")])
    assert ran == [["quickstart", "--seed", "3", "--logs", str(tmp_path / "my logs")]]
    commands.OTHERS["quickstart"](["--seed", "3", "--logs", str(tmp_path / "my logs")])
    (words,) = ran[1:]
    assert words[:3] == ["benchmark", "--config", "ofmu_pl:benchmarks/quickstart.yaml"]
    assert words[3:5] == ["--logs", str(tmp_path / "my logs")]
    assert words[5:] == ["--name", "quickstart-seed3", "--experiments.authors.seeds=[3]"]
    assert f"--runs '{tmp_path / 'my logs'}/quickstart-seed3'" in capsys.readouterr().out


def test_all_four_models_have_the_same_rows():
    benchmark = yaml.safe_load((CONFIGS / "benchmarks/quickstart.yaml").read_text())
    (experiment,) = benchmark["experiments"].values()
    asked = [experiment["options"], *(made["options"] for made in experiment["prepare"].values())]
    assert {options["data.holdout_authors"] for options in asked} == {5}
    (attack,) = yaml.safe_load((CONFIGS / "attacks_quickstart.yaml").read_text())["attacks"]
    assert Relearn(**attack["init_args"]).name == "relearn_forget"
