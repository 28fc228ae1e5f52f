"""What settings are chosen by: numbers that no table reports."""

from __future__ import annotations

from typing import Any


def validation_gap(results: dict[str, Any]) -> float:
    """How far a run on images is from what retraining would do, as far as that is known without it; lower is better.

    ``mean(|FA - goal|, |RA - RA_before|, |VA - VA_before|)``: a class that was never seen is never guessed (goal 0), an
    image that was never seen is as hard as a validation image (goal VA_before).

    Args:
        results: ``results.json`` of the run.
    """
    after, before = ({k: m["value"] for k, m in results[side].items()} for side in ("metrics", "before"))
    goal = 0.0 if "TA_forgotten" in after else before["VA"]
    parts = [abs(after["forget_accuracy"] - goal), abs(after["RA"] - before["RA"]), abs(after["VA"] - before["VA"])]
    return sum(parts) / len(parts)
