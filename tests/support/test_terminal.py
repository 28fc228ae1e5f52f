"""Tables on narrow terminals: every word and number is there."""

from __future__ import annotations

import io
import re

import pytest

from ofmu_pl.report.command import report
from ofmu_pl.requests.table import show
from ofmu_pl.support.records import MethodRecord, RequestRecord, RequestsRecord, SequenceRecord
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


def requests(n):
    """A sequence of so many requests; its matrix holds 0.101, 0.102, ..., 0.201, ..."""
    rows = [[None if t < s else (100 * s + t) / 1000 for t in range(1, n + 1)] for s in range(1, n + 1)]
    sequence = SequenceRecord("ofmu", 0, [RequestRecord(t, "", "") for t in range(1, n + 1)])
    sequence.forgotten, sequence.before = {"forget_Q_A_Prob": rows}, {"forget_Q_A_Prob": [0.999] * n}
    sequence.returned, sequence.kept = {"forget_Q_A_Prob": [-0.123] * n}, {"model_utility": [0.875] * (n + 1)}
    return RequestsRecord("x", None, None, "", [], {}, [{}] * n, True, {"ofmu": MethodRecord()}, [sequence])


@pytest.mark.parametrize("columns", [40, 80, 120])
def test_the_matrix_of_many_requests_is_whole(terminal, columns):
    printed = terminal(columns)
    show(requests(10))
    lines = printed()
    words = " ".join(lines).split()
    for number in [f"{(100 * s + t) / 1000:.3g}" for s in range(1, 11) for t in range(s, 11)]:
        assert words.count(number) == 1, number
    assert (words.count("0.999"), words.count("-0.123"), words.count("0.875")) == (10, 10, 11)


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
