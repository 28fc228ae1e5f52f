"""What a run keeps where it has forgotten as much as retraining does, read off its own course."""

from collections.abc import Sequence
from itertools import pairwise

from ofmu_pl.report.runs import StudiedRun, Study, value_of, words
from ofmu_pl.report.statistics import TRADE_OFFS, spread, spread_in
from ofmu_pl.report.tables import Entry, Table, measured
from ofmu_pl.support.records.models import RETRAINED

Point = tuple[str, float, float]  # when a model was measured, what it had forgotten, and what it had kept
PAIRS = (*TRADE_OFFS, ("forget_accuracy", "VA"))  # the trade-off's pairs, and what images have of them along a run


def crossing(course: Sequence[Point], level: float) -> tuple[float, str] | None:
    """What is kept where a course crosses a level of forgetting for the last time, and the two points around it.

    Between neighbours ``(x0, y0)``, ``(x1, y1)`` it is linear: ``y0 + (level - x0) / (x1 - x0) * (y1 - y0)``. After the
    last crossing a run stays on one side, while an earlier one was undone. Where the level is not reached, ``None``.
    SAUL (2026) compares methods so: equal forgetting first, then utility.

    >>> crossing([("start", 0.9, 1.0), ("40", 0.1, 0.8), ("end", 0.0, 0.9)], 0.5)
    (0.9, 'start to 40')
    """
    found = None
    for (before, x0, y0), (after, x1, y1) in pairwise(course):
        if min(x0, x1) <= level <= max(x0, x1):
            share = 1.0 if x0 == x1 else (level - x0) / (x1 - x0)
            found = y0 + share * (y1 - y0), f"{before} to {after}"
    return found


def course(run: StudiedRun, forgotten: str, kept: str) -> list[Point]:
    """A run from its start over the measurements along it to its end; empty where none was made along it."""
    if run.results is None or not run.results.history:
        return []
    along = sorted(run.results.history, key=lambda interim: interim.step)
    sides = [("start", run.results.before), *((str(x.step), x.metrics) for x in along), ("end", run.results.metrics)]
    points = [(when, value_of(side, forgotten), value_of(side, kept)) for when, side in sides]
    known = [(when, x, y) for when, x, y in points if x is not None and y is not None]
    return known if any(when not in ("start", "end") for when, _, _ in known) else []


def equal_forgetting(experiment: Study) -> Table:
    """A row a method: what it keeps at the end, and where its forgetting last was the retrained model's.

    The pair of metrics is the first of ``PAIRS`` that some run has along its way; without one there are no rows.
    """
    for pair in PAIRS:
        courses = {m: _courses(experiment, m, pair) for m in experiment.ran}
        if any(courses.values()):
            break
    x, y = map(words, pair)
    title = f"{experiment.title}: {y} at the retrained model's {x}"
    heads = ["method", f"{x} at the end", f"{y} at the end", f"{y} at equal forgetting", "reached by", "between steps"]
    table = Table(f"{experiment.name}-equal", title, heads)
    for method in (RETRAINED, *courses) if any(courses.values()) else ():
        found = [crossing(points, level) for points, level in courses.get(method, [])]
        reached = [at for at in found if at is not None]
        ends = [measured(spread_in(experiment, method, metric)) for metric in pair]
        if method == RETRAINED:
            table.add([Entry(method), *ends, ends[1], Entry(), Entry()])
            table.line()
            continue
        many = f"{len(reached) or 'none'} of {len(found)}" if found else "not measured along the run"
        between = ", ".join(dict.fromkeys(steps for _, steps in reached))
        row = [measured(spread(kept for kept, _ in reached)), Entry(many), Entry(between)]
        table.add([Entry(method), *ends, *row], method == experiment.ours)
    table.note(
        f"At equal forgetting: on a run's own course, linear between neighbouring measurements, where {x} last is the "
        "retrained model's. Earlier crossings were undone; a run that does not reach the level has no value.",
        "It is what a stop there would have kept: what a run repairs later is not counted.",
        "The wider the steps between which it lies, the more of it is assumed: lower evaluation.every_n_steps.",
        "Along a run at most 100 rows of each set are measured (1,000 images), at its start and end all.",
    )
    return table


def _courses(experiment: Study, method: str, pair: tuple[str, str]) -> list[tuple[list[Point], float]]:
    """Courses of a method's runs, with the level of the retrained model of each."""
    runs = experiment.of(method).values()
    found = [(course(run, *pair), run.value(pair[0], RETRAINED)) for run in runs]
    return [(points, level) for points, level in found if points and level is not None]
