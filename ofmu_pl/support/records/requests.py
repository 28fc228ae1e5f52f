"""``requests.json``: requests one after another, what is still known of each after each, and what it cost."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import Any, Self

from ofmu_pl.support.records.manifest import MethodRecord
from ofmu_pl.support.records.reading import Record, entries, items, section
from ofmu_pl.support.records.results import Cost

REQUESTS = "requests.json"
Row = list[float | None]
"""Values by request; ``None`` where there is none."""


@dataclass
class RequestRecord:
    """One request of a sequence.

    Attributes:
        number: Place in the sequence, from 1.
        folder: Folder of its run below the sequence's root, with ``latest`` in it.
        key: What its results follow from, the runs before it included.
        options: Command-line options of its run, by key.
        status: ``finished``, ``failed`` or ``unfinished``.
        error: Why it failed, in one sentence.
        cost: What it spent.
    """

    number: int
    folder: str
    key: str
    options: dict[str, Any] = field(default_factory=dict)
    status: str = "unfinished"
    error: str | None = None
    cost: Cost = field(default_factory=Cost)

    @classmethod
    def _of(cls, x: dict[str, Any]) -> RequestRecord:
        cost = section(x, "cost")
        return cls(
            number=int(x["number"]),
            folder=str(x["folder"]),
            key=str(x["key"]),
            options=section(x, "options"),
            status=str(x["status"]),
            error=None if x.get("error") is None else " ".join(str(x["error"]).split()),
            cost=Cost(**{f.name: cost.get(f.name) for f in fields(Cost)}),
        )


@dataclass
class SequenceRecord:
    """One method on one seed: all requests in turn, each from the model that the last one left.

    Attributes:
        method: Name of the method.
        seed: Seed of its runs.
        requests: The requests in turn.
        forgotten: By metric of the forget side a matrix: row s, column t hold request s after request t (both from 1).
        before: By metric, each request just before its own turn.
        returned: By metric, the largest rise of each request after its own turn; ``None`` of the last.
        kept: By metric of what must stay, the value before the first request and after each.
    """

    method: str
    seed: int
    requests: list[RequestRecord] = field(default_factory=list)
    forgotten: dict[str, list[Row]] = field(default_factory=dict)
    before: dict[str, Row] = field(default_factory=dict)
    returned: dict[str, Row] = field(default_factory=dict)
    kept: dict[str, Row] = field(default_factory=dict)

    @classmethod
    def _of(cls, x: dict[str, Any]) -> SequenceRecord:
        forgotten = {name: [list(row) for row in items(section(x, "forgotten"), name)] for name in x["forgotten"]}
        rows = {part: {name: items(section(x, part), name) for name in x[part]} for part in ("before", "returned")}
        kept = {name: items(section(x, "kept"), name) for name in x["kept"]}
        requests = [RequestRecord._of(r) for r in items(x, "requests")]
        return cls(str(x["method"]), int(x["seed"]), requests, forgotten, rows["before"], rows["returned"], kept)


@dataclass
class ControlRecord:
    """A model that was retrained without all requests so far.

    Attributes:
        seed: Seed of the sequences that it stands beside.
        after: Number of the last request that it was trained without.
        folder: Folder of the run that measured it.
        status: ``finished``, ``failed`` or ``unfinished``.
        error: Why it failed, in one sentence.
        forgotten: By metric of the forget side, its value of each request.
        kept: By metric of what must stay, its value.
    """

    seed: int
    after: int
    folder: str
    status: str = "unfinished"
    error: str | None = None
    forgotten: dict[str, Row] = field(default_factory=dict)
    kept: dict[str, float | None] = field(default_factory=dict)

    @classmethod
    def _of(cls, x: dict[str, Any]) -> ControlRecord:
        forgotten = {name: items(section(x, "forgotten"), name) for name in x["forgotten"]}
        found = cls(int(x["seed"]), int(x["after"]), str(x["folder"]), str(x["status"]), x.get("error"))
        found.forgotten, found.kept = forgotten, section(x, "kept")
        return found


@dataclass
class RequestsRecord(Record):
    """``requests.json``: what was asked for, and what became of it.

    Attributes:
        name: Name of the folder.
        version: Version of ofmu_pl that wrote it.
        results_version: ``support.version.RESULTS_VERSION`` of that version.
        date: Date at which it was written.
        base: Configurations that all runs share, each put over those before.
        options: Options of every run, by key.
        requests: The arguments of the data that name each request's rows.
        retain_later: Whether rows of later requests are retained until their turn.
        methods: Methods by name.
        sequences: Each method on each seed.
        controls: Retrained models.
    """

    name: str
    version: str | None
    results_version: int | None
    date: str
    base: list[str]
    options: dict[str, Any]
    requests: list[dict[str, Any]]
    retain_later: bool
    methods: dict[str, MethodRecord]
    sequences: list[SequenceRecord] = field(default_factory=list)
    controls: list[ControlRecord] = field(default_factory=list)

    @classmethod
    def _of(cls, content: dict[str, Any]) -> Self:
        return cls(
            name=str(content["name"]),
            version=content.get("version"),
            results_version=content.get("results_version"),
            date=str(content.get("date") or ""),
            base=[str(path) for path in items(content, "base")],
            options=section(content, "options"),
            requests=[dict(request) for request in items(content, "requests")],
            retain_later=bool(content["retain_later"]),
            methods={
                name: MethodRecord(m.get("overlay"), section(m, "options"))
                for name, m in entries(content, "methods").items()
            },
            sequences=[SequenceRecord._of(x) for x in items(content, "sequences")],
            controls=[ControlRecord._of(x) for x in items(content, "controls")],
        )
