r"""Three models on the same rows: is the unlearned one nearer to the retrained one than the target is, and near enough?

A distance of zero cannot be asked for: two retrained models differ, too. With the scores u, t, r, s of the unlearned
model, the target and two retrained models, row by row, two differences of distances are tested,

    nearer    mean |t - r| - |u - r| > 0         the run has moved the model towards the retrained one
    beyond    mean |u - r| - |s - r| > 0         and it is still further away than retraining's own noise

If u and t (u and s) had the same distribution, exchanging them in a row would change a sign alone, so signs are flipped
at random. Of ten retrained models of the Authors corpus (32 rows) ``beyond`` was below .05 in .050 of all 720 triples.
Where whole models differ in their mean loss, half-trained (.32) or on rows that they were trained on (.34), it rejects
too often, for one second model does not tell how much; so retain rows have no p.
"""

import math
from collections.abc import Iterator, Mapping

import numpy as np

from ofmu_pl.metrics.bootstrap import LEVEL, interval
from ofmu_pl.metrics.result import Metric, MetricResult, by_name
from ofmu_pl.support.sets import forgets, is_document

FLIPS = 2000  # random patterns of signs
DISTANCE = Metric("forget_distance", higher_is_better=False, unit="nats", group="nearness")
NEARER = Metric("forget_nearer", False, unit="p-value", group="nearness", tested_as="forget_distance")
BEYOND = Metric("forget_beyond", True, unit="p-value", group="nearness", tested_as="forget_distance")
ROWS = ("forget", "retain", "forget_doc", "retain_doc")  # evaluation sets that models are compared on
WORDS = {
    "nearer": ("nearer than before", "not shown to be nearer than before"),
    "beyond": ("further than a second retrained model", "as near as a second retrained model"),
}
"""What the tests say: that there is a difference, and that none was found."""


def nearness(
    unlearned: np.ndarray,
    retrained: np.ndarray,
    target: np.ndarray | None = None,
    second: np.ndarray | None = None,
    rows: str = "forget",
    definition: str = "exact",
) -> dict[str, MetricResult]:
    """Mean distance to the retrained model, its goal the second one's, and of rows to be forgotten p of both tests.

    Args:
        unlearned: (N,) losses of rows, in nats.
        retrained: (N,) of the same rows, of a model that never saw what was to be forgotten.
        target: (N,) of the model that had to forget; ``None``: p of ``nearer`` is left out.
        second: (N,) of a second retrained model, with another seed; ``None``: p of ``beyond`` is left out.
        rows: Name of the evaluation set, with which the metrics' names begin.
        definition: Name of the definition.

    >>> rng = np.random.default_rng(0)
    >>> hard = rng.normal(size=40)
    >>> u, r, s = (hard + rng.normal(0, 0.1, 40) for _ in range(3))
    >>> found = nearness(u, r, hard - 3, s)
    >>> found["forget_nearer"].value < 0.001, found["forget_beyond"].value > 0.05
    (True, True)
    """
    ours, n = np.abs(unlearned - retrained), len(retrained)
    noise = None if second is None else np.abs(second - retrained)
    goal = None if noise is None else float(noise.mean())
    distance, nearer, beyond = (metric.of(rows, "forget") for metric in (DISTANCE, NEARER, BEYOND))
    results = [distance.result(float(ours.mean()), n, goal, definition, interval([ours]), (ours,))]
    if target is not None and forgets(rows):
        results.append(nearer.result(_p_above(np.abs(target - retrained) - ours), n, definition=definition))
    if noise is not None and forgets(rows):
        results.append(beyond.result(_p_above(ours - noise), n, definition=definition))
    return by_name(*results)


def _p_above(differences: np.ndarray) -> float:
    """One-sided p of a sum of differences under flips of their signs, the pattern that is there among them."""
    if not np.isfinite(differences).all():
        return math.nan
    rng, sums = np.random.default_rng(0), []
    for _ in range(20):  # in parts, for there may be many rows
        sums.append(rng.choice([-1.0, 1.0], size=(FLIPS // 20, len(differences))) @ differences)
    below = np.concatenate(sums) < differences.sum() - 1e-12 * np.abs(differences).sum()
    return float((1 + (~below).sum()) / (1 + FLIPS))


def in_words(after: Mapping[str, MetricResult], before: Mapping[str, MetricResult]) -> Iterator[str]:
    """Say how near a model is, a sentence for each set of rows."""
    for name in ROWS:
        distance, was = after.get(f"{name}_distance"), before.get(f"{name}_distance")
        if distance is None:
            continue
        beside = [] if was is None else [f"before {was.value:.2g}"]
        beside += [] if distance.target is None else [f"a second retrained model {distance.target:.2g}"]
        told = []
        for test, (shown, not_shown) in WORDS.items():
            result = after.get(f"{name}_{test}")
            if result is None or math.isnan(result.value):
                continue
            if 2.0**-result.n > LEVEL:  # the least p that there is
                told.append(f"whether {shown} could not be decided with so few rows")
            else:
                told.append(f"{shown if result.value < LEVEL else not_shown} (p = {result.value:.2g})")
        if beside:
            far = f"{distance.value:.2g} nats from the retrained model's ({', '.join(beside)}){': ' if told else ''}"
            rows = f"{'forgotten' if forgets(name) else 'retained'} {'texts' if is_document(name) else 'rows'}"
            yield f"On {rows}, losses are {far}{', '.join(told)}."
