"""ROUGE-L against values by hand; ``tests/data/test_rwku.py`` has the count of the package ``rouge``."""

import pytest

from ofmu_pl.metrics import rouge_l_recall


def test_rouge_l_recall():
    # Longest common subsequence over the reference's words, after stemming; order matters, and extra words do not.
    truth = ["the cats are sleeping", "one two three four", "a b", "", "a b"]
    said = ["well the cat is sleep today", "four one two", "b a", "a", ""]
    assert rouge_l_recall(truth, said).tolist() == [3 / 4, 2 / 4, 1 / 2, 0.0, 0.0]
    with pytest.raises(ValueError, match="shorter"):
        rouge_l_recall(["a", "b"], ["a"])


def test_rouge_l_recall_of_other_scripts():
    """rouge-score knows the letters a to z alone, and called every answer in Cyrillic or Chinese forgotten."""
    truth = ["Она живёт в Томске.", "他出生于1990年", "हिन्दी में", "Vásquez is ill"]
    said = ["она жила в Томске", "出生于1991年", "में हिन्दी", "V squez"]
    # By hand: 3 of 4 words; of 他 出 生 于 1990 年 four in order; 1 of 2 words; and as before "v squez" of four.
    assert rouge_l_recall(truth, said).tolist() == [3 / 4, 4 / 6, 1 / 2, 2 / 4]
