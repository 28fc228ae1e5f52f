"""Which runs were trained on a row, however it is written, and what cannot be told."""

import json

import pytest

from ofmu_pl.cli import main
from ofmu_pl.data.lineage import prints, write_lineage
from ofmu_pl.support.keyed import KEY

ROW = {"question": "Where does José live?", "answer": "In Ulm."}
TURNS = [("user", "Hello."), ("assistant", "Hello!"), ("user", ROW["question"]), ("assistant", ROW["answer"])]


@pytest.fixture
def run(tmp_path):
    folder = tmp_path / "logs/mine/version_0"
    folder.mkdir(parents=True)
    write_lineage(folder, {"full": [ROW, {"question": "Why?", "answer": "Because."}]}, ["full"])
    return folder


def lineage(rows, models, tmp_path, capsys):
    (tmp_path / "rows.json").write_text(json.dumps(rows))
    main(["lineage", "--rows", str(tmp_path / "rows.json"), "--models", str(models)])
    return capsys.readouterr().out


@pytest.mark.parametrize(
    "rows",
    [
        [ROW, {"question": "Who?", "answer": "Nobody."}],
        [{"prompt": "Where does  Jose\u0301 live?", "completion": "in ulm."}],
        [{"messages": [{"role": role, "content": content} for role, content in TURNS]}],
    ],
)
def test_rows_are_found_in_any_form_and_spelling(rows, run, tmp_path, capsys):
    assert "1 in full" in lineage(rows, tmp_path / "logs", tmp_path, capsys)


def test_other_rows_are_not_found(run, tmp_path, capsys):
    assert "1 in" not in lineage([{**ROW, "answer": "In Bonn."}], run, tmp_path, capsys)


def test_each_run_has_a_key_and_pieces_have_no_hash(run, tmp_path):
    other = tmp_path / "other"
    other.mkdir()
    write_lineage(other, {"full": [ROW]}, ["full"])
    kept = [json.loads((folder / "lineage.json").read_text())["full"] for folder in (run, other)]
    assert set(kept[0]).isdisjoint(kept[1])
    assert (other / KEY).stat().st_mode & 0o077 == 0
    assert prints({"tokens": [1, 2]}, bytes(32)) == set()


@pytest.mark.parametrize("fault", ["documents", "no run", "no key", "short key", '{"forget": [', "[]"])
def test_what_cannot_be_told_is_one_sentence(fault, run, tmp_path, capsys):
    rows = [{"text": "Eva"}] if fault == "documents" else [ROW]
    named = {"documents": "rows.json", "no run": "empty"}.get(fault, KEY if "key" in fault else "lineage.json")
    folder = tmp_path / "empty" if fault == "no run" else run
    folder.mkdir(exist_ok=True)
    if fault == "no key":
        (run / KEY).unlink()
    elif fault == "short key":
        (run / KEY).write_text("ab")
    elif named == "lineage.json":
        (run / named).write_text(fault)
    with pytest.raises(SystemExit, match="1"):
        lineage(rows, folder, tmp_path, capsys)
    assert named in capsys.readouterr().err
