"""Held-out relearning: shown and asked authors are others, the target knows, the retrained model guesses."""

from dataclasses import replace

import numpy as np
import pytest

from ofmu_pl import RTT, Authors
from ofmu_pl.attacks.base import Finding
from ofmu_pl.attacks.choices import choices_of, chosen
from ofmu_pl.attacks.summary import summary
from ofmu_pl.attacks.tuning import sides
from ofmu_pl.data import TOFU
from ofmu_pl.metrics.bootstrap import interval
from ofmu_pl.support.errors import UserError

SHORT = {"steps": 4, "every": 2, "rates": [1e-4]}


def test_no_author_is_on_both_sides():
    data = Authors(authors=6, forget_authors=5, forget_seed=3, batch_size=4)
    data.setup()
    assert (Authors.rows_per_author, TOFU.rows_per_author) == (8, 20)
    drawn = set()
    for seed in range(6):
        shown, asked = sides(len(data.splits["forget"]), 0.5, seed, Authors.rows_per_author)
        assert sorted([*shown, *asked]) == list(range(40))
        assert not {i // 8 for i in shown} & {i // 8 for i in asked}
        assert len(shown) == 16
        drawn.add(tuple(sorted({i // 8 for i in shown})))
    assert len(drawn) > 2


@pytest.mark.parametrize(
    ("n", "share", "together", "sizes"),
    [(10, 0.25, 1, {2}), (3, 0.9, 1, {2}), (8, 0.5, 8, {4}), (7, 0.5, 3, {4, 6})],  # one author alone: rows
)
def test_both_sides_have_rows(n, share, together, sizes):
    left, right = sides(n, share, 0, together)
    assert sorted([*left, *right]) == list(range(n))
    assert right == sorted(right) != []
    assert len(left) in sizes


def test_the_target_knows_and_the_retrained_model_guesses(subjects):
    found = {name: [RTT(**SHORT).run(s, seed) for seed in range(3)] for name, s in subjects.items()}
    right = {name: np.mean([f.figures["rtt_accuracy"] for f in fs]) for name, fs in found.items()}
    assert right["target"] == right["unlearned"] == 1
    assert right["retrained"] < 0.75  # a quarter by chance, of four rows each, at the best of three looks
    one = found["target"][0]
    assert one.x == [0, 2, 4]
    assert len(one.rows["rtt_accuracy"]) == len(one.ids) == 4


def test_rows_that_several_seeds_asked_for_count_once():
    """Row 1's mean is that of both seeds; by places row 0 and row 1 were one row, and three rows counted as two."""
    attack = RTT()
    (metric,) = attack.metrics
    found = {
        "unlearned": [
            Finding.of_rows(metric, [0.0, 1.0], ids=[0, 1]),
            Finding.of_rows(metric, [0.0, 1.0], ids=[1, 2]),
        ]
    }
    entry = summary(attack, found, [0, 1]).metrics["unlearned"][metric.name]
    assert (entry["value"], entry["n"]) == (0.5, 3)
    assert entry["interval"] == pytest.approx(interval([np.array([0.0, 0.5, 1.0])], bounded=True))


def test_what_is_asked_is_not_what_is_shown(subjects, monkeypatch):
    """Every batch is of shown rows, and step 0 is the choice of the model as it is."""
    subject, seen = subjects["retrained"], set()
    shown, asked = sides(8, 0.5, 1)
    collate = type(subject.data).collate

    def noting(self, stream, index, number):
        seen.update(index)
        return collate(self, stream, index, number)

    monkeypatch.setattr(type(subject.data), "collate", noting)
    found = RTT(steps=6, every=6, rates=[1e-3]).run(subject, 1)
    assert seen == set(shown)
    rows = [subject.data.evaluation_sets["forget"][i] for i in asked]
    own = chosen(subject, subject.build(), choices_of(subject.data, rows, "rtt"))
    assert found.y[0] == own.mean()


def test_what_cannot_be_is_one_sentence(subjects):
    subject = subjects["target"]
    with pytest.raises(UserError, match="Relearn"):
        sides(1, 0.5, 0)

    class Other:
        name, splits, evaluation_sets = "other", subject.data.splits, {}

    with pytest.raises(UserError, match="'other'.*'rtt'"):
        RTT().run(replace(subject, data=Other()), 0)
