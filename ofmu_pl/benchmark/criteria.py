"""What settings are chosen by: numbers of validation data, on a seed that is not reported; higher is better."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ofmu_pl.metrics import harmonic_mean
from ofmu_pl.support.files import read_json
from ofmu_pl.support.records import RESULTS, Results


def validation_score(run: Path) -> float:
    """How well a run forgot and kept, as far as its validation data tell.

    Args:
        run: Its folder ``version_N``: of text with ``validation.json``, of images with ``results.json``.

    Returns:
        Of text ``validation_balance``, of images minus ``validation_gap``.

    Raises:
        OSError: A file is missing.
        UserError: ``results.json`` is not ours, or of a newer version.
    """
    rows = run / "validation.json"
    return validation_balance(read_json(rows)) if rows.is_file() else -validation_gap(Results.read(run / RESULTS))


def validation_balance(means: dict[str, Any]) -> float:
    """``harmonic mean of 1 - p(forget) and p(retain)``, mean probabilities a token of rows' answers.

    Args:
        means: ``forget`` and ``retain``; a row that is NaN (``null`` in JSON) makes the score the worst, 0.
    """
    values = [means["forget"], means["retain"]]
    if any(value is None for value in values):
        return 0.0
    return harmonic_mean([1 - values[0], values[1]])


def validation_gap(results: Results) -> float:
    """How far a run on images is from what retraining would do, as far as that is known without it; lower is better.

    ``mean(|FA - goal|, |RA - RA_before|, |VA - VA_before|)``: a class that was never seen is never guessed (goal 0), an
    image that was never seen is as hard as a validation image (goal VA_before).

    Args:
        results: ``results.json`` of the run.
    """
    after, before = ({k: m["value"] for k, m in side.items()} for side in (results.metrics, results.before))
    goal = 0.0 if "TA_forgotten" in after else before["VA"]
    parts = [abs(after["forget_accuracy"] - goal), abs(after["RA"] - before["RA"]), abs(after["VA"] - before["VA"])]
    return float(sum(parts) / len(parts))
