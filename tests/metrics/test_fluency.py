"""Repetition and entropy of texts against closed forms."""

import math

import pytest

from ofmu_pl.metrics.fluency import ngram_entropy, repetition


@pytest.mark.parametrize(
    ("text", "share"),
    [("", 0), ("a b", 0), ("a b c", 0), ("a " * 10, 7 / 8), ("a b c a b c", 1 / 4), ("他他他他", 1 / 2)],
)
def test_repetition(text, share):
    assert repetition(text) == pytest.approx(share)


@pytest.mark.parametrize("n", [1, 2, 3, 10])
def test_entropy_of_different_words_is_that_of_even_chances(n):
    text = " ".join(map(str, range(n)))
    bits = [math.log2(max(1, n - k)) for k in (1, 2)]
    assert ngram_entropy(text) == pytest.approx(bits[0] / 3 + bits[1] * 2 / 3)
    assert ngram_entropy("no " * n) == 0
