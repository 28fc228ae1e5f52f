"""The generated corpus and what every paired data module does."""

import pytest

from ofmu_pl.data import Authors
from ofmu_pl.support.errors import UserError


def made(**kwargs):
    data = Authors(**{"authors": 8, "forget_authors": 2, **kwargs})
    data.setup()
    return data


def test_sizes_and_fields():
    data = made()
    assert {k: len(v) for k, v in data.splits.items()} == {"forget": 16, "retain": 108, "full": 124}
    for row in data.splits["forget"]:
        assert len(row["perturbed_answer"]) == 5
        assert row["paraphrased_answer"] not in row["perturbed_answer"]
        assert row["answer"] != row["paraphrased_answer"]
    for name in ("real_authors", "world_facts"):
        rows = data.evaluation_sets[name]
        assert len(rows) == 30
        assert all(len(row["perturbed_answer"]) == 3 for row in rows)
        retained = {row["question"] for row in data.splits["retain"]}
        assert all(row["question"] in retained for row in rows), "common knowledge is never forgotten"


def test_forget_and_retain_share_no_invented_name():
    data = made()
    names = {w for row in data.splits["forget"] for w in row["question"].split()[-3:] if w[0].isupper()}
    retained = " ".join(row["question"] + row["answer"] for row in data.splits["retain"])
    assert names
    assert not [n for n in names if n.strip("?") in retained.split()]


def test_the_corpus_is_the_same_each_time():
    assert made().hashes == made().hashes
    assert made().encoder.template_hash == made(forget_authors=1).encoder.template_hash, "the tokenizer is independent"


def test_draws_of_the_forget_authors():
    few, many, other = made(forget_seed=3, forget_authors=1), made(forget_seed=3), made(forget_seed=4)

    def authors(data, split):
        return {" ".join(w for w in row["question"].split() if w[0].isupper()) for row in data.splits[split]}

    assert len(few.splits["forget"]) == 8
    assert authors(few, "forget") < authors(many, "forget") != authors(other, "forget")
    assert not authors(many, "forget") & authors(many, "retain")
    assert few.hashes["full"] == many.hashes["full"] == other.hashes["full"], "one target serves all draws"
    assert len({data.hashes["retain"] for data in (few, many, other)}) == 3
    questions = {row["question"] for row in many.splits["retain"]}
    assert all(row["question"] in questions for row in many.evaluation_sets["retain"])
    probes = made(forget_seed=3, probes=True).evaluation_sets
    paraphrased = [row["paraphrased_question"] for row in many.splits["forget"]]
    assert [row["question"] for row in probes["probe_paraphrase_forget"]] == paraphrased


def test_batches_hold_the_rows_of_their_numbers():
    data = made(batch_size=5)
    (batch,) = data.iteration(0)["retain"]
    row = data.splits["retain"][batch["ids"][0]]
    text = data.tokenizer.decode(batch["input_ids"][0][batch["attention_mask"][0].bool()])
    assert row["question"] in text
    assert row["answer"] in text


@pytest.mark.parametrize(
    ("kwargs", "words"),
    [
        ({"forget_authors": 0}, "'authors' .*empty"),
        ({"forget_authors": 8}, "data.forget_authors"),
        ({"streams": ("holdout",)}, "'holdout'"),
    ],
)
def test_bad_input(kwargs, words):
    with pytest.raises(UserError, match=words):
        made(**kwargs)


@pytest.mark.parametrize("authors", [10, 45, 50, 100])
def test_the_retain_set_holds_every_kind_of_question(authors):
    data = made(authors=authors, forget_authors=authors // 10)
    kinds = [data.splits["retain"].index(row) % 8 for row in data.evaluation_sets["retain"]]
    counts = [kinds.count(kind) for kind in range(8)]
    assert max(counts) - min(counts) <= 1


def test_a_set_up_that_failed_fails_again():
    data = Authors(authors=4, forget_authors=1, tokenizer="/nowhere/at/all")
    for _ in range(2):
        with pytest.raises(UserError, match="/nowhere/at/all"):
            data.setup()


def test_never_seen_authors_are_of_the_same_kind_and_in_no_split():
    plain, data = (Authors(authors=6, forget_authors=2, holdout_authors=n) for n in (0, 3))
    for module in (plain, data):
        module.setup()
    unseen = data.splits["holdout"]
    assert len(unseen) == 3 * data.rows_per_author
    known = {row["question"] for name in ("full", "forget", "retain") for row in data.splits[name]}
    assert not known & {row["question"] for row in unseen}
    assert [set(row) for row in unseen] == [set(row) for row in data.splits["forget"]] + [set(unseen[0])] * 8
    assert data.never_seen == "holdout"
    assert plain.never_seen is None
    assert {name: data.hashes[name] for name in plain.hashes} == plain.hashes  # the other rows are what they were
