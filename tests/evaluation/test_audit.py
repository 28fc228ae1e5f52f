"""The page for the person who signs."""

import re
from dataclasses import replace
from html.parser import HTMLParser

import pytest

from ofmu_pl.evaluation.account import Example
from ofmu_pl.evaluation.results import page
from ofmu_pl.support.pages import REMOVED, ROWS, without_rows
from tests.evaluation.conftest import EXAMPLES

HOSTILE = f"<script>alert(1)</script>\"'><img src=x onerror=alert(1)>{ROWS[1]}{{{{ 7 * 7 }}}}</dd></main>"
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


def test_its_parts_stand_in_order(told, tmp_path):
    account = told()
    text = page(account)
    parts = " ".join(re.findall(r"<h2[^>]*>(.*?)</h2>", text))
    assert re.search("asked.* done.* say.* not tested.* remains.* numbers.* Signature", parts)
    (untested,) = account.untested
    for said in ("no proof", "<td class=n>1,060</td>", account.in_words, f"<li>{untested}</li>"):
        assert said in text
    assert "<code>privacy_score</code>" in text
    assert "<code>privacy_score</code>. " not in text, "a metric without a sentence stands among the numbers alone"
    assert ROWS[0] not in text
    assert "--evaluation.samples" in text


@pytest.mark.parametrize(("modality", "retrained"), [("text", True), ("images", False)])
def test_it_is_whole_and_asks_for_nothing(told, modality, retrained):
    account = told(examples=EXAMPLES, modality=modality)
    text = page(replace(account, retrained=account.before if retrained else {}))
    outline = Outline(text)
    assert outline.open == []
    assert not {"script", "img", "iframe", "form"} & set(outline.seen)
    links = {value for name, value in outline.attributes if name in ("src", "href")}
    assert links == {"data:,", "#untested"}
    assert ">None<" not in text
    assert text.count("<th scope=col") == 9 + retrained


def test_rows_stand_between_marks_and_can_be_taken_away(told):
    text = page(told(examples=EXAMPLES))
    left = without_rows(text)
    for example in EXAMPLES:
        for said in (example.question, example.truth, example.after or example.truth):
            assert said.replace("'", "&#39;") not in left
    assert "In Pisa." in text, "the retrained model's answer is the goal"
    assert "In Pisa." not in left
    assert REMOVED in left
    assert left.endswith("</html>")
    assert Outline(left).open == []
    assert without_rows(left) == left


def test_texts_of_others_stay_texts(told):
    hostile = dict.fromkeys(("target", "data", "method", "in_words"), HOSTILE)
    rows = [Example(*[HOSTILE] * 5)]
    text = page(told(examples=rows, untested=[HOSTILE], **hostile))
    outline = Outline(text)
    assert not {"script", "img"} & set(outline.seen)
    assert not [name for name, _ in outline.attributes if name.startswith("on")]
    assert outline.open == []
    assert text.count(ROWS[1]) == 1
    assert "{{ 7 * 7 }}" in text
    assert "alert" not in without_rows(page(told(examples=rows)))
