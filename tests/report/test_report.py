"""The command: what it writes, prints and refuses; nothing of others is trusted."""

import base64
import csv
import json
import os
import re
import subprocess
from html.parser import HTMLParser
from itertools import pairwise

import pytest

from ofmu_pl.cli import main
from ofmu_pl.evaluation.results import page as audit
from ofmu_pl.metrics.result import Metric
from ofmu_pl.report import report
from ofmu_pl.support.errors import UserError
from tests.helpers.accounts import account
from tests.helpers.folders import TEXT_BEFORE, TEXT_GOAL, results, table


class Page(HTMLParser):
    """Tags with their attributes."""

    def __init__(self, text):
        super().__init__()
        self.tags = []
        self.text = ""
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data):
        self.text += data


def test_everything_is_written(page):
    folder = page.parent
    for ending in ("md", "csv", "tex"):
        assert len(list((folder / "tables").glob(f"*.{ending}"))) > 30
    figures = list((folder / "figures").glob("*.png"))
    assert len(figures) >= 10
    assert all(f.read_bytes().startswith(b"\x89PNG") for f in figures)
    images = [a["src"] for tag, a in Page(page.read_text()).tags if tag == "img"]
    assert sorted(base64.b64decode(src.partition(",")[2]) for src in images) == sorted(f.read_bytes() for f in figures)


def test_the_page_needs_nothing_else(page):
    for tag, attributes in Page(page.read_text()).tags:
        assert tag not in ("script", "iframe", "object", "embed", "base", "form")
        assert not [name for name in attributes if name.startswith("on")]
        assert attributes.get("src", "data:").startswith("data:")
        if tag == "a":
            assert re.match(r"#|\.\./[\w/.]+/latest/results\.json$", attributes["href"])
    assert "@import" not in page.read_text()
    assert "default-src 'none'" in page.read_text()


def test_numbers_are_those_of_the_results(page):
    path = page.parent / "tables/digits-classwise-results.csv"
    rows = {r["method"]: r for r in csv.DictReader(path.open())}
    values = []
    for seed in range(5):
        file = page.parent.parent / f"digits/classwise/influence/seed_{seed}/latest/results.json"
        values.append(json.loads(file.read_text())["metrics"]["UA"]["value"])
    assert float(rows["influence"]["UA (%)"]) == pytest.approx(sum(values) / 5)
    assert rows["influence"]["UA (%) n"] == "5"
    assert float(rows["retrained"]["UA (%)"]) == 100


def test_the_same_runs_give_the_same_files(bench):
    bench.experiment("authors", "table", table(scenarios=("forget05",), seeds=(0, 1)), metrics=["model_utility"])
    files = []
    for _ in range(2):
        folder = report(bench.folder).parent
        files.append({p.relative_to(folder): p.read_bytes() for p in folder.rglob("*") if p.is_file()})
    assert files[0] == files[1]
    assert not list(bench.folder.glob(".*"))


def test_what_a_killed_report_left_is_removed(bench):
    bench.experiment("authors", "table", table(scenarios=("forget05",), seeds=(0, 1)), metrics=["model_utility"])
    dead = subprocess.Popen(["true"])
    dead.wait()
    for process in (dead.pid, os.getppid()):
        (bench.folder / f".report.{process}.partial/tables").mkdir(parents=True)
    report(bench.folder)
    assert [p.name for p in bench.folder.glob(".*.partial")] == [f".report.{os.getppid()}.partial"], "it may be at work"


def test_names_that_look_alike_have_places_of_their_own(bench):
    run = results(dict(TEXT_GOAL), TEXT_BEFORE, TEXT_GOAL)
    for name, scenario in (("x", "y-z"), ("x-y", "z"), ("x_y", "z"), ("\u00e9", "z"), ("\u4e2d", "z")):
        bench.experiment(name, "table", {(scenario, "m", 0): run}, metrics=["model_utility"])
    bench.save()
    page = report(bench.folder)
    assert len(list((page.parent / "tables").glob("*-results*.csv"))) == 5
    sections = [a["id"] for tag, a in Page(page.read_text()).tags if tag == "h2" and a.get("id", "").startswith("e-")]
    assert len(sections) == len(set(sections)) == 5


def test_names_of_others_are_text(bench):
    bad = "<img src=x onerror=alert(1)>|&_$%#{} {{ 7 * 7 }}"
    run = results(dict(TEXT_GOAL), TEXT_BEFORE, TEXT_GOAL)
    run["provenance"]["git"] = bad
    bench.experiment(
        "e", "table", {("a", "m", 0): run}, title=bad, note=bad, paper=[bad], metrics=["model_utility", bad]
    )
    entry = bench.experiments["e"]
    entry["methods"] = {bad: {"options": {bad: bad}, "searched": {bad: {"choice": bad}}}}
    entry["scenarios"] = {bad: {}}
    entry["cells"][0] |= {"method": bad, "scenario": bad}
    entry["cells"].append(entry["cells"][0] | {"seed": 1, "status": "failed", "error": bad})
    bench.name = bad
    bench.save()
    page = report(bench.folder)
    assert [a for tag, a in Page(page.read_text()).tags if tag == "img" and "onerror" in a] == []
    assert Page(page.read_text()).text.count(bad) > 5
    assert all(re.fullmatch(r"[\w.-]+", p.name) for p in page.parent.rglob("*"))


def test_the_page_of_one_run(tmp_path, capsys):
    more = {"retain_Q_A_Prob": 0.9}
    content = results(TEXT_GOAL | more, TEXT_BEFORE | more, TEXT_GOAL | more)
    for side, value in (("metrics", 0.46), ("before", 0.97)):
        content[side]["mia_loss"] = Metric("mia_loss", False, group="attacks").result(value, 40, target=0.5).as_dict()
    path = tmp_path / "quickstart/ofmu/version_0/results.json"
    path.parent.mkdir(parents=True)
    path.write_text(json.dumps(content))
    (path.parent.parent / "latest").symlink_to("version_0")
    signed = path.with_name("audit.html")
    main(["report", str(tmp_path / "quickstart")])
    folder = tmp_path / "quickstart/report"
    assert "audit.html" not in (folder / "index.html").read_text(), "this run left none"
    signed.touch()
    main(["report", str(tmp_path / "quickstart")])
    links = re.findall(r'href="([^"]*audit.html)"', (folder / "index.html").read_text().partition("<details")[0])
    assert [(folder / link).resolve() for link in links] == [signed], "before all that is folded"
    assert {p.stem for p in (folder / "figures").glob("*.png")} == {"runs-trade-off"}
    text = Page((folder / "index.html").read_text()).text
    assert "One run" in text
    found = list(csv.DictReader((folder / "tables/runs-quickstart-membership.csv").open()))
    assert [(row["method"], float(row["mia loss"])) for row in found] == [("before", 0.97), ("ofmu", 0.46)]
    assert not re.search("over seeds|the best mean|overall", text), "of one run this says nothing"
    assert f"Report: {folder / 'index.html'}" in capsys.readouterr().out


def test_a_folder_that_is_no_report_is_not_replaced(bench):
    """It may be somebody's own, or the runs of a method that is called so."""
    bench.experiment("authors", "table", table(scenarios=("forget05",)), metrics=["model_utility"])
    own = bench.folder / "report/thesis.tex"
    own.parent.mkdir()
    own.write_text("years of work")
    with pytest.raises(UserError, match=str(bench.folder / "report")):
        report(bench.folder)
    assert own.read_text() == "years of work"
    own.unlink()
    assert report(bench.folder) == report(bench.folder), "an empty folder and a report are"


@pytest.mark.parametrize(("words", "code", "token"), [([], 1, "finished"), (["--nonsense", "1"], 2, "report --help")])
def test_bad_input_is_refused(tmp_path, capsys, words, code, token):
    with pytest.raises(SystemExit) as stop:
        main(["report", str(tmp_path), *words])
    assert stop.value.code == code
    (line,) = capsys.readouterr().err.splitlines()
    assert token in line


@pytest.fixture(scope="module", params=["report", "audit"])
def elements(request, page, tmp_path_factory):
    """Of both pages that people read."""
    text = page.read_text() if request.param == "report" else audit(account(tmp_path_factory.mktemp("hf")))
    return Page(text).tags


def test_no_level_of_headings_is_left_out(elements):
    levels = [int(tag[1]) for tag, _ in elements if re.fullmatch("h[1-6]", tag)]
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert {1, 2, 3} <= set(levels)
    assert all(later <= level + 1 for level, later in pairwise(levels))


def test_what_the_keyboard_reaches_has_a_name(elements):
    reached = [attrs for _, attrs in elements if "tabindex" in attrs]
    assert len(reached) > 2
    assert all(attrs["role"] == "region" and attrs["aria-label"].strip() for attrs in reached)


def test_heads_of_tables_say_what_they_head(elements):
    heads = [attrs for tag, attrs in elements if tag == "th"]
    assert {attrs.get("scope") for attrs in heads} == {"row", "col"}


def test_pictures_have_words(page):
    pictures = [attrs["alt"] for tag, attrs in Page(page.read_text()).tags if tag == "img"]
    assert len(pictures) > 5
    assert all(pictures)


def test_links_within_the_page_lead_somewhere(elements):
    places = [attrs["id"] for _, attrs in elements if "id" in attrs]
    assert len(places) == len(set(places))
    links = {attrs["href"][1:] for tag, attrs in elements if tag == "a" and attrs["href"].startswith("#")}
    assert links & {"content", "untested"}
    assert links <= set(places)
