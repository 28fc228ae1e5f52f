"""The main table of an experiment: all methods beside the model before and the retrained one."""

import math
from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from typing import Any

from ofmu_pl.metrics.bootstrap import LEVEL
from ofmu_pl.report.attacks import HEAD, worst_shares
from ofmu_pl.report.runs import StudiedRun, Study, number, words
from ofmu_pl.report.statistics import (
    Comparison,
    Spread,
    distance,
    front,
    least_p,
    merit,
    overall,
    spread,
    spread_of,
    trade_off,
)
from ofmu_pl.report.tables import Entry, Table, figure, measured, plain
from ofmu_pl.support.records.models import BEFORE, RETRAINED

OVERALL, DISTANCE = "overall ↑", "distance ↓"
Columns = dict[str, dict[str, Entry]]  # entries by head and method
NAMED = 4  # methods that sentences name one by one
MARKS = {1: "*", 0: "", -1: "†"}
LAST = {"gradients": ("gradient_evaluations", 0), "seconds": ("training_seconds", 1)}
"""Columns of costs, with their digits."""
SAID = {
    OVERALL: "overall: the paper's score, the mean of each metric over the best method's; it takes more as better, "
    "beyond the retrained model's value too.",
    DISTANCE: "distance: mean over metrics of |value - retrained model's|, per cent divided by 100 (0: retrained).",
    HEAD: "recovered: what the worst of its attacks brings back, 0 % as the retrained model, 100 % as the target.",
}
"""Notes on columns that are no metric."""


def head(experiment: Study, metric: str) -> str:
    """A metric's name with its direction and unit."""
    declared, target = experiment.declared(metric), experiment.entry(metric).get("target")
    arrow = "→" if target is not None or declared.group == "unseen" else "↑" if declared.higher_is_better else "↓"
    return f"{words(metric)} {arrow}" + (" (%)" if declared.unit == "%" else "")


def runs_of(experiment: Study, method: str) -> str:
    """How many runs finished, and what became of the others."""
    cells = [r for r in experiment.runs if r.method == method]
    left = [r for r in cells if r.results is None]
    if not left:
        return str(len(cells))
    return f"{len(cells) - len(left)} of {len(cells)}: " + ", ".join(dict.fromkeys(map(_became, left)))


def _became(run: StudiedRun) -> str:
    return "diverged" if run.status == "failed" and "diverged" in (run.error or "") else run.status


def results(experiment: Study, comparisons: dict[str, list[Comparison]]) -> Table:
    """Means, deviations and intervals of all methods beside the model before and the retrained one."""
    columns, ran = experiment.columns, {r.method for r in experiment.runs}
    scenario = "" if len(experiment.scenarios) > 1 else next(iter(experiment.scenarios))
    beside = [m for m in (BEFORE, RETRAINED) if experiment.of(m)]
    rows = beside + [m for m in experiment.methods if m in ran]
    choices = {m: _setting(spec.searched.get(scenario, {})) for m, spec in experiment.methods.items() if m in ran}
    extra = _extra(experiment, rows)
    searched = ["searched"] if any(choices.values()) else []
    spreads = f": mean ± standard deviation [95 % interval] over {experiment.over}" if experiment.replicated else ""
    heads = ["method", "runs", *searched, *(head(experiment, m) for m in columns), *extra, *LAST]
    table = Table(f"{experiment.name}-results", f"{experiment.title}{spreads}", heads)
    best = {m: _best(experiment, m) for m in columns}
    for method in rows:
        line = [Entry(method), Entry(runs_of(experiment, method) if method in ran else "")]
        line += [Entry(choices.get(method, "")) for _ in searched]
        for metric in columns:
            s = spread_of(experiment.entries(method, metric).values())
            verdict = next((c.verdict for c in comparisons[metric] if c.other == method), 0)
            line.append(measured(s, method in best[metric], MARKS[verdict]))
        line += [entries.get(method, Entry("–")) for entries in extra.values()]
        table.add(line + _spent(experiment, method), method == experiment.ours)
        if method == RETRAINED:
            table.line()
    table.note(*_notes(experiment, comparisons))
    table.note(*(note for column, note in SAID.items() if column in extra))
    if experiment.kind == "table":
        _foreign_rows(experiment, table)
    return table


def _extra(experiment: Study, rows: list[str]) -> Columns:
    """Columns that are no metric, as far as there is something in them: entries by method."""
    scores = {m: spread(v.values()) for m, v in overall(experiment).items()}
    gaps, back = _gaps(experiment, rows), worst_shares(experiment)
    found = {OVERALL: _marked(experiment, scores, lambda x: -x)} if len(scores) > 1 else {}
    if any(g.n for g in gaps.values()):
        found[DISTANCE] = _marked(experiment, gaps, float)
    if back:
        found[HEAD] = _marked(experiment, back, abs)
    return found


def _gaps(experiment: Study, rows: Iterable[str]) -> dict[str, Spread]:
    """Distances to the retrained model, by method."""
    return {m: spread(distance(experiment, m, experiment.columns).values()) for m in rows}


def in_short(experiment: Study) -> Iterator[str]:
    """What came of an experiment, for each group of scenarios: what comes back, and which method ends nearest.

    Of more than ``NAMED`` methods that were attacked, it is ours, and those after which least and most comes back.
    """
    for name, group in experiment.groups.items():
        where = f"{name}: " if len(experiment.groups) > 1 else ""
        back, gaps = worst_shares(group), {m: s for m, s in _gaps(group, [*group.ran, BEFORE]).items() if s.n}
        order = sorted(back, key=lambda method: back[method].mean)
        if len(order) > NAMED:
            order = [m for m in order if m in (experiment.ours, order[0], order[-1])]
        told = [f"{measured(back[m]).text} % {measured(back[m]).small} after {m}" for m in order]
        if told:
            yield f"{where}The worst of its attacks recovers {', '.join(told)}."
        before = gaps.pop(BEFORE, None)
        if gaps:
            nearest = min(gaps, key=lambda method: gaps[method].mean)
            was = f", before {figure(before.mean)}" if before else ""
            least = "least " if len(gaps) > 1 else ""
            far = figure(gaps[nearest].mean)
            yield f"{where}The distance to the retrained model is {least}after {nearest}: {far}{was}."


def _marked(experiment: Study, values: dict[str, Spread], bad: Callable[[float], float]) -> dict[str, Entry]:
    """Entries, of which the least bad of several methods' are marked."""
    rivals = experiment.methods if len(experiment.methods) > 1 else ()
    least = min((bad(s.mean) for m, s in values.items() if m in rivals and s.n), default=math.nan)
    return {m: measured(s, m in rivals and bad(s.mean) == least) for m, s in values.items()}


def _spent(experiment: Study, method: str) -> list[Entry]:
    """What the runs of a method cost, on average."""
    found = experiment.of(method).values() if method in experiment.methods else []
    line = []
    for cost, digits in LAST.values():
        mean = spread(c for r in found if (c := r.cost(cost)) is not None).mean
        line.append(Entry("–") if math.isnan(mean) else Entry(f"{mean:.{digits}f}", numbers={"": mean}))
    return line


def _setting(search: dict[str, Any]) -> str:
    """What a search chose, and of how many candidates."""
    choice, candidates = search.get("choice"), len(search.get("scores") or ())
    text = f"{choice:g}" if isinstance(choice, float) else "" if choice is None else str(choice)
    return f"{text} (of {candidates})" if text and candidates else text


def _best(experiment: Study, metric: str) -> set[str]:
    """Of several methods those of the highest mean merit; none where all are alike."""
    if len(experiment.methods) == 1:
        return set()
    found = {m: merit(experiment, m, metric).values() for m in experiment.methods}
    means = {m: spread(values).mean for m, values in found.items() if values}
    top = {m for m, x in means.items() if x == max(means.values())}
    return top if len(top) < len(means) or len(means) == 1 else set()


def _foreign_rows(experiment: Study, table: Table) -> None:
    """Rows of other programs' models that have a value of some column."""
    columns, own = experiment.columns, next((r.definition for r in experiment.finished), "")
    for name, (definition, values) in experiment.foreign.items():
        if not values.keys() & set(columns):
            continue
        table.line()
        line = [Entry(f"{name} [{definition}]"), Entry("foreign"), *([Entry()] if "searched" in table.head else [])]
        line += [plain(values.get(m)) for m in columns]
        table.add(line + [Entry()] * (len(table.head) - len(line)))
        if definition != own:
            said = f"open-unlearning's totals under its definition, ours are under '{own}'; nothing is tested"
            table.note(f"{name}: {said}.")


def _notes(experiment: Study, comparisons: dict[str, list[Comparison]]) -> list[str]:
    """What one must know to read the table."""
    columns, over, rivals = experiment.columns, experiment.over, len(experiment.methods) > 1
    notes = ["→ nearest to the goal is best, ↑ highest, ↓ lowest" + ("; the best mean is bold." if rivals else ".")]
    if experiment.of(BEFORE):
        notes[0] += " 'before' is the model that must forget."
    pair = trade_off(experiment)
    if rivals and pair:
        best = ", ".join(front(experiment, pair))
        notes.append(f"The front of {words(pair[0])} and {words(pair[1])}, where more of one costs the other: {best}.")
    if any(experiment.entry(m).get("target") is not None for m in columns):
        own = [f"{words(m)} {figure(x)}" for m in columns if (x := _own_goal(experiment, m)) is not None]
        notes.append("The goal is the retrained model's value" + (f", but of {', '.join(own)}." if own else "."))
    fewest = min((c.n for c in chain.from_iterable(comparisons.values())), default=None)
    if fewest is not None and fewest > 1:
        notes.append(
            f"* {experiment.ours} is better than this method at p < {LEVEL} (paired t-test over {over}, Holm's "
            "correction over methods), † worse."
        )
    if fewest is not None:
        notes.append(_limits(fewest, over))
    if any(experiment.declared(m).unit == "p-value" for m in columns):
        notes.append("Forget quality is a p-value: tests and distances take its Kolmogorov-Smirnov distance D.")
    return notes


def _own_goal(experiment: Study, metric: str) -> float | None:
    """A goal that is not the retrained model's value."""
    for run in experiment.finished:
        target = number(run.metric(metric).get("target"))
        if target is not None and target != run.value(metric, RETRAINED):
            return target
    return None


def _limits(n: int, over: str) -> str:
    """What so few replicates cannot show."""
    if n < 2:
        return f"Of {over} there is one: methods cannot be tested against one another, and intervals are over rows."
    exact = f"the exact sign-flip test cannot give less than p = {figure(least_p(n))} with {n} {over}"
    short = ", so no result here can be significant by it" if least_p(n) >= LEVEL else ""
    return f"The t-test takes differences as normal, which {n} {over} cannot show; {exact}{short}. " + (
        f"Bootstrap intervals of so few {over} are too narrow." if n < 10 else ""
    )
