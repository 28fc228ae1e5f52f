"""``requests.json``: requests one after another, what is still known of each after each, and what it cost."""

from dataclasses import dataclass, field

from ofmu_pl.support.records.manifest import MethodRecord, Value
from ofmu_pl.support.records.reading import Record
from ofmu_pl.support.records.results import Cost

REQUESTS = "requests.json"
Row = list[float | None]  # values by request; `None` where there is none


@dataclass
class RequestRecord:
    """One request of a sequence.

    Attributes:
        number: Place in the sequence, from 1.
        folder: Folder of its run below the sequence's root, with ``latest`` in it.
        key: What its results follow from, the runs before it included.
        options: Command-line options of its run, by key.
        status: ``finished``, ``failed`` or ``unfinished``.
    """

    number: int
    folder: str
    key: str
    options: dict[str, Value] = field(default_factory=dict)
    status: str = "unfinished"
    error: str | None = None
    cost: Cost = field(default_factory=Cost)


@dataclass
class SequenceRecord:
    """One method on one seed: all requests in turn, each from the model that the last one left.

    Attributes:
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


@dataclass
class ControlRecord:
    """A model that was retrained without all requests so far.

    Attributes:
        seed: Seed of the sequences that it stands beside.
        after: Number of the last request that it was trained without.
        folder: Folder of the run that measured it.
        status: ``finished``, ``failed`` or ``unfinished``.
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


@dataclass
class RequestsRecord(Record):
    """``requests.json``: what was asked for, and what became of it.

    Attributes:
        version: Version of ofmu_pl that wrote it.
        results_version: ``support.version.RESULTS_VERSION`` of that version.
        base: Configurations that all runs share, each put over those before.
        options: Options of every run, by key.
        requests: The arguments of the data that name each request's rows.
        retain_later: Whether rows of later requests are retained until their turn.
        controls: Retrained models.
    """

    name: str
    version: str | None
    results_version: int | None
    date: str
    base: list[str]
    options: dict[str, Value]
    requests: list[dict[str, Value]]
    retain_later: bool
    methods: dict[str, MethodRecord]
    sequences: list[SequenceRecord] = field(default_factory=list)
    controls: list[ControlRecord] = field(default_factory=list)
