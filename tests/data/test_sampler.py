"""Batches as a pure function of (seed, stream, number)."""

import numpy as np
import pytest

from ofmu_pl.data.sampler import EpochFrom, batch_indices


@pytest.mark.parametrize(("n", "size"), [(10, 4), (10, 5), (7, 3), (3, 8)])
def test_every_sweep_holds_each_item_once(n, size):
    stream = np.concatenate([batch_indices(n, size, 0, "forget", j) for j in range(60)])
    for sweep in range(len(stream) // n):
        assert sorted(stream[sweep * n : (sweep + 1) * n]) == list(range(n))


def test_sweeps_seeds_and_streams_differ():
    first = batch_indices(50, 50, 0, "forget", 0)
    for other in [(0, "forget", 1), (1, "forget", 0), (0, "retain", 0)]:
        assert not np.array_equal(first, batch_indices(50, 50, *other))
    assert np.array_equal(first, batch_indices(50, 50, 0, "forget", 0))


def test_batches_are_the_same_in_every_process():
    """Hash randomisation or a global generator would break resumed runs: these were printed by another process."""
    assert batch_indices(9, 4, 3, "retain", 5).tolist() == [6, 5, 3, 4]


@pytest.mark.parametrize(("start", "expected"), [(0, [0, 1, 2]), (4, [4, 5]), (6, [6, 7, 8])])
def test_epoch_goes_on_from_the_present_iteration(start, expected):
    sampler = EpochFrom(3, lambda: range(start, (start // 3 + 1) * 3))
    assert list(sampler) == expected
    assert len(sampler) == 3
