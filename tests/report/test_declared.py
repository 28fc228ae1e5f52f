"""Direction, unit and columns come from what results.json declares."""

from __future__ import annotations

import json

from ofmu_pl.metrics import Metric, tofu_items
from ofmu_pl.report.collect import collect
from ofmu_pl.report.contents import tables
from ofmu_pl.report.figures.comparison import label
from ofmu_pl.report.runs import declaration
from tests.helpers.folders import DECLARED, table


def test_what_is_declared_is_read_again():
    for metric in [*DECLARED.values(), tofu_items.of_set(tofu_items.ROUGE, "probe_x_forget")]:
        entry = json.loads(json.dumps(metric.result(0.5, n=4).as_dict()))
        assert declaration(metric.name, entry) == metric


def test_what_others_wrote_in_the_wrong_kind_is_left_out():
    entry = {"value": 0.5, "unit": ["%"], "group": 3, "column": "first", "tested_as": {}, "family": None}
    assert declaration("novelty", entry) == Metric("novelty", higher_is_better=True)


def test_a_stranger_s_declaration_decides(bench):
    metric = Metric("novelty", higher_is_better=False, unit="nats", group="my own", column=0)
    runs = table(methods={"ofmu": 0.1, "npo": 0.3}, scenarios=("a",))
    for run in runs.values():
        run["metrics"]["novelty"] = metric.result(2.0, n=4).as_dict()
    bench.experiment("runs", "table", runs)
    (e,) = collect(bench.folder).experiments
    assert (e.metrics[0], label(e, "novelty")) == ("novelty", "novelty (nats)")
    assert "novelty ↓" in tables(e)[0].head
