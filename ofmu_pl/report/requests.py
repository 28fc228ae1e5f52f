"""The tables of requests one after another: what is still known, what came back, what was kept, what it cost."""

from collections.abc import Iterable
from itertools import chain

from ofmu_pl.report.runs import Study, number, words
from ofmu_pl.report.statistics import spread
from ofmu_pl.report.tables import Entry, Table, measured, plain
from ofmu_pl.support.records.models import RETRAINED
from ofmu_pl.support.records.requests import RequestsRecord, Row, SequenceRecord


def main_metric(record: RequestsRecord) -> str | None:
    """The metric of the matrix that is shown: the first that the runs have; ``None``: no request has finished."""
    return next(chain.from_iterable(s.forgotten for s in record.sequences), None)


def kept_columns(experiment: Study, record: RequestsRecord) -> list[str]:
    """The metrics of what must stay that are shown: the suite's columns, or all where it has none."""
    names = dict.fromkeys(chain.from_iterable(s.kept for s in record.sequences))
    return [name for name in names if experiment.declared(name).column is not None] or list(names)


def known(values: Iterable[float | None]) -> list[float]:
    """Finite values."""
    return [x for x in map(number, values) if x is not None]


def requests_tables(experiment: Study, record: RequestsRecord) -> list[Table]:
    """A line a method, then a matrix a method and seed, then costs."""
    metric = main_metric(record)
    if metric is None:
        return []
    shown = [s for s in record.sequences if s.forgotten]
    matrices = [_matrix(experiment, record, s, metric) for s in shown]
    return [_summary(experiment, record, metric), *matrices, _costs(experiment, shown)]


def _summary(experiment: Study, record: RequestsRecord, metric: str) -> Table:
    kept, total = kept_columns(experiment, record), len(record.requests)
    heads = ["method", "requests", f"{words(metric)}, mean of all, in the end ↓", "largest return ↓"]
    for name in kept:
        heads += [f"{words(name)} before", f"{words(name)} in the end"]
    notes = [
        "Largest return: the most that any request's value rose above that right after its own turn.",
        "In the end: after the last request that finished; the deviations are over seeds.",
    ]
    heads += ["gradients", "seconds"]
    table = Table(f"{experiment.name}-results", f"{experiment.title}: in the end", heads, notes=notes)
    for method in record.methods:
        own = [s for s in record.sequences if s.method == method]
        done: dict[int, None] = {}  # each count once, in order
        for sequence in own:
            done[sum(request.status == "finished" for request in sequence.requests)] = None
        line = [Entry(method), Entry(", ".join(f"{n} of {total}" for n in done))]
        ends = [spread(known(_last(s.forgotten[metric]))).mean for s in own if metric in s.forgotten]
        line.append(measured(spread(ends)))
        returns = [max(x) for s in own if (x := known(s.returned.get(metric, [])))]
        line.append(measured(spread(returns)))
        for name in kept:
            values = [x for s in own if (x := known(s.kept.get(name, [])))]
            line += [measured(spread(x[0] for x in values)), measured(spread(x[-1] for x in values))]
        for cost in ("gradient_evaluations", "training_seconds"):
            line.append(measured(spread(_spent(s, cost) for s in own)))
        table.add(line, method == experiment.ours)
    last = [c for c in record.controls if c.after == total and metric in c.forgotten]
    if last:
        ends = [spread(known(c.forgotten[metric])).mean for c in last]
        line = [Entry(RETRAINED), Entry(""), measured(spread(ends)), Entry("")]
        for name in kept:
            line += [Entry(""), measured(spread(known(c.kept.get(name) for c in last)))]
        table.add([*line, Entry(""), Entry("")])
    return table


def _matrix(experiment: Study, record: RequestsRecord, s: SequenceRecord, metric: str) -> Table:
    beside = {c.after: c for c in record.controls if c.seed == s.seed and metric in c.forgotten}
    numbers = range(1, len(s.requests) + 1)
    heads = ["", "before it", *(f"after {t}" for t in numbers), "came back"]
    title = f"{experiment.title}: {words(metric)} of each request, {s.method}, seed {s.seed}"
    notes = [
        "Before it: just before the request's own turn (of what must stay: before the first request).",
        "Came back: the most that it rose above its value after its own turn.",
        *(["Retrained, t: a model trained without the requests 1 to t."] if beside else []),
        *(f"{r.folder} {r.status}: {r.error}" for r in s.requests if r.error),
    ]
    heads += [f"retrained, {t}" for t in beside]
    table = Table(f"{experiment.name}-{s.method}-{s.seed}", title, heads, notes=notes)
    for row, values in enumerate(s.forgotten[metric]):
        line = [Entry(f"request {row + 1}"), plain(s.before[metric][row]), *map(plain, values)]
        line.append(plain(s.returned[metric][row]))
        line += [plain(c.forgotten[metric][row]) for c in beside.values()]
        table.add(line)
    table.line()
    for name in kept_columns(experiment, record):
        values = s.kept.get(name) or [None] * (len(s.requests) + 1)
        line = [Entry(words(name)), *map(plain, values), Entry("")]
        table.add([*line, *(plain(c.kept.get(name)) for c in beside.values())])
    return table


def _costs(experiment: Study, shown: list[SequenceRecord]) -> Table:
    heads = ["method", "seed", "request", "gradients", "seconds of training", "seconds of measuring"]
    table = Table(f"{experiment.name}-costs", f"{experiment.title}: cost of each request", heads, folded=True)
    for s in shown:
        for r in s.requests:
            spent = (r.cost.gradient_evaluations, r.cost.training_seconds, r.cost.evaluation_seconds)
            table.add([Entry(s.method), Entry(str(s.seed)), Entry(str(r.number)), *map(plain, spent)])
    return table


def _last(rows: list[Row]) -> list[float | None]:
    """The last column of a matrix that has values."""
    columns = [list(column) for column in zip(*rows, strict=True) if known(column)]
    return columns[-1] if columns else []


def _spent(sequence: SequenceRecord, cost: str) -> float:
    return sum(known(getattr(request.cost, cost) for request in sequence.requests))
