"""Links and anchors of the pages lead somewhere, every page can be reached, and README stays a first screen."""

import importlib
import os
import re
import subprocess
import sys
import tomllib
from collections import Counter
from pathlib import Path

import pytest
import yaml

import ofmu_pl

ROOT = Path(__file__).parents[1]
DOCS = [page for page in sorted((ROOT / "docs").rglob("*.md")) if page.parts[-2] != "generated"]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *DOCS]
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
        if not link.startswith(("http", "generated/", "../generated/")):  # what Sphinx makes, Sphinx checks
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
    assert len(readme.encode()) <= 8 * 1024
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


def toctrees(page):
    """Pages that a page's tables of contents name."""
    for block in re.findall(r"^```\{toctree\}\n(.*?)^```", page.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL):
        for line in block.splitlines():
            name = re.sub(r"^.*<(.*)>$", r"\1", line)
            if name and not line.startswith((":", "generated/")):
                yield from page.parent.glob(f"{name}.md")


def test_every_page_is_in_the_sites_contents():
    front = ROOT / "docs/index.md"
    listed = [page for tree in (front, *toctrees(front)) for page in toctrees(tree)]
    assert set(listed) == {*DOCS} - {front}
    assert len(listed) == len(set(listed))


@pytest.fixture(autouse=True)
def _as_sphinx_sees_it(monkeypatch):
    """What writes the site's pages needs no Sphinx, but the path that docs/conf.py makes."""
    monkeypatch.syspath_prepend(str(ROOT / "docs"))
    monkeypatch.syspath_prepend(str(ROOT / "scripts"))


def test_every_declared_metric_is_on_one_page(monkeypatch):
    """One that metrics.yaml does not know yet is listed with its declaration, and needs no file more."""
    site_pages = importlib.import_module("makers.metrics")
    known = site_pages.declared()
    listed = Counter(name for entry in site_pages.catalogue().values() for name in entry["declared"])
    assert set(listed) <= set(known)
    assert set(listed.values()) == {1}
    new = ofmu_pl.Metric("forget_coverage", higher_is_better=False, group="forgotten")
    monkeypatch.setattr(site_pages, "declared", lambda: known | {new.name: new})
    assert "``forget_coverage``" in dict(site_pages.metric_pages())["metrics/more"]


def test_generated_pages(tmp_path):
    """A method's page holds its loss, its overlay and the stored runs; a metric's its definitions side by side."""
    importlib.import_module("generate").write(tmp_path)
    assert {path.stem for path in (tmp_path / "methods").iterdir()} == {*ofmu_pl.modules.__all__, "index"}
    npo = (tmp_path / "methods/NPO.rst").read_text()
    assert ".. autofunction:: ofmu_pl.losses.npo" in npo
    assert npo.index("configs/methods/npo.yaml") < npo.index("configs/methods/blur.yaml")
    assert importlib.import_module("makers.stored").STORED["front"] in npo
    listed = (tmp_path / "methods/index.rst").read_text()
    for path in (ROOT / "configs/methods").glob("*.yaml"):
        assert f"- ``{path.stem}``\n" in listed or path.stem == "recipe_open_unlearning", "each with what it is"
    assert "arXiv 2606.02119): " in listed, "no full stop of a citation ends the sentence"
    ratio = (tmp_path / "metrics/truth_ratio.rst").read_text()
    shown = dict(re.findall(r"- ``(\w+)``\n +- ([\d.]+)$", ratio, re.MULTILINE))
    assert float(shown["exact"]) == pytest.approx(2.718281828**-2, rel=1e-3)  # e^(30 - 32): wrong ones' mean is 32
    assert float(shown["open_unlearning"]) < 0.01  # 1e-10 in the denominator took over


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_the_site_builds_without_a_warning():
    """With all tutorials run; needs the extra docs."""
    pytest.importorskip("sphinx_gallery")
    python = {"OFMU_DOCS_PYTHON": sys.executable}
    subprocess.run(["bash", "scripts/docs.sh", "-q"], cwd=ROOT, env=os.environ | python, check=True)
    assert "First unlearning" in (ROOT / "build/docs/generated/tutorials/01_first_unlearning.html").read_text()
