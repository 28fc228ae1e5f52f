"""The table at the end of a run leaves no metric out."""

import re

from ofmu_pl.evaluation.table import print_table
from ofmu_pl.metrics import Metric


def printed(capsys, **groups):
    """First words of the lines that hold a metric, in order."""
    metrics = [
        Metric(name, higher_is_better=True, **({"group": group} if group else {})) for name, group in groups.items()
    ]
    print_table("Results", {"after": {m.name: m.result(0.5, n=4) for m in metrics}})
    lines = [line.split() for line in capsys.readouterr().out.splitlines() if re.search(r"0\.5000", line)]
    return [words[0] for words in lines]


def test_metrics_of_a_group_stand_together_and_strangers_come_last(capsys):
    groups = {"novelty": None, "model_utility": "kept", "style": "my own", "forget_Q_A_Prob": "forgotten"}
    groups |= {"mia_loss": "attacks", "another": None, "retain_Q_A_Prob": "kept"}
    shown = printed(capsys, **groups)
    assert shown[:4] == ["forget_Q_A_Prob", "model_utility", "retain_Q_A_Prob", "mia_loss"]
    assert shown[4:] == ["novelty", "another", "style"]


def test_strangers_alone(capsys):
    assert printed(capsys, novelty=None, another=None) == ["novelty", "another"]
