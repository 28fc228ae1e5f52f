"""Models that open-unlearning evaluated, as rows beside those of a benchmark."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ofmu_pl.metrics.functional import forget_quality_distance
from ofmu_pl.report.runs import number
from ofmu_pl.support.files import read_json


def foreign_rows(paths: list[Path], problems: list[str]) -> dict[str, tuple[str, dict[str, float]]]:
    """Rows by their folders' names, and those above them where folders have one name.

    Args:
        paths: Folders that ``foreign_row`` reads.
        problems: Gets a sentence for each folder and file that cannot be read.
    """
    found = {path.resolve(): row for path in paths if (row := foreign_row(path, problems))}
    parts = 1
    while len({path.parts[-parts:] for path in found}) < len(found):
        parts += 1
    return {"/".join(path.parts[-parts:]): row for path, row in found.items()}


def foreign_row(path: Path, problems: list[str]) -> tuple[str, dict[str, float]] | None:
    """A row: totals of ``TOFU_EVAL.json`` and ``TOFU_SUMMARY.json``, and D, which neither has.

    Args:
        path: Folder that has one of these files, or both.
        problems: Gets a sentence for each file that cannot be read.

    Returns:
        Whose numbers they are, and the values by metric; ``None`` if there are none.
    """
    values: dict[str, float] = {}
    for name in ("TOFU_EVAL.json", "TOFU_SUMMARY.json"):
        content = _json(path / name, problems) if (path / name).is_file() else None
        if not isinstance(content, dict):
            continue
        totals = {k: number(v.get("agg_value") if isinstance(v, dict) else v) for k, v in content.items()}
        values |= {k: v for k, v in totals.items() if v is not None}
        ratios = content.get("forget_truth_ratio")
        items = ratios.get("value_by_index") if isinstance(ratios, dict) else None
        if items and "forget_quality" in values:
            values["forget_quality_D"] = forget_quality_distance(values["forget_quality"], len(items))
    if values:
        return "open_unlearning", values
    problems.append(
        f"The foreign folder '{path}' has no readable TOFU_SUMMARY.json or TOFU_EVAL.json of open-unlearning: left out."
    )
    return None


def _json(path: Path, problems: list[str]) -> Any:
    try:
        return read_json(path)
    except (OSError, ValueError) as error:
        problems.append(f"{path} cannot be read ({' '.join(str(error).split())}): left out.")
        return None
