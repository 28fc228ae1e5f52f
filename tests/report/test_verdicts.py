"""Verdicts of nothing: either error in at most a twentieth of statements, however much they look at."""

from __future__ import annotations

import numpy as np
import pytest

from ofmu_pl.report.verdicts import directions, judged

DRAWS = 150


def compared(rng, better=0.0, others=8, tables=4, seeds=5):
    """Ours less each other method, seed by seed, in each table; all methods vary alike."""
    values = rng.normal(size=(tables, others + 1, seeds))
    values[:, 0] += better
    return [(table[0] - other).tolist() for table in values for other in table[1:]]


def shares(better=0.0, **shape):
    rng = np.random.default_rng(0)
    said = [judged(compared(rng, better, **shape)) for _ in range(DRAWS)]
    return said.count("reproduced") / DRAWS, said.count("contradicted") / DRAWS


@pytest.mark.parametrize("shape", [{"others": 1, "tables": 1}, {"others": 3, "tables": 1}, {}])
def test_methods_that_are_alike_are_called_neither_better_nor_worse(shape):
    reproduced, contradicted = shares(**shape)
    assert reproduced <= 0.06
    assert contradicted <= 0.06


def test_the_rule_can_say_both():
    assert shares(better=12.0, others=2)[0] > 0.9
    assert shares(better=-12.0, others=2)[1] > 0.9
    assert shares(better=4.0, others=1, tables=2)[0] > 0.9, "a statement of few comparisons needs less"


def test_without_the_correction_it_would_be_wrong():
    """So the test above can fail: one of 32 comparisons at 5 % each is below 0 in most draws or many."""
    rng = np.random.default_rng(0)
    lone = [min(directions([d])[0] for d in compared(rng)) < 0 for _ in range(50)]
    assert sum(lone) / 50 > 0.2


def test_seeds_that_do_not_vary_say_what_signs_say():
    assert judged([[0.5] * 5]) == "not decidable"
    assert judged([[0.5] * 6]) == "reproduced"
    assert judged([[0.0] * 6]) == judged([[1.0]]) == judged([]) == "not decidable"
