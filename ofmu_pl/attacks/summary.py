"""From findings on three models to the figures of one attack."""

import math
from collections import defaultdict
from collections.abc import Sequence
from datetime import UTC, datetime
from itertools import chain

import numpy as np

from ofmu_pl.attacks.base import Attack, Finding, Findings, mean_curve
from ofmu_pl.metrics.bootstrap import LEVEL, difference, interval
from ofmu_pl.metrics.result import Metric
from ofmu_pl.metrics.verdicts import verdict_of
from ofmu_pl.support.records.models import CONTROLS, HELD_OUT, RETRAINED, TARGET, UNLEARNED
from ofmu_pl.support.records.reading import Entries
from ofmu_pl.support.records.results import AttackRecord


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
    returns = _returns(attack.metrics[0], found) if attack.brings_back else {}
    record = AttackRecord(
        settings={"class": type(attack).__name__, **attack.settings},
        seeds=seeds,
        x_label=attack.x_label,
        y_label=attack.y_label,
        found=attack.metrics[0].name,
        metrics=metrics,
        x=places,
        curves={model: list(map(curve.get, places)) for model, curve in curves.items()},
        returns=returns and returns | _untouched(attack, found),
        gradients=gradients,
        seconds=seconds,
        broken=broken,
        tests=attack.tests,
        zero_control=attack.zero_control,
        date=datetime.now(UTC).strftime("%d %B %Y").lstrip("0"),
    )
    record.verdict = verdict_of(record)
    return record


def _untouched(attack: Attack, found: Findings) -> dict[str, float]:
    """The share that the model shows where the attack has done nothing to it yet, by the name ``untouched``.

    It is ``returns`` of what ``Attack.untouched`` gives; empty where that is not known or the target shows no more.
    """
    control = next((model for model in CONTROLS if model in found), TARGET)
    means = []
    for model in (UNLEARNED, control, TARGET):
        known = [x for f in found[model] if (x := attack.untouched(f)) is not None]
        means.append(float(np.mean(known)) if known else math.nan)
    ours, theirs, whole = means
    share = (ours - theirs) / (whole - theirs) if whole - theirs > 1e-6 else math.nan
    return {"untouched": share} if math.isfinite(share) else {}


def _metrics(attack: Attack, findings: Sequence[Finding]) -> Entries:
    """One model's metrics, means over seeds; intervals over rows where there are rows."""
    entries = {}
    for metric in attack.metrics:
        values = [f.figures[metric.name] for f in findings if metric.name in f.figures]
        if values:
            rows = _rows(metric.name, findings)
            ends = None if rows is None else interval([rows], bounded=metric.unit == "0 to 1")
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


def _returns(metric: Metric, found: Findings) -> dict[str, object]:
    """``returns`` of the module ``base``, with an interval over rows, of all three models together.

    There is none where the attack finds no more on the target than on the control, and no interval where that may be
    chance.
    """
    name, sign = metric.name, -1 if metric.higher_is_better else 1
    control = RETRAINED if RETRAINED in found else HELD_OUT
    models = (UNLEARNED, control, TARGET)
    if not found.keys() >= {*models} or (control == HELD_OUT and found[control][0].x != found[UNLEARNED][0].x):
        return {}  # the best of more ways to ask would be more by itself
    means, known = [], []
    for model in models:
        means.append(float(np.mean([f.figures[name] for f in found[model]])))
        rows = _rows(name, found[model])
        known += [] if rows is None else [rows]
    ours, theirs, whole = means
    if not math.isfinite(ours + theirs + whole) or sign * (whole - theirs) < 1e-6:
        return {}
    result: dict[str, object] = {"value": (ours - theirs) / (whole - theirs)}
    if len(known) < len(models) or len(known[0]) != len(known[2]):
        return result
    u, c, w = known
    way_there = [w - c] if control == RETRAINED and len(c) == len(w) else [w, -c]
    if difference(way_there)[0] > LEVEL:
        return result
    if control == HELD_OUT:  # other rows, which vary by themselves
        way = w.mean() - c.mean()
        share = (u.mean() - c.mean()) / way
        result["interval"] = interval([share + (u - share * w) / way, (share - 1) * c / way])
    elif len(c) == len(u):
        share = (u - c).mean() / (w - c).mean()
        result["interval"] = interval([share + ((u - c) - share * (w - c)) / (w - c).mean()])  # to first order
    return result
