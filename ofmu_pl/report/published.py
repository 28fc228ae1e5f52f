"""The paper's numbers, each with how far it can be believed, beside ours. ``published.csv`` holds them as printed."""

from __future__ import annotations

import csv
import re
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

from ofmu_pl.report.derived import Measured
from ofmu_pl.report.runs import BEFORE, RETRAINED, Findings
from ofmu_pl.report.statistics import Spread
from ofmu_pl.report.tables import Entry, Table, figure, measured

PLAIN = ("anchored", "plausible", "trivial")
"""Words of credibility whose cells are shown as they are; others are marked or struck out."""
MARKED = {"unverified": "?", "derived": "‡"}
METHODS = {
    **{"OFMU": "ofmu", "GradAscent": "grad_ascent", "GradDiff": "grad_diff", "IdkDPO": "idk_dpo"},
    **{"NPO": "npo", "SimNPO": "simnpo", "NPO / SimNPO": "npo", "RMU": "rmu", "Fisher": "fisher"},
    **{"Influence": "influence", "Retrain": RETRAINED},
}
METRICS = {
    **{"FQ": ("forget_quality", 1), "MU": ("model_utility", 1), "FTR": ("forget_truth_ratio", 1)},
    **{"bio_efficacy": ("wmdp_bio_efficacy", 100), "cyber_efficacy": ("wmdp_cyber_efficacy", 100)},
    "mmlu": ("mmlu_accuracy", 100),
}
"""Our name, and what turns our number into the paper's unit."""


@dataclass(frozen=True)
class Published:
    """One number of the paper, as printed.

    Attributes:
        paper: Label of its table or figure.
        setting: Model or data, scenario, probe.
        method: The paper's name.
        metric: The paper's name.
        value: As printed.
        std: As printed; empty where the paper gives none.
        credibility: One word or two.
        why: The reason.
        anchor: What others measured for the same cell; empty where nobody did.
        anchor_source: Who measured it.
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


def cells(labels: list[str], metric: str | None = None) -> list[Published]:
    """Published numbers under some labels, of one metric or all."""
    return [p for p in published() if p.paper in labels and metric in (None, p.metric)]


def our_method(experiment: Findings, name: str, setting: str = "") -> str | None:
    """What the paper's method is called here; ``None`` where it was not run."""
    if name == "Finetuned":  # of text: the model that must forget; of images: a method
        return "finetune" if setting.startswith("cifar") else BEFORE
    steps = re.fullmatch(r"OFMU \(T=(\d+)\)", name)
    if steps:  # the variant that says so; 5 are what ours has where nothing says otherwise
        return _with(experiment, "model.inner_steps", int(steps[1])) or (experiment.ours if steps[1] == "5" else None)
    if name in ("Full OFMU", "OFMU") and experiment.ours:
        return experiment.ours
    if name.startswith("Penalty only"):
        return without(experiment, "model.beta")
    if name.startswith("Two-loop only"):
        return without(experiment, "model.rho_0")
    known = METHODS.get(name)
    return known if known in experiment.methods or known == RETRAINED else None


def _with(experiment: Findings, option: str, value: float) -> str | None:
    found = (m for m, spec in experiment.methods.items() if spec.options.get(option) == value)
    return next(found, None)


def without(experiment: Findings, option: str) -> str | None:
    """The variant in which an option is 0, and ours is not."""
    variants = [m for m, spec in experiment.methods.items() if spec.options.get(option) == 0]
    return next((m for m in variants if m != experiment.ours), None)


def our_scenarios(experiment: Findings, setting: str, metric: str = "") -> list[str] | None:
    """The group of scenarios that a setting or a metric of ours names, or the only one there is.

    ``None`` where that is not clear.
    """
    parts = [*setting.split("/"), *metric.split("_")]
    named = [scenarios for name, scenarios in experiment.groups.items() if name in parts]
    return next(iter(named or (experiment.groups.values() if len(experiment.groups) == 1 else [])), None)


def our_metric(p: Published) -> tuple[str, float]:
    """Our name of a metric and the factor into the paper's unit; of probes with the probe's name."""
    name, factor = METRICS.get(p.metric, (p.metric, 1))
    if p.paper != "tab:hard-inscope":
        return name, factor
    probe = p.setting.rpartition("/")[2]
    return f"probe_{probe}_{name}", factor


def beside(experiment: Findings, found: Measured) -> list[Table]:
    """One table for each setting of the paper's labels: each published number with ours behind it.

    Args:
        experiment: With the labels it stands for.
        found: Our spreads by scenarios, method and metric.
    """
    groups: dict[tuple[str, str], list[Published]] = {}
    for p in cells(experiment.paper):
        groups.setdefault((p.paper, p.setting), []).append(p)
    return [_table(experiment, label, setting, rows, found) for (label, setting), rows in groups.items()]


def _table(experiment: Findings, label: str, setting: str, rows: list[Published], found: Measured) -> Table:
    metrics = list(dict.fromkeys(p.metric for p in rows))
    groups = {p.metric: our_scenarios(experiment, setting, our_metric(p)[0]) for p in rows}
    scenarios = next((s for s in groups.values() if s), None)
    unclear = [metric for metric, s in groups.items() if s is None]
    named = sorted({s for group in groups.values() for s in group or []})
    reasons: dict[str, str] = {}
    table = Table(
        f"{experiment.name}-published-{label.partition(':')[2]}-{setting}",
        f"Published, {label}, {setting}" + (f", beside ours ({_few(named)})" if named else ""),
        ["method", *(f"{m}, {who}" for m in metrics for who in ("paper", "ours"))],
        [],
    )
    by_place = {(p.method, p.metric): p for p in rows}
    for method in dict.fromkeys(p.method for p in rows):
        name = our_method(experiment, method, setting)
        line = [Entry(method if name in (None, method) else f"{method} ({name})")]
        for metric in metrics:
            p = by_place.get((method, metric))
            line += [_printed(p, reasons), _ours(p, groups[metric], name, found)] if p else [Entry(), Entry()]
        if name is not None and name == experiment.ours:
            table.ours.add(len(table.rows))
        table.rows.append(line)
    if experiment.note:
        table.title += ": NOT COMPARABLE"
        table.notes.append(f"Not comparable, another model, data or scale: {experiment.note}")
    table.folded = scenarios is None or label.startswith("fig:")  # a figure of ours shows the latter
    if unclear:
        which = ", ".join(unclear)
        table.notes.append(f"Which of our scenarios is the paper's {setting} is not clear for {which}: left out.")
    if "peak_memory_over_forward" in metrics:
        table.notes.append(
            "Ours are multiples of gradient ascent, not of a forward pass: see the figure and the costs."
        )
    marks = {MARKED[p.credibility] for p in rows if p.credibility in MARKED}
    if "?" in marks:
        table.notes.append("?: the paper's own claim; no code of its authors, and nobody has run it again.")
    if "‡" in marks:
        table.notes.append("‡: recomputed from the paper's tables, since the figure is missing from its source.")
    if any(p.anchor for p in rows):
        source = next(p.anchor_source for p in rows if p.anchor)
        table.notes.append(f"Small: what {source} has for the same cell, the better anchor.")
    table.notes += [f"{letter}: struck out, {why}" for why, letter in reasons.items()]
    return table


def _few(names: list[str]) -> str:
    return ", ".join(names) if len(names) < 4 else f"{len(names)} scenarios"


def _printed(p: Published, reasons: dict[str, str]) -> Entry:
    text = f"{p.value} ± {p.std}" if p.std else p.value
    numbers = {"": float(p.value), **({"std": float(p.std)} if p.std else {})}
    small = figure(float(p.anchor)) if p.anchor else ""
    if p.credibility in PLAIN or p.credibility in MARKED:
        return Entry(text, small, numbers, mark=MARKED.get(p.credibility, ""))
    reason = f"{p.credibility}: {p.why}"
    letter = reasons.setdefault(reason, "abcdefghijklmnopqrstuvwxyz"[len(reasons) % 26])
    return Entry(text, small, numbers, struck=True, mark=letter)


def _ours(p: Published, scenarios: list[str] | None, name: str | None, found: Measured) -> Entry:
    metric, factor = our_metric(p)
    s = found(scenarios, name, metric) if scenarios and name else None
    if s is None or s.n == 0:
        return Entry("–")
    return measured(Spread(s.n, *(factor * x for x in (s.mean, s.std, s.low, s.high))))
