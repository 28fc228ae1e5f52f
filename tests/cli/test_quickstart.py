"""``quickstart``: which steps it starts, what it passes over, and what it says at the end."""

import os
from pathlib import Path

import pytest
import yaml
from ofmu_pl.cli.closing import ATTACK, RETURNED, closing

from ofmu_pl.attacks.relearn import Relearn
from ofmu_pl.cli import main, quickstart
from ofmu_pl.metrics import Metric
from ofmu_pl.support.records.results import AttackRecord, AttacksRecord, ReferenceRecord, Results

ROOT = Path(__file__).parents[2]
METHODS = ("ofmu", "npo")
PROBABILITY = Metric("forget_Q_A_Prob", higher_is_better=False, group="forgotten")
UTILITY = Metric("model_utility", higher_is_better=True, group="kept")
OTHER = Metric("forget_truth_ratio", higher_is_better=True, group="forgotten")
BACK = Metric(RETURNED, higher_is_better=False, group="attacks")


@pytest.fixture
def steps(monkeypatch):
    """Words of the commands that were started; ``fails`` is the word with which one fails."""

    class Steps(list):
        fails = None

        def run(self, words, check, env):
            self.append(words[3:])
            return type("Ended", (), {"returncode": int(self.fails in words)})

    started = Steps()
    monkeypatch.setattr(quickstart.subprocess, "run", started.run)
    return started


def entries(values):
    return {m.name: m.result(x, n=40, interval=(x, x)).as_dict() for m, x in values.items()}


def finished(runs):
    """What all steps leave, as far as quickstart reads it: each number is another one."""
    for method in ("target", "retrained", *METHODS):
        (runs / method / "latest/hf").mkdir(parents=True)
    for k, method in enumerate(METHODS):
        place = runs / method / "latest"
        sides = [{PROBABILITY: p, UTILITY: 1 - p, OTHER: 0.1234} for p in (0.95, 0.04 + k / 100, 0.02)]
        before, after, retrained = map(entries, sides)
        reference = ReferenceRecord("somewhere", metrics=retrained)
        Results(after, before=before, reference=reference).write(place / "results.json")
        found = {"unlearned": 0.3 + k / 10, "target": 0.97, "retrained": 0.2}
        metrics = {model: entries({BACK: x}) for model, x in found.items()}
        AttacksRecord({ATTACK: AttackRecord({}, [0], "", "", RETURNED, metrics)}).write(place / "attacks.json")
    (runs / "report").mkdir()
    (runs / "report/index.html").touch()


def test_it_goes_on_where_it_was_and_stops_where_a_step_fails(steps, tmp_path, capfd):
    (tmp_path / "quickstart-seed3/target/latest/hf").mkdir(parents=True)
    steps.fails = "--evaluation.reference"
    with pytest.raises(SystemExit):
        main(["quickstart", "--seed", "3", "--logs", str(tmp_path)])
    told = capfd.readouterr()
    assert "quickstart-seed3/target/latest/hf" in told.out
    assert "quickstart" in told.err
    assert [words[words.index("--method") + 1] for words in steps] == ["retrained", "ofmu"]
    assert all(words[-2:] == ["--seed_everything", "3"] for words in steps)


def test_both_methods_have_the_same_models_and_rows(steps, tmp_path):
    steps.fails = "report"
    with pytest.raises(SystemExit):
        main(["quickstart", "--logs", str(tmp_path)])
    assert [words[0] for words in steps] == ["fit"] * 4 + ["attack", "report"]
    for option in ("--model.network.path", "--evaluation.reference"):
        assert len({words[words.index(option) + 1] for words in steps[2:4]}) == 1
    assert {words[words.index("--data.holdout_authors") + 1] for words in steps[:4]} == {"5"}


def test_a_second_call_starts_nothing_but_a_report_of_newer_attacks(steps, tmp_path, capsys):
    runs = tmp_path / "quickstart"
    finished(runs)
    main(["quickstart", "--logs", str(tmp_path)])
    assert steps == []
    assert str(runs / "report/index.html") in capsys.readouterr().out.splitlines()[-2]
    later = (runs / "report/index.html").stat().st_mtime + 10
    os.utime(runs / "npo/latest/attacks.json", (later, later))
    main(["quickstart", "--logs", str(tmp_path)])
    assert [words[0] for words in steps] == ["report"]


def test_the_end_reads_what_the_shipped_attack_finds():
    shipped = yaml.safe_load((ROOT / "configs/attacks_quickstart.yaml").read_text())["attacks"]
    (attack,) = [Relearn(**entry["init_args"]) for entry in shipped]
    assert (attack.name, attack.metrics[0].name) == (ATTACK, RETURNED)


def test_the_end_sets_both_methods_between_the_model_before_and_the_retrained_one(tmp_path, capsys):
    finished(tmp_path)
    closing(tmp_path, list(METHODS))
    out = capsys.readouterr().out
    rows = {words[0]: words for line in out.splitlines() if (words := line.split())}
    assert rows["forget_Q_A_Prob"][-4:] == ["0.9500", "0.0400", "0.0500", "0.0200"]
    assert rows["model_utility"][-4:] == ["0.0500", "0.9600", "0.9500", "0.9800"]
    assert rows[RETURNED][-4:] == ["0.9700", "0.3000", "0.4000", "0.2000"]
    assert "forget_truth_ratio" not in out
    for head, values in (("Forgotten:", "ofmu 0.0400, npo 0.0500, retrained 0.0200"), ("Came", "npo 0.4000, ")):
        assert values in " ".join(rows[head])
