"""What is known of a reference before it sets goals."""

import numpy as np
import pytest

from ofmu_pl.evaluation.reference import worse_than_chance
from ofmu_pl.metrics import SetScores
from ofmu_pl.metrics.image_scores import ImageScores


@pytest.mark.parametrize("p", [0.4, 0.6])
def test_chance_is_one_of_all_classes_or_tokens(p):
    """Two classes: a model that gives the true one p; the mean decides, on retained rows alone."""
    images = ImageScores(np.arange(3), np.zeros(3, dtype=int), np.log([[p, 1 - p]] * 3))
    text = SetScores(np.arange(3), np.full(3, -np.log(p)))
    for scores in ({"retain": images}, {"retain": text}, {"retain_doc": text}):
        assert worse_than_chance(scores, np.log(2)) == (p < 0.5)
    assert not worse_than_chance({"forget": text, "holdout": text}, np.log(2))
