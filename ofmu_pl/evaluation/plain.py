"""Metrics in plain words: a number, its interval, and how it lies to its goal, as a person reads them."""

import math
from typing import NamedTuple

from ofmu_pl.metrics.result import Change, Metric, MetricResult, Verdict
from ofmu_pl.metrics.verdicts import Metrics

MEANINGS: dict[Verdict, str] = {
    "no difference": "No difference from the goal was found.",
    "more is left": "More is left than there should be.",
    "less is left": "Less is left than there should be: what is avoided stands out, which can give it away.",
    "above the goal": "It lies above the goal.",
    "below the goal": "It lies below the goal.",
    "too few": "Too few rows of such values: no difference from the goal could be told from chance.",
}
ALONE = "The goal lies outside of the interval, but of so many numbers one such case may be chance."
"""What is added where an interval, which is that of one number as if it were alone, seems to say otherwise."""
CHANGES: dict[Change, str] = {
    "worse": "It is worse than before.",
    "better": "It is better than before.",
    "unchanged": "No change was found.",
    "too few": "Too few rows to tell a change from chance.",
}
KNOWN: dict[Verdict, str] = {"more is left": "are still known better", "less is left": "are known less well"}
"""What it means for what is forgotten, the worse first."""
SIDES = {
    "the facts in the answers": ("mia_facts", "forget_facts_loss", "forget_facts_Prob"),
    "the answers as a whole": ("mia_loss", "forget_loss", "forget_Q_A_Prob"),
}
"""The same tests of facts alone and of whole answers, which a name that stands in the question can hide."""

ROWS = {
    "forgotten": "the forgotten rows",
    "unseen": "rows that the model has never seen",
    "kept": "rows that must stay",
    "real_authors": "questions about real authors",
    "world_facts": "questions about world facts",
}
"""What sentences call the rows of a group, and of a set that has words of its own."""
HEADINGS = {
    "attacks": "Can an attacker tell what is forgotten from what was never seen?",
    "forgotten": "What does the model still know of it?",
    "probes": "What does the model know of it when asked otherwise?",
    "choices": "What does the model know of the subject?",
    "kept": "What did it cost?",
    "language": "Are its answers still language?",
}
"""Questions that the groups of metrics answer, in the order of reading."""


class Statement(NamedTuple):
    """What one test says: a sentence with the number and its interval, and one on how it lies to its goal."""

    name: str
    text: str
    before: str | None
    goal: str | None
    """Goal with its name, such as ``50 % (chance)``."""
    verdict: Verdict | None
    meaning: str


def statements(after: Metrics, before: Metrics, retrained: Metrics) -> dict[str, list[Statement]]:
    """Say what the tests found, by the question that they answer; held-out rows stand among the goals alone."""
    found: dict[str, list[Statement]] = {}
    for group in dict.fromkeys([*HEADINGS, *(r.group for r in after.values() if r.group != "unseen")]):
        for name, r in after.items():
            if r.group != group or not r.metric.says:
                continue
            interval = ends(r)
            rows = ROWS.get(r.metric.rows or "", ROWS.get(group, "these rows"))
            value = shown(r.value, r) + (f" ({interval})" if interval else "")
            text = r.metric.says.format(value=value, rows=rows)
            was = shown(before[name].value, r) if name in before else None
            goal = None if r.target is None else shown(r.target, r) + _whose(r, bool(retrained))
            goal = goal if r.apart is None else f"{goal}, a second one {shown(r.apart, r)} from it"
            meaning = MEANINGS[r.verdict] if r.verdict else _untested(r)
            low, high = r.interval or (-math.inf, math.inf)
            if r.verdict == "no difference" and r.target is not None and not low <= r.target <= high:
                meaning = f"{meaning} {ALONE}"
            statement = Statement(name, text, was, goal, r.verdict, meaning)
            found.setdefault(HEADINGS.get(group, "Other tests"), []).append(statement)
    return found


def _whose(r: MetricResult, retrained: bool) -> str:
    """Where a goal comes from: chance where it is declared so, and for attacks without a retrained model."""
    if r.metric.chance or (r.group == "attacks" and not retrained):
        return " (chance)"
    return " (the retrained model)" if retrained else " (held-out rows)"


def _untested(r: MetricResult) -> str:
    """A sentence on a value without a verdict."""
    if r.change:
        return CHANGES[r.change]
    if r.target is not None:
        return "It is no mean over rows, so how much of the difference is chance is not known."
    return "Higher is better." if r.higher_is_better else "Lower is better."


def one_sided(after: Metrics, than: str) -> str | None:
    """Say what tests of facts alone or whole answers alone find; ``None``: they agree, or one side has no verdict."""
    worst = {}
    for what, names in SIDES.items():
        found = [after[name].verdict for name in names if name in after]
        worst[what] = next((v for v in (*KNOWN, "no difference") if v in found), None)
    how = next((v for v in KNOWN if v in worst.values()), None)
    named = [what for what in SIDES if worst[what] == how]
    if how is None or len(named) != 1 or not all(worst.values()):
        return None
    (other,) = SIDES.keys() - named
    return f"{named[0].capitalize()} {KNOWN[how]} than {than}; the tests of {other} do not show it."


def shown(x: float, r: MetricResult | Metric) -> str:
    """A number with its unit.

    >>> shown(0.523, Metric("x", True)), shown(0.004, Metric("x", True)), shown(1.25, Metric("x", True, "nats"))
    ('52 %', '0.4 %', '1.25 nats')
    """
    return f"{_number(x, r)} {_sign(r)}".strip() if math.isfinite(x) else "no number"


def joined(text: str) -> str:
    """Text with no-break spaces between its numbers and their units."""
    return text.replace(" %", "\N{NO-BREAK SPACE}%").replace(" nats", "\N{NO-BREAK SPACE}nats")


def ends(r: MetricResult) -> str | None:
    """The 95 % interval with its unit; ``None``: there is none."""
    return r.interval and f"{' to '.join(_number(x, r) for x in r.interval)} {_sign(r)}".strip()


def _sign(r: MetricResult | Metric) -> str:
    return {"0 to 1": "%", "%": "%", "nats": "nats"}.get(r.unit, "")


def _number(x: float, r: MetricResult | Metric) -> str:
    if not math.isfinite(x):
        return "no number"
    if _sign(r) == "%":
        percent = 100 * x if r.unit == "0 to 1" else x
        if 0 < percent < 0.05:
            return "less than 0.1"
        if 99.95 <= percent < 100:
            return "more than 99.9"
        few = 0 < percent < 0.95 or 99.05 < percent < 100
        return f"{percent:.1f}" if few else f"{round(percent)}"
    if x == 0 or abs(x) >= 0.1:
        return f"{x:.2f}"
    return f"{x:.2g}" if abs(x) >= 1e-3 else f"{x:.0e}"
