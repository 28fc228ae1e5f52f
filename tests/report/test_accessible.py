"""The pages for those who hear them, who have no mouse, and who print them."""

import re
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path

import pytest

from ofmu_pl.evaluation.audit import page as audit
from ofmu_pl.support import pages
from tests.helpers.accounts import account


class Elements(HTMLParser):
    """Every element's name and attributes, in the order of the page."""

    def __init__(self):
        super().__init__()
        self.found = []

    def handle_starttag(self, tag, attrs):
        self.found.append((tag, dict(attrs)))


def read(text):
    reader = Elements()
    reader.feed(text)
    return reader.found


@pytest.fixture(scope="module")
def report(page):
    return read(page.read_text(encoding="utf-8"))


@pytest.fixture(scope="module", params=["report", "audit"])
def elements(request, report, tmp_path_factory):
    return report if request.param == "report" else read(audit(account(tmp_path_factory.mktemp("hf"))))


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


def test_pictures_have_words(report):
    pictures = [attrs["alt"] for tag, attrs in report if tag == "img"]
    assert len(pictures) > 10
    assert all(pictures)


def test_links_within_the_page_lead_somewhere(elements):
    places = [attrs["id"] for _, attrs in elements if "id" in attrs]
    assert len(places) == len(set(places))
    links = {attrs["href"][1:] for tag, attrs in elements if tag == "a" and attrs["href"].startswith("#")}
    assert links & {"content", "untested"}
    assert links <= set(places)


def test_paper_is_light_whole_and_without_what_is_for_the_screen():
    style = (Path(pages.__file__).parent / "page.css").read_text(encoding="utf-8")
    printed = style.partition("@media print")[2]
    assert "nav, .skip { display: none; }" in printed
    assert "details-content" in printed
    assert "@media screen and (prefers-color-scheme: dark)" in style
