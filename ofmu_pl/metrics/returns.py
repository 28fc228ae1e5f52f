"""What the share that is recovered says: whether an attack found more than where the forgotten rows were never seen."""

import math

from ofmu_pl.metrics.verdicts import beyond
from ofmu_pl.support.records.models import CONTROLS, SECOND, TARGET, UNLEARNED
from ofmu_pl.support.records.results import AttackRecord


def verdict_of(a: AttackRecord) -> str:
    """What a record says; of an older one, which has no verdict, what it would have said.

    ``more`` is left where the whole interval of the share lies above 0, and where there is a second retrained model
    above what is recovered of it (``verdicts.beyond``); ``less`` where it lies as far below; else it is ``no``
    difference.

    An attack cannot tell where there is ``no control`` or ``no target``; where there is ``no way`` between the two, as
    it finds no more on the target or broke one of them; where the control is 0 by construction (``zero control``);
    where chance is not known (``no interval``); where the interval holds ``all or nothing``; or where the unlearned
    model is ``broken``. The first of these that holds is the verdict.

    >>> found = {model: {"p": {"value": x}} for model, x in [("unlearned", 0.3), ("retrained", 0.1), ("target", 0.9)]}
    >>> verdict_of(AttackRecord({}, [0], "", "", "p", found, returns={"value": 0.25, "interval": [0.1, 0.4]}))
    'more'
    """
    return a.verdict or _judged(a)


def _judged(a: AttackRecord) -> str:
    found = {model: entries.get(a.found, {}) for model, entries in a.metrics.items()}
    values = {model: _number(entry.get("value")) for model, entry in found.items()}
    low, high = map(_number, a.returns.get("interval") or (None, None))
    control = next((model for model in CONTROLS if model in values), "")
    theirs, sign = values.get(control, math.nan), 1 if found[UNLEARNED].get("higher_is_better") else -1
    way = sign * (theirs - values.get(TARGET, math.nan))
    reasons = {
        "no control": not control,
        "no target": TARGET not in values,
        "no way": not way > 0 or a.broken.keys() - {UNLEARNED},
        "zero control": a.zero_control,
        "no interval": math.isnan(low + high),
        "all or nothing": low <= 0 and high >= 1,
        "broken": low <= 0 and UNLEARNED in a.broken,
    }
    for reason, holds in reasons.items():
        if holds:
            return reason
    apart = abs(values[SECOND] - theirs) / way if SECOND in values else 0.0  # of two that hold nothing
    return "more" if beyond(low, apart) > 0 else "less" if beyond(high, apart) < 0 else "no"


def _number(x: float | None) -> float:
    """A number as a file has it, with null where it is not finite."""
    return math.nan if x is None else x
