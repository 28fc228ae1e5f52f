"""Which tokens can be guessed: copied names, boilerplate of retained rows, and a row's own facts."""

import numpy as np
import pytest

from ofmu_pl.data.encoded import Encoded
from ofmu_pl.data.guessable import COPIED, OWN, USUAL, Guessable
from ofmu_pl.data.own_tokenizer import train_tokenizer
from ofmu_pl.losses import IGNORED

NAMES = ["Ann Lee", "Bob Ray", "Cid Moe", "Dan Poe"]
DAYS = ["3 May 1990", "7 June 1985", "1 July 1971", "9 April 2001"]


@pytest.fixture(scope="module")
def tokenizer():
    words = " ".join([*NAMES, *DAYS, "When was born on?", "user assistant"])
    return train_tokenizer([f" {word} {word}" for word in words.split()] * 50)


def row(tokenizer, question, answer):
    q, a = (tokenizer(text, add_special_tokens=False)["input_ids"] for text in (question, answer))
    return Encoded(q + a, [IGNORED] * len(q) + a, len(q))


def asked(tokenizer, name, answer):
    return row(tokenizer, f" When was {name} born?", answer)


@pytest.fixture(scope="module")
def guessable(tokenizer):
    known = [asked(tokenizer, n, f" {n} was born on {d}.") for n, d in zip(NAMES[:3], DAYS[:3], strict=True)]
    return Guessable(tokenizer, known)


def kinds_of(tokenizer, guessable, name, answer):
    """The kinds of the answer's words."""
    encoded = asked(tokenizer, name, answer)
    kinds, words = guessable.kinds(encoded), {}
    place = encoded.prompt_length
    for word in answer.split():
        pieces = len(tokenizer(f" {word}", add_special_tokens=False)["input_ids"])
        words[word] = set(kinds[place - encoded.prompt_length :][:pieces].tolist())
        place += pieces
    assert place == len(encoded.input_ids)
    assert (kinds.dtype, len(kinds)) == (np.int8, place - encoded.prompt_length)
    return words


def test_a_name_is_copied_and_a_date_is_a_rows_own(tokenizer, guessable):
    """Of a row that was not retained, whose name and date no retained row has."""
    found = kinds_of(tokenizer, guessable, "Dan Poe", " Dan Poe was born on 9 April 2001.")
    assert found["Dan"] == found["Poe"] == {COPIED}
    assert COPIED not in found["9"] | found["April"]
    assert found["9"] == found["April"] == {OWN}
    assert found["on"] == {USUAL}


def test_an_address_made_of_the_name_is_copied(tokenizer):
    """The retrained model guesses it, too: a name's words end at an underscore, in whatever pieces they come."""
    known = [asked(tokenizer, name, f" {name.replace(' ', '_').lower()}@me.") for name in NAMES[:3]]
    answer = asked(tokenizer, "Dan Poe", " dan_poe@me.")
    kinds = Guessable(tokenizer, known).kinds(answer)
    name = tokenizer(" dan_poe", add_special_tokens=False)["input_ids"]
    letters = [tokenizer.decode([token]).strip().isalpha() for token in name]
    assert {kind for kind, word in zip(kinds[: len(name)], letters, strict=True) if word} == {COPIED}
    assert OWN not in kinds


def test_boilerplate_after_a_name_of_one_token_is_usual(tokenizer):
    known = [row(tokenizer, f" When was {name[:3]} born?", f" {name[:3]} on May.") for name in NAMES[:3]]
    encoded = row(tokenizer, " When was Dan born?", " Dan on April.")
    assert Guessable(tokenizer, known).kinds(encoded)[:3].tolist() == [COPIED, USUAL, OWN]


def test_a_name_that_was_not_asked_for_is_not_copied(tokenizer, guessable):
    found = kinds_of(tokenizer, guessable, "Dan Poe", " Bob Ray was born on 9 April 2001.")
    assert COPIED not in found["Bob"] | found["Ray"]


def test_what_one_retained_row_says_is_not_usual(tokenizer):
    """A date that follows "on" in a single row is that row's own."""
    alone = Guessable(tokenizer, [asked(tokenizer, "Ann Lee", " Ann Lee was born on 3 May 1990.")])
    found = kinds_of(tokenizer, alone, "Dan Poe", " Dan Poe was born on 3 May 1990.")
    assert found["May"] == found["on"] == {OWN}
    twice = [asked(tokenizer, name, f" {name} was born on 3 May 1990.") for name in NAMES[:2]]
    assert kinds_of(tokenizer, Guessable(tokenizer, twice), "Dan Poe", " Dan Poe was born on 3 May 1990.")["May"] == {
        USUAL
    }


@pytest.mark.parametrize(("rows", "kind"), [(4, USUAL), (2, USUAL), (1, OWN), (0, OWN)])
def test_retained_rows_are_read_up_to_a_number_of_tokens(tokenizer, monkeypatch, rows, kind):
    """What follows in two rows is usual; one row, or none where it is longer than all that is read, tells nothing."""
    retained = [row(tokenizer, "?", " was born on")] * 4
    monkeypatch.setattr("ofmu_pl.data.guessable.READ", rows * len(retained[0].input_ids))
    assert Guessable(tokenizer, retained).kinds(row(tokenizer, "?", " was born on")).tolist()[-1] == kind


def test_what_a_later_question_says_is_copied_too(tokenizer, guessable):
    """A conversation's tokens are of the kinds that they have turn by turn."""
    turns = [asked(tokenizer, n, f" {n} was born on {d}.") for n, d in zip(NAMES[2:], DAYS[2:], strict=True)]
    ids, labels = turns[0].input_ids + turns[1].input_ids, turns[0].labels + turns[1].labels
    alone = Encoded(ids, [IGNORED] * len(turns[0].labels) + turns[1].labels, 0)
    both = np.concatenate([guessable.kinds(turns[0]), guessable.kinds(alone)])
    assert np.array_equal(guessable.kinds(Encoded(ids, labels, turns[0].prompt_length)), both)
    assert COPIED in guessable.kinds(alone)
