"""Data of one request among others: what others name is not retained, and is measured under its own name."""

import numpy as np
import pytest

from ofmu_pl.data import TOFU, Authors, Digits, TextFiles
from ofmu_pl.data.image_folders import ImageFolders
from ofmu_pl.data.own_tokenizer import train_tokenizer
from ofmu_pl.support.errors import UserError
from tests.helpers.tofu_files import tofu_files


def sizes(sets):
    return {name: len(rows) for name, rows in sets.items()}


def questions(rows):
    return {row["question"] for row in rows}


@pytest.fixture(scope="module")
def tokenizer():
    return train_tokenizer(["Who is 1? Number 1. What is it? The secret of user assistant system"])


def test_authors_by_their_numbers():
    plain = Authors(authors=6, forget_authors=2)
    plain.setup()
    last = Authors(authors=6, forget_authors=[5], other_requests={1: {"forget_authors": [4]}})
    last.setup()
    assert sizes(last.splits) == {"forget": 8, "retain": 92, "full": 108}
    assert last.hashes["retain"] == plain.hashes["retain"], "after all requests the retained rows are those of one"
    rows = questions(last.splits["forget"]) | questions(last.evaluation_sets["request_01"])
    assert rows == questions(plain.splits["forget"])
    assert not questions(last.evaluation_sets["retain"]) & rows
    assert not questions(last.evaluation_sets["forget"]) & questions(last.evaluation_sets["request_01"])


def test_rows_of_later_requests_are_retained_and_those_of_earlier_ones_are_not():
    data = Authors(authors=6, forget_authors=[3], other_requests={1: {"forget_authors": [1]}})
    data.setup()
    people = [questions(Authors(authors=6, forget_authors=[i]).load()[0]["forget"]) for i in range(6)]
    retained = questions(data.splits["retain"])
    assert [rows <= retained for rows in people] == [True, False, True, False, True, True]
    assert not people[1] & retained
    assert people[1] <= questions(data.splits["full"]), "the target knew them"


def test_probes_of_what_is_kept_leave_out_what_other_requests_forget():
    options = {"authors": 6, "forget_authors": [3], "probes": True}
    plain, data = Authors(**options), Authors(**options, other_requests={1: {"forget_authors": [1]}})
    kept = [sets["probe_paraphrase_retain"] for _, sets in (plain.load(), data.load())]
    gone = {row["answer"] for row in Authors(authors=6, forget_authors=[1]).load()[0]["forget"]}
    assert [row for row in kept[0] if row["answer"] in gone]
    assert kept[1] == [row for row in kept[0] if row["answer"] not in gone]


@pytest.mark.parametrize(
    ("numbers", "message"),
    [([6], "data.forget_authors=6"), ([1, 1], "1 2 times")],
)
def test_authors_that_are_not_there(numbers, message):
    with pytest.raises(UserError, match=message):
        Authors(authors=6, forget_authors=numbers).setup()


def test_an_argument_that_the_data_lacks():
    with pytest.raises(UserError, match="Request 1 .*'forget_class'.* Authors"):
        Authors(authors=6, forget_authors=[1], other_requests={1: {"forget_class": [0]}}).setup()


@pytest.fixture
def tofu(tmp_path):
    """Three authors of 20 rows to forget, and two rows to retain."""
    more = {"paraphrased_answer": "That.", "perturbed_answer": ["This.", "Nothing."]}
    rows = [{"question": f"What is {i}?", "answer": f"It is {i}."} for i in range(62)]
    parts = {"forget10": rows[:60], "retain90": rows[60:], "full": rows}
    perturbed = {f"{name}_perturbed": [{**row, **more} for row in rows[:60]] for name in ("forget10",)}
    perturbed["retain_perturbed"] = [{**row, **more} for row in rows[60:]]
    return tofu_files(tmp_path / "tofu", **parts, **perturbed)


def test_authors_of_a_tofu_split(tofu, tokenizer):
    words = {"tokenizer": tokenizer}
    whole = TOFU(tofu, **words)
    whole.setup()
    others = {1: {"forget_authors": [0]}, 2: {"forget_authors": [1]}}
    last = TOFU(tofu, forget_authors=[2], other_requests=others, **words)
    last.setup()
    assert last.hashes["retain"] == whole.hashes["retain"], "a model retrained without forget10 is its control"
    assert last.hashes["full"] == whole.hashes["full"]
    measured = sizes(last.evaluation_sets)
    assert [measured[name] for name in ("forget", "request_01", "request_02")] == [20] * 3
    splits, sets = TOFU(tofu, forget_authors=[0], **words).load()
    for rows in (splits["forget"], sets["forget"]):
        assert [row["question"] for row in rows] == [f"What is {i}?" for i in range(20)]
    with pytest.raises(UserError, match="data.forget_authors=3"):
        TOFU(tofu, forget_authors=[3], **words).setup()


@pytest.mark.parametrize("by_column", [True, False])
def test_rows_of_ones_own_by_their_numbers_and_by_a_column(tokenizer, by_column):
    """Each request may say in its own way which rows of the file it means."""
    rows = [{"question": f"Who is {i}?", "answer": f"Number {i}.", "who": f"w{i % 4}"} for i in range(12)]
    ways = [{"forget_rows": [0, 3]}, {"forget_where": "who=w3"}]
    own, other = ways[::-1] if by_column else ways
    data = TextFiles(full=rows, tokenizer=tokenizer, other_requests={1: other}, **own)
    data.setup()
    named = [{f"Who is {i}?" for i in numbers} for numbers in ((0, 3), (3, 7, 11))]
    own, other = named[::-1] if by_column else named
    assert questions(data.splits["forget"]) == own
    assert questions(data.evaluation_sets["request_01"]) == other
    assert questions(data.evaluation_sets["retain"]) == questions(data.splits["retain"])
    assert len(data.splits["retain"]) == 8


def test_a_row_that_a_named_conversation_begins_with_stays(tokenizer):
    def talk(*texts):
        return {"messages": [{"role": ("user", "assistant")[i % 2], "content": x} for i, x in enumerate(texts)]}

    rows = [talk("Hi", "Hello!", f"Who is {i}?", f"Number {i}.") for i in range(4)] + [talk("Hi", "Hello!")]
    data = TextFiles(full=rows, tokenizer=tokenizer, forget_rows=[0], other_requests={1: {"forget_rows": [1]}})
    data.setup()
    assert questions(data.splits["retain"]) == {"Who is 2?", "Who is 3?", "Hi"}


def test_documents_of_ones_own_in_files(tokenizer):
    texts = {name: [{"text": f"The {name} number {i} is a secret."} for i in range(4)] for name in "abr"}
    given = {"forget": texts["b"], "tokenizer": tokenizer, "other_requests": {1: {"forget": texts["a"]}}}
    data = TextFiles(retain=texts["r"], **given)
    data.setup()
    assert sizes(data.evaluation_sets) == {"forget_doc": 4, "retain_doc": 4, "request_01_doc": 4}
    with pytest.raises(UserError, match="1 of 4 forget .*Row 4 .*'data.retain'"):
        TextFiles(retain=texts["r"] + texts["a"][:1], **given).setup()


def test_classes_of_images():
    data = Digits(forget_classes=[3], other_requests={1: {"forget_classes": [0]}})
    data.setup()
    assert data.split.forgotten == (0, 3)
    labels = {name: set(data.images_of(name)[1].tolist()) for name in ("forget", "retain", "request_01")}
    assert labels == {"forget": {3}, "retain": {1, 2, 4, 5, 6, 7, 8, 9}, "request_01": {0}}
    alone = Digits(forget_classes=[0, 3])
    alone.setup()
    assert data.hashes["retain"] == alone.hashes["retain"], "the retrained model is the same"
    assert data.hashes["full"] == alone.hashes["full"]
    assert np.array_equal(np.union1d(data.split.forget, data.split.gone), alone.split.forget)


def test_a_request_that_draws_other_validation_images():
    with pytest.raises(UserError, match="split_seed"):
        Digits(forget_classes=[3], other_requests={1: {"forget_classes": [0], "split_seed": 1}}).setup()


def test_images_whose_parts_are_given(tmp_path):
    with pytest.raises(UserError, match="Digits, CIFAR10, CIFAR100"):
        ImageFolders(*[str(tmp_path)] * 3, mean=[0.5], std=[0.5], other_requests={1: {"forget": "x"}})
