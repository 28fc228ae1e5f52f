r"""Three models on the same rows: is the unlearned one nearer to the retrained one than the target is, and near enough?

A distance of zero cannot be asked for: two retrained models differ, too. With the scores u, t, r, s of the unlearned
model, the target and two retrained models, row by row,

    nearer    1 - mean |u - r| / mean |t - r|     the share of the target's distance that is gone
    beyond    mean |u - r| - mean |s - r| > 0     it is still further away than retraining's own noise
    apart     mean s - r is not 0                 retrained models differ as wholes, not by rows alone

**Nearer.** A run moves the whole model, so any step is the same sign in most rows, and that the distance changed at all
says nothing: noise of 3 % on a target's weights does that. So the share is judged by its size. A model is called nearer
where the whole interval over rows lies above ``SMALLEST``, and above mean |s - r| / mean |t - r|, which is what two
retrained models differ by, where there is a second one. (docs/results/statistics.md has its null over models.)

**Beyond** is tested by flips of rows' signs: if u and s had one distribution, exchanging them in a row would change a
sign alone. Of ten retrained models of the Authors corpus (32 rows) it was below .05 in .050 of all 720 triples.
Where whole models differ in their mean loss, half-trained (.32) or on rows that they were trained on (.34), it rejects
too often, for one second model does not tell how much; so retain rows have no p.

**Apart** is a t-test over rows, which tells of such models: it was below .05 in .04 and .93 of the same pairs.
"""

import math
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from ofmu_pl.metrics.bootstrap import LEVEL, difference, interval
from ofmu_pl.metrics.result import Metric, MetricResult, by_name
from ofmu_pl.support.sets import forgets, is_document

FLIPS = 2000  # random patterns of signs
SMALLEST = 0.05
"""Smallest share of the way that counts: targets of another seed, trained to the end, give .003 at most."""
DISTANCE = Metric("forget_distance", higher_is_better=False, unit="nats", group="nearness")
NEARER = Metric("forget_nearer", higher_is_better=True, unit="score", group="nearness")
BEYOND = Metric("forget_beyond", True, unit="p-value", group="nearness", tested_as="forget_distance")
APART = Metric("forget_apart", True, unit="p-value", group="nearness", tested_as="forget_distance")
ROWS = ("forget", "retain", "forget_doc", "retain_doc")  # evaluation sets that models are compared on


def nearness(
    unlearned: np.ndarray,
    retrained: np.ndarray,
    target: np.ndarray | None = None,
    second: np.ndarray | None = None,
    rows: str = "forget",
    definition: str = "exact",
) -> dict[str, MetricResult]:
    """Mean distance to the retrained model, its goal the second one's; of rows to be forgotten what is said above.

    Args:
        unlearned: (N,) losses of rows, in nats.
        retrained: (N,) of the same rows, of a model that never saw what was to be forgotten.
        target: (N,) of the model that had to forget; ``None``: ``nearer`` is left out.
        second: (N,) of a second retrained model, with another seed; ``None``: ``beyond`` and ``apart`` are left out.
        rows: Name of the evaluation set, with which the metrics' names begin.
        definition: Name of the definition.

    >>> rng = np.random.default_rng(0)
    >>> hard = rng.normal(size=40)
    >>> u, r, s = (hard + rng.normal(0, 0.1, 40) for _ in range(3))
    >>> found = nearness(u, r, hard - 3, s)
    >>> round(found["forget_nearer"].value, 2), is_nearer(found["forget_nearer"]), found["forget_beyond"].value > 0.05
    (0.96, True, True)
    """
    ours, n = np.abs(unlearned - retrained), len(retrained)
    noise = None if second is None else np.abs(second - retrained)
    goal = None if noise is None else float(noise.mean())
    distance, nearer, beyond, apart = (metric.of(rows, "forget") for metric in (DISTANCE, NEARER, BEYOND, APART))
    results = [distance.result(float(ours.mean()), n, goal, definition, interval([ours]), (ours,))]
    if target is not None and forgets(rows) and (target != retrained).any():
        way = np.abs(target - retrained)
        whole, left = float(way.mean()), float(ours.mean() / way.mean())
        ends = interval([1 - left - (ours - left * way) / whole])  # to first order
        results.append(nearer.result(1 - left, n, None if goal is None else 1 - goal / whole, definition, ends))
    if second is not None and noise is not None and forgets(rows):
        results.append(beyond.result(_p_above(ours - noise), n, definition=definition))
        results.append(apart.result(difference([second - retrained])[0], n, definition=definition))
    return by_name(*results)


def is_nearer(share: MetricResult) -> bool | None:
    """Whether a share of the way says that a model is nearer; ``None``: so few rows, or no interval, cannot tell."""
    if share.interval is None or not math.isfinite(share.interval[0]) or 2.0**-share.n > LEVEL:
        return None
    return share.interval[0] > smallest(share)


def smallest(share: MetricResult) -> float:
    """The smallest share of the way that counts: at least what is left of it by a second retrained model."""
    return SMALLEST if share.target is None else max(SMALLEST, 1 - share.target)


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
        told = [*_nearer_in_words(after.get(f"{name}_nearer")), *_beyond_in_words(after.get(f"{name}_beyond"))]
        if beside:
            far = f"{distance.value:.2g} nats from the retrained model's ({', '.join(beside)}){': ' if told else ''}"
            rows = f"{'forgotten' if forgets(name) else 'retained'} {'texts' if is_document(name) else 'rows'}"
            yield f"On {rows}, losses are {far}{', '.join(told)}."
        p = after.get(f"{name}_apart")
        if p is not None and p.value < LEVEL:
            yield (
                f"There the two retrained models differ by more than rows explain (p = {p.value:.2g}): they may not be "
                "trained to the end, and a verdict that goes little beyond them is not to be trusted."
            )


def _nearer_in_words(share: MetricResult | None) -> Iterator[str]:
    if share is None or math.isnan(share.value):
        return
    near, (low, high) = is_nearer(share), share.interval or (math.nan, math.nan)
    if near is None:
        yield "whether nearer than before could not be decided"
    elif near:
        yield f"nearer than before, as {share.value:.0%} of the way is gone ({low:.0%} to {high:.0%})"
    else:
        counts = f"what counts is more than {smallest(share):.0%}"
        yield f"not shown to be nearer than before ({low:z.0%} to {high:z.0%} of the way is gone; {counts})"


def _beyond_in_words(p: MetricResult | None) -> Iterator[str]:
    if p is None or math.isnan(p.value):
        return
    if 2.0**-p.n > LEVEL:  # the least p that there is
        yield "whether further than a second retrained model could not be decided with so few rows"
    else:
        than = "further than" if p.value < LEVEL else "as near as"
        yield f"{than} a second retrained model (p = {p.value:.2g})"


def of_older(metrics: Mapping[str, Any], before: Mapping[str, Any]) -> dict[str, Any]:
    """Entries of ``results.json`` with the share of the way where results before version 22 have a p-value."""
    found = dict(metrics)
    for name in ROWS:
        nearer, distance = (metrics.get(f"{name}_{what}") or {} for what in ("nearer", "distance"))
        if nearer.get("unit") != "p-value":
            continue
        way = (before.get(f"{name}_distance") or {}).get("value")
        del found[f"{name}_nearer"]
        if way and distance.get("value") is not None:
            goal = None if distance.get("target") is None else 1 - distance["target"] / way
            share = NEARER.of(name, "forget").result(1 - distance["value"] / way, nearer.get("n", 0), goal)
            found[f"{name}_nearer"] = share.as_dict()
    return found
