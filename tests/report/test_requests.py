"""Requests one after another: what their tables show where methods have not the same metrics."""

from ofmu_pl.report.requests import requests_tables
from ofmu_pl.report.runs import Study
from ofmu_pl.support.records.manifest import MethodRecord
from ofmu_pl.support.records.requests import RequestRecord, RequestsRecord, SequenceRecord


def sequence(method, **kept):
    one = RequestRecord(1, "request_01", "key", status="finished")
    matrices = {"forgotten": {"p": [[0.1]]}, "before": {"p": [0.9]}, "returned": {"p": [None]}}
    return SequenceRecord(method, 0, [one], kept=kept, **matrices)


def test_a_metric_that_one_method_alone_has_is_blank_for_the_other():
    both = [sequence("a", q=[0.9, 0.8]), sequence("b", q=[0.9, 0.7], task=[0.5, 0.4])]
    record = RequestsRecord(
        "list", None, None, "", [], {}, [{}], False, {"a": MethodRecord(), "b": MethodRecord()}, both
    )
    study = Study(title="", ours="a", scenarios={}, methods={}, cells=[], name="list", runs=[], requests=record)
    _, a, b, _ = requests_tables(study, record)
    assert [entry.numbers for entry in a.rows[2]] == [{}] * 4
    assert [entry.text for entry in b.rows[2]][1:3] == ["0.500", "0.400"]
