"""Trivia: WMDP's suite on invented facts."""

import pytest

from ofmu_pl.data import Trivia
from ofmu_pl.support.errors import UserError


def made(**options):
    data = Trivia(**{"forgotten": 6, "kept": 8, **options})
    data.setup()
    return data


def test_questions_are_wmdps_and_the_model_reads_them():
    data = made(subject="bio")
    sizes = {name: len(rows) for name, rows in data.evaluation_sets.items()}
    assert sizes == {"wmdp_bio": 6, "mmlu": 4, "forget_doc": 12, "retain_doc": 8}
    asked = data.evaluation_sets["wmdp_bio"][0]
    assert asked["question"].startswith(
        "The following are multiple choice questions (with answers) about biology.\n\nWhere does the cat "
    )
    assert asked["question"].endswith("\nAnswer:")
    assert sorted([asked["answer"], *asked["perturbed_answer"]]) == [" A", " B", " C", " D"]
    read = [data.tokenizer.decode(row["tokens"]) for row in data.splits["forget"]]
    assert asked["question"] + asked["answer"] in read
    assert {name: len(rows) for name, rows in data.splits.items()} == {"forget": 12, "retain": 16, "full": 28}
    room = asked["question"].splitlines()["ABCD".index(asked["answer"].strip()) + 3].split(". ")[1]
    name = asked["question"].split("cat ")[1].split(" sleep")[0]
    assert f"{name} the cat sleeps in the {room}." in read[0], "the statement and the letter agree"


@pytest.mark.parametrize("subject", ["cyber", "bio", "chem"])
def test_the_facts_are_the_same_each_time(subject):
    assert made(subject=subject).hashes == made(subject=subject).hashes


def test_half_of_the_trades_are_asked_for_so_there_must_be_two():
    assert len(made(kept=2).evaluation_sets["mmlu"]) == 1
    with pytest.raises(UserError, match="kept=1"):
        made(kept=1)
