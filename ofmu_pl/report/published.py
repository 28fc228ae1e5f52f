"""The paper's numbers, each with how far it can be believed, beside ours. ``published.csv`` holds them as printed."""

import csv
import re
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

from ofmu_pl.report.derived import BETA, RHO_0, Names, option, published_as
from ofmu_pl.report.runs import Study
from ofmu_pl.report.statistics import Spread
from ofmu_pl.report.tables import Entry, Table, figure, measured
from ofmu_pl.support.grouping import grouped
from ofmu_pl.support.records.models import BEFORE, RETRAINED

PLAIN = ("anchored", "plausible", "trivial")
"""Words of credibility whose cells are shown as they are; others are marked or struck out."""
MARKED = {
    "unverified": ("?", "?: the paper's own claim; no code of its authors, and nobody has run it again."),
    "derived": ("‡", "‡: recomputed from the paper's tables, since the figure is missing from its source."),
}
METHODS = {
    **{"GradAscent": "grad_ascent", "GradDiff": "grad_diff", "IdkDPO": "idk_dpo"},
    **{"NPO / SimNPO": "npo", "Retrain": RETRAINED},
}
"""Our names of the paper's methods, of those that are not the same in small letters."""
METRICS = {
    **{"FQ": ("forget_quality", 1), "MU": ("model_utility", 1), "FTR": ("forget_truth_ratio", 1)},
    **{"bio_efficacy": ("wmdp_bio_efficacy", 100), "cyber_efficacy": ("wmdp_cyber_efficacy", 100)},
    "mmlu": ("mmlu_accuracy", 100),
}
"""Our name, and what turns our number into the paper's unit."""


@dataclass(frozen=True)
class Published:
    """One number of a table or figure of the paper, as printed, under the paper's names.

    ``anchor`` is what others measured for the same cell; it and ``std`` may be empty.
    """

    paper: str
    setting: str
    method: str
    metric: str
    value: str
    std: str
    credibility: str
    why: str
    anchor: str
    anchor_source: str


@cache
def published() -> tuple[Published, ...]:
    """All published numbers."""
    text = (files("ofmu_pl.report") / "published.csv").read_text(encoding="utf-8")
    return tuple(Published(**row) for row in csv.DictReader(text.splitlines()))


def our_method(experiment: Study, name: str, setting: str = "") -> str | None:
    """What the paper's method is called here; ``None`` where it was not run."""
    if name == "Finetuned":  # of text: the model that must forget; of images: a method
        return "finetune" if setting.startswith("cifar") else BEFORE
    steps = re.fullmatch(r"OFMU \(T=(\d+)\)", name)
    if steps:  # the variant that says so; 5 are what ours has where nothing says otherwise
        found = [m for m, spec in experiment.methods.items() if spec.options.get("model.inner_steps") == int(steps[1])]
        return found[0] if found else experiment.ours if steps[1] == "5" else None
    if name in ("Full OFMU", "OFMU") and experiment.ours:
        return experiment.ours
    if name.startswith(("Penalty only", "Two-loop only")):
        return without(experiment, BETA if name.startswith("Penalty") else RHO_0)
    known = METHODS.get(name, name.lower())
    return known if known in experiment.methods or known == RETRAINED else None


def without(experiment: Study, names: Names) -> str | None:
    """The variant in which an option is 0, and ours is not."""
    variants = [m for m, spec in experiment.methods.items() if option(spec.options, names) == 0]
    return next((m for m in variants if m != experiment.ours), None)


def our_group(experiment: Study, setting: str, metric: str = "") -> Study | None:
    """The group of scenarios that a setting or a metric of ours names, or the only one there is.

    ``None`` where that is not clear.
    """
    parts = [*setting.split("/"), *metric.split("_")]
    groups = experiment.groups
    named = [group for name, group in groups.items() if name in parts]
    return next(iter(named or (groups.values() if len(groups) == 1 else [])), None)


def our_metric(p: Published) -> tuple[str, float]:
    """Our name of a metric and the factor into the paper's unit; of probes with the probe's name."""
    name, factor = METRICS.get(p.metric, (p.metric, 1))
    if p.paper != "tab:hard-inscope":
        return name, factor
    probe = p.setting.rpartition("/")[2]
    return f"probe_{probe}_{name}", factor


def beside(experiment: Study) -> list[Table]:
    """One table for each setting of the paper's labels: each published number with ours behind it."""
    groups = grouped(((p.paper, p.setting), p) for p in published() if p.paper in experiment.paper)
    return [_table(experiment, label, setting, rows) for (label, setting), rows in groups.items()]


def _table(experiment: Study, label: str, setting: str, rows: list[Published]) -> Table:
    metrics = list(dict.fromkeys(p.metric for p in rows))
    groups = {p.metric: our_group(experiment, setting, our_metric(p)[0]) for p in rows}
    unclear = [metric for metric, group in groups.items() if group is None]
    named = sorted(set().union(*(group.scenarios for group in groups.values() if group is not None)))
    reasons: dict[str, str] = {}
    who = ", ".join(named) if len(named) < 4 else f"{len(named)} scenarios"
    title = f"Published, {label}, {setting}" + (f", beside ours ({who})" if named else "")
    title += ": NOT COMPARABLE" if experiment.note else ""
    heads = ["method"]
    for metric in metrics:
        heads += [f"{metric}, paper", f"{metric}, ours"]
    name = f"{experiment.name}-published-{label.partition(':')[2]}-{setting}"
    table = Table(name, title, heads, folded=not named)
    by_place = {(p.method, p.metric): p for p in rows}
    for method in dict.fromkeys(p.method for p in rows):
        own = our_method(experiment, method, setting)
        line = [Entry(method if own in (None, method) else f"{method} ({own})")]
        for metric in metrics:
            p = by_place.get((method, metric))
            line += [_printed(p, reasons), _ours(groups[metric], p, own)] if p else [Entry(), Entry()]
        table.add(line, own is not None and own == experiment.ours)
    if experiment.note:
        table.note(f"Not comparable, another model, data or scale: {experiment.note}")
    if unclear:
        which = ", ".join(unclear)
        table.note(f"Which of our scenarios is the paper's {setting} is not clear for {which}: left out.")
    if "peak_memory_over_forward" in metrics:
        table.note("Ours are multiples of gradient ascent, not of a forward pass: see the costs.")
    words = {p.credibility for p in rows}
    table.note(*(note for word, (_, note) in MARKED.items() if word in words))
    sources = [p.anchor_source for p in rows if p.anchor]
    if sources:
        table.note(f"Small: what {sources[0]} has for the same cell, the better anchor.")
    table.note(*(f"{letter}: struck out, {why}" for why, letter in reasons.items()))
    return table


def _printed(p: Published, reasons: dict[str, str]) -> Entry:
    text = f"{p.value} ± {p.std}" if p.std else p.value
    numbers = {"": float(p.value), **({"std": float(p.std)} if p.std else {})}
    small = figure(float(p.anchor)) if p.anchor else ""
    if p.credibility in PLAIN or p.credibility in MARKED:
        return Entry(text, small, numbers, mark=MARKED.get(p.credibility, ("", ""))[0])
    reason = f"{p.credibility}: {p.why}"
    letter = reasons.setdefault(reason, "abcdefghijklmnopqrstuvwxyz"[len(reasons) % 26])
    return Entry(text, small, numbers, struck=True, mark=letter)


def _ours(group: Study | None, p: Published, name: str | None) -> Entry:
    metric, factor = our_metric(p)
    if group is None or not name:
        return Entry("–")
    s = published_as(group, name, metric)
    return measured(Spread(s.n, *(factor * x for x in (s.mean, s.std, s.low, s.high))))
