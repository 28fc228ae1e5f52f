"""Tables on narrow terminals: every word and number is there."""

import io
import re

import pytest
from rich.table import Table

from ofmu_pl.support.terminal import console, print_whole


@pytest.mark.parametrize("columns", [40, 80, 120])
def test_a_wide_table_is_whole(columns, monkeypatch):
    out = io.StringIO()
    monkeypatch.setattr(out, "isatty", lambda: True)
    monkeypatch.setattr("sys.stdout", out)
    monkeypatch.setenv("COLUMNS", str(columns))
    monkeypatch.setenv("TERM", "xterm")
    table = Table("", *(f"after {t}" for t in range(10)), title="A matrix", caption="its caption")
    numbers = [str(x) for x in range(10_100, 10_200)]
    for begin in range(0, 100, 10):
        table.add_row(f"request {begin}", *numbers[begin : begin + 10])
    print_whole(table, console())
    words = re.sub(r"\x1b\[[\d;]*m", "", out.getvalue()).split()
    assert [words.count(number) for number in numbers] == [1] * 100
