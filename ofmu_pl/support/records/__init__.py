"""The schema of what runs, benchmarks, jobs and exported models leave: writers and readers share these classes.

A file has its ``schema``. One that has none was written before there were schemas; what it lacks is filled in.
"""

from ofmu_pl.support.records.attacks import ACROSS, ATTACKS, NULL, AcrossRecord, AttackRecord, AttacksRecord
from ofmu_pl.support.records.jobs import ANALYSIS, FAILED, FINISHED, AnalysisRecord, FailureRecord, JobRecord
from ofmu_pl.support.records.manifest import (
    KINDS,
    MANIFEST,
    BenchmarkRecord,
    CellRecord,
    Experiment,
    ExperimentRecord,
    Kind,
    MadeRecord,
    MethodRecord,
    PreparedRecord,
    Value,
)
from ofmu_pl.support.records.models import PROVENANCE, REFERENCE, ModelRecord, ScoresRecord
from ofmu_pl.support.records.reading import SCHEMA, Entries, NewerError
from ofmu_pl.support.records.requests import (
    REQUESTS,
    ControlRecord,
    RequestRecord,
    RequestsRecord,
    SequenceRecord,
)
from ofmu_pl.support.records.results import RESULTS, Cost, Interim, ReferenceRecord, Results

__all__ = [
    "ACROSS",
    "ANALYSIS",
    "ATTACKS",
    "FAILED",
    "FINISHED",
    "KINDS",
    "MANIFEST",
    "NULL",
    "PROVENANCE",
    "REFERENCE",
    "REQUESTS",
    "RESULTS",
    "SCHEMA",
    "AcrossRecord",
    "AnalysisRecord",
    "AttackRecord",
    "AttacksRecord",
    "BenchmarkRecord",
    "CellRecord",
    "ControlRecord",
    "Cost",
    "Entries",
    "Experiment",
    "ExperimentRecord",
    "FailureRecord",
    "Interim",
    "JobRecord",
    "Kind",
    "MadeRecord",
    "MethodRecord",
    "ModelRecord",
    "NewerError",
    "PreparedRecord",
    "ReferenceRecord",
    "RequestRecord",
    "RequestsRecord",
    "Results",
    "ScoresRecord",
    "SequenceRecord",
    "Value",
]
