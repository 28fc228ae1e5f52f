"""``python -m ofmu_pl report FOLDER``: the files of all tables and figures, and one HTML page.

The page needs nothing else: no script, no request, pictures inside; its policy forbids all others. What stands where is
in ``page.html.jinja``; jinja2 escapes all text of others for it.
"""

import base64
import re
import shlex
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cached_property
from itertools import chain, count
from pathlib import Path

from jinja2 import Environment
from rich import box
from rich.markup import escape
from rich.table import Column
from rich.table import Table as Printed
from rich.text import Text

from ofmu_pl import __version__
from ofmu_pl.report.claims import Claim, claims
from ofmu_pl.report.collect import Collection, collect
from ofmu_pl.report.contents import GRIDS, attack_tables, tables
from ofmu_pl.report.figures import Picture, attack_pictures, pictures
from ofmu_pl.report.figures.style import Look
from ofmu_pl.report.results import in_short
from ofmu_pl.report.runs import StudiedRun, Study
from ofmu_pl.report.tables import Entry, Table, to_csv, to_latex, to_markdown
from ofmu_pl.support.errors import UserError
from ofmu_pl.support.files import replacing, sweep
from ofmu_pl.support.pages import REPORT, templates
from ofmu_pl.support.terminal import console, print_whole


@dataclass
class Section:
    """What the page shows of one experiment, tables in its order."""

    experiment: Study
    tables: list[Table] = field(default_factory=list)
    pictures: list[Picture] = field(default_factory=list)
    claims: list[Claim] = field(default_factory=list)
    attack_tables: list[Table] = field(default_factory=list)
    attack_pictures: list[Picture] = field(default_factory=list)

    @cached_property
    def short(self) -> list[str]:
        """What was found, in sentences."""
        e = self.experiment
        return [] if e.requests is not None or e.kind in GRIDS else list(in_short(e))


def report(folder: Path, foreign: list[Path] | None = None) -> Path:
    """Write ``FOLDER/report``: ``index.html``, ``tables/*.{md,csv,tex}``, ``figures/*.png``; print a short table.

    Args:
        folder: Folder of a benchmark, or of ordinary runs as METHOD/latest/results.json, for example logs/quickstart.
        foreign: Folders of open-unlearning's evaluations, each a row in the main tables of text.

    Returns:
        The page.

    Raises:
        UserError: See ``collect``, or ``FOLDER/report`` is something else.
    """
    found = collect(folder, foreign)
    methods = chain.from_iterable(e.methods for e in found.experiments)
    look = Look(list(methods), [e.ours for e in found.experiments])
    sections = [
        Section(e, tables(e), list(pictures(e, look)), claims(e), attack_tables(e), list(attack_pictures(e, look)))
        for e in found.experiments
    ]
    target = folder / REPORT
    if target.is_dir() and any(target.iterdir()) and not (target / "index.html").is_file():
        raise UserError(f"'{target}' is no report, which would take its place: move it, or give it another name.")
    sweep(folder, 0)
    taken: dict[str, set[str]] = {"tables": set(), "figures": set()}
    with replacing(target) as temporary:
        for place in taken:
            (temporary / place).mkdir(parents=True)
        for section in sections:
            for table in section.tables + section.attack_tables:
                file = _file(table.name, taken["tables"])
                for ending, write in (("md", to_markdown), ("csv", to_csv), ("tex", to_latex)):
                    (temporary / "tables" / f"{file}.{ending}").write_text(write(table), encoding="utf-8")
            for picture in section.pictures + section.attack_pictures:
                file = _file(picture.name, taken["figures"])
                (temporary / "figures" / f"{file}.png").write_bytes(picture.content)
        (temporary / "index.html").write_text(page(found, sections), encoding="utf-8")
    _print(found, sections, target)
    return target / "index.html"


def _file(name: str, taken: set[str]) -> str:
    """A name without anything that means something to a file system, numbered where others have taken it."""
    plain = re.sub(r"[^\w.-]+", "-", name).strip(".-") or "unnamed"
    numbered = chain([plain], (f"{plain}-{number}" for number in count(2)))
    free = next(name for name in numbered if name.lower() not in taken)  # some file systems know no capitals
    taken.add(free.lower())
    return free


def _print(found: Collection, sections: list[Section], target: Path) -> None:
    """The first table of each experiment without deviations (of requests all), the problems, the paths."""
    on = console()
    for section in sections:
        for table in section.tables + section.attack_tables:
            main = table.name.endswith(("-results", "-grid", "-attacks", "-across"))
            if main or (section.experiment.requests and not table.folded):
                print_whole(_short(table), on)
        for sentence in section.short:
            on.print(sentence, markup=False, highlight=False)
    for problem in found.problems:
        on.print(f"Problem: {problem}", markup=False)
    on.print(f"Tables: {target / 'tables'}\nFigures: {target / 'figures'}", markup=False, soft_wrap=True)
    on.print(f"Report: {target / 'index.html'}", markup=False, soft_wrap=True)


def _short(table: Table) -> Printed:
    """A table without deviations; where it has fewer rows than columns, a column for each row."""
    turned = len(table.rows) < len(table.head)
    rows = [[Entry(head) for head in table.head], *table.rows]
    head, *lines = zip(*rows, strict=True) if turned else rows
    printed = Printed(
        Column(escape(head[0].text), no_wrap=True),
        *(escape(entry.text) for entry in head[1:]),
        title=escape(re.split("[:,] mean ±", table.title)[0]),
        title_justify="left",
        box=box.SIMPLE_HEAD,
    )
    for i, row in enumerate(lines):
        cells = [Text(e.text.partition(" ±")[0] + e.mark) for e in row]  # not str: brackets would be read as styles
        ours, last = (False, False) if turned else (i in table.ours, i in table.lines)
        printed.add_row(*cells, style="bold" if ours else None, end_section=last)
    return printed


def page(found: Collection, sections: list[Section]) -> str:
    """Return the text of the page of all experiments, a section each."""
    runs = list(chain.from_iterable(s.experiment.runs for s in sections))
    template = environment().get_template("page.html.jinja")
    return template.render(
        found=found,
        sections=sections,
        claims=list(chain.from_iterable(s.claims for s in sections)),
        cells=len(runs),
        finished=sum(run.results is not None for run in runs),
        facts=_facts(runs),
        version=__version__,
    )


def environment() -> Environment:
    """Return jinja2's environment of the templates in this folder."""
    return templates("ofmu_pl.report", anchor=_anchor, base64=_base64, command_line=_command_line)


def _anchor(name: str) -> str:
    """What links to an experiment's section name it by; no two experiments share one."""
    return "e-" + re.sub(r"[^a-zA-Z0-9]", lambda sign: f"-{ord(sign[0]):x}-", name)


def _base64(content: bytes) -> str:
    return base64.b64encode(content).decode()


def _command_line(words: Iterable[str]) -> str:
    """The command of a run, as a shell reads it."""
    return shlex.join(["python", "-m", "ofmu_pl", *words])


def _facts(runs: list[StudiedRun]) -> dict[str, list[str]]:
    """Code, versions and data of the runs by name, each value once."""
    facts: dict[str, dict[str, None]] = {}
    for run in runs:
        if run.results is None:
            continue
        provenance = run.results.provenance
        versions = provenance.get("versions")
        pairs = {k: provenance.get(k) for k in ("ofmu_pl", "git", "python", "benchmark")}
        pairs |= versions if isinstance(versions, dict) else {}
        hashes = provenance.get("hashes")
        pairs |= {f"{k} rows": v for k, v in hashes.items()} if isinstance(hashes, dict) else {}
        pairs["definition"] = run.definition
        for name, value in pairs.items():
            if value is not None:
                facts.setdefault(str(name), {})[str(value)] = None
    return {name: list(values) for name, values in facts.items()}
