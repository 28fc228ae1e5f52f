"""The table of cases of scripts/bench.py: options reach a case, contenders take turns, figures are stored."""

import importlib
import json
from pathlib import Path

import pytest

SCRIPTS = Path(__file__).parents[1] / "scripts"


@pytest.fixture
def bench(monkeypatch):
    monkeypatch.syspath_prepend(SCRIPTS)
    return importlib.import_module("bench")


def call(bench, monkeypatch, *words):
    monkeypatch.setattr("sys.argv", ["bench.py", *words])
    bench.main()


def test_a_case_gets_its_options_and_its_figures_are_stored(bench, monkeypatch, tmp_path):
    def case(data: str, rows: int = 3, rounds: int = 2):
        """A case."""
        return {"found": [data, rows, rounds]}

    monkeypatch.setattr(bench, "CASES", {"cost": case})
    file = tmp_path / "found.json"
    call(bench, monkeypatch, "cost", "--data", "d", "--rounds", "4", "--json", str(file))
    found = json.loads(file.read_text())
    assert found["found"] == ["d", 3, 4]
    assert found["versions"]["torch"] == bench.torch.__version__
    with pytest.raises(SystemExit):
        call(bench, monkeypatch, "cost")  # without what must be given


@pytest.mark.parametrize("case", ["step", "precision", "evaluation"])
def test_an_unknown_option_is_refused(bench, monkeypatch, case, capsys):
    with pytest.raises(SystemExit) as stop:
        call(bench, monkeypatch, case, "--help")
    assert stop.value.code == 0
    assert "--json" in capsys.readouterr().out
    with pytest.raises(SystemExit) as stop:
        call(bench, monkeypatch, case, "--unheard", "1")
    assert stop.value.code == 2


def test_contenders_take_turns_after_a_round_that_warms_up(bench):
    called = []
    contenders = {name: lambda name=name: called.append(name) for name in "ab"}
    times = bench.interleaved(contenders, rounds=2, often={"a": 2})
    assert "".join(called) == "aab" * 3
    assert [len(times[name]) for name in "ab"] == [4, 2]
    assert bench.medians({"a": [1.0, 3.0, 2.0]}) == {"a": 2.0}
