"""One HTML page that needs nothing else: no script, no request, pictures inside; its policy forbids all others.

What stands where is in ``page.html.jinja``; jinja2 escapes all text of others for it.
"""

import base64
import re
import shlex
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import chain

from jinja2 import Environment

from ofmu_pl import __version__
from ofmu_pl.report.claims import Claim
from ofmu_pl.report.collect import Collection
from ofmu_pl.report.figures import Picture
from ofmu_pl.report.runs import StudiedRun, Study
from ofmu_pl.report.tables import Table
from ofmu_pl.support.pages import templates


@dataclass
class Section:
    """What the page shows of one experiment, tables in its order."""

    experiment: Study
    tables: list[Table] = field(default_factory=list)
    pictures: list[Picture] = field(default_factory=list)
    claims: list[Claim] = field(default_factory=list)
    attack_tables: list[Table] = field(default_factory=list)
    attack_pictures: list[Picture] = field(default_factory=list)


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
    """What links to an experiment's section name it by."""
    return "e-" + re.sub(r"[^a-zA-Z0-9]+", "-", name)


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
