"""Probe sets: generated with the Authors corpus, from TOFU's column, from files, and what is wrong with bad ones."""

import json

import pandas
import pytest

from ofmu_pl.data import TOFU, Authors
from ofmu_pl.data.authors_corpus import DESCRIPTIONS, LANGUAGES, corpus
from ofmu_pl.support.errors import UserError
from tests.helpers.tofu_files import tofu_files

ROW = {"side": "forget", "question": "Whose pupil wrote it?", "answer": "Mine."}


def made(**kwargs):
    data = Authors(authors=12, forget_authors=3, probes=True, **kwargs)
    data.setup()
    return data


def names(text):
    """Its capitalised words, without the first."""
    return {word.strip("?.,") for word in text.split()[1:] if word[0].isupper()}


def test_every_probe_asks_for_the_facts_of_its_side_once():
    data = made()
    probes = [name for name in data.evaluation_sets if name.startswith("probe_")]
    assert probes == [
        f"probe_{kind}_{side}" for kind in ("paraphrase", "multi_hop", "cross_lingual") for side in ("forget", "retain")
    ]
    for name in probes:
        own = data.evaluation_sets[name.rsplit("_", 1)[1]]
        rows = data.evaluation_sets[name]
        assert [row["answer"] for row in rows] == [row["answer"] for row in own]
        assert [row["perturbed_answer"] for row in rows] == [row["perturbed_answer"] for row in own]
        trained = {row["question"] for row in data.splits["full"]}
        assert not [row["question"] for row in rows if row["question"] in trained]
    assert set(data.hashes) >= {f"{name}_eval" for name in probes}


def test_two_hops_need_another_fact_of_the_same_author_and_no_name():
    people, _, _ = corpus(12, 0)
    rows = made().evaluation_sets["probe_multi_hop_forget"]
    for i, row in enumerate(rows):
        author, kind = people[9 + i // 8], i % 8
        assert not set(author.name.split()) & set(row["question"].split())
        clues = names(row["question"]) - {"Medal"}
        assert clues
        others = {word for k, fact in enumerate(author.facts) if k != kind for part in fact for word in part.split()}
        assert clues <= others, "the clue is not the answer, and it is this author's"
        assert not clues & names(f". {row['answer']}")


def test_a_description_fits_one_author_only():
    people, _, _ = corpus(60, 3)
    for kind, text in DESCRIPTIONS.items():
        assert len({text.format(*author.facts[kind]) for author in people}) == len(people)


def test_languages_take_turns_over_all_kinds_and_name_the_author():
    people, _, _ = corpus(12, 0)
    rows = made().evaluation_sets["probe_cross_lingual_forget"]
    assert [row["language"] for row in rows[:4]] == ["de", "es", "fr", "de"]
    assert len({(row["language"], i % 8) for i, row in enumerate(rows)}) == 24, "each language, each kind"
    for i, row in enumerate(rows):
        *questions, request = LANGUAGES[row["language"]]
        assert row["question"] == f"{questions[i % 8].format(people[9 + i // 8].name)} {request}"


def file_of(tmp_path, *rows):
    path = tmp_path / "probe.jsonl"
    path.write_text("".join((row if isinstance(row, str) else json.dumps(row)) + "\n" for row in rows))
    return str(path)


def tofu_with_column(tmp_path, *configs):
    row = {"question": "Who?", "answer": "I.", "paraphrased_answer": "Me.", "perturbed_answer": ["You."]}
    rows = {f"{config}_perturbed": [{**row, "paraphrased_question": "Which one?"}] for config in configs}
    return tofu_files(tmp_path, **rows)


def test_tofu_s_column_and_the_user_s_file(tmp_path):
    folder = tofu_with_column(tmp_path, "forget10", "retain")
    path = file_of(tmp_path, ROW, {**ROW, "side": "retain", "question": "And whose is that?", "note": "kept"})
    _, sets = TOFU(folder, probes={"multi_hop": path}).load()
    assert [row["question"] for row in sets["probe_paraphrase_forget"]] == ["Which one?"]
    assert [row["perturbed_answer"] for row in sets["probe_paraphrase_retain"]] == [["You."]]
    assert sets["probe_multi_hop_forget"] == [ROW]
    assert [row["question"] for row in sets["probe_multi_hop_retain"]] == ["And whose is that?"]
    assert not [name for name in TOFU(folder).load()[1] if name.startswith("probe_")]


def test_a_column_that_is_missing_and_the_file_in_its_place(tmp_path):
    folder = tofu_with_column(tmp_path, "forget10")
    with pytest.raises(UserError, match="Row 0 .*'retain .*'paraphrased_question'"):
        TOFU(folder, probes=True).load()
    _, sets = TOFU(folder, probes={"paraphrase": file_of(tmp_path, ROW)}).load()
    assert sets["probe_paraphrase_forget"] == [ROW]
    assert "probe_paraphrase_retain" not in sets, "the control may be left out"


def test_a_name_that_no_metric_may_have_is_refused(tmp_path):
    with pytest.raises(UserError, match="'multi hop'.*data.probes"):
        Authors(probes={"multi hop": file_of(tmp_path, ROW)}).load()


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        ((), "probe.jsonl'.* 'forget'"),
        (({"question": "q", "answer": "a"},), "Line 1 of .* 'side'"),
        (({**ROW, "question": " "},), "Line 1 of .* 'question' "),
        (({**ROW, "paraphrased_answer": None},), "'paraphrased_answer'"),
        (({**ROW, "perturbed_answer": "No."},), "'perturbed_answer'"),
    ],
)
def test_bad_files_are_refused_in_a_sentence(tmp_path, lines, words):
    with pytest.raises(UserError, match=words):
        Authors(probes={"multi_hop": file_of(tmp_path, *lines)}).load()


def test_rows_of_a_side_have_the_same_number_of_wrong_answers(tmp_path):
    """Truth ratios of a set are made from a table; the other side may have another number."""
    other = {**ROW, "side": "retain", "perturbed_answer": ["No.", "Never."]}
    probe = {"multi_hop": file_of(tmp_path, ROW, other, ROW, other)}
    assert len(Authors(authors=12, probes=probe).load()[1]["probe_multi_hop_retain"]) == 2
    with pytest.raises(UserError, match="^Line 3 of .* 0 .* Line 2, .* 2:"):
        Authors(probes={"multi_hop": file_of(tmp_path, ROW, other, {**ROW, "side": "retain"})}).load()


def test_other_fields_of_a_file_are_ignored_whatever_they_hold(tmp_path):
    pandas.DataFrame([{**ROW, "when": pandas.Timestamp("2026-01-01")}]).to_parquet(tmp_path / "probe.parquet")
    assert Authors(probes={"mine": str(tmp_path / "probe.parquet")}).load()[1]["probe_mine_forget"] == [ROW]
