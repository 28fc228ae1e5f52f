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


ROWS = {
    "Russian": (" Где жила Ольга Петрова?", " Ольга Петрова жила в", " Саратове"),
    "Greek": (" Πού έμενε η Ελένη Δούκα;", " Η Ελένη Δούκα έμενε στη", " Θεσσαλονίκη"),
    "Japanese": ("田中さんはどこに住んでいましたか？", "田中さんは", "札幌"),
    "Hindi": (" राम शर्मा कहाँ रहते थे?", " राम शर्मा रहते थे", " इंदौर"),
}


@pytest.mark.parametrize("script", ROWS)
def test_facts_of_other_scripts_are_a_rows_own_where_letters_are_split_into_bytes(tokenizer, script):
    """Of a letter's bytes each stood in the question beside the other, so nearly all of a town counted as copied."""
    question, start, fact = ROWS[script]
    encoded = row(tokenizer, question, start + fact)
    letters = len(tokenizer(fact, add_special_tokens=False)["input_ids"])
    assert letters > 2 * len(fact.strip()) - 1, "letters are split"
    kinds = Guessable(tokenizer, []).kinds(encoded)
    assert COPIED not in kinds[-letters:]


@pytest.mark.parametrize(("script", "name"), [("Russian", "Ольга"), ("Greek", "Ελένη"), ("Hindi", "शर्मा")])
def test_names_of_other_scripts_are_copied_by_their_words(tokenizer, script, name):
    """A vowel sign ends no word."""
    encoded = row(tokenizer, ROWS[script][0], name)
    assert set(Guessable(tokenizer, []).kinds(encoded).tolist()) == {COPIED}
    other = row(tokenizer, " ?", name)
    assert set(Guessable(tokenizer, []).kinds(other).tolist()) == {OWN}


def test_a_piece_of_a_text_is_of_all_the_characters_that_it_holds_a_part_of(tokenizer):
    """As the decoder says, which reads the same bytes."""
    text = " Ann, Ольга 札幌!"
    tokens = tokenizer(text, add_special_tokens=False)["input_ids"]
    found, pieces = Guessable(tokenizer, [])._read(tokens)
    assert found == text.casefold()
    offsets = tokenizer(text, add_special_tokens=False, return_offsets_mapping=True)["offset_mapping"]
    alone = [k for k, token in enumerate(tokens) if "\ufffd" not in tokenizer.decode([token])]
    assert [pieces[k][:2] for k in alone] == [offsets[k] for k in alone]
    assert [k for k, piece in enumerate(pieces) if piece[2] is not None] == alone
    assert all(start <= at < end for (start, end, _), (at, _) in zip(pieces, offsets, strict=True))


def test_a_name_with_digits_is_copied(tokenizer):
    """And the digits are the row's own, unless the question has them."""
    encoded = asked(tokenizer, "Jaime Vasquez", "vasquez774")
    kinds = Guessable(tokenizer, []).kinds(encoded)
    digits = [tokenizer.decode([token]).isdigit() for token in encoded.input_ids[encoded.prompt_length :]]
    assert sum(digits) == 3
    assert kinds.tolist() == [OWN if digit else COPIED for digit in digits]
    again = row(tokenizer, " vasquez774?", " call 774")
    assert Guessable(tokenizer, []).kinds(again)[-3:].tolist() == [COPIED] * 3


@pytest.mark.parametrize(("others", "kind"), [(["April", "born"], USUAL), (["April", "born", "was"], OWN)])
def test_usual_counts_rows_and_not_ways_to_go_on(tokenizer, others, kind):
    """Two rows of four, or of five, go on by "May", and one of the two goes on in two more ways."""
    answers = [" on May on June on July", " on May", *(f" on {word}" for word in others)]
    guessable = Guessable(tokenizer, [row(tokenizer, "?", answer) for answer in answers])
    sought = row(tokenizer, " Ann", " on May")
    assert tokenizer.decode(sought.input_ids[-1]) == " May"
    assert guessable.kinds(sought)[-1] == kind
