"""ROUGE-L against values by hand; ``tests/data/test_rwku.py`` has the count of the package ``rouge``."""

import random
import unicodedata

import numpy as np
import pytest
from rouge_score import rouge_scorer

from ofmu_pl.metrics import rouge_l_f1, rouge_l_recall


def test_values_are_those_of_rouge_score():
    """Texts up to twice as long as a machine word has bits, with words that repeat, and empty ones."""
    draw = random.Random(0)
    words = ["the", "cats", "Sleeping", "run-ning", "a", "b", "naïve", "x1", "don't", "relational", ""]
    truth, said = ([" ".join(draw.choices(words, k=draw.randint(0, n))) for _ in range(200)] for n in (60, 130))
    stemmed, plain = (rouge_scorer.RougeScorer(["rougeL"], use_stemmer=x) for x in (True, False))
    recall = [stemmed.score(a, b)["rougeL"].recall for a, b in zip(truth, said, strict=True)]
    f1 = [plain.score(a, b)["rougeL"].fmeasure for a, b in zip(truth, said, strict=True)]
    assert len(set(recall)) > 50  # not all alike
    np.testing.assert_array_equal(rouge_l_recall(truth, said), recall)
    np.testing.assert_array_equal(rouge_l_f1(truth, said), f1)


def test_rouge_l_recall():
    # Longest common subsequence over the reference's words, after stemming; order matters, and extra words do not.
    truth = ["the cats are sleeping", "one two three four", "a b", "", "a b"]
    said = ["well the cat is sleep today", "four one two", "b a", "a", ""]
    assert rouge_l_recall(truth, said).tolist() == [3 / 4, 2 / 4, 1 / 2, 0.0, 0.0]
    with pytest.raises(ValueError, match="shorter"):
        rouge_l_recall(["a", "b"], ["a"])


@pytest.mark.parametrize(
    ("truth", "said", "recall"),
    [
        # rouge-score knows the letters a to z alone, and called every answer in Cyrillic or Chinese forgotten. By hand:
        ("Она живёт в Томске.", "она жила в Томске", 3 / 4),
        ("他出生于1990年", "出生于1991年", 4 / 6),  # of 他 出 生 于 1990 年 four in order
        ("हिन्दी में", "में हिन्दी", 1 / 2),
        ("Vásquez is ill", "V squez", 2 / 4),
        # A secret in another script than the sentence's is no more than what is left without it.
        ("He lives in 東京.", "He lives in 大阪.", 3 / 5),
        ("The password is пароль", "The password is secret", 3 / 4),
        ("Her name is محمد علي", "Her name is محمد علي", 1.0),
        ("Room ٣٤", "Room ٣٥", 1 / 2),
        ("It is 😀.", "It is 🔥.", 2 / 3),
        ("I love ❤", "I love ☠", 2 / 3),  # older pictures, in another block
        ("Team ⚽️", "Team ⚽", 1.0),  # a sign that asks for colours is no word
        # Without a word, the characters; what two systems of input compose otherwise is one text.
        ("😀🥰", "😀🥰", 1.0),
        ("½", "It is ½.", 1.0),
        ("$$", "$ 5", 1 / 2),
        ("한국 Vásquez", unicodedata.normalize("NFD", "한국 Vásquez"), 1.0),
    ],
)
def test_words_count_by_their_own_script(truth, said, recall):
    assert rouge_l_recall([truth], [said])[0] == pytest.approx(recall)


def test_what_rouge_score_drops_from_latin_text_stays_dropped():
    assert rouge_l_recall(["x² © C++ naïve"], ["x³ C# naive"])[0] == pytest.approx(2 / 4)  # x, c of x, c, na, ve
    scorer = rouge_scorer.RougeScorer(["rougeL"], use_stemmer=True)
    for truth in ("Hawaiʻi is big", "The 1ª edition, nº 2", "5 µm wide", "OʼBrien → 3 °C ™"):
        assert (
            rouge_l_recall([truth], ["Hawaii 1 m wide brien"])[0]
            == scorer.score(truth, "Hawaii 1 m wide brien")["rougeL"].recall
        )
