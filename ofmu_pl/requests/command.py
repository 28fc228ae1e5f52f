"""The command ``requests``: each method unlearns all requests in turn, and everything is measured after each."""

from pathlib import Path

from ofmu_pl.benchmark.command import Fit, alone, job_of, require_none
from ofmu_pl.benchmark.pool import Job, Pool
from ofmu_pl.benchmark.progress import Live
from ofmu_pl.report import report
from ofmu_pl.requests.specs import Requests, Retrained, check
from ofmu_pl.requests.state import State
from ofmu_pl.support.escapes import say
from ofmu_pl.support.files import below
from ofmu_pl.support.records.manifest import Method, Value
from ofmu_pl.support.records.requests import REQUESTS


def in_turn(
    name: str,
    base: str | list[str],
    methods: dict[str, Method],
    requests: list[dict[str, Value]],
    options: dict[str, Value] | None = None,
    seeds: list[int] | None = None,
    retain_later: bool = True,
    retrained: Retrained | None = None,
    workers: int = 2,
    logs: Path = Path("logs"),
    *,
    fit: Fit,
) -> Path:
    """Unlearn a list of requests one after another, each from the model that the last one left, and report.

    Every request is an ordinary run of ``fit`` in its own folder, with an exported model. What is retained is what no
    request so far names. Finished requests are not run again, also after a kill, and one that was killed goes on from
    its newest checkpoint. The list may get longer: what is done is kept.

    Args:
        name: Folder under ``logs``.
        base: Configuration that all runs share, or a list of files, each put over those before.
        methods: By name.
        requests: In turn, the arguments of the data that name each one's rows, for example ``{forget_classes: [0]}``.
        options: Options of every run, by key.
        seeds: Seeds of the runs; ``null``: 0 alone.
        retain_later: Whether rows of later requests are retained until their turn: nobody has asked for them yet, and
            the model knows them.
        retrained: How a model is trained (or which is measured) without all requests so far, as a control.
        workers: Runs at a time, each on one thread: methods and seeds side by side.
        logs: Root of all outputs.
        fit: Does a run of ``fit`` by its words; each worker process imports its module once.

    Raises:
        UserError: What ``specs.check`` says; a request was run before with other settings; another process is at work
            on this list; or, at the end, runs failed.
    """
    folder = below(logs, name, "name")
    asked = Requests(base, methods, requests, options or {}, [0] if seeds is None else seeds, retain_later, retrained)
    check(asked, folder)
    state = State(name, folder, asked)
    live = Live(workers, folder)
    with alone(folder, "run of requests"), live.bar:
        state.refuse_changes()
        pool = Pool(workers, live)
        _remember(state, fit)
        state.write()
        _run(state, pool, fit)
        state.write()
    say(f"Runs: {folder}; what became of each request: {folder / REQUESTS}")
    if any(state.fine(sequence.cells[0]) for sequence in state.sequences):
        report(folder)
    require_none(state.failures())
    return folder


def _remember(state: State, fit: Fit) -> None:
    """Take over what has finished, so that the record has it while the others run, however that ends."""
    for cell in state.cells:
        done = job_of(cell, state.folder, fit).record is not None
        if done and all(map(state.fine, cell.needs.values())):
            state.ended[cell.folder] = None


def _run(state: State, pool: Pool, fit: Fit) -> None:
    """Run the requests in turn, then the retrained models; a sequence ends at the first request that fails."""

    def end(job: Job, sentence: str | None, fresh: bool) -> None:
        state.ended[str(job.place.relative_to(state.folder))] = sentence
        if fresh:
            state.write()
            pool.live.show(job.place, sentence)

    pool.live.expect(len(state.cells))
    for turn in zip(*(s.cells for s in state.sequences), strict=True):
        ready = [cell for cell in turn if all(map(state.fine, cell.needs.values()))]
        pool.live.expect(len(ready) - len(turn))  # a sequence has ended
        pool.run([job_of(cell, state.folder, fit) for cell in ready], end)
    pool.run([job_of(cell, state.folder, fit) for cell in state.controls.values()], end)
