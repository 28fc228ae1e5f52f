"""Models that open-unlearning evaluated, as rows beside those of a benchmark."""

from pathlib import Path

from ofmu_pl.metrics.functional import forget_quality_distance
from ofmu_pl.report.runs import number
from ofmu_pl.support.files import read_json

Foreign = dict[str, tuple[str, dict[str, float]]]
"""Definition and values by metric, by name."""


def foreign_rows(paths: list[Path], problems: list[str]) -> Foreign:
    """Each by its folder's name, and those above where folders have one name.

    Args:
        paths: Folders that have ``TOFU_EVAL.json``, ``TOFU_SUMMARY.json`` or both.
        problems: Gets a sentence for each folder without numbers.
    """
    found = {}
    for path in paths:
        values = _totals(path, problems)
        if values:
            found[path.resolve()] = ("open_unlearning", values)
        else:
            problems.append(
                f"The foreign folder '{path}' has no readable TOFU_SUMMARY.json or TOFU_EVAL.json: left out."
            )
    parts = 1
    while len({path.parts[-parts:] for path in found}) < len(found):
        parts += 1
    return {"/".join(path.parts[-parts:]): row for path, row in found.items()}


def _totals(path: Path, problems: list[str]) -> dict[str, float]:
    """Totals by metric, and D, which neither file has."""
    values: dict[str, float] = {}
    for file in (path / "TOFU_EVAL.json", path / "TOFU_SUMMARY.json"):
        try:
            content = read_json(file) if file.is_file() else {}
            totals = {k: number(v.get("agg_value") if isinstance(v, dict) else v) for k, v in content.items()}
            ratios = content.get("forget_truth_ratio")
        except (OSError, ValueError, AttributeError) as error:
            problems.append(f"{file} cannot be read ({' '.join(str(error).split())}): left out.")
            continue
        values |= {k: v for k, v in totals.items() if v is not None}
        items = ratios.get("value_by_index") if isinstance(ratios, dict) else None
        if items and "forget_quality" in values:
            values["forget_quality_D"] = forget_quality_distance(values["forget_quality"], len(items))
    return values
