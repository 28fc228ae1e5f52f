"""LUME: rows by task and kind, what is measured of them, and the released form of its one number."""

import importlib
import json
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from ofmu_pl import LUME, KnowUnDo, UserError
from ofmu_pl.data.own_tokenizer import train_tokenizer
from ofmu_pl.losses import IGNORED
from ofmu_pl.metrics import Metric, SetScores
from ofmu_pl.metrics.lume import lume_metrics, official


def row(number, task="Task1", kind="sc", opening="Once there was a", answer="tower of sand."):
    return {"id": f"a-{number}fe{kind}{number}", "input": f"{number} {opening}", "output": answer, "task": task}


ROWS = {
    "forget": [row(1), row(2, kind="qa"), row(3, "Task2", "qa"), row(4, "Task2")],
    "retain": [row(5), row(6, kind="qa"), row(7, "Task2", "qa")],
}


@pytest.fixture
def folder(tmp_path):
    def write(**files):
        for name, rows in (ROWS | files).items():
            (tmp_path / f"{name}.jsonl").write_text("\n".join(map(json.dumps, rows)))
        return str(tmp_path)

    return write


def made(folder, **options):
    tokenizer = train_tokenizer([json.dumps(r) for rows in ROWS.values() for r in rows])
    data = LUME(folder, tokenizer=tokenizer, **options)
    data.setup()
    return data


def test_rows_are_sorted_by_task_and_kind_and_stand_as_they_are(folder):
    data = made(folder(), batch_size=1)
    sets = {name: [r["question"][0] for r in rows] for name, rows in data.evaluation_sets.items()}
    assert sets == {
        "forget": ["1", "2", "3", "4"],
        "retain": ["5", "6", "7"],
        "probe_task1_regurgitation_forget": ["1"],
        "probe_task1_knowledge_forget": ["2"],
        "probe_task2_knowledge_forget": ["3"],
        "probe_task2_regurgitation_forget": ["4"],
        "probe_task1_regurgitation_retain": ["5"],
        "probe_task1_knowledge_retain": ["6"],
        "probe_task2_knowledge_retain": ["7"],
    }
    assert len(data.splits["full"]) == 7
    fewer = made(folder(), batch_size=1, eval_rows=2)
    assert [r["question"][0] for r in fewer.evaluation_sets["retain"]] == ["5", "6"]
    assert "probe_task2_knowledge_retain" not in fewer.evaluation_sets
    assert (len(fewer.splits["retain"]), len(fewer.evaluation_sets["forget"])) == (3, 4)
    encoded = data.encode(data.splits["forget"][0])
    assert data.tokenizer.decode(encoded.input_ids) == "1 Once there was a tower of sand.<|eot_id|>"
    assert data.tokenizer.decode([x for x in encoded.labels if x != IGNORED]) == " tower of sand.<|eot_id|>"


def test_tasks_are_chosen_and_never_seen_rows_given(folder):
    path = folder(unseen=[row(8), row(9, "Task2", "qa")], known=[row(3, "Task2", "qa")])
    data = made(path, tasks=["task2"], holdout=f"{path}/unseen.jsonl", batch_size=1)
    assert [r["question"][0] for r in data.splits["forget"]] == ["3", "4"]
    assert [r["question"][0] for r in data.splits["holdout"]] == ["9"]
    with pytest.raises(UserError, match="1 of 1 holdout .*forget"):
        made(path, tasks=["task2"], holdout=f"{path}/known.jsonl", batch_size=1)


@pytest.mark.parametrize(
    ("files", "options", "message"),
    [
        ({}, {"tasks": ["Task3"]}, "task3.*data.tasks .*task1, task2"),
        ({"forget": [{"id": "x", "input": "a", "output": "b", "task": "Task1"}]}, {}, "Line 1 of .*forget.* 'id'"),
        ({"retain": [row(1), row(2, answer=" ")]}, {}, "Line 2 of .*retain.jsonl'.* 'output'"),
        ({}, {"holdout": "nowhere.jsonl"}, "'nowhere.jsonl'.*`data.holdout`"),
    ],
)
def test_bad_input_is_one_sentence(folder, files, options, message):
    with pytest.raises(UserError, match=message):
        made(folder(**files), **options)


def scored(losses, rouge, exact):
    n = len(losses)
    return SetScores(np.arange(n), np.array(losses), rouge=np.array(rouge), exact=np.array(exact, dtype=float))


def test_metrics_by_hand():
    zeros = [0, 0]
    scores = {
        "forget": scored([0.1, 3.0], [0.5, 0.5], zeros),
        "holdout": scored([2.0, 1.0], [0.1, 0.1], zeros),
        "retain": scored([0.2, 0.2], [0.9, 0.9], zeros),
        "probe_task1_regurgitation_forget": scored([0.1, 0.3], [0.2, 0.6], zeros),
        "probe_task1_knowledge_forget": scored([0.1, 0.3], [0.9, 0.9], [1, 0]),
        "probe_task1_regurgitation_retain": scored([0.1, 0.3], [0.7, 0.9], zeros),
        "probe_task1_knowledge_retain": scored([0.1] * 4, [0.5] * 4, [1, 1, 1, 0]),
    }
    found = lume_metrics(scores, {"probe_task1_knowledge_forget": scored([3, 3], zeros, [0, 1])})
    values = {name: r.value for name, r in found.items()}
    assert values["task1_forget_regurgitation"] == pytest.approx(0.4)
    assert values["task1_forget_knowledge"] == pytest.approx(0.5)
    assert values["task1_retain_regurgitation"] == pytest.approx(0.8)
    assert values["task1_retain_knowledge"] == pytest.approx(0.75)
    assert found["task1_forget_knowledge"].target == pytest.approx(0.5)
    assert not found["task1_forget_knowledge"].higher_is_better
    assert found["task1_retain_knowledge"].higher_is_better
    # Of the four pairs of losses the forget row's is the lower one in two: AUC .5, which hides all and leaks nothing.
    assert values["mia_loss"] == pytest.approx(0.5)
    parts = [1 / 0.6, 1 / 0.5, 1 / 0.8, 1 / 0.75]
    assert values["lume_aggregate"] == pytest.approx(5 / sum([*parts, 1 / 1.0]))
    assert values["lume_aggregate_released"] == pytest.approx(5 / sum([*parts, 1 / 0.5]))
    assert values["lume_task_aggregate"] == pytest.approx(4 / sum(parts))
    assert official(found) == {}, "MMLU was not measured"


def test_the_official_score_is_the_leaderboards():
    """Its first row: task aggregate .827, membership .847, MMLU .443, final score .706."""
    found = {"lume_task_aggregate": 0.827, "mia_loss": 0.5 + (1 - 0.847) / 2, "task_mmlu_acc": 0.443}
    for auc in (found["mia_loss"], 1 - found["mia_loss"]):
        made = {n: Metric(n, True).result(x, 9) for n, x in (found | {"mia_loss": auc}).items()}
        assert official(made)["lume_official"].value == pytest.approx(0.706, abs=5e-4)
    leaking = {n: Metric(n, True).result(x, 9) for n, x in (found | {"mia_loss": 1.0}).items()}
    assert official(leaking)["lume_official"].value == pytest.approx((0.827 + 0.443) / 3)


def test_the_real_rows(shared):
    data = LUME(str(shared / "data/lume"), tokenizer=str(shared / "models/tofu-tiny-full"), max_length=None)
    splits, _ = data.load()
    kinds = Counter((r["task"], r["kind"]) for r in splits["forget"])
    assert kinds == {
        ("task1", "regurgitation"): 243,
        ("task1", "knowledge"): 243,
        ("task2", "regurgitation"): 250,
        ("task2", "knowledge"): 1250,
    }
    assert len(splits["retain"]) == 1992


def test_the_slices_of_the_benchmarks_share_no_person(shared, tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(Path(__file__).parents[2] / "scripts")
    monkeypatch.setenv("OFMU_SHARED", str(shared))
    importlib.import_module("language_data").main(tmp_path)
    read = lambda path: [json.loads(line) for line in path.read_text().splitlines()]  # noqa: E731
    sides = [read(tmp_path / "people" / f"{side}.jsonl") for side in ("forget", "retain", "holdout")]
    assert [len(rows) for rows in sides] == [40, 80, 80]
    few = [read(tmp_path / "few" / f"{side}.jsonl") for side in ("forget", "retain", "holdout")]
    assert [len(rows) for rows in few] == [20, 40, 40]
    assert few[0][0] == {"question": sides[0][0]["input"], "answer": sides[0][0]["output"]}
    persons = [{row["id"].rstrip("0123456789")[:-2] for row in rows} for rows in sides]
    assert len(set.union(*persons)) == sum(map(len, persons)) == 40
    held = str(tmp_path / "people/holdout.jsonl")
    data = LUME(str(tmp_path / "people"), holdout=held, eval_rows=40, tokenizer="gpt2")
    assert [len(rows) for rows in data.load()[1].values()] == [40, 40, 40, 40, 80]
    assert len(read(tmp_path / "tasks/mmlu_letters.jsonl")) == 570
    splits, _ = KnowUnDo(str(tmp_path / "knowundo"), tokenizer="gpt2").load()
    assert [len(splits[name]) for name in ("forget", "retain", "full")] == [50, 80, 164]
