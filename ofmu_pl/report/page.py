"""One HTML page that needs nothing else: no script, no request, pictures inside; its policy forbids all others."""

from __future__ import annotations

import base64
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from html import escape
from importlib.resources import files
from itertools import chain
from urllib.parse import quote

from ofmu_pl import __version__
from ofmu_pl.report.claims import Claim
from ofmu_pl.report.collect import Collection
from ofmu_pl.report.figures import Picture
from ofmu_pl.report.runs import Experiment, Run
from ofmu_pl.report.tables import Table, to_html

POLICY = "default-src 'none'; img-src data:; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"


@dataclass
class Section:
    """What the page shows of one experiment."""

    experiment: Experiment
    tables: list[Table] = field(default_factory=list)
    pictures: list[Picture] = field(default_factory=list)
    claims: list[Claim] = field(default_factory=list)


def page(found: Collection, sections: list[Section]) -> str:
    """The page's text.

    Args:
        found: What was read, with its problems.
        sections: One an experiment.
    """
    style = (files("ofmu_pl.report") / "page.css").read_text(encoding="utf-8")
    all_claims = [claim for s in sections for claim in s.claims]
    links = [
        ("problems", f"Problems ({len(found.problems)})", found.problems),
        ("claims", "The paper's statements", all_claims),
    ]
    contents = [f"<li><a href='#{i}'>{escape(text)}</a></li>" for i, text, shown in links if shown]
    contents += [f"<li><a href='#{_id(s.experiment.name)}'>{escape(s.experiment.title)}</a></li>" for s in sections]
    title = f"{found.name}: unlearning report"
    return (
        "<!doctype html>\n<html lang=en><head><meta charset=utf-8>"
        f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">'
        '<meta name=viewport content="width=device-width, initial-scale=1"><link rel=icon href="data:,">'
        f"<title>{escape(title)}</title><style>{style}</style></head><body>"
        f"<nav aria-label=Contents><ul>{''.join(contents)}"
        "<li><a href='#provenance'>Provenance</a></li></ul></nav>"
        f"<main><h1>{escape(title)}</h1>{_opening(found, sections)}{_problems(found.problems)}"
        f"{_claims(all_claims)}{''.join(map(_section, sections))}{_footer(found, sections)}</main></body></html>\n"
    )


def _id(name: str) -> str:
    return "e-" + re.sub(r"[^a-zA-Z0-9]+", "-", name)


def _opening(found: Collection, sections: list[Section]) -> str:
    runs = [r for s in sections for r in s.experiment.runs + s.experiment.apart]
    done = sum(r.results is not None for r in runs)
    date = f" of {escape(found.date)}" if found.date else ""
    return (
        f"<p class=soft>{done} of {len(runs)} runs{date}. Tables read results.json and nothing else; the same "
        "tables lie beside this page as Markdown, CSV and LaTeX (<code>tables/</code>), the figures as PNG "
        "(<code>figures/</code>).</p>"
    )


def _problems(problems: list[str]) -> str:
    if not problems:
        return ""
    items = "".join(f"<li>{escape(p)}</li>" for p in problems)
    head = "<b>Problems: what is missing or not to be trusted</b>"
    return f"<section class=problems id=problems>{head}<ul>{items}</ul></section>"


def _claims(claims: list[Claim]) -> str:
    if not claims:
        return ""
    rows = "".join(
        f"<tr><td>{escape(c.text)}</td><td class='{c.verdict.split()[0]}'>{c.verdict}</td>"
        f"<td>{escape(c.why)}</td><td><a href='#{_id(c.experiment)}'>{escape(c.experiment)}</a></td></tr>"
        for c in claims
    )
    return (
        "<h2 id=claims>The paper's statements</h2><p class=soft>Held against our numbers; a difference counts where "
        "its 95 % t interval over seeds leaves 0 out. Another model or scale can give another answer.</p>"
        "<div class='table claims' tabindex=0><table><thead><tr><th>the paper</th><th>here</th><th>what decides</th>"
        f"<th>experiment</th></tr></thead><tbody>{rows}</tbody></table></div>"
    )


def _section(s: Section) -> str:
    e = s.experiment
    labels = f"<p class=soft>Stands for {escape(', '.join(e.paper))} of the paper.</p>" if e.paper else ""
    note = f"<p class=note>{escape(e.note)}</p>" if e.note else ""
    figures = "".join(map(_figure, s.pictures))
    tables = "".join(map(_table, s.tables))
    empty = "" if s.tables or s.pictures else "<p>No run has finished, so there is nothing to show.</p>"
    head = f"<h2 id='{_id(e.name)}'>{escape(e.title)}</h2>{labels}{note}{empty}"
    return f"<section>{head}{figures}{tables}{_runs(e)}</section>"


def _table(table: Table) -> str:
    if not table.folded:
        return to_html(table)
    return f"<details><summary>{escape(table.title)}</summary>{to_html(table)}</details>"


def _figure(p: Picture) -> str:
    data = base64.b64encode(p.content).decode()
    return (
        f'<figure><img src="data:image/png;base64,{data}" alt="{escape(p.title + ". " + p.caption)}">'
        f"<figcaption><b>{escape(p.title)}.</b> {escape(p.caption)}</figcaption></figure>"
    )


def _runs(experiment: Experiment) -> str:
    """Every cell with a link to its results and its command line."""
    runs = experiment.runs + experiment.apart
    if not runs:
        return ""
    rows = "".join(
        f"<tr><th scope=row>{escape(r.method)}</th><td>{escape(r.scenario)}</td><td class=n>{r.seed}</td>"
        f"<td>{_result(r)}</td><td>{_command(r.words)}</td></tr>"
        for r in runs
    )
    return (
        f"<details><summary>All {len(runs)} runs</summary><div class=table tabindex=0><table><thead><tr><th>method</th>"
        "<th>scenario</th><th class=n>seed</th><th>result</th><th>command</th></tr></thead>"
        f"<tbody>{rows}</tbody></table></div></details>"
    )


def _result(run: Run) -> str:
    if run.results is None:
        return f"{escape(run.status)}: {escape(run.error or 'it has not ended yet')}"
    return f"<a href='../{escape(quote(run.folder))}/latest/results.json'>results.json</a>"


def _command(words: Iterable[str]) -> str:
    words = list(words)
    if not words:
        return ""
    line = " ".join(["python -m ofmu_pl", *(w if re.fullmatch(r"[\w./:=+-]+", w) else f"'{w}'" for w in words)])
    return f"<details><summary>show</summary><code>{escape(line)}</code></details>"


def _footer(found: Collection, sections: list[Section]) -> str:
    """Code, versions and data of the runs, each value once."""
    runs = list(chain.from_iterable(s.experiment.finished + s.experiment.apart for s in sections))
    facts: dict[str, dict[str, None]] = {}
    for run in runs:
        provenance = (run.results or {}).get("provenance") or {}
        versions = provenance.get("versions")
        pairs = {k: provenance.get(k) for k in ("ofmu_pl", "git", "python", "benchmark")}
        pairs |= versions if isinstance(versions, dict) else {}
        hashes = provenance.get("hashes")
        pairs |= {f"{k} rows": v for k, v in hashes.items()} if isinstance(hashes, dict) else {}
        pairs["definition"] = run.definition
        for name, value in pairs.items():
            if value is not None:
                facts.setdefault(str(name), {})[str(value)] = None
    rows = "".join(
        f"<tr><th scope=row>{escape(name)}</th><td><code>{escape(', '.join(list(values)[:12]))}"
        f"{f' and {len(values) - 12} more' if len(values) > 12 else ''}</code></td></tr>"
        for name, values in facts.items()
    )
    return (
        "<footer id=provenance><h3>Provenance</h3><p>Made by <code>python -m ofmu_pl report "
        f"{escape(str(found.folder))}</code>, ofmu_pl {__version__}; what the runs say of themselves:</p>"
        f"<div class=table tabindex=0><table><tbody>{rows}</tbody></table></div></footer>"
    )
