"""The four formats: numbers survive, text of others stays text."""

import csv
import html
import io
import re

import pytest

from ofmu_pl.report.collect import collect
from ofmu_pl.report.command import environment
from ofmu_pl.report.contents import tables
from ofmu_pl.report.statistics import Spread
from ofmu_pl.report.tables import Entry, Table, figure, measured, tex, to_csv, to_latex, to_markdown
from tests.helpers.folders import TEXT_BEFORE, TEXT_GOAL, results

HOSTILE = "<script>alert(1)</script> | a_b & 100 % $x$ \\input{/etc/passwd} `c` ~~d~~ [e](http://f) #\n=1+1"


def table(text=HOSTILE):
    row = [Entry(text, mark="*"), Entry("1.000 ± 0.100", "[0.9, 1.1]", {"": 1.0, "std": 0.1}, best=True)]
    return Table("name", text, ["method", text], [row, [Entry("b"), Entry("–", struck=True)]], [text], {0}, {0})


def test_html_holds_text_as_text():
    written = str(environment().get_template("table.html.jinja").module.table(table()))
    allowed = set("div table caption thead tbody tr th td small b s sup ul li".split())
    assert set(re.findall(r"</?([^\s>]+)", written)) <= allowed
    assert html.unescape(re.sub("<[^>]*>", "", written)).count("<script>alert(1)</script>") == 4


def test_latex_holds_text_as_text():
    written = to_latex(table())
    assert "\\input" not in written.replace(r"\textbackslash{}input", "")
    for name in ("table", "tabular"):
        assert written.count(f"\\begin{{{name}}}") == written.count(f"\\end{{{name}}}") == 1
    unescaped = re.sub(r"\\[{}]", "", written)
    assert unescaped.count("{") == unescaped.count("}")
    (body,) = re.findall(r"\\midrule\n(.*?)\\bottomrule", written, flags=re.S)
    for line in (x for x in body.splitlines() if "&" in x):
        assert len(re.findall(r"(?<!\\)&", line)) == 1
    assert not re.search(r"(?<!\\)[_#%]", written.replace(r"% \usepackage{booktabs}", ""))
    assert r"\textbf{1.000 $\pm$ 0.100}" in written
    assert tex("↑ 5 % ± {a}") == r"$\uparrow$ 5 \% $\pm$ \{a\}"


def test_markdown_holds_text_as_text():
    written = to_markdown(table())
    assert "<script>" not in written
    rows = [line for line in written.splitlines() if line.startswith("|")]
    assert [len(re.findall(r"(?<!\\)\|", row)) for row in rows] == [3] * 4
    assert "**1.000 ± 0.100** \\[0.9, 1.1\\]" in written
    assert not re.search(r"(?<!\\)\]\(http", written)


@pytest.mark.parametrize("text", ["=1+1", "+1", "@SUM(A1)", "-2+3+cmd|' /C calc'!A0", "-cmd", "\t=1", "\r=1", "  =1"])
def test_csv_starts_no_formula_in_any_cell(text):
    cells = csv.reader(io.StringIO(to_csv(Table("n", "t", ["method", f"{text} →"], [[Entry(text), Entry(text)]]))))
    for cell in (cell for row in cells for cell in row if cell != "method"):
        assert cell.startswith("'")
        assert text.strip() in cell


@pytest.mark.parametrize("text", ["-0.5", "-1e-20", "–", "b", "1e400"])
def test_csv_leaves_words_and_numbers_alone(text):
    assert to_csv(Table("n", "t", ["method"], [[Entry(text)]])) == f"method\n{text}\n"


def test_csv_has_numbers_unrounded_and_starts_no_formula():
    entry = measured(Spread(3, 1 / 3, 0.1, 0.2, 0.4))
    rows = [[Entry("=cmd()"), entry], [Entry("b"), Entry("–")]]
    head, first, second = csv.reader(io.StringIO(to_csv(Table("n", "t", ["method", "UA → (%)"], rows))))
    assert head == ["method", "UA (%)", "UA (%) std", "UA (%) low", "UA (%) high", "UA (%) n"]
    assert first == ["'=cmd()", repr(1 / 3), "0.1", "0.2", "0.4", "3"]
    assert second == ["b", "", "", "", "", ""]


@pytest.mark.parametrize(
    ("s", "text", "small"),
    [
        (Spread(3, 99.0625, 1.694, 97.5, 100.0), "99.06 ± 1.69", "[97.50, 100.00]"),
        (Spread(2, 5.9e-20, 1e-20, 5e-20, 7e-20), "6e-20 ± 1e-20", "[5e-20, 7e-20]"),
        (Spread(2, 0.5, 1e-5, 0.5, 0.5), "0.500 ± 1e-05", "[0.500, 0.500]"),
        (Spread(2, 0.97, 1e-16, 0.97, 0.97), "0.970 ± 0.000", "[0.970, 0.970]"),
        (Spread(1, 0.5), "0.500", ""),
        (Spread(0, float("nan")), "–", ""),
    ],
)
def test_measured(s, text, small):
    assert (measured(s).text, measured(s).small) == (text, small)


def test_figure_of_negative_numbers():
    assert [figure(x) for x in (-0.5, -1e-5, -20.0)] == ["-0.500", "-1e-05", "-20.00"]


@pytest.mark.parametrize(("choice", "shown"), [(True, "True"), (False, "False"), (1e-4, "0.0001"), (3, "3")])
def test_what_a_search_chose_is_shown_as_it_is(bench, choice, shown):
    run = results(TEXT_GOAL, TEXT_BEFORE, TEXT_GOAL)
    bench.experiment("e", "table", {("a", "ofmu", 0): run}, metrics=["model_utility"])
    searched = {"a": {"choice": choice, "scores": {"x": 1, "y": 0}}}
    bench.experiments["e"]["methods"]["ofmu"]["searched"] = searched
    bench.save()
    (first, *_) = tables(collect(bench.folder).experiments[0])
    assert f"{shown} (of 2)" in to_markdown(first)
