"""What a run writes of its way: only what it measured, and after an interruption as if there had been none."""

import csv
import json
import os
import signal

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from ofmu_pl.modules import OFMU

OPTIONS = ["--trainer.max_steps", "7", "--model.upper.every", "3", "--evaluation.every_n_steps", "2"]
OPTIONS += ["--checkpoint.every_n_train_steps", "2", "--evaluation.max_new_tokens", "1"]
NOT_COMPARED = {"seconds", "peak_memory_GB"}


def record(folder):
    """Curves, history and TensorBoard's points of a run."""
    results = json.loads((folder / "results.json").read_text())
    events = EventAccumulator(str(folder), size_guidance={"scalars": 0})
    events.Reload()
    tags = set(events.Tags()["scalars"]) - NOT_COMPARED
    points = {tag: [(e.step, e.value) for e in events.Scalars(tag)] for tag in sorted(tags)}
    return {"curves": results["curves"], "history": results["history"], "points": points}


@pytest.fixture(scope="module")
def undisturbed(models, tmp_path_factory):
    """Filled by the first test that asks: the record of a run that nobody stops."""
    return {}


@pytest.fixture
def whole(fit, undisturbed):
    if not undisturbed:
        undisturbed.update(record(fit(*OPTIONS, "--method", "ofmu")))
    return undisturbed


class Killed(BaseException):
    """No handler's business, as little as SIGKILL is."""


@pytest.fixture
def at(monkeypatch):
    """Has something happen within an iteration, once."""

    def install(number, happen):
        iterate, done = OFMU.iterate, []

        def iterate_and_more(self, batch):
            found = iterate(self, batch)
            if self.trainer.global_step + 1 == number and not done:
                done.append(True)
                happen()
            return found

        monkeypatch.setattr(OFMU, "iterate", iterate_and_more)

    return install


def kill():
    raise Killed


def test_what_an_iteration_did_not_measure_is_not_logged(whole):
    """Of seven iterations with third derivatives in every third, the first, fourth and seventh measure L_f."""
    for name, iterations in (("L_f", [1, 4, 7]), ("Sim", [1, 4, 7]), ("L_r", [*range(1, 8)]), ("rho", [*range(1, 8)])):
        assert [step for step, _ in whole["points"][name]] == iterations, name
        assert whole["curves"][name]["step"] == iterations
        assert whole["curves"][name]["value"] == pytest.approx([value for _, value in whole["points"][name]], rel=1e-6)
    assert [step for step, _ in whole["points"]["metrics/forget_Q_A_Prob"]] == [0, 2, 4, 6, 7]


@pytest.mark.parametrize(
    ("number", "asked"),
    [
        pytest.param(4, signal.SIGTERM, id="an interim measurement is due"),
        pytest.param(6, signal.SIGINT, id="and a checkpoint", marks=pytest.mark.slow),
        pytest.param(4, signal.SIGINT, id="a measurement, Ctrl-C", marks=pytest.mark.slow),
        pytest.param(6, signal.SIGTERM, id="a checkpoint, SIGTERM", marks=pytest.mark.slow),
    ],
)
def test_the_record_of_a_run_that_was_asked_to_stop(whole, fit, at, number, asked):
    at(number, lambda: os.kill(os.getpid(), asked))
    with pytest.raises(SystemExit) as stop:
        fit(*OPTIONS)
    assert stop.value.code == 128 + asked
    assert record(fit(*OPTIONS, "--ckpt_path", "last")) == whole


@pytest.mark.parametrize(("number", "back"), [pytest.param(4, 0, marks=pytest.mark.slow), (2, 0), (5, 86400)])
def test_the_record_of_a_run_that_was_killed(whole, fit, at, number, back):
    """No point is shown twice, also where the clock went back meanwhile."""
    at(number, kill)
    with pytest.raises(Killed):
        fit(*OPTIONS)
    for events in fit.logs.rglob("events.out.tfevents.*"):
        first, _, rest = events.name.removeprefix("events.out.tfevents.").partition(".")
        events.rename(events.with_name(f"events.out.tfevents.{int(first) + back}.{rest}"))
    assert record(fit(*OPTIONS, "--ckpt_path", "last")) == whole


def test_without_tensorboard_the_record_is_a_table(fit, at, monkeypatch):
    """Of a run that was killed it has each iteration once, as in the record."""
    monkeypatch.setattr("ofmu_pl.training.record.installed", lambda package: False)
    at(5, kill)
    with pytest.raises(Killed):
        fit(*OPTIONS)
    folder = fit(*OPTIONS, "--ckpt_path", "last")
    with (folder / "metrics.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    for name, curve in json.loads((folder / "results.json").read_text())["curves"].items():
        points = {int(row["step"]): float(row[name]) for row in rows if row.get(name)}
        if name in rows[0]:
            assert points == dict(zip(curve["step"], curve["value"], strict=True)), name
    assert [row["step"] for row in rows if row["rho"]] == [str(step) for step in range(1, 8)]
    assert [row["step"] for row in rows if row["metrics/forget_Q_A_Prob"]] == ["0", "2", "4", "6", "7"]
