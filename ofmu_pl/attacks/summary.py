"""From findings on three models to the figures of one attack."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from itertools import chain

import numpy as np

from ofmu_pl.attacks.base import MODELS, RETRAINED, UNLEARNED, Attack, Finding, Findings, mean_curve
from ofmu_pl.metrics.bootstrap import interval
from ofmu_pl.support.records import AttackRecord, Entries


def summary(attack: Attack, found: Findings, seeds: list[int]) -> AttackRecord:
    """The record of an attack."""
    metrics = {model: _metrics(attack, findings) for model, findings in found.items()}
    for name, value in attack.compare(found).items():
        declared = next(m for m in attack.metrics if m.name == name)
        metrics[UNLEARNED][name] = declared.result(value, n=len(seeds)).as_dict()
    for name, entry in metrics[UNLEARNED].items():
        control = metrics.get(RETRAINED, {}).get(name)
        if control is not None:
            entry["target"] = control["value"]
    curves = {model: mean_curve(findings) for model, findings in found.items()}
    places = list(dict.fromkeys(chain.from_iterable(curves.values())))  # in the order of their first appearance
    broken, gradients, seconds = {}, {}, {}
    for model, findings in found.items():
        gradients[model] = sum(f.gradients for f in findings)
        seconds[model] = sum(f.seconds for f in findings)
        why = " ".join(f.broken for f in findings if f.broken)
        if why:
            broken[model] = why
    return AttackRecord(
        settings={"class": type(attack).__name__, **attack.settings},
        seeds=seeds,
        x_label=attack.x_label,
        y_label=attack.y_label,
        found=attack.metrics[0].name,
        metrics=metrics,
        x=places,
        curves={model: list(map(curve.get, places)) for model, curve in curves.items()},
        returns=_returns(attack.metrics[0].name, found) if attack.brings_back else {},
        gradients=gradients,
        seconds=seconds,
        broken=broken,
    )


def _metrics(attack: Attack, findings: Sequence[Finding]) -> Entries:
    """One model's metrics, means over seeds; intervals over rows where there are rows."""
    entries = {}
    for metric in attack.metrics:
        values = [f.figures[metric.name] for f in findings if metric.name in f.figures]
        if values:
            rows = _rows(metric.name, findings)
            ends = None if rows is None else interval([rows])
            n = len(values) if rows is None else len(rows)
            entries[metric.name] = metric.result(float(np.mean(values)), n=n, interval=ends).as_dict()
    return entries


def _rows(name: str, findings: Sequence[Finding]) -> np.ndarray | None:
    """Values of rows: the mean of each row over the seeds that asked for it, in the order of the rows' numbers."""
    values = defaultdict(list)
    for finding in findings:
        if name in finding.rows:
            rows = finding.rows[name]
            for row, value in zip(finding.ids or range(len(rows)), rows, strict=True):
                values[row].append(value)
    return np.array([np.mean(values[row]) for row in sorted(values)]) if values else None


def _returns(name: str, found: Findings) -> dict[str, object]:
    """``returns`` of the module ``base``, with an interval over rows, of all three models together."""
    if not found.keys() >= {*MODELS}:
        return {}
    means, known = [], []
    for model in MODELS:
        means.append(float(np.mean([f.figures[name] for f in found[model]])))
        rows = _rows(name, found[model])
        known += [] if rows is None else [rows]
    ours, control, whole = means
    if not math.isfinite(ours + control + whole) or abs(whole - control) < 1e-6:
        return {}
    result: dict[str, object] = {"value": (ours - control) / (whole - control)}
    if len(known) == len(MODELS) and len(set(map(len, known))) == 1:
        u, c, w = known
        share = (u - c).mean() / (w - c).mean()
        result["interval"] = interval([share + ((u - c) - share * (w - c)) / (w - c).mean()])  # to first order
    return result
