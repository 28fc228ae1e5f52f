"""The candidate of a method that did best on validation data, on a seed that is not reported; higher is better."""

import json
import math
from pathlib import Path

from ofmu_pl.benchmark.specs import Options
from ofmu_pl.metrics import harmonic_mean
from ofmu_pl.metrics.vision import TA_ALL
from ofmu_pl.support.files import read_json
from ofmu_pl.support.records.manifest import Value
from ofmu_pl.support.records.results import RESULTS, Results


def chosen(candidates: list[tuple[Options, Path | None]]) -> tuple[Options | None, Options]:
    """The best candidate, the first of equals, and the record of the search.

    Of each there are options and the folder ``version_N`` of its run, ``None`` if it failed. The record has ``choice``,
    and ``scores`` under the values of the options, ``null`` of one that failed.
    """
    best, most = None, -math.inf
    by_value = len({tuple(options) for options, _ in candidates}) == 1 and len(candidates[0][0]) == 1
    scores: dict[str, float | None] = {}
    for options, folder in candidates:
        score = math.nan if folder is None else validation_score(folder)
        value = _value(options, by_value)
        scores[value if isinstance(value, str) else json.dumps(value)] = score if math.isfinite(score) else None
        if math.isfinite(score) and score > most:
            best, most = options, score
    return best, {"choice": None if best is None else _value(best, by_value), "scores": scores}


def _value(options: Options, by_value: bool) -> Value:
    """What a candidate is known by: the value of the only option that any of them sets, or all its options."""
    return next(iter(options.values())) if by_value else options


def validation_score(run: Path) -> float:
    """How well a run forgot and kept, as far as its validation data tell.

    Of text the harmonic mean of ``1 - p(forget)`` and ``p(retain)``, mean probabilities a token of rows' answers; a
    side that is NaN (``null`` in JSON) makes it the worst, 0.

    Of images how far the run is from what retraining would do: ``-mean(|FA - goal|, |RA - RA_before|, |VA -
    VA_before|)``. A class that was never seen is never guessed (goal 0), an image that was never seen is as hard as a
    validation image (goal VA_before).

    Args:
        run: Its folder ``version_N``: of text with ``validation.json``, of images with ``results.json``.
    """
    if (run / "validation.json").is_file():
        means = read_json(run / "validation.json")
        known = means["forget"] is not None and means["retain"] is not None
        return harmonic_mean([1 - means["forget"], means["retain"]]) if known else 0.0
    results = Results.read(run / RESULTS)
    after = {name: entry["value"] for name, entry in results.metrics.items()}
    before = {name: entry["value"] for name, entry in results.before.items()}
    goal = 0.0 if TA_ALL.name in after else before["VA"]  # classes are forgotten, or else single images
    parts = [abs(after["forget_accuracy"] - goal), abs(after["RA"] - before["RA"]), abs(after["VA"] - before["VA"])]
    return -float(sum(parts) / len(parts))
