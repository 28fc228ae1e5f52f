"""What results say: how each lies to its goal, whether what must stay has changed, and what an attack brought back.

Each verdict on a result is a test of a mean over rows (``bootstrap.difference``); all tests of a kind are corrected
together (Holm). Those that could not reject after the correction count for nothing in it (Tarone 1990). Rows do not
tell how two retrained models differ as wholes. Where there is a second one, a verdict takes a difference beyond that of
the two (``beyond``).
"""

import math
from collections.abc import Mapping
from dataclasses import replace

from scipy.stats import norm

from ofmu_pl.metrics.bootstrap import LEVEL, difference, holm
from ofmu_pl.metrics.result import Change, MetricResult, Verdict
from ofmu_pl.support.records.models import CONTROLS, SECOND, TARGET, UNLEARNED
from ofmu_pl.support.records.results import AttackRecord

Metrics = Mapping[str, MetricResult]
ONE_RETRAINED = (
    "Verdicts tell differences from chance over rows alone. There was one retrained model to compare with, and another "
    "one, of another seed, may differ from it by as much (of texts evaluation.second_reference takes one)."
)
"""What verdicts beside one retrained model leave out."""


def beyond(difference: float, apart: float) -> float:
    """What of a difference from a retrained model is beyond what a second one differs by; 0 where nothing is.

    It is the rule of the page's tests and of attacks. One second model does not tell how much whole models differ where
    they do (docs/results/statistics.md).

    >>> beyond(-0.5, 0.25), beyond(0.1, 0.25)
    (-0.25, 0.0)
    """
    return math.copysign(max(0.0, abs(difference) - apart), difference)


def with_verdicts(after: Metrics, before: Metrics) -> dict[str, MetricResult]:
    """The same results with their verdicts and changes; what was judged already stays as it is.

    A file keeps no values of rows. So results of one that was written before there were verdicts have their changes by
    intervals, and no verdict on a goal.

    Args:
        after: Results of the model that is judged.
        before: Results of the model before the run; empty: nothing can have changed.

    >>> from ofmu_pl.metrics.result import Metric
    >>> kept = Metric("TA", higher_is_better=True, group="kept")
    >>> now, was = (kept.result(x, 99, interval=(x - 0.1, x + 0.1)) for x in (0.5, 0.8))
    >>> with_verdicts({"TA": now}, {"TA": was})["TA"].change
    'worse'
    """
    found, changed = verdicts(after), changes(after, before)
    results = {}
    for name, r in after.items():
        verdict, change = r.verdict or found.get(name), r.change or changed.get(name)
        results[name] = replace(r, verdict=verdict, change=change)
    return results


def verdicts(metrics: Metrics) -> dict[str, Verdict]:
    """How values lie to their goals, of those that have one and are means over rows.

    A verdict is that of the difference from the goal's own values over the same rows (without a retrained model: over
    held-out rows).

    >>> import numpy as np
    >>> from ofmu_pl.metrics.result import Metric
    >>> auc = Metric("mia_loss", higher_is_better=False, group="attacks")
    >>> rows = np.linspace(0.02, 0.18, 20)
    >>> verdicts({"mia_loss": auc.of_items(rows, goal=0.5)}), verdicts({"mia_loss": auc.of_items(rows, goal=0.11)})
    ({'mia_loss': 'less is left'}, {'mia_loss': 'no difference'})
    >>> verdicts({"mia_loss": auc.of_items(rows[:5], goal=rows[5:10])})
    {'mia_loss': 'too few'}
    """
    tests = {name: _differs(r) for name, r in metrics.items() if r.away and math.isfinite(r.value)}
    return {name: _verdict(metrics[name], differs) for name, differs in _decided(tests).items()}


def _differs(r: MetricResult) -> tuple[float, float]:
    """Test a difference from the goal; gives p, and the least p that so many rows can give."""
    found = sum(float(x.mean()) for x in r.away)
    first, *others = r.away
    return difference([first - (found - beyond(found, r.apart or 0.0)), *others])


def _verdict(r: MetricResult, differs: bool | None) -> Verdict:
    if not differs:
        return "too few" if differs is None else "no difference"
    above = r.value > (r.target or 0.0)
    if r.group in ("forgotten", "attacks"):
        return "less is left" if above == r.higher_is_better else "more is left"
    return "above the goal" if above else "below the goal"


def changes(after: Metrics, before: Metrics) -> dict[str, Change]:
    """How values of what must stay changed, tested as ``verdicts`` are; those without intervals are left out."""
    tests = {}
    for name, r in after.items():
        if r.group == "kept" and r.interval and name in before and before[name].interval:
            tests[name] = _changed(r, before[name])
    found: dict[str, Change] = {}
    for name, differs in _decided(tests).items():
        better = (after[name].value > before[name].value) == after[name].higher_is_better
        found[name] = ("better" if better else "worse") if differs else "unchanged" if differs is False else "too few"
    return found


def _changed(r: MetricResult, was: MetricResult) -> tuple[float, float]:
    """Test a change; gives p, and the least p that so many rows can give: by rows' values, or else by intervals."""
    rows = r.less(was)
    if rows:
        return difference(rows)
    widths = [x.interval[1] - x.interval[0] for x in (r, was) if x.interval]
    return float(2 * norm.sf(2 * norm.ppf(0.975) * abs(r.value - was.value) / max(math.hypot(*widths), 1e-12))), 0.0


def _decided(tests: dict[str, tuple[float, float]]) -> dict[str, bool | None]:
    """Which of several differences are shown, after one correction; ``None``: the rows could not show any."""
    able = {name: p for name, (p, least) in tests.items() if least * len(tests) <= LEVEL and not math.isnan(p)}
    corrected = dict(zip(able, holm(list(able.values())), strict=True))
    return {name: corrected[name] < LEVEL if name in able else None for name in tests}


def verdict_of(a: AttackRecord) -> str:
    """What an attack's record says; of an older one, which has no verdict, what it would have said.

    ``more`` is left where the whole interval of the share that is recovered lies above 0, and where there is a second
    retrained model above what is recovered of it (``beyond``); ``less`` where it lies as far below; else it is ``no``
    difference. It is ``as without`` where the model shows so much without the attack (``returns.untouched``): the
    metrics of the run judge that, all together.

    An attack cannot tell where there is ``no control`` or ``no target``; where there is ``no way`` between the two, as
    it finds no more on the target or broke one of them; where the control is 0 by construction (``zero control``);
    where chance is not known (``no interval``); where the interval holds ``all or nothing``; or where the unlearned
    model is ``broken``. The first of these that holds is the verdict.

    >>> found = {model: {"p": {"value": x}} for model, x in [("unlearned", 0.3), ("retrained", 0.1), ("target", 0.9)]}
    >>> verdict_of(AttackRecord({}, [0], "", "", "p", found, returns={"value": 0.25, "interval": [0.1, 0.4]}))
    'more'
    """
    if a.verdict:
        return a.verdict
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
    if beyond(low, apart) > 0:
        return "as without" if _number(a.returns.get("untouched")) >= low else "more"
    return "less" if beyond(high, apart) < 0 else "no"


def _number(x: float | None) -> float:
    """A number as a file has it, with null where it is not finite."""
    return math.nan if x is None else x
