"""TOFU from a folder, and what is wrong with bad ones."""

import json
import re
import time

import pytest

from ofmu_pl.data import CIFAR10, TOFU
from ofmu_pl.data.tokenizers import load_tokenizer
from ofmu_pl.networks.pretrained import load_pretrained
from ofmu_pl.support.errors import NotAtHand, UserError
from tests.helpers.tofu_files import tofu_files


def test_real_tofu(shared):
    data = TOFU(str(shared / "data/tofu"), "forget05", probes=True, tokenizer=str(shared / "models/tofu-tiny-full"))
    data.setup()
    sizes = {"forget": 200, "retain": 3800, "full": 4000, "holdout": 200}
    assert {k: len(v) for k, v in data.splits.items()} == sizes
    assert {k: len(v) for k, v in data.evaluation_sets.items()} == {
        "forget": 200,
        "retain": 400,
        "real_authors": 100,
        "world_facts": 117,
        "probe_paraphrase_forget": 200,
        "probe_paraphrase_retain": 400,
        "holdout": 200,
    }
    assert [r["question"] for r in data.splits["forget"]] == [r["question"] for r in data.evaluation_sets["forget"]]


def test_missing_folder(tmp_path):
    with pytest.raises(UserError, match="/no'.*`data.data`"):
        TOFU(str(tmp_path / "no")).setup()


def test_a_file_where_a_folder_is_wanted(tmp_path):
    path = tmp_path / "full.json"
    path.write_text("{}")
    for attempt, option in (
        (lambda: TOFU(data=str(path)).setup(), "`data.data`"),
        (lambda: CIFAR10(data=str(path)).setup(), "`data.data`"),
        (lambda: load_tokenizer(str(path)), "`path` or `tokenizer`"),
        (lambda: load_pretrained(str(path), "sdpa"), "`path`"),
    ):
        with pytest.raises(UserError, match=f"full.json'.* {option}"):
            attempt()


def test_holdout_rows_that_are_broken_are_not_missing(tmp_path):
    folder = tofu_files(tmp_path)
    with pytest.warns(UserWarning, match="holdout10"):
        TOFU(folder).load()
    (tmp_path / "holdout10.json").write_bytes(b'{"question": "Who?"}')
    with pytest.raises(UserError, match=r"^Line 1 of '.*holdout10.json' "):
        TOFU(folder).load()


def test_rows_that_stand_in_are_never_seen_too_and_a_file_without_them_is_named(tmp_path):
    data = TOFU(str(tmp_path), "forget05", max_length=16, batch_size=4)
    data.blank()
    assert len(data.splits[data.never_seen]) == 4
    assert len(data.collate(data.never_seen, [0], 0)["labels"][0]) == 16
    assert re.match("'here' .*holdout05$", TOFU("here", "forget05").why_no_never_seen)


def test_alternatives_that_are_missing_or_incomplete(tmp_path):
    folder = tofu_files(tmp_path)
    with pytest.raises(UserError, match="idontknow.jsonl'.*`data.alternatives`"):
        TOFU(folder, streams=("forget", "alternative")).load()
    (tmp_path / "idontknow.jsonl").write_text(json.dumps({"question": "Another?", "answer": "Yes."}))
    with pytest.raises(UserError, match="idontknow.jsonl' .*1 of 1 .*forget10"):
        TOFU(folder, streams=("forget", "alternative")).load()


@pytest.mark.parametrize(("perturbed", "forget"), [(1, 4), (4, 1)])
def test_a_perturbed_file_of_other_rows_than_the_forget_split(tmp_path, perturbed, forget):
    """Forgetting would be measured on a few of the rows, or on rows that are not forgotten."""
    row = {"answer": "I.", "paraphrased_answer": "Me.", "perturbed_answer": ["You."]}
    rows = [{**row, "question": f"Who is {i}?"} for i in range(4)]
    folder = tofu_files(tmp_path, forget10=rows[:forget], forget10_perturbed=rows[:perturbed])
    with pytest.raises(UserError, match=f"'forget10_perturbed' .* {perturbed} .* 'forget10' {forget}"):
        TOFU(folder).load()


def test_forget_rows_inside_retain(tmp_path):
    same = {"question": "Who  is it?", "answer": "Me."}
    folder = tofu_files(
        tmp_path, forget10=[same], retain90=[{"question": "Who is it?", "answer": " Me."}, {**same, "answer": "x"}]
    )
    with pytest.raises(UserError, match=r"1 of 1 forget .*retain .*'Who  is it\?'"):
        TOFU(folder).setup()


def test_no_network_fails_at_once_and_says_what_to_do(monkeypatch):
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    for name in ("HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy", "HF_HUB_OFFLINE"):
        monkeypatch.delenv(name, raising=False)
    started = time.perf_counter()
    with pytest.raises(NotAtHand, match="HF_HUB_OFFLINE.*`data.data`"):
        TOFU().setup()
    assert time.perf_counter() - started < 10
