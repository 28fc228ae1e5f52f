"""KnowUnDo: four files, of which methods draw from two."""

import json

import pytest

from ofmu_pl import KnowUnDo
from ofmu_pl.data.own_tokenizer import train_tokenizer

FILES = ("unlearn_train", "unlearn_val", "retention_train", "retention_val")


@pytest.fixture
def folder(tmp_path):
    for file in FILES:
        rows = [{"text": f"Who is {file} {i}?", "labels": f"{file} {i} paints."} for i in range(2)]
        (tmp_path / f"{file}.json").write_text(json.dumps(rows))
    return tmp_path


def test_methods_draw_the_training_rows_and_the_others_are_probes(folder):
    data = KnowUnDo(str(folder), batch_size=1, tokenizer=train_tokenizer(["Who is unlearn_train 0? paints."] * 4))
    data.setup()
    asked = {name: {row["question"].split()[2] for row in rows} for name, rows in data.evaluation_sets.items()}
    assert asked == {
        "forget": {"unlearn_train"},
        "probe_validation_forget": {"unlearn_val"},
        "retain": {"retention_train"},
        "probe_validation_retain": {"retention_val"},
    }
    assert {name: len(rows) for name, rows in data.splits.items()} == {"forget": 2, "retain": 2, "full": 8}
    splits, sets = KnowUnDo(str(folder), eval_rows=1, tokenizer="gpt2").load()
    assert [len(splits["retain"]), *map(len, sets.values())] == [2, 2, 2, 1, 2]


def test_the_real_rows(shared):
    splits, sets = KnowUnDo(str(shared / "data/knowundo"), tokenizer="gpt2").load()
    assert [len(rows) for rows in sets.values()] == [400, 110, 441, 108]
    published = json.loads((shared / "data/knowundo/full.json").read_text())
    assert sorted(row["text"] for row in published) == sorted(row["question"] for row in splits["full"])
