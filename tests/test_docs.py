"""Links and anchors of the pages lead somewhere, every page can be reached, and README stays a first screen."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest
import yaml

import ofmu_pl

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
FENCES = re.compile(r"^(```|~~~).*?^\1", re.MULTILINE | re.DOTALL)
LINKS = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")


def text_of(page):
    """A page without its code."""
    return FENCES.sub("", page.read_text(encoding="utf-8"))


def anchors(page):
    """Names of a page's headings, as GitHub and MyST make them."""
    heads = re.findall(r"^#+ (.*)$", text_of(page), re.MULTILINE)
    return {
        re.sub(r"[^\w\- ]", "", re.sub(r"`|\[([^\]]*)\]\([^)]*\)", r"\1", head)).lower().replace(" ", "-")
        for head in heads
    }


def links(page):
    """Targets within the repository that a page names, with their anchors."""
    for link in LINKS.findall(text_of(page)):
        if not link.startswith(("http", "mailto:", "{")):
            path, _, anchor = link.partition("#")
            yield link, (page.parent / path).resolve() if path else page, anchor


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page):
    lost = {link for link, path, _ in links(page) if not path.exists()}
    assert not lost
    assert not {link for link, path, anchor in links(page) if anchor and anchor not in anchors(path)}


def test_every_page_can_be_reached_from_the_readme():
    seen, left = set(), [ROOT / "README.md"]
    while left:
        page = left.pop()
        if page.suffix == ".md" and page not in seen:
            seen.add(page)
            left += [path for _, path, _ in links(page)]
    logs = {page for page in PAGES if page.parent.name == "log"}  # dated notes, which need no reader's way
    assert not set(PAGES) - logs - seen


def test_readme_is_a_first_screen_with_no_measured_number():
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert len(readme.encode()) <= 10 * 1024
    prose = FENCES.sub("", readme)
    assert not re.findall(r"(?<![\w./%-])0\.\d+(?!\.)|\d %|\de-\d", prose), (
        "numbers stand in docs/results, with their date"
    )
    assert f"badge/version-{ofmu_pl.__version__}-" in readme


def test_citation_names_this_version_and_licence():
    cited = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert cited["version"] == ofmu_pl.__version__
    assert cited["license"] == project["license"]
    assert cited["preferred-citation"]["title"].startswith("OFMU")
