"""What attacks on a finished run found, as parts of its card and its page that the command ``attack`` writes anew."""

from __future__ import annotations

from collections import Counter
from datetime import date
from typing import NamedTuple, cast

from markupsafe import Markup

from ofmu_pl.evaluation.plain import ends, joined, shown
from ofmu_pl.metrics.result import Metric, Unit
from ofmu_pl.support.pages import AUDIT, marks, plain, templates
from ofmu_pl.support.records import AttackRecord, AttacksRecord

UNTRIED = {
    "wording": "Whether the model tells when asked otherwise, such as after examples or with half of the answer: each "
    "question was put in one way.",
    "search": "Whether a prompt that a program has searched for makes the model tell.",
    "samples": "Whether it tells when asked many times: one answer was taken, the likeliest word each time.",
    "relearn_part": "Whether a little further training on a part of what is forgotten brings the rest back "
    "(relearning).",
    "relearn_other": "Whether a little further training on other data brings it back (relearning).",
    "bits": "Whether it comes back when the weights are stored in fewer bits (quantisation).",
    "pruned": "Whether it comes back when a part of the weights is taken out (pruning).",
    "merged": "Whether it comes back when the weights are merged with another model's.",
    "inside": "Whether it can be read from what the model computes inside, rather than from what it puts out.",
}
"""What a run does not test, by the word in which an attack says that it does (``Attack.tests``)."""
TEXT = ("wording", "search", "samples")
"""Those of texts alone."""
PARTS = ("attacks in short", "what attacks found", "what attacks test")
UNLEARNED, TARGET = "unlearned", "target"
NAMES = {
    UNLEARNED: "unlearned model",
    "retrained": "retrained model",
    "held_out": "held-out rows",
    TARGET: "model before",
}
THAN = {"retrained": "the retrained model", "held_out": "held-out rows"}
"""Controls of a record, the better one first."""

BY_CONSTRUCTION = ("depth_left",)
"""Figures that are 0 on the control by construction, as on no second retrained model."""


class Told(NamedTuple):
    """What one attack found, in words; ``verdict``: ``more`` or ``less`` than its control, ``no`` difference, none."""

    name: str
    asks: str
    shows: str
    found: dict[str, str]
    control: str | None
    share: float
    returns: str
    verdict: str
    meaning: str


def parts(page: str, modality: str, record: AttacksRecord | None = None) -> dict[str, Markup]:
    """Contents of ``PARTS``, with the marks around them, for the audit page or the card; no record: no attack yet."""
    attacks = record.attacks if record else {}
    told = [_told(name, a) for name, a in attacks.items()]
    tested = {a.tests for a, t in zip(attacks.values(), told, strict=True) if t.verdict}
    untried = [x for name, x in UNTRIED.items() if name not in tested and (modality == "text" or name not in TEXT)]
    weights = record.provenance.get("weights") if record else None
    given = {
        "short": _in_short(told, sorted({a.date for a in attacks.values()})),
        "told": told,
        "names": NAMES,
        "untried": untried,
        "models": [m for m in NAMES if any(m in t.found for t in told)],
        "weights": weights.get(UNLEARNED) if isinstance(weights, dict) else None,
    }
    kind = "html" if page == AUDIT else "md"
    made = templates("ofmu_pl.evaluation", escapes=page == AUDIT, text=plain, joined=joined)
    template = made.get_template(f"attacks.{kind}.jinja")
    return {part: Markup("\n").join(_between(marks(part), template.render(part=part, **given))) for part in PARTS}


def _between(ends: tuple[str, str], content: str) -> tuple[Markup, Markup, Markup]:
    return Markup(ends[0]), Markup(content.strip("\n")), Markup(ends[1])


def _told(name: str, a: AttackRecord) -> Told:
    found: dict[str, str] = {}
    for model, entries in a.metrics.items():
        found[model] = _shown(entries.get(a.found, {}), interval=model == UNLEARNED)
    control = next((m for m in THAN if m in found), None)
    verdict, meaning = _verdict(a, control)
    share, around = a.returns.get("value"), _ends(a.returns)
    shares = " to ".join(f"{round(100 * x)}" for x in around)
    returns = "" if share is None else f"{round(100 * share)} %" + (f" ({shares} %)" if shares else "")
    asks = UNTRIED.get(a.tests, "").partition(":")[0].rstrip(".")
    than = THAN[control] if control else None
    return Told(name, asks, a.y_label, found, than, share or 0.0, returns, verdict, meaning)


def _shown(entry: dict[str, object], interval: bool) -> str:
    """A figure with its unit, and with its interval."""
    value, unit, around = entry.get("value"), str(entry.get("unit")), _ends(entry)
    if not isinstance(value, int | float):
        return "no number"
    r = Metric("", False, cast(Unit, unit)).result(value, 0, interval=(around[0], around[1]) if around else None)
    return shown(value, r) + (f" ({ends(r)})" if interval and around else "")


def _ends(entry: dict[str, object]) -> list[float]:
    """The ends of an interval; none where one is not known, which a file has as null."""
    ends = entry.get("interval")
    known = [x for x in ends if isinstance(x, int | float)] if isinstance(ends, list | tuple) else []
    return known if len(known) == 2 else []


def _verdict(a: AttackRecord, control: str | None) -> tuple[str, str]:
    """Whether an attack found more than on its control, and a sentence on it.

    An interval that holds both 0, nothing comes back, and 1, all does, decides nothing, and neither does an attack that
    finds no more on the model before than on the control, or that broke one of them.
    """
    entries = {model: metrics.get(a.found, {}) for model, metrics in a.metrics.items()}
    before, around, than = entries.get(TARGET, {}).get("value"), _ends(a.returns), THAN.get(control or "")
    theirs = entries.get(control or "", {}).get("value")
    way = -1 if entries.get(UNLEARNED, {}).get("higher_is_better") else 1
    why = None
    if control is None:
        why = "there was nothing to compare with"
    elif before is None or theirs is None or a.broken.keys() - {UNLEARNED}:
        why = f"the model before or {than} gave no number, or the attack broke the model"
    elif way * (before - theirs) <= 0:
        why = f"it finds no more on the model before than on {than}"
    elif a.found in BY_CONSTRUCTION:
        why = f"{than} is at 0 by construction, and no second one would be"
    elif not around:
        why = "how much is chance is not known"
    elif around[0] <= 0 and (around[1] >= 1 or UNLEARNED in a.broken):
        why = "its interval holds both nothing and all" if around[1] >= 1 else "the attack broke the model"
    if why:
        return "", f"It could not tell: {why}."
    if around[0] > 0:
        return "more", f"More than on {than}: something is left."
    if around[1] < 0:
        return "less", f"Less than on {than}, which gives the forgetting away."
    return "no", f"No difference from {than} was found."


def _in_short(told: list[Told], days: list[str]) -> list[str]:
    """What attacks found, in sentences for a person who signs."""
    if not told:
        return []
    first, last = _day(days[0]), _day(days[-1])
    began = f"Attacks of {first if first == last else f'{first} to {last}'} tried to bring back what was forgotten"
    controls = dict.fromkeys(t.control for t in told if t.control)
    if not controls:
        why = "There was neither a retrained model nor held-out rows to compare with"
        return [f"{began}. {why}, so none of the {len(told)} can tell whether it came back."]
    counts = Counter(t.verdict for t in told)
    said = [f"{counts['more'] or 'none'} found more than on {' or '.join(controls)}"]
    others = {"less": "found less", "no": "showed no difference", "": "could not tell"}
    said += [f"{counts[verdict]} {words}" for verdict, words in others.items() if counts[verdict]]
    most = max((t for t in told if t.verdict == "more"), key=lambda t: t.share, default=None)
    sentences = [f"{began}: of {len(told)}, {', '.join(said)}."]
    if most:
        asks = f", which asks {most.asks[0].lower()}{most.asks[1:]}" if most.asks else ""
        way = f"of the way from {most.control} to the model before"
        sentences.append(f"Most came back by {most.name}{asks}: {most.returns} {way}.")
    return sentences


def _day(written: str) -> str:
    """A day as a person reads it.

    >>> _day("2026-11-05"), _day("")
    ('5 November 2026', 'an unknown day')
    """
    try:
        return date.fromisoformat(written).strftime("%d %B %Y").lstrip("0")
    except ValueError:
        return "an unknown day"
