"""Unlearning Depth Score by loops over rows and layers, as the released code computes it."""

import numpy as np
import pytest

from ofmu_pl.metrics.depth import depth_scores, erasure_by_layer, layer_erasure


def by_loops(retrained, unlearned):
    """compute_uds.py of gnueaj/unlearning-depth-score (fc31639)."""
    scores = []
    for control, ours in zip(retrained, unlearned, strict=True):
        above = below = 0.0
        for d1, d2 in zip(control, ours, strict=True):
            if d1 <= 0.05:
                continue
            below += d1
            above += d1 * min(max(d2 / d1, 0.0), 1.0)
        scores.append(above / below if below > 0 else None)
    return scores


def test_scores_are_those_of_the_released_code():
    rng = np.random.default_rng(0)
    retrained, unlearned = rng.normal(0.1, 0.5, (200, 4)), rng.normal(0.1, 0.5, (200, 4))
    got, wanted = depth_scores(retrained, unlearned), by_loops(retrained, unlearned)
    assert [i for i, x in enumerate(wanted) if x is None] == np.flatnonzero(np.isnan(got)).tolist() != []
    assert got[~np.isnan(got)] == pytest.approx([x for x in wanted if x is not None], abs=1e-14)


def test_layers_weigh_as_rows_do():
    rng = np.random.default_rng(1)
    retrained, unlearned = rng.uniform(0, 1, (30, 3)), rng.uniform(0, 1, (30, 3))
    assert erasure_by_layer(retrained, unlearned) == pytest.approx(by_loops(retrained.T, unlearned.T), abs=1e-14)
    assert np.isnan(layer_erasure(retrained / 100, unlearned)).all()
    assert np.isnan(erasure_by_layer(retrained / 100, unlearned)).all()


def test_ends():
    retrained = np.array([[0.2, 1.0]])
    assert depth_scores(retrained, np.zeros((1, 2))).tolist() == [0]
    assert depth_scores(retrained, retrained).tolist() == [1]
    assert depth_scores(retrained, np.full((1, 2), np.inf)).tolist() == [1]
    assert depth_scores(retrained, -retrained).tolist() == [0]
