"""Direction, unit and columns come from what results.json declares, and older results mean what they meant."""

from __future__ import annotations

import json

import pytest

from ofmu_pl.metrics import Metric, choice, documents, tofu, tofu_items, vision
from ofmu_pl.report.collect import collect
from ofmu_pl.report.contents import tables
from ofmu_pl.report.declared import declaration
from ofmu_pl.report.figures.comparison import label
from ofmu_pl.report.tables import to_csv, to_markdown
from tests.helpers.folders import table

MODULES = (choice, documents, tofu, tofu_items, vision)
DECLARED = {m.name: m for module in MODULES for m in vars(module).values() if isinstance(m, Metric)}
DECLARED |= documents.DECLARED | {m.name: m for m in vision.ATTACKS.values()}
OLDER = """avg_gap UA forget_accuracy RA TA TA_all TA_forgotten VA MIA MIA_entropy MIA_attack_accuracy MIA_attack_AUC
forget_test_AUC forget_quality forget_quality_D forget_truth_ratio_gap model_utility forget_truth_ratio
forget_Q_A_Prob forget_Q_A_PARA_Prob forget_Q_A_ROUGE retain_Q_A_Prob retain_Truth_Ratio extraction_strength
exact_memorization privleak privacy_score memorization_score forget_doc_loss forget_doc_Prob
forget_doc_extraction_strength retain_doc_loss retain_doc_Prob retain_doc_extraction_strength""".split()
"""Metrics of 0.1.0, which declared none."""


@pytest.mark.parametrize("name", OLDER)
def test_older_results_mean_what_is_declared_today(name):
    found, today = declaration(name, {"higher_is_better": DECLARED[name].higher_is_better}), DECLARED[name]
    for field in ("unit", "column", "tested_as", "family", "higher_is_better"):
        assert getattr(found, field) == getattr(today, field), field


def test_families_are_read_from_older_results():
    probe = tofu.FORGET_QUALITY.of("probe_two_hop", group="probes", column=None, family="probe_two_hop")
    assert declaration(probe.name, {}) == probe
    side = tofu_items.of_set(tofu_items.ROUGE, "probe_two_hop_forget")
    assert declaration(side.name, {"higher_is_better": False}) == side
    for metric in (choice.EFFICACY.of("wmdp_bio"), choice.UTILITY.of("mmlu"), choice.HAZARDOUS.of("wmdp_bio")):
        found = declaration(metric.name, {"higher_is_better": metric.higher_is_better})
        assert (found.unit, found.column) == (metric.unit, metric.column)


def test_what_is_declared_is_read_again():
    for metric in [*DECLARED.values(), tofu_items.of_set(tofu_items.ROUGE, "probe_x_forget")]:
        entry = json.loads(json.dumps(metric.result(0.5, n=4).as_dict()))
        assert declaration(metric.name, entry) == metric


def test_what_others_wrote_in_the_wrong_kind_is_left_out():
    entry = {"value": 0.5, "unit": ["%"], "group": 3, "column": "first", "tested_as": {}, "family": None}
    assert declaration("novelty", entry) == Metric("novelty", higher_is_better=True)


@pytest.mark.parametrize("images", [False, True])
def test_a_report_on_declared_metrics_is_that_on_older_results(bench, images):
    def shown():
        (e,) = collect(bench.folder).experiments
        return e.metrics, [(to_markdown(t), to_csv(t)) for t in tables(e)]

    runs = table(images=images, methods={"ofmu": 0.1, "npo": 0.3}, scenarios=("a",))
    bench.experiment("runs", "table", runs)
    older = shown()
    for run in runs.values():
        for side in (run["metrics"], run["before"], run["reference"]["metrics"]):
            for name, entry in side.items():
                own = DECLARED[name].result(entry["value"], entry["n"], entry["target"]).as_dict()
                entry.update(own | {"higher_is_better": entry["higher_is_better"]})
    bench.experiment("runs", "table", runs)
    assert shown() == older
    assert len(older[0]) == 5


def test_a_stranger_s_declaration_decides(bench):
    metric = Metric("novelty", higher_is_better=False, unit="nats", group="my own", column=0)
    runs = table(methods={"ofmu": 0.1, "npo": 0.3}, scenarios=("a",))
    for run in runs.values():
        run["metrics"]["novelty"] = metric.result(2.0, n=4).as_dict()
    bench.experiment("runs", "table", runs)
    (e,) = collect(bench.folder).experiments
    assert (e.metrics[0], label(e, "novelty")) == ("novelty", "novelty (nats)")
    assert "novelty ↓" in tables(e)[0].head
