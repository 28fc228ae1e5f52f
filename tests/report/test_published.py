"""The paper's numbers: as printed, marked by credibility, beside the right ones of ours."""

import re

import pytest

from ofmu_pl.report.collect import collect
from ofmu_pl.report.published import beside, our_method, published
from ofmu_pl.support.records.manifest import MethodRecord
from tests.helpers.folders import results, table


def test_every_number_is_in_the_paper(shared):
    text = re.sub(r"[\s\\{}$]|text|textbf|bf|pm|times", "", (shared / "paper/ofmu.tex").read_text())
    printed = [p for p in published() if p.credibility != "derived"]
    assert len(printed) > 350
    assert all(p.credibility and bool(p.anchor) <= bool(p.anchor_source) for p in published())
    for p in printed:
        label = text.index(f"label{p.paper.replace('_', '')}") if f"label{p.paper}" not in text else text.index(p.paper)
        near = text[max(0, label - 500) : label + 6000]
        assert p.value.partition("e")[0].rstrip("0").rstrip(".") in near, p


def test_ours_stand_beside_with_marks_and_reasons(bench):
    note = "A tiny model."
    bench.experiment("authors", "table", table(), paper=["tab:tofu-llama2-results"], note=note)
    (e,) = collect(bench.folder).experiments
    found = beside(e)
    assert [t.name.rpartition("/")[2] for t in found] == ["forget01", "forget05", "forget10"]
    assert [t.folded for t in found] == [False, False, True]  # forget10 was not run here
    forget05 = found[1]
    rows = {row[0].text: dict(zip(forget05.head, row, strict=True)) for row in forget05.rows}
    ours = e.part("forget05").values("npo", "model_utility")
    assert rows["NPO (npo)"]["MU, ours"].numbers[""] == pytest.approx(sum(ours.values()) / 3)
    assert rows["NPO (npo)"]["MU, paper"].text == "0.53 ± 0.03"
    assert rows["IdkDPO"]["MU, ours"].text == "–"
    bad = rows["GradAscent (grad_ascent)"]["FQ, paper"]
    assert bad.struck
    assert any(line.startswith(f"{bad.mark}: ") for line in forget05.notes)
    assert rows["OFMU (ofmu)"]["MU, paper"].mark == "?"
    assert "COMPARABLE" in forget05.title
    assert note in forget05.notes[0]
    assert rows["Finetuned (before)"]["MU, ours"].numbers[""] == pytest.approx(0.98)


def test_names_of_methods_depend_on_the_data(bench):
    methods = {
        "ofmu": {"options": {}},
        "finetune": {},
        "b": {"options": {"model.beta": 0.0}},
        "p": {"options": {"model.rho_0": 0}},
    }
    bench.experiment("e", "table", table(methods=dict.fromkeys(methods, 0.1)), methods=methods)
    (e,) = collect(bench.folder).experiments
    assert our_method(e, "Finetuned", "llama2-7b/forget05") == "before"
    assert our_method(e, "Finetuned", "cifar10/random") == "finetune"
    assert our_method(e, "Penalty only (no similarity-aware)") == "b"
    assert our_method(e, "Two-loop only (no penalty)") == "p"
    assert our_method(e, "Full OFMU") == "ofmu"
    assert our_method(e, "NPO") is None
    assert our_method(e, "OFMU (T=5)") == "ofmu"
    assert our_method(e, "OFMU (T=10)") is None
    e.methods["ofmu_T5"] = MethodRecord(options={"model.inner_steps": 5})
    assert our_method(e, "OFMU (T=5)") == "ofmu_T5"


def test_scenarios_are_found_by_setting_or_metric(bench):
    """WMDP's two subjects are two scenarios of one setting."""
    runs = {
        (s, "ofmu", 0): results({f"wmdp_{s}_efficacy": v, "mmlu_accuracy": 0.5}, {}, {})
        for s, v in (("bio", 0.7), ("cyber", 0.6))
    }
    names = ["wmdp_bio_efficacy", "wmdp_cyber_efficacy", "mmlu_accuracy"]
    bench.experiment("e", "table", runs, paper=["tab:wmdp-results"], metrics=names)
    (e,) = collect(bench.folder).experiments
    assert e.part("bio").columns == ["wmdp_bio_efficacy", "mmlu_accuracy"]
    (t,) = beside(e)
    (row,) = [dict(zip(t.head, r, strict=True)) for r in t.rows if r[0].text == "OFMU (ofmu)"]
    assert row["bio_efficacy, ours"].numbers[""] == pytest.approx(70)
    assert row["cyber_efficacy, ours"].numbers[""] == pytest.approx(60)
    assert row["mmlu, ours"].text == "–"
    assert any(re.search("clear .*mmlu:", note) for note in t.notes)
