"""The suite, against stored logs of real 7B runs and of open-unlearning on the tiny models."""

import json
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import ks_2samp

from ofmu_pl.metrics import DEFINITIONS, Scores, SetScores, auc, privacy_leakage, tofu_metrics
from ofmu_pl.metrics.open_unlearning import read_eval, write_eval
from ofmu_pl.metrics.tofu import MEMORIZED, attacked
from ofmu_pl.metrics.tofu_items import log_truth_ratio
from tests.helpers.tofu_logs import read_log

SETS = {"forget": "forget", "retain": "retain", "real_authors": "ra", "world_facts": "wf"}


def llama2_scores(shared: Path, model: str) -> Scores:
    return read_log(json.loads((shared / f"reference/tofu-logs/{model}_wd0.01.eval_log_aggregated.json").read_text()))


def tiny_log(shared: Path, model: str) -> dict:
    return json.loads((shared / f"reference/open-unlearning-tiny/{model}/TOFU_EVAL.json").read_text())


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


def with_details(scores: Scores, seed: int = 0) -> Scores:
    """The same with what memorisation and membership attacks need, and a holdout set."""
    rng = np.random.default_rng(seed)
    n = len(scores["forget"].ids)

    def details(shift: float) -> dict[str, np.ndarray]:
        tokens = rng.integers(3, 9, n).astype(float)
        correct = np.floor(rng.uniform(0.3, 1, n) * tokens)
        names = ("min_k", "min_k_plus_plus")
        return {
            "tokens": tokens,
            "correct": correct,
            "suffix": np.floor(rng.uniform(0, 1, n) * correct),
            "zlib_bytes": rng.integers(20, 60, n).astype(float),
            **{name: rng.exponential(1, n) + shift for name in names},
        }

    holdout = SetScores(np.arange(n), rng.exponential(1, n) + 0.5, **details(0.5))
    return {**scores, "forget": replace(scores["forget"], **details(0.0)), "holdout": holdout}


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
    got = tofu_metrics(scores, definition="tofu_arithmetic")
    for name, p in SETS.items():
        ratio = "forget_truth_ratio" if name == "forget" else f"{p}_Truth_Ratio"
        assert got[ratio].value == pytest.approx(expected[name]["truth_ratio_arith_mean_variant"], abs=1e-9)
    assert got["model_utility"].value == pytest.approx(expected["model_utility_arith_mean_variant"], abs=1e-9)
    assert got["model_utility"].definition == "tofu_arithmetic"


def test_stored_llama2_forget_quality(shared):
    full, retain = (tofu_metrics(llama2_scores(shared, f"llama2-7b_{m}")) for m in ("full", "retain90"))
    got = tofu_metrics(llama2_scores(shared, "llama2-7b_full"), llama2_scores(shared, "llama2-7b_retain90"))
    assert got["forget_quality"].value == pytest.approx(1.834066410994743e-21, rel=1e-9)
    assert got["forget_quality_D"].value == pytest.approx(0.39666666666666667, abs=1e-12)
    assert got["forget_truth_ratio"].target == retain["forget_truth_ratio"].value
    assert got["forget_truth_ratio"].value == full["forget_truth_ratio"].value


@pytest.mark.parametrize("model", ["full", "retain90"])
def test_stored_tiny_runs_give_open_unlearning_s_numbers(shared, model):
    log = tiny_log(shared, model)
    scores, _ = read_eval(log)
    for definition, tolerance in (("open_unlearning", 1e-7), ("exact", 1e-6)):
        got = tofu_metrics(scores, definition=definition)
        compared = [name for name in got if name in log]
        assert len(compared) == 16
        for name in compared:
            # 1e-7: float32 probabilities are stored. 1e-6: 1e-10 in denominators that are down to 1e-4.
            assert got[name].value == pytest.approx(log[name]["agg_value"], rel=tolerance), name


def test_stored_tiny_forget_quality_and_privacy_leakage(shared):
    logs = [tiny_log(shared, model) for model in ("full", "retain90")]
    (scores, values), (reference, reference_values) = map(read_eval, logs)
    got = tofu_metrics(scores, reference, "open_unlearning", reference_values)
    assert got["forget_quality"].value == pytest.approx(3.158046855497354e-31, rel=1e-9)
    assert got["forget_quality_log10_p"].value == pytest.approx(math.log10(3.158046855497354e-31), rel=1e-9)
    assert values["mia_min_k"] == logs[0]["mia_min_k"]["agg_value"]
    e = DEFINITIONS["open_unlearning"].epsilon
    aucs = [values["mia_min_k"], reference_values["mia_min_k"], 0.5]
    for log, area, goal in zip(logs, aucs, aucs[1:], strict=False):
        assert privacy_leakage(area, goal, e) == pytest.approx(log["privleak"]["agg_value"], rel=1e-9)


def test_logs_for_open_unlearning_say_what_its_own_said(shared):
    """Read and written again: the same keys, items and values."""
    log = tiny_log(shared, "full")
    scores, _ = read_eval(log)
    metrics = tofu_metrics(scores, scores, "open_unlearning")
    texts = {
        name: [log[f"{p}_Q_A_ROUGE"]["value_by_index"][str(i)] for i in scores[name].ids] for name, p in SETS.items()
    }
    columns = [{name: [x[key] for x in rows] for name, rows in texts.items()} for key in ("input", "ground_truth")]
    written, summary = write_eval(scores, metrics, *columns)
    # What is not among a log's items cannot be written again: token-level scores.
    assert set(log) - set(written) == {"extraction_strength", "mia_min_k"}
    for key, entry in written.items():
        if "value_by_index" not in entry:
            continue
        items, wanted = entry["value_by_index"], log[key]["value_by_index"]
        assert entry["agg_value"] == pytest.approx(log[key]["agg_value"], rel=1e-6)
        assert items.keys() == wanted.keys()
        for i, item in items.items():
            assert item == {k: x if isinstance(x, str) else pytest.approx(x, 2e-6, 1e-12) for k, x in wanted[i].items()}
    again, _ = read_eval(written)
    for name, s in scores.items():
        assert again[name].as_dict() == s.as_dict()
    assert summary["model_utility"] == metrics["model_utility"].value


def test_the_definitions_agree_on_small_losses_and_part_on_a_collapsed_model():
    def all_three(shift):
        scores = {
            name: replace(
                s,
                answer_loss=s.answer_loss + shift,
                paraphrase_loss=None if s.paraphrase_loss is None else s.paraphrase_loss + shift,
                wrong_losses=s.wrong_losses + shift,
            )
            for name, s in with_details(made_up(200)).items()
            if name != "holdout"
        }
        return {d: tofu_metrics(scores, made_up(200, seed=1), d) for d in DEFINITIONS}

    small = all_three(0.0)
    for name, result in small["exact"].items():
        if name in ("extraction_strength", "memorization_score", "forget_quality", "forget_quality_log10_p"):
            continue  # the floor 1/n, and a p-value far in the tail
        assert small["open_unlearning"][name].value == pytest.approx(result.value, rel=1e-6, abs=1e-9), name
    assert small["exact"]["extraction_strength"].value < small["open_unlearning"]["extraction_strength"].value

    # Past some 23 nats a token both probabilities vanish under 1e-10, and the ratio with them: forget quality falls
    # to its floor although the answers' ratios have not changed.
    collapsed = all_three(60.0)
    for name in ("forget_truth_ratio", "forget_quality", "forget_quality_D", "ra_Q_A_Prob_normalised"):
        assert collapsed["exact"][name].value == pytest.approx(small["exact"][name].value, rel=1e-9), name
    assert collapsed["open_unlearning"]["forget_truth_ratio"].value < 1e-12
    assert collapsed["open_unlearning"]["forget_quality_D"].value == 1.0
    assert collapsed["open_unlearning"]["ra_Q_A_Prob_normalised"].value < 1e-12
    assert collapsed["open_unlearning"]["retain_Truth_Ratio"].value == pytest.approx(1.0), "as if it knew the truth"
    assert {r.definition for r in collapsed["open_unlearning"].values()} == {"open_unlearning"}


def test_open_unlearning_compares_truth_ratios_however_small_they_are():
    """``ks_2samp(TR, TR_retain)`` (its privacy.py), not of ``1 / (TR + 1e-10)``: these ties below 1e-26."""

    def confident(seed):
        scores = made_up(200, seed)
        forget = replace(scores["forget"], wrong_losses=scores["forget"].wrong_losses + 70 + seed)
        ratio = np.exp(-forget.wrong_losses.mean(1)) / (np.exp(-forget.paraphrase_loss) + 1e-10)
        return scores | {"forget": forget}, ratio

    (scores, ratio), (reference, other) = confident(0), confident(1)
    assert max(ratio.max(), other.max()) < 1e-26
    wanted = ks_2samp(ratio, other)
    assert 0 < wanted.statistic < 1
    got = tofu_metrics(scores, reference, "open_unlearning")
    assert got["forget_quality"].value == pytest.approx(wanted.pvalue, rel=1e-9)
    assert got["forget_quality_D"].value == pytest.approx(wanted.statistic, rel=1e-9)


def test_membership_attacks_and_composites():
    scores, reference = with_details(made_up(40)), with_details(made_up(40, seed=1), seed=1)
    got = tofu_metrics(scores, reference)
    names = {"mia_loss", "mia_min_k", "mia_min_k_plus_plus", "mia_zlib", "mia_reference"}
    assert {name for name in got if name.startswith("mia")} == names
    wanted = {name: auc(*sides) for name, sides in attacked(reference, reference).items()}
    assert {name: got[name].target for name in names} == pytest.approx(wanted)
    assert wanted["mia_reference"] == 0.5
    f, h = scores["forget"], scores["holdout"]
    pairs = [(b > a) + 0.5 * (b == a) for a in f.answer_loss / f.zlib_bytes for b in h.answer_loss / h.zlib_bytes]
    assert got["mia_zlib"].value == pytest.approx(np.mean(pairs))
    assert got["privleak"].value == pytest.approx(
        100 * ((1 - got["mia_min_k"].value) / (1 - wanted["mia_min_k"]) - 1), rel=1e-9
    )
    parts = [got[k].value for k in ("extraction_strength", "exact_memorization", "forget_Q_A_PARA_Prob")]
    parts = [1 - x for x in [*parts, got["forget_truth_probability"].value]]
    assert got["memorization_score"].value == pytest.approx(4 / sum(1 / x for x in parts), rel=1e-9)
    assert not any(part.higher_is_better for part in MEMORIZED), "each is higher of a model that knows the rows"
    same = tofu_metrics(scores, scores)
    assert (same["privacy_score"].value, same["privleak"].value) == (1.0, 0.0)
    assert 0 < got["privacy_score"].value < 1
    alone = tofu_metrics(scores)
    assert "privleak" not in alone, "no target is assumed silently"
    assert tofu_metrics(scores, definition="open_unlearning")["mia_min_k"].target == 0.5, "its assumption, shown"


def test_intervals_hold_their_values():
    got = tofu_metrics(with_details(made_up(100)), made_up(100, seed=1), intervals=True)
    for name in ("forget_Q_A_Prob", "forget_truth_ratio", "extraction_strength", "retain_Q_A_ROUGE", "model_utility"):
        low, high = got[name].interval
        assert low < got[name].value < high, name
    assert got["forget_quality"].interval is None
    one = tofu_metrics(with_details(made_up(1)), made_up(1, seed=1), intervals=True)
    assert one["forget_Q_A_Prob"].interval == (one["forget_Q_A_Prob"].value,) * 2
    assert one["forget_quality"].value == 1.0, "one item against one cannot tell anything"


def test_targets_and_directions():
    got, alone = tofu_metrics(made_up(), made_up(seed=1)), tofu_metrics(made_up())
    wanted = tofu_metrics(made_up(seed=1))
    tests = {"forget_quality": 1.0} | dict.fromkeys(("forget_quality_log10_p", "forget_quality_D"), 0.0)
    tests["forget_truth_ratio_gap"] = 0.0
    assert got.keys() - alone.keys() == tests.keys()
    targets = {name: wanted[name].value for name in wanted if name.startswith("forget")} | tests
    assert {name: r.target for name, r in got.items() if r.target is not None} == targets
    assert not any(r.target for r in alone.values())
    lower = {name for name, r in got.items() if not r.higher_is_better}
    forgotten = {"forget_Q_A_Prob", "forget_Q_A_PARA_Prob", "forget_Q_A_ROUGE", "forget_truth_probability"}
    assert lower == {*forgotten, "forget_quality_D", "forget_truth_ratio_gap"}
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
    d = DEFINITIONS["exact"]
    assert log_truth_ratio(scores, d) == pytest.approx(scores.paraphrase_loss - scores.wrong_losses.mean(1))
    without = replace(scores, paraphrase_loss=None)
    assert log_truth_ratio(without, d) == pytest.approx(scores.answer_loss - scores.wrong_losses.mean(1))


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


def test_a_probe_has_what_its_side_has_under_names_of_its_own():
    scores, reference = made_up(), made_up(seed=1)

    def probed(s):
        return {**s, "probe_two_hop_forget": s["forget"], "probe_two_hop_retain": s["retain"]}

    got = tofu_metrics(probed(scores), probed(reference), intervals=True)
    plain = tofu_metrics(scores, reference, intervals=True)
    assert {name: got[name] for name in plain} == plain, "the benchmark's own metrics do not see a probe"
    probes = {name: r for name, r in got.items() if name.startswith("probe_")}
    of_probe = {name.removeprefix("probe_two_hop_"): r for name, r in probes.items()}
    sides = ("forget_", "retain_", "model_utility")
    wanted = {name: result for name, result in plain.items() if name.startswith(sides)}
    assert of_probe.keys() == wanted.keys()
    for name, result in of_probe.items():
        own = replace(wanted[name].metric, name=f"probe_two_hop_{name}", group="probes", column=None)
        own = replace(own, family="probe_two_hop", tested_as=own.tested_as and f"probe_two_hop_{own.tested_as}")
        assert result == replace(wanted[name], metric=own)
    assert all(r.metric.name == name for name, r in got.items())


def test_a_probe_s_own_items_make_its_numbers():
    scores, other = made_up(), made_up(seed=2)
    got = tofu_metrics({**scores, "probe_x_forget": other["forget"], "probe_x_retain": other["retain"]}, scores)
    for name in ("forget_truth_ratio", "retain_Q_A_Prob"):
        assert got[f"probe_x_{name}"].value == tofu_metrics(other)[name].value != got[name].value
    utility = tofu_metrics({**scores, "retain": other["retain"]})["model_utility"].value
    assert got["probe_x_model_utility"].value == utility != got["model_utility"].value
    assert "probe_x_forget_quality" not in got, "the reference has no such set"


def test_what_another_request_named_is_measured_as_the_forget_rows_are():
    scores, other = made_up(), made_up(seed=1)["forget"]
    plain = tofu_metrics(scores)
    found = tofu_metrics(scores | {"request_03": other})
    alone = tofu_metrics({"forget": other})
    own = {name: result for name, result in found.items() if name.startswith("request_03_")}
    assert {name: found[name].value for name in plain} == {name: result.value for name, result in plain.items()}
    assert "request_03_Q_A_Prob" in own
    for name, result in own.items():
        assert result.value == alone[name.replace("request_03", "forget")].value
        assert (result.group, result.metric.column) == ("requests", None)
