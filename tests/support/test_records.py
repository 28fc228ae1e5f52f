"""Files of runs and benchmarks: what is written is read again, older ones are filled in, others are refused."""

import json
from dataclasses import replace

import pytest

from ofmu_pl.support.errors import UserError
from ofmu_pl.support.records.manifest import (
    MANIFEST,
    BenchmarkRecord,
    CellRecord,
    ExperimentRecord,
    MadeRecord,
    MethodRecord,
    PreparedRecord,
)
from ofmu_pl.support.records.reading import SCHEMA, NewerError
from ofmu_pl.support.records.results import (
    PROVENANCE,
    REFERENCE,
    RESULTS,
    AnalysisRecord,
    Cost,
    Interim,
    JobRecord,
    ModelRecord,
    ReferenceRecord,
    Results,
    ScoresRecord,
)

UA = {"value": 0.5, "n": 4, "higher_is_better": True, "target": 0.75, "definition": "exact"}
FULL = Results(
    metrics={"UA": UA},
    definition="exact",
    before={"UA": {**UA, "value": 0.0}},
    reference=ReferenceRecord("logs/retrained", {"streams": ["retain"]}, {"dtype": "float32"}, {"UA": UA}),
    history=[Interim(2, {"UA": UA})],
    curves={"L_f": {"step": [1, 2], "value": [0.5, 0.25]}},
    data={"forget": {"rows": 4, "cut": 1}},
    remark="Nobody can tell.",
    provenance={"ofmu_pl": "0.1.0", "hashes": {"forget": "aa"}, "steps": 2},
    cost=Cost(1.0, 2.0, 8.0, None),
)
CELL = CellRecord("forget05", "npo", 3, "tofu/forget05/npo/seed_3", "failed", "It diverged.")
EXPERIMENT = ExperimentRecord(
    title="TOFU",
    paper=["tab:tofu"],
    metrics=["UA"],
    ours="ofmu",
    gradients=320,
    base="configs/tofu.yaml",
    options={"model.beta": 1},
    scenarios={"forget05": {"data.forget": "05"}},
    methods={"npo": MethodRecord("configs/methods/npo.yaml", {"a": 1}, {"forget05": {"choice": 2, "scores": {}}})},
    seeds=[3],
    cells=[CELL],
    attack_errors={"forget05/npo": "It broke."},
    prepare={
        "target": PreparedRecord(
            "configs/a.yaml", "model.network.path", {"b": 1}, ["seed"], [MadeRecord("p/tofu", "finished", None, 9.5)]
        )
    },
)
BENCHMARK = BenchmarkRecord("paper", "0.1.0", 5, "2026-11-22T00:00:00+00:00", experiments={"tofu": EXPERIMENT})


FACTS = {"streams": ["retain"], "benchmark": "tofu", "hashes": {"retain": "aa"}, "template_hash": "bb"}
OTHERS = [
    JobRecord("k", ["fit", "--config", "a.yaml"], 12.0),
    JobRecord("k", [], 3.0, "It diverged.", True),
    AnalysisRecord({"0": {"all": {"udi": 0.5}}}, [{"udi_mean": 0.5}], {"npo": {"rho": 1.0}}),
    ModelRecord(FACTS),
    ScoresRecord("logs/retrained", FACTS, None, {"forget": {"ids": [0], "answer_loss": [0.5]}}, {"rouge": 0.5}),
]


@pytest.mark.parametrize("record", [FULL, Results({}), replace(FULL, reference=None), BENCHMARK, *OTHERS], ids=type)
def test_what_is_written_is_read_again(tmp_path, record):
    path = tmp_path / "file.json"
    record.write(path)
    assert type(record).read(path) == record
    assert json.loads(path.read_text())["schema"] == SCHEMA


def test_names_in_the_files_are_those_that_other_tools_read(tmp_path):
    FULL.write(tmp_path / RESULTS)
    BENCHMARK.write(tmp_path / MANIFEST)
    results, benchmark = (json.loads((tmp_path / name).read_text()) for name in ("results.json", "benchmark.json"))
    assert list(results) == (
        "schema metrics definition before reference history curves data remark provenance cost".split()
    )
    assert list(results["reference"]) == ["source", "model", "evaluation", "metrics"]
    assert results["history"] == [{"step": 2, "metrics": {"UA": UA}}]
    assert list(results["cost"]) == (
        "training_seconds evaluation_seconds gradient_evaluations peak_memory_bytes".split()
    )
    assert list(benchmark) == ["schema", "name", "version", "results_version", "date", "experiments"]
    experiment = benchmark["experiments"]["tofu"]
    names = "title kind paper note metrics ours gradients base options scenarios seeds attacks"
    assert list(experiment) == [*names.split(), "methods", "cells", "attack_errors", "prepare"]
    assert list(experiment["methods"]["npo"]) == ["overlay", "options", "searched"]
    assert list(experiment["cells"][0]) == "scenario method seed folder status error attack_error".split()


def test_what_older_results_lack_is_filled_in(tmp_path):
    path = tmp_path / RESULTS
    path.write_text(json.dumps({"metrics": {"UA": UA}, "before": None, "cost": {"training_seconds": 1.0}}))
    assert Results.read(path) == Results({"UA": UA}, cost=Cost(training_seconds=1.0))
    path.write_text('{"metrics": {"UA": {"value": 1}}, "reference": {"source": "x"}}')
    found = Results.read(path)
    assert (found.definition, found.reference) == ("unknown", ReferenceRecord("x"))


def test_what_older_manifests_lack_is_filled_in_and_a_broken_experiment_leaves_the_others(tmp_path):
    cell = {"scenario": "s", "method": "m", "seed": 0, "folder": "e/s/m/seed_0", "status": "unfinished"}
    entry = {"scenarios": {"s": None}, "methods": {"m": None}, "cells": [cell], "paper": ["tab:one"]}
    (tmp_path / MANIFEST).write_text(json.dumps({"experiments": {"e": entry, "bad": {"cells": 3}}}))
    found = BenchmarkRecord.read(tmp_path / MANIFEST)
    (e,) = found.experiments.values()
    assert (e.title, e.kind, e.paper, e.ours, e.seeds) == ("e", "table", ["tab:one"], None, [])
    assert (e.scenarios, e.methods) == ({"s": {}}, {"m": MethodRecord()})
    assert e.cells == [CellRecord("s", "m", 0, "e/s/m/seed_0")]
    assert list(found.broken) == ["bad"]
    found.write(tmp_path / MANIFEST)
    assert "broken" not in json.loads((tmp_path / MANIFEST).read_text())


def test_what_lies_beside_a_model_has_the_names_that_older_versions_read_and_wrote(tmp_path):
    path = tmp_path / PROVENANCE
    path.write_text(json.dumps(FACTS))
    model = ModelRecord.read(path)
    assert (model.facts, model.hashes) == (FACTS, {"retain": "aa"})
    model.write(path)
    assert json.loads(path.read_text()) == {"schema": SCHEMA, **FACTS}
    OTHERS[-1].write(tmp_path / REFERENCE)
    assert set(json.loads((tmp_path / REFERENCE).read_text())) == {"schema", *vars(OTHERS[-1])}


@pytest.mark.parametrize("record", [FULL, BENCHMARK, *OTHERS], ids=type)
def test_a_newer_schema_is_refused(tmp_path, record):
    path = tmp_path / "file.json"
    record.write(path)
    content = json.loads(path.read_text())
    path.write_text(json.dumps({**content, "schema": SCHEMA + 1}))
    with pytest.raises(NewerError, match=rf"'{path}' .*schema {SCHEMA + 1}\b"):
        type(record).read(path)


@pytest.mark.parametrize("kind", [Results, BenchmarkRecord, ModelRecord, ScoresRecord])
@pytest.mark.parametrize(
    "content",
    [
        *("", "{", "[1]", "{}", "[" * 99999, '{"metrics": 3, "experiments": 3}'),
        '{"schema": "x", "metrics": {}, "experiments": {}}',
        '{"metrics": {"UA": 1}, "experiments": [1]}',
    ],
    ids=range(8),
)
def test_what_is_not_ours_is_refused_in_one_sentence(tmp_path, kind, content):
    path = tmp_path / "file.json"
    path.write_text(content)
    with pytest.raises(UserError, match=rf"^'{path}' [^\n]* file.json [^\n]*\([^\n]+$"):
        kind.read(path)


@pytest.mark.parametrize("part", ["before", "reference", "history", "curves", "data", "provenance", "cost"])
@pytest.mark.parametrize("odd", [3, "x", [1]])
def test_a_part_of_another_shape_is_refused(tmp_path, part, odd):
    (tmp_path / RESULTS).write_text(json.dumps({"metrics": {"UA": UA}, part: odd}))
    with pytest.raises(UserError, match=f"{RESULTS}' "):
        Results.read(tmp_path / RESULTS)
