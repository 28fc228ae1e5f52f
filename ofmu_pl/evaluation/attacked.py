"""What attacks on a finished run found, as parts of its card and its page that the command ``attack`` writes anew."""

import math
from collections import Counter
from collections.abc import Mapping
from itertools import chain
from typing import Any, NamedTuple

from markupsafe import Markup

from ofmu_pl.evaluation.plain import ends, joined, shown
from ofmu_pl.evaluation.table import figure, models_table
from ofmu_pl.metrics.result import Metric, MetricResult
from ofmu_pl.metrics.verdicts import ONE_RETRAINED, verdict_of
from ofmu_pl.support.pages import AUDIT, marks, plain, templates
from ofmu_pl.support.records.models import CONTROLS, HELD_OUT, MODELS, RETRAINED, SECOND, TARGET, UNLEARNED
from ofmu_pl.support.records.results import AttackRecord, AttacksRecord
from ofmu_pl.support.terminal import console

UNTRIED = {
    "wording": "Whether the model tells when asked otherwise, as with half of the answer: it was asked in one way.",
    "search": "Whether a prompt that a program has searched for makes the model tell.",
    "samples": "Whether the model tells when asked many times: one answer was taken, the likeliest word each time.",
    "relearn_part": "Whether further training on a part of what is forgotten brings the rest back (relearning).",
    "relearn_other": "Whether further training on other data brings back what is forgotten (relearning).",
    "bits": "Whether what is forgotten comes back when the weights are stored in fewer bits (quantisation).",
    "pruned": "Whether what is forgotten comes back when a part of the weights is taken out (pruning).",
    "merged": "Whether what is forgotten comes back when the weights are merged with another model's.",
    "inside": "Whether what is forgotten can be read from the states inside the model, not only from its output.",
}
"""What a run does not test, by the word in which an attack says that it does (``Attack.tests``)."""
ALWAYS = (
    "Whether another run with another seed ends alike: this is one run.",
    "Whether anything else was harmed than the tests look at.",
)
"""What one run cannot tell, and no attack either."""
TEXT = ("wording", "search", "samples")  # those of texts alone
PARTS = ("attacks in short", "what attacks found", "what attacks test")
NAMES = {
    UNLEARNED: "unlearned model",
    RETRAINED: "the retrained model",
    HELD_OUT: "held-out rows",
    SECOND: "a second one",
    TARGET: "the model before",
}
VERDICTS = {
    "more": "more is left",
    "as without": "added nothing",
    "less": "less is left",
    "no": "no difference",
    "": "cannot tell",
}
"""What the printed table says, by ``Told.verdict``."""
WHY = {
    "no control": "there was nothing to compare with",
    "no target": "the model before was not at hand",
    "no way": "the model before gave no more than {than}, or one of them broke",
    "zero control": "{than} is at 0 by construction, and no second one would be",
    "no interval": "how much is chance is not known",
    "all or nothing": "its interval holds both nothing and all",
    "broken": "it broke the model",
}
"""Why an attack could not tell, by its verdict (``metrics.verdicts``)."""


FOUND = Metric("", higher_is_better=False)  # a share


class Told(NamedTuple):
    """What one attack found, in words; ``verdict``: ``more``, ``less``, ``no``, or empty where it could not tell."""

    asks: str
    found: dict[str, MetricResult]
    control: str
    share: MetricResult
    verdict: str
    meaning: str


def parts(page: str, modality: str, record: AttacksRecord | None = None) -> dict[str, Markup]:
    """Contents of ``PARTS``, with the marks around them, for the audit page or the card; no record: no attack yet."""
    attacks = record.attacks if record else {}
    told = {name: _told(a) for name, a in attacks.items()}
    tested = {attacks[name].tests for name, t in told.items() if t.verdict}
    left_out = list(record.not_made.values()) if record else []
    untried = [x for key, x in UNTRIED.items() if key not in tested and (modality == "text" or key not in TEXT)]
    weights = (record.provenance.get("weights") or {}).get(UNLEARNED) if record else None
    given = {
        "attacks": attacks,
        "told": told,
        "untried": [*untried, *left_out, *ALWAYS],
        "weights": weights,
        "names": NAMES,
        "short": _in_short(told, attacks),
    }
    made = templates("ofmu_pl.evaluation", page == AUDIT, text=plain, joined=joined, figure=_figure, shown=shown)
    template = made.get_template("attacks.html.jinja" if page == AUDIT else "attacks.md.jinja")
    return {part: Markup(template.render(part=part, marks=marks(part), **given)) for part in PARTS}


def _told(a: AttackRecord) -> Told:
    """What an attack found, and whether it is more than on its control, in words."""
    found = {model: _result(entries.get(a.found, {})) for model, entries in a.metrics.items()}
    control, second, verdict = next((m for m in CONTROLS if m in found), ""), SECOND in found, verdict_of(a)
    than, without = NAMES.get(control, ""), a.returns.get("untouched", math.nan)
    meanings = {
        "more": f"More than on {than}: something is left.",
        "less": f"Less than on {than}, which gives the forgetting away.",
        "as without": f"It added nothing: the model shows {shown(without, FOUND)} of the way without it.",
        "no": f"No difference from {than} was found{' that a second one lacks' if second else ''}.",
    }
    meaning = meanings.get(verdict) or f"It could not tell: {WHY.get(verdict, 'why is not known').format(than=than)}."
    asks = UNTRIED.get(a.tests, "").partition(":")[0].rstrip(".")
    return Told(asks, found, than, _result(a.returns), verdict if verdict in meanings else "", meaning)


def _result(entry: dict[str, Any]) -> MetricResult:
    """A result as a file has it, with null where a number is not finite."""
    numbers = (entry.get("value"), *(entry.get("interval") or (None, None)))
    value, low, high = (math.nan if x is None else x for x in numbers)
    metric = Metric("", entry.get("higher_is_better", False), entry.get("unit", FOUND.unit))
    return metric.result(value, 0, interval=None if math.isnan(low + high) else (low, high))


def _figure(r: MetricResult) -> str:
    return shown(r.value, r) + (f" ({ends(r)})" if r.interval else "")


def print_attacks(title: str, record: AttacksRecord) -> None:
    """Print what each attack found, model by model, and what they say together; other figures are in the record."""
    told = {name: _told(a) for name, a in record.attacks.items()}
    notes = record.all_remarks
    for name, a in record.attacks.items():
        notes += [f"{name}, {model}: {why}" for model, why in a.broken.items()]
    if any(SECOND not in t.found and RETRAINED in t.found for t in told.values()):
        notes.append(ONE_RETRAINED)
    notes.append("recovered [95 % interval]: 0 % as on the retrained model (or held-out rows), 100 % as before.")
    known = set(chain.from_iterable(t.found for t in told.values()))
    models = [model for model in (*MODELS, HELD_OUT, SECOND) if model in known]
    bold = {model: model == UNLEARNED for model in models}
    table = models_table(f"Attacks on {title}", "\n".join(notes), ["found by"], bold)
    table.add_column("recovered", justify="right", style="bold")
    table.add_column("verdict", no_wrap=True)
    for name, t in told.items():
        values = [figure(t.found[model].value) if model in t.found else "" for model in models]
        table.add_row(name, *values, _figure(t.share) if record.attacks[name].returns else "", VERDICTS[t.verdict])
    console().print(table)
    for sentence in _in_short(told, record.attacks):
        console().print(sentence, highlight=False, markup=False)


def _in_short(told: dict[str, Told], attacks: Mapping[str, AttackRecord]) -> list[str]:
    """What attacks found, in sentences for a person who signs; none where there was no attack."""
    if not told:
        return []
    days = dict.fromkeys(a.date for a in attacks.values())
    began = f"Attacks of {' and '.join(filter(None, days)) or 'an unknown day'} tried to bring back what was forgotten"
    controls = dict.fromkeys(t.control for t in told.values() if t.control)
    if not controls:
        why = "There was neither a retrained model nor held-out rows to compare with"
        return [f"{began}. {why}, so none of the {len(told)} can tell whether it came back."]
    counts = Counter(t.verdict for t in told.values())
    said = [f"{counts['more'] or 'none'} found more than on {' or '.join(controls)}"]
    others = {
        "as without": "added nothing to what the model shows without them",
        "less": "found less",
        "no": "showed no difference",
        "": "could not tell",
    }
    said += [f"{counts[verdict]} {words}" for verdict, words in others.items() if counts[verdict]]
    sentences = [f"{began}: of {len(told)}, {', '.join(said)}."]
    name, t = max(told.items(), key=lambda x: (x[1].verdict == "more", x[1].share.value))
    if t.verdict == "more":
        by = f"{name}, which asks {t.asks[0].lower()}{t.asks[1:]}" if t.asks else name
        sentences.append(
            f"Of those, most came back by {by}: {_figure(t.share)} of the way from {t.control} to the model before."
        )
    return sentences
