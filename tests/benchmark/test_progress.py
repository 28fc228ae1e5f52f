"""What a benchmark shows of its runs while they are at work."""

import io
import re

import pytest
from tqdm import tqdm

from ofmu_pl.benchmark.progress import Live, newest_bar


def log(folder, *bars):
    """A run's log that ends with tqdm's bars: what of, how many of how many, values."""
    folder.mkdir(parents=True)
    with (folder / "log.txt").open("w") as file:
        file.write("Seed set to 0\n" * 200)
        for desc, done, total, values in bars:
            bar = tqdm(total=total, desc=desc, file=file, mininterval=0)
            bar.set_postfix(values, refresh=False)
            bar.update(done)
            bar.refresh()
    return folder / "log.txt"


def test_the_newest_bar_of_a_log_counts(tmp_path):
    bars = [("OFMU", 3, 9, {"L_f": 1.5, "seconds": 0.1}), ("scoring", 5, 40, {})]
    assert newest_bar(log(tmp_path / "training", *bars[:1])) == (3, 9, "L_f=1.5, seconds=0.1")
    assert newest_bar(log(tmp_path / "evaluation", *bars)) == (5, 40, "scoring")
    assert newest_bar(log(tmp_path / "nothing")) is None
    assert newest_bar(tmp_path / "no log") is None


@pytest.mark.parametrize("columns", [80, 120])
def test_a_terminal_has_a_line_of_each_run_at_work(tmp_path, monkeypatch, columns):
    out = io.StringIO()
    monkeypatch.setattr(out, "isatty", lambda: True)
    monkeypatch.setattr("sys.stderr", out)
    monkeypatch.setenv("COLUMNS", str(columns))
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("NO_COLOR", "1")
    live = Live(2, tmp_path)
    runs = [tmp_path / "e/all" / name / "seed_0" for name in ("ofmu", "npo")]
    logs = [log(run, (run.parent.name.upper(), 80, 160, {"L_f": 0.25, "long": "x" * 100})) for run in runs]
    with live.bar:
        live.expect(2)
        live.watch(logs)
        live.bar.refresh()
        live.done(1.0)
        live.show(runs[0])
        live.watch(logs[1:])
    lines = re.sub(r"\x1b\[[\d;?]*[a-zA-Z]", "\n", out.getvalue().replace("\r", "\n")).split("\n")
    assert max(map(len, lines)) <= columns
    assert any("e/all/ofmu/seed_0" in line and "80/160" in line and "L_f=0.2" in line for line in lines)
    assert [line for line in lines if line.startswith("[1/2] e/all/ofmu/seed_0, ")]
    *_, every, last = [line for line in lines if "━" in line]
    assert " 1/2 " in every
    assert "e/all/npo/seed_0" in last


def test_a_file_is_told_of_each_run_that_begins_and_of_every_new_bar(tmp_path, monkeypatch):
    out = io.StringIO()
    monkeypatch.setattr("sys.stderr", out)
    live, run = Live(1, tmp_path), tmp_path / "e/all/ofmu/seed_0"
    live.watch([run / "log.txt"])
    place = log(run, ("OFMU", 80, 160, {"L_f": 0.25}))
    live.watch([place])
    live.watch([place])  # which shows nothing new
    begins, bar = out.getvalue().splitlines()
    assert begins == "e/all/ofmu/seed_0: begins"
    assert bar.startswith("e/all/ofmu/seed_0: 80/160 L_f=0.25")
