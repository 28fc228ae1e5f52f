"""Ctrl-C and SIGTERM at any moment: one sentence, exit code 130 or 143, and everything that is needed to go on."""

import os
import signal

import pytest

from ofmu_pl.data import Authors
from ofmu_pl.evaluation.text import TextEvaluation
from ofmu_pl.training import resumable
from ofmu_pl.training.interrupts import listening, orderly

OPTIONS = ["--trainer.max_steps", "3", "--evaluation.every_n_steps", "2", "--evaluation.max_new_tokens", "1"]
OPTIONS += ["--checkpoint.every_n_train_steps", "100"]


@pytest.fixture
def form(first_order):
    return first_order


@pytest.fixture
def press(monkeypatch):
    """Has Ctrl-C pressed in one call of a method; returns how often it was called."""

    def install(cls, name, number):
        method, calls = getattr(cls, name), []

        def pressed(self, *words, **named):
            calls.append(words)
            if len(calls) == number:
                os.kill(os.getpid(), signal.SIGINT)
            return method(self, *words, **named)

        monkeypatch.setattr(cls, name, pressed)
        return calls

    return install


def stopped(capsys, start, code=130):
    """The one sentence of a start that is told to end."""
    handlers = [signal.getsignal(s) for s in (signal.SIGINT, signal.SIGTERM)]
    capsys.readouterr()
    with pytest.raises(SystemExit) as stop:
        start()
    assert stop.value.code == code
    error = capsys.readouterr().err
    assert "Traceback" not in error
    (line,) = [line for line in error.splitlines() if line.startswith("ofmu_pl: ")]
    assert [signal.getsignal(s) for s in (signal.SIGINT, signal.SIGTERM)] == handlers, "as before"
    return line


@pytest.mark.parametrize(
    ("number", "checkpoint"),
    [pytest.param(1, None, marks=pytest.mark.slow), (2, "step=2.ckpt"), pytest.param(3, None, marks=pytest.mark.slow)],
    ids=["before", "along the run", "at its end"],
)
def test_ctrl_c_in_a_measurement_ends_it(fit, press, capsys, number, checkpoint):
    """That before the first iteration, that after the second, and the last."""
    press(TextEvaluation, "score", number)
    line = stopped(capsys, lambda: fit(*OPTIONS))
    assert "Ctrl-C" in line
    assert "--ckpt_path last" in line
    assert (f"{checkpoint}'" in line) == (checkpoint is not None)
    again = fit(*OPTIONS, "--ckpt_path", "last")
    assert (again / "results.json").is_file()


def test_ctrl_c_between_two_iterations(fit, press, capsys):
    calls = press(Authors, "iteration", 3)
    line = stopped(capsys, lambda: fit(*OPTIONS))
    assert " iteration 2; " in line
    calls.clear()
    fit(*OPTIONS, "--ckpt_path", "last")
    assert [k for (k,) in calls] == [2], "the third iteration is made, and no other"


def test_no_more_checkpoints_stay_than_are_asked_for(fit, press, capsys):
    """Those that the interruption wrote and that the run went on from were never removed."""
    options = [*OPTIONS[2:4], "--trainer.max_steps", "4", "--checkpoint.every_n_train_steps", "2"]
    options += ["--checkpoint.save_top_k", "1", "--evaluation.every_n_steps", "null"]
    names = lambda run: sorted(p.name for p in (run / "checkpoints").iterdir())  # noqa: E731
    press(Authors, "iteration", 4)
    stopped(capsys, lambda: fit(*options))
    (run,) = (path.parent.parent for path in fit.logs.rglob("step=*.ckpt"))
    assert names(run) == ["step=3.ckpt"]
    (run / "checkpoints/step=1.ckpt").write_bytes(b"of a process that was killed before it removed this one")
    (run / "checkpoints/mine.ckpt").write_bytes(b"put there by hand")
    assert names(fit(*options, "--ckpt_path", "last")) == ["mine.ckpt", "step=4.ckpt"]


@pytest.mark.parametrize("command", ["benchmark", "requests", "attack"])
def test_a_command_of_many_runs_says_that_the_same_line_goes_on(capsys, command):
    def start():
        with orderly([command]):
            os.kill(os.getpid(), signal.SIGTERM)

    line = stopped(capsys, start, 143)
    assert "SIGTERM" in line
    assert "--ckpt_path" not in line


def test_a_second_ctrl_c_ends_at_once(monkeypatch):
    killed = []
    monkeypatch.setattr(resumable, "kill", killed.append)
    callback = resumable.Resumable({}, {})
    callback._patient = True
    with listening(callback._note):
        os.kill(os.getpid(), signal.SIGINT)
        assert not killed, "the iteration is finished"
        os.kill(os.getpid(), signal.SIGTERM)
        assert not killed, "a scheduler that repeats itself is in no hurry"
        os.kill(os.getpid(), signal.SIGINT)
    assert killed == [signal.SIGINT]


def test_what_ignores_ctrl_c_goes_on_ignoring_it():
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with listening():
            os.kill(os.getpid(), signal.SIGINT)
    finally:
        signal.signal(signal.SIGINT, before)
