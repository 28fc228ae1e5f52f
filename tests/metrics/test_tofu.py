"""The suite, against stored logs of real 7B runs and of open-unlearning on the tiny models."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from ofmu_pl.metrics import Scores, SetScores, tofu_metrics

SETS = {"forget": "forget", "retain": "retain", "real_authors": "ra", "world_facts": "wf"}
BLOCKS = {
    "forget": "eval_log_forget.json",
    "retain": "eval_log.json",
    "real_authors": "eval_real_author_wo_options.json",
    "world_facts": "eval_real_world_wo_options.json",
}


def llama2_scores(shared: Path, model: str) -> Scores:
    log = json.loads((shared / f"reference/tofu-logs/{model}_wd0.01.eval_log_aggregated.json").read_text())

    def column(name: str, field: str) -> np.ndarray:
        return np.array(list(log[BLOCKS[name]][field].values()))

    return {
        name: SetScores(
            np.arange(len(log[block]["avg_gt_loss"])),
            column(name, "avg_gt_loss"),
            column(name, "avg_paraphrased_loss"),  # of ra and wf: the answer, in a second pass with bf16's noise
            column(name, "average_perturb_loss"),
            column(name, "rougeL_recall"),
        )
        for name, block in BLOCKS.items()
    }


def tiny_scores(shared: Path, model: str) -> Scores:
    log = json.loads((shared / f"reference/open-unlearning-tiny/{model}/TOFU_EVAL.json").read_text())

    def column(key: str, field: str) -> np.ndarray:
        items = log[key]["value_by_index"]
        return np.array([items[str(i)][field] for i in range(len(items))])

    return {
        name: SetScores(
            np.arange(len(log[f"{p}_Q_A_Prob"]["value_by_index"])),
            column(f"{p}_Q_A_Prob", "avg_loss"),
            column(f"{p}_Q_A_PARA_Prob", "avg_loss") if name in ("forget", "retain") else None,
            column(f"{p}_Q_A_PERT_Prob", "avg_loss"),
            column(f"{p}_Q_A_ROUGE", "rougeL_recall"),
        )
        for name, p in SETS.items()
    }


def made_up(n: int = 12, seed: int = 0) -> Scores:
    rng = np.random.default_rng(seed)
    wrong = {"forget": 5, "retain": 5, "real_authors": 3, "world_facts": 3}
    return {
        name: SetScores(
            np.arange(n),
            rng.exponential(1, n),
            rng.exponential(1, n) if k == 5 else None,
            rng.exponential(3, (n, k)),
            rng.uniform(0.1, 1, n),
        )
        for name, k in wrong.items()
    }


@pytest.mark.parametrize("model", ["full", "retain90", "retain95", "retain99"])
def test_stored_llama2_runs_give_the_reference_values(shared, model):
    path = shared / "reference/tofu-logs/reference-values.json"
    expected = json.loads(path.read_text())["values"][f"llama2-7b_{model}"]
    scores = llama2_scores(shared, f"llama2-7b_{model}")
    got = tofu_metrics(scores)
    for name, p in SETS.items():
        normalised = "_normalised" if p in ("ra", "wf") else ""
        ratio = "forget_truth_ratio" if name == "forget" else f"{p}_Truth_Ratio"
        assert got[f"{p}_Q_A_ROUGE"].value == pytest.approx(expected[name]["rougeL_recall"], abs=1e-9)
        assert got[ratio].value == pytest.approx(expected[name]["truth_ratio"], abs=1e-9)
        assert got[ratio].n == expected[name]["n"]
        assert got[f"{p}_Q_A_Prob{normalised}"].value == pytest.approx(expected[name]["prob"], abs=1e-9)
    assert got["model_utility"].value == pytest.approx(expected["model_utility"], abs=1e-9)


def test_stored_llama2_forget_quality(shared):
    full, retain = (tofu_metrics(llama2_scores(shared, f"llama2-7b_{m}")) for m in ("full", "retain90"))
    got = tofu_metrics(llama2_scores(shared, "llama2-7b_full"), llama2_scores(shared, "llama2-7b_retain90"))
    assert got["forget_quality"].value == pytest.approx(1.834066410994743e-21, rel=1e-9)
    assert got["forget_quality_D"].value == pytest.approx(0.39666666666666667, abs=1e-12)
    assert got["forget_truth_ratio"].target == retain["forget_truth_ratio"].value
    assert got["forget_truth_ratio"].value == full["forget_truth_ratio"].value


@pytest.mark.parametrize("model", ["full", "retain90"])
def test_stored_tiny_runs_give_open_unlearning_s_numbers(shared, model):
    log = json.loads((shared / f"reference/open-unlearning-tiny/{model}/TOFU_EVAL.json").read_text())
    got = tofu_metrics(tiny_scores(shared, model))
    assert len(got) == 16 - 1  # all but forget quality and its distance, which need a reference
    for name, result in got.items():
        # 1e-6: open-unlearning adds 1e-10 to denominators that are down to 1e-4, and stores float32 probabilities.
        assert result.value == pytest.approx(log[name]["agg_value"], rel=1e-6), name


def test_stored_tiny_forget_quality(shared):
    got = tofu_metrics(tiny_scores(shared, "full"), tiny_scores(shared, "retain90"))
    assert got["forget_quality"].value == pytest.approx(3.158046855497354e-31, rel=1e-9)


def test_a_model_against_itself():
    scores = made_up()
    got = tofu_metrics(scores, scores)
    assert (got["forget_quality"].value, got["forget_quality_D"].value) == (1.0, 0.0)
    for name in ("forget_Q_A_Prob", "forget_Q_A_ROUGE", "forget_truth_ratio"):
        assert got[name].target == got[name].value


def test_targets_and_directions():
    got, alone = tofu_metrics(made_up(), made_up(seed=1)), tofu_metrics(made_up())
    wanted = tofu_metrics(made_up(seed=1))
    assert got.keys() - alone.keys() == {"forget_quality", "forget_quality_D"}
    targets = {name: wanted[name].value for name in wanted if name.startswith("forget")}
    targets |= {"forget_quality": 1.0, "forget_quality_D": 0.0}
    assert {name: r.target for name, r in got.items() if r.target is not None} == targets
    assert not any(r.target for r in alone.values())
    lower = {name for name, r in got.items() if not r.higher_is_better}
    assert lower == {"forget_Q_A_Prob", "forget_Q_A_ROUGE", "forget_quality_D"}
    assert {r.definition for r in got.values()} == {"exact"}


def test_a_repeated_item_counts_once_and_the_order_does_not_matter():
    scores, order = made_up(), np.r_[5, 0:12, 3, 11]
    repeated = {
        name: SetScores(**{k: None if v is None else v[order] for k, v in vars(s).items()})
        for name, s in scores.items()
    }
    got, wanted = tofu_metrics(repeated, repeated), tofu_metrics(scores, scores)
    assert got.keys() == wanted.keys()
    for name in wanted:
        assert (got[name].value, got[name].n) == (pytest.approx(wanted[name].value, rel=1e-12), wanted[name].n)


def test_the_first_of_a_repeated_item_stays():
    scores = SetScores(np.array([4, 2, 4]), np.array([0.0, 1.0, 9.0]))
    assert scores.ids.tolist() == [2, 4]
    assert scores.answer_loss.tolist() == [1.0, 0.0]


def test_the_truth_ratio_takes_the_paraphrase_where_there_is_one():
    scores = made_up()["forget"]
    assert scores.log_truth_ratio == pytest.approx(scores.paraphrase_loss - scores.wrong_losses.mean(1))
    without = replace(scores, paraphrase_loss=None)
    assert without.log_truth_ratio == pytest.approx(scores.answer_loss - scores.wrong_losses.mean(1))


def test_what_is_missing_is_left_out():
    scores = made_up()
    assert "model_utility" in tofu_metrics(scores)
    for name, field in [("world_facts", "rouge"), ("retain", "wrong_losses"), ("real_authors", "wrong_losses")]:
        got = tofu_metrics({**scores, name: replace(scores[name], **{field: None})})
        assert "model_utility" not in got
        assert f"{SETS[name]}_Q_A_Prob" in got
    assert set(tofu_metrics({"forget": SetScores(np.arange(2), np.ones(2))})) == {"forget_Q_A_Prob"}
    del scores["retain"]
    got = tofu_metrics(scores)
    assert not any(name.startswith(("retain", "model")) for name in got)


def test_an_all_nan_model_has_nan_metrics():
    scores = made_up()
    broken = {name: replace(s, answer_loss=s.answer_loss * math.nan) for name, s in scores.items()}
    broken["forget"].paraphrase_loss[0] = math.nan
    got = tofu_metrics(broken, scores)
    for name in ("forget_Q_A_Prob", "forget_truth_ratio", "forget_quality", "ra_Truth_Ratio", "model_utility"):
        assert math.isnan(got[name].value), name
    assert got["forget_Q_A_Prob"].target == tofu_metrics(scores)["forget_Q_A_Prob"].value
