"""The candidate of a method that did best on validation data."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

from ofmu_pl.benchmark.criteria import validation_score


def chosen(candidates: list[tuple[dict[str, Any], Path | None]]) -> tuple[dict[str, Any] | None, dict[str, Any]]:
    """The best candidate, the first of equals, and the record of the search.

    Args:
        candidates: Options of each, and the folder ``version_N`` of its run, ``None`` if it failed.

    Returns:
        The best candidate's options, ``None`` if all failed; and for the manifest ``choice`` and ``scores`` (``null``
        of one that
        failed) under the values of the options.
    """
    scores = [None if folder is None else _score(folder) for _, folder in candidates]
    record: dict[str, Any] = {
        "choice": None,
        "scores": {_text(options): score for (options, _), score in zip(candidates, scores, strict=True)},
    }
    found = [i for i, score in enumerate(scores) if score is not None]
    if not found:
        return None, record
    best = max(found, key=lambda i: scores[i] or 0.0)
    options = candidates[best][0]
    record["choice"] = _value(options)
    return options, record


def _score(run: Path) -> float | None:
    score = validation_score(run)
    return score if math.isfinite(score) else None


def _value(options: dict[str, Any]) -> Any:
    """What a candidate is known by: the value of its only option, or all."""
    return next(iter(options.values())) if len(options) == 1 else options


def _text(options: dict[str, Any]) -> str:
    value = _value(options)
    return value if isinstance(value, str) else json.dumps(value)
