"""What a metric is: as ``results.json`` says, or as older results mean it, which say no more than its name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ofmu_pl.metrics.result import Metric

_OLDER_PERCENT = ("UA", "RA", "TA", "VA", "MIA", "forget_accuracy", "avg_gap", "privleak")
_OLDER_COLUMNS = (
    *(("avg_gap", 1), ("UA", 2), ("RA", 3), ("TA", 4), ("MIA", 5), ("forget_test_AUC", 6)),
    *(("forget_quality", 1), ("forget_quality_D", 2), ("model_utility", 3), ("forget_truth_ratio", 4)),
    *(("forget_Q_A_Prob", 5), ("forget_Q_A_ROUGE", 6), ("retain_Q_A_Prob", 7), ("extraction_strength", 8)),
    *(("mmlu_accuracy", 1), ("forget_doc_Prob", 1), ("forget_doc_extraction_strength", 1), ("retain_doc_Prob", 1)),
)


def declaration(name: str, entry: Mapping[str, Any]) -> Metric:
    """The declaration of a metric.

    Args:
        name: The metric's name.
        entry: What any results hold under this name; others may have written it. Empty: none hold it.

    >>> declaration("speed", {"value": 1.0, "higher_is_better": False, "unit": "nats"}).unit
    'nats'
    >>> declaration("UA", {"value": 1.0, "higher_is_better": True}).unit
    '%'
    """
    upwards = bool(entry.get("higher_is_better", True))
    if "unit" not in entry:
        return Metric(name, upwards, **_older(name))
    kinds = {"unit": str, "group": str, "column": int, "tested_as": str, "family": str}
    known = {field: entry[field] for field, kind in kinds.items() if isinstance(entry.get(field), kind)}
    return Metric(name, upwards, **known)


def _older(name: str) -> dict[str, Any]:
    """What names meant before 0.2.0, when results did not say it. New metrics are declared, not named here."""
    column = dict(_OLDER_COLUMNS).get(name, 1 if name.endswith("_efficacy") else None)
    if name.startswith("probe_") and "_forget_" in name:
        known: dict[str, Any] = {"group": "probes", "family": name.partition("_forget_")[0]}
    else:
        known = {"column": column}
    if name.endswith("forget_quality"):
        return known | {"unit": "p-value", "tested_as": f"{name}_D"}
    if name.startswith(_OLDER_PERCENT) and not name.endswith("AUC"):
        return known | {"unit": "%"}
    return known | {"unit": "KS distance" if name.endswith("_D") else "nats" if name.endswith("loss") else "0 to 1"}
