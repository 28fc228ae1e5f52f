"""The table at the end of a run leaves no metric out."""

import re

from ofmu_pl.evaluation.table import print_table
from ofmu_pl.metrics import MetricResult


def printed(capsys, *names):
    """First words of the lines that hold a metric, in order."""
    print_table("Results", {"after": {name: MetricResult(0.5, 4, True, None, "exact") for name in names}})
    lines = [line.split() for line in capsys.readouterr().out.splitlines() if re.search(r"0\.5000", line)]
    return [words[0] for words in lines]


def test_metrics_of_unknown_names_come_last(capsys):
    names = ("novelty", "model_utility", "documents_loss", "forget_Q_A_Prob", "mia_loss")
    assert printed(capsys, *names) == ["forget_Q_A_Prob", "model_utility", "mia_loss", "novelty", "documents_loss"]


def test_unknown_names_alone(capsys):
    assert printed(capsys, "novelty", "another") == ["novelty", "another"]
