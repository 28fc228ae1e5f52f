"""The table at the end of a run fits a screen; the whole one leaves no metric out."""

import io
import re
from dataclasses import replace

import pytest

from ofmu_pl.evaluation.table import MOST, FinalTable, print_table
from ofmu_pl.metrics import Metric


def printed(capsys, **groups):
    """First words of the lines that hold a metric, in order."""
    metrics = [Metric(name, higher_is_better=True, group=group or "other") for name, group in groups.items()]
    print_table(FinalTable("Results", {"after": {m.name: m.result(0.5, n=4) for m in metrics}}))
    lines = [line.split() for line in capsys.readouterr().out.splitlines() if re.search(r"0\.5000", line)]
    return [words[0] for words in lines]


def test_metrics_of_a_group_stand_together_and_strangers_come_last(capsys):
    groups = {"novelty": None, "model_utility": "kept", "style": "my own", "forget_Q_A_Prob": "forgotten"}
    groups |= {"mia_loss": "attacks", "another": None, "retain_Q_A_Prob": "kept"}
    shown = printed(capsys, **groups)
    assert shown[:4] == ["forget_Q_A_Prob", "model_utility", "retain_Q_A_Prob", "mia_loss"]
    assert shown[4:] == ["novelty", "another", "style"]


def test_the_short_table_has_columns_of_reports_and_the_first_of_each_group(capsys):
    declared = [Metric(f"forget_{i}", False, group="forgotten", column=9 if i == 20 else None) for i in range(30)]
    declared += [Metric(f"{group}_{i}", True, group=group) for group in ("unseen", "kept", "own") for i in range(30)]
    columns = {"after": {m.name: m.result(0.5, n=4) for m in declared}}
    print_table(FinalTable("Results", columns))
    out = capsys.readouterr().out
    rows = [line.split()[0] for line in out.splitlines() if "0.5000" in line]
    assert rows == ["forget_0", "forget_1", "forget_20", "kept_0", "kept_1", "own_0", "own_1"]
    assert f"{len(declared) - len(rows)} more" in out
    print_table(FinalTable("Results", columns), whole=True)
    assert capsys.readouterr().out.count("0.5000") == len(declared)
    many = [Metric(f"own_{i}", True, group=f"group {i}") for i in range(30)]
    print_table(FinalTable("Results", {"after": {m.name: m.result(0.5, n=4) for m in many}}))
    assert capsys.readouterr().out.count("0.5000") == MOST


@pytest.mark.parametrize("columns", [40, 80])
def test_a_narrow_terminal_cuts_no_name_and_no_number(monkeypatch, columns):
    out = io.StringIO()
    monkeypatch.setattr(out, "isatty", lambda: True)
    monkeypatch.setattr("sys.stdout", out)
    monkeypatch.setenv("COLUMNS", str(columns))
    monkeypatch.setenv("TERM", "xterm")
    names = [f"retain_Q_A_{name}" for name in ("Prob", "ROUGE_of_all_words")]
    declared = [Metric(name, higher_is_better=True) for name in names]
    judged = {m.name: m.result(-112.5, n=1234, interval=(-112.5, 37.25), target=0.5) for m in declared}
    print_table(FinalTable("Results", dict.fromkeys(("before", "after", "retrained"), judged)))
    lines = re.sub(r"\x1b\[[\d;]*m", "", out.getvalue()).splitlines()
    assert max(map(len, lines)) <= 80
    assert sum(line.count("-112.5000") for line in lines) == 8, "three models and an end of the interval, twice"
    assert sum(line.count("1234") for line in lines) == 2
    firsts = [line[1:].split("  ")[0] for line in lines if line[1:2] not in ("", " ")]
    assert "".join(firsts).endswith("".join(names)), "folded, and whole"


def test_caveats_come_first_and_take_the_place_of_their_groups_line(capsys):
    metrics = [Metric(group, True, group=group, says="It is {value}.") for group in ("forgotten", "kept")]
    columns = {name: {m.name: m.result(0.5, n=4) for m in metrics} for name in ("before", "after")}
    print_table(FinalTable("Results", columns, None, {"kept": "What must stay is [lost]."}))
    out = capsys.readouterr().out
    assert out.startswith("What must stay is [lost].")
    assert "Forgotten:" in out
    assert "Kept:" not in out


def test_a_run_ends_with_what_is_forgotten_kept_and_told(capsys):
    """Of each group the first metric that has a sentence, with its goal if there is one."""
    said = {"says": "It is {value}."}
    metrics = [
        Metric("forget_test", True, group="forgotten", column=1),
        Metric("forget_first", False, group="forgotten", **said),
        Metric("forget_later", False, group="forgotten", column=5, **said),
        Metric("utility", True, group="kept", **said),
        Metric("mia_loss", False, group="attacks", **said),
    ]
    before = {m.name: m.result(0.9, n=4) for m in metrics}
    after = {m.name: m.result(0.1, n=4, target=None if m.name == "utility" else 0.5) for m in metrics}
    print_table(FinalTable("Results", {"before": before, "after": after}))
    lines = [x for x in capsys.readouterr().out.splitlines() if x.startswith(("Forgotten", "Kept", "Attackers"))]
    assert lines == [
        "Forgotten: forget_first 0.9000 → 0.1000, goal 0.5000",
        "Kept: utility 0.9000 → 0.1000",
        "Attackers: mia_loss 0.9000 → 0.1000, goal 0.5000",
    ]
    print_table(FinalTable("Measured", {"model": after}))
    assert "Forgotten" not in capsys.readouterr().out, "nothing was forgotten"


def test_a_star_says_that_a_test_found_a_difference_and_an_interval_alone_does_not(capsys):
    metrics = [Metric(name, False, group="forgotten") for name in ("told", "alike", "untested")]
    verdicts = ["more is left", "no difference", None]
    after = {
        m.name: replace(m.result(0.2, 40, 0.1, interval=(0.15, 0.25)), verdict=v)
        for m, v in zip(metrics, verdicts, strict=True)
    }
    for left, stars in ((after, 2), ({"alike": after["alike"]}, 0)):
        print_table(FinalTable("Measured", {"model": left}))
        printed = capsys.readouterr().out
        assert printed.count("*") == stars, "one behind the number, one that says what it means"
    print_table(FinalTable("Results", {"before": after, "model": after}))
    assert "0.2000*" in capsys.readouterr().out


def test_held_out_rows_have_no_arrow(capsys):
    """They are a yardstick: a model that is ruined has other values of them, in either direction."""
    metric = Metric("holdout_loss", higher_is_better=False, unit="nats", group="unseen")
    print_table(FinalTable("Results", {"after": {metric.name: metric.result(1.25, n=40)}}), whole=True)
    (row,) = (line.split() for line in capsys.readouterr().out.splitlines() if "holdout" in line)
    assert row[:2] == ["holdout_loss", "1.2500"]
