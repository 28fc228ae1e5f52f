"""A metric of the user's own, named by its class on the command line, goes where the suite's go."""

import json

import pytest

MY_METRICS = '''
import numpy as np
from ofmu_pl import Metric, OwnMetric

class Worst(OwnMetric):
    """The probability of the answer that is remembered best."""

    def __init__(self, of: str = "forget", name: str = "worst_Prob"):
        self.of, self.metric = of, Metric(name, higher_is_better=False, group="forgotten")

    def compute(self, scores):
        losses = scores[self.of].answer_loss
        return [self.metric.result(float(np.exp(-losses.min())), n=len(losses))]

class NoMetric:
    """Of another kind."""
'''


@pytest.fixture(autouse=True)
def module(tmp_path, monkeypatch):
    (tmp_path / "my_metrics.py").write_text(MY_METRICS)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("OFMU_PL_TRUST", "my_metrics")


def test_it_is_in_results_and_table_and_the_retrained_models_value_is_its_goal(fit, models, capsys):
    named = {"class_path": "my_metrics.Worst", "init_args": {"of": "retain", "name": "best_kept_Prob"}}
    words = ["--evaluation.own_metrics", f"[my_metrics.Worst, {json.dumps(named)}]"]
    run = fit(*words, "--evaluation.reference", str(models / "retrained/latest/hf"))
    results = json.loads((run / "results.json").read_text())
    found = results["metrics"]["worst_Prob"]
    assert found["target"] == results["reference"]["metrics"]["worst_Prob"]["value"] != found["value"]
    assert found["group"] == "forgotten"
    assert found["value"] >= results["metrics"]["forget_Q_A_Prob"]["value"], "the largest is no less than the mean"
    assert results["before"]["worst_Prob"]["n"] == found["n"]
    assert results["metrics"]["best_kept_Prob"]["value"] >= results["metrics"]["retain_Q_A_Prob"]["value"]
    assert "worst_Prob" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ("[{class_path: my_metrics.Worst, init_args: {name: retain_Q_A_Prob}}]", "'retain_Q_A_Prob'"),
        ("[my_metrics.NoMetric]", "own_metrics"),
        ("[my_metrics.Wrost]", "own_metrics"),
    ],
)
def test_what_is_no_metric_or_has_anothers_name(refused, words, sentence):
    assert sentence in refused("--evaluation.own_metrics", words, code=1 if "Q_A" in words else 2)
