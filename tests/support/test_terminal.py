"""Tables on narrow terminals: every word and number is there."""

from __future__ import annotations

import io
import re

import pytest
from rich.table import Table

from ofmu_pl.report.command import report
from ofmu_pl.support.terminal import console, print_whole
from tests.helpers.folders import TEXT_BEFORE, TEXT_GOAL, Benchmark, results


@pytest.fixture
def terminal(monkeypatch):
    """Makes a terminal of so many columns; what it returns says what was printed on it."""

    def make(columns):
        out = io.StringIO()
        monkeypatch.setattr(out, "isatty", lambda: True)
        monkeypatch.setattr("sys.stdout", out)
        monkeypatch.setenv("COLUMNS", str(columns))
        monkeypatch.setenv("TERM", "xterm")
        return lambda: re.sub(r"\x1b\[[\d;]*m", "", out.getvalue()).splitlines()

    return make


def matrix(n):
    """A table of so many columns; its numbers are 0.101, 0.102, ..., 0.201, ..."""
    table = Table("", "before", *(f"after {t}" for t in range(1, n + 1)), title="A matrix", caption="its caption")
    for s in range(1, n + 1):
        row = ["" if t < s else f"{(100 * s + t) / 1000:.3f}" for t in range(1, n + 1)]
        table.add_row(f"request {s}", "0.999", *row)
    return table


@pytest.mark.parametrize("columns", [40, 80, 120])
def test_a_wide_table_is_whole(terminal, columns):
    printed = terminal(columns)
    print_whole(matrix(10), console())
    lines = printed()
    words = " ".join(lines).split()
    for number in [f"{(100 * s + t) / 1000:.3f}" for s in range(1, 11) for t in range(s, 11)]:
        assert words.count(number) == 1, number
    assert words.count("0.999") == 10


@pytest.mark.slow
def test_the_report_s_table_is_whole(terminal, tmp_path):
    folder = Benchmark(tmp_path / "mine")
    runs = {("forget05", method, 0): results(TEXT_GOAL, TEXT_BEFORE, TEXT_GOAL) for method in ("a_long_name", "npo")}
    folder.experiment("authors", "table", runs, metrics=list(TEXT_GOAL))
    folder.save()
    printed = terminal(80)
    report(folder.folder)
    lines = printed()
    assert not [line for line in lines if "…" in line], "cut"
    for value in TEXT_GOAL.values():
        assert " ".join(lines).count(f"{value:.3g}") >= 2, value
