"""The page for the person who signs."""

import re
from html.parser import HTMLParser
from itertools import pairwise

import pytest

from ofmu_pl.evaluation.account import Example
from ofmu_pl.evaluation.audit import MARKS, page, without_rows, write_audit
from tests.evaluation.conftest import EXAMPLES

HOSTILE = f"<script>alert(1)</script>\"'><img src=x onerror=alert(1)>{MARKS[1]}{{{{ 7 * 7 }}}}</dd></main>"
VOID = {"meta", "link", "br", "img", "hr", "input"}


class Outline(HTMLParser):
    """Tags that are open, tags in order, and texts."""

    def __init__(self, text):
        super().__init__()
        self.open, self.seen, self.attributes = [], [], []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.seen.append(tag)
        self.attributes += attrs
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


def test_its_parts_stand_in_order(told):
    text = page(told())
    parts = re.findall(r"<h2[^>]*>(.*?)</h2>", text)
    assert parts == [
        "What was asked",
        "What was done",
        "What the tests say",
        "What the model said",
        "What was not tested",
        "What remains",
        "All numbers",
        "Where the numbers come from",
        "Signature",
    ]
    assert "It is no proof that the rows are gone" in text
    assert "<td class=n>1,060</td>" in text
    assert "It was made to forget." in text
    assert "<li>Whether it comes back.</li>" in text
    assert "models/target" in text
    assert "<code>privacy_score</code>" in text
    assert "privacy score is" not in text, "a metric without a sentence stands among the numbers alone"


@pytest.mark.parametrize("examples", [[], EXAMPLES])
@pytest.mark.parametrize("retrained", [True, False])
@pytest.mark.parametrize("modality", ["text", "images"])
def test_it_is_whole_and_readable_for_all(told, examples, retrained, modality):
    account = told(examples=examples, modality=modality)
    text = page(told(examples=examples, modality=modality, retrained=account.before if retrained else {}))
    outline = Outline(text)
    assert outline.open == []
    assert ("lang", "en") in outline.attributes
    assert outline.seen.count("table") == outline.seen.count("caption") == 3
    assert outline.seen.count("h1") == 1
    levels = [int(tag[1]) for tag in outline.seen if re.fullmatch("h[1-6]", tag)]
    assert all(b - a <= 1 for a, b in pairwise(levels)), "no level of headings is left out"
    assert not {"script", "img", "iframe", "form"} & set(outline.seen)
    links = {value for name, value in outline.attributes if name in ("src", "href")}
    assert links == {"data:,", "#untested"}, "nothing is asked for"
    assert ">None<" not in text
    assert ("retrained model</th>" in text) == retrained


def test_rows_stand_between_marks_and_can_be_taken_away(told):
    text = page(told(examples=EXAMPLES))
    assert "In Oslo, near the mill." in text
    assert "not known" in text
    left = without_rows(text)
    for example in EXAMPLES:
        for said in (example.question, example.truth, example.after or example.truth):
            assert said.replace("'", "&#39;") not in left
    assert "In Pisa." in text, "the retrained model's answer is the goal"
    assert "In Pisa." not in left
    assert "were removed" in left
    assert left.endswith("</html>")
    assert Outline(left).open == []
    assert without_rows(left) == left


def test_without_rows_it_says_how_to_get_them(told):
    assert "--evaluation.samples full" in page(told())
    assert MARKS[0] not in page(told())


def test_texts_of_others_stay_texts(told):
    hostile = {"target": HOSTILE, "data": HOSTILE, "method": HOSTILE, "untested": [HOSTILE], "in_words": HOSTILE}
    rows = [Example(HOSTILE, HOSTILE, HOSTILE, HOSTILE, HOSTILE)]
    text = page(told(examples=rows, **hostile))
    outline = Outline(text)
    assert not {"script", "img"} & set(outline.seen)
    assert not [name for name, _ in outline.attributes if name.startswith("on")]
    assert outline.open == []
    assert text.count(MARKS[1]) == 1
    assert "{{ 7 * 7 }}" in text
    assert "alert" not in without_rows(page(told(examples=rows)))


def test_it_is_written_whole(told, tmp_path):
    write_audit(tmp_path / "audit.html", told())
    assert (tmp_path / "audit.html").read_text(encoding="utf-8") == page(told())
