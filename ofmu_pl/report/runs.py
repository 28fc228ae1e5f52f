"""What a report is made of: experiments, their runs, and the values of metrics, all as ``results.json`` has them."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from itertools import product
from pathlib import Path
from typing import Any

from ofmu_pl.metrics.functional import forget_quality_distance
from ofmu_pl.metrics.nearness import of_older
from ofmu_pl.metrics.result import Metric
from ofmu_pl.support.files import read_json
from ofmu_pl.support.records.manifest import CellRecord, ExperimentRecord
from ofmu_pl.support.records.models import BEFORE, RETRAINED
from ofmu_pl.support.records.reading import Entries
from ofmu_pl.support.records.requests import RequestsRecord
from ofmu_pl.support.records.results import AcrossRecord, AnalysisRecord, AttacksRecord, Results

ALL_DRAWS = "all draws"  # what several scenarios are called that are one sample
Replicate = tuple[str, int]  # scenario and seed: what methods are paired by
Foreign = dict[str, tuple[str, dict[str, float]]]
"""Definition and values by metric, by name, of models that open-unlearning evaluated."""


@dataclass
class StudiedRun(CellRecord):
    """One cell of an experiment, with its command line and what it left (``signed``: an audit page), if it is known."""

    results: Results | None = None
    words: list[str] = field(default_factory=list)
    signed: bool = False
    attacks: AttacksRecord = field(default_factory=lambda: AttacksRecord({}))

    def metric(self, name: str, side: str = "metrics") -> dict[str, Any]:
        """One entry of the results (value, target, direction, ...); empty where there is none."""
        return self.side(side).get(name) or {}

    def side(self, side: str) -> Entries:
        """All metrics after the run (``metrics``), of the model before, or of the retrained one."""
        if self.results is None:
            return {}
        if side == RETRAINED:
            return self.results.reference.metrics if self.results.reference else {}
        return self.results.before if side == BEFORE else of_older(self.results.metrics, self.results.before)

    def value(self, name: str, side: str = "metrics") -> float | None:
        """Value of a metric; ``None`` where it is missing or not finite."""
        return value_of(self.side(side), name)

    @property
    def definition(self) -> str:
        """Name of the definition that the metrics were computed under."""
        return self.results.definition if self.results else "unknown"

    def fact(self, name: str) -> Any:
        """A fact of the results' provenance."""
        return self.results.provenance.get(name) if self.results else None

    def cost(self, name: str) -> float | None:
        """An entry of the results' cost."""
        return number(getattr(self.results.cost, name)) if self.results else None


@dataclass(kw_only=True)
class Study(ExperimentRecord):
    """Methods in scenarios with seeds, as ``benchmark.json`` describes them, with their runs.

    Attributes:
        foreign: Totals of other programs' evaluations: definition and values by name.
        analysis: ``analysis.json``; empty where there is none that can be read.
        across: ``across.json`` by ``SCENARIO/METHOD``, where attacks were compared over a method's runs.
        requests: ``requests.json``, where the scenarios are requests one after another.
    """

    name: str
    runs: list[StudiedRun]
    foreign: Foreign = field(default_factory=dict)
    analysis: AnalysisRecord = field(default_factory=AnalysisRecord)
    across: dict[str, AcrossRecord] = field(default_factory=dict)
    requests: RequestsRecord | None = None

    @property
    def finished(self) -> list[StudiedRun]:
        """Runs that have results."""
        return [r for r in self.runs if r.results is not None]

    @property
    def groups(self) -> dict[str, "Study"]:
        """Scenarios whose runs are one sample: each by itself, or all together where they are draws of one thing."""
        if self.kind in ("draws", "udi") and len(self.scenarios) > 1:
            return {ALL_DRAWS: self.part(*self.scenarios)}
        return {name: self.part(name) for name in self.scenarios}

    def part(self, *scenarios: str) -> "Study":
        """One scenario alone, or draws of one thing, as an experiment whose name and title say so."""
        name = scenarios[0] if len(scenarios) == 1 else ALL_DRAWS
        return replace(
            self,
            name=f"{self.name}-{name}",
            title=f"{self.title}, {name}",
            scenarios={scenario: self.scenarios[scenario] for scenario in scenarios},
            runs=[r for r in self.runs if r.scenario in scenarios],
        )

    @property
    def over(self) -> str:
        """What the replicates of one sample are."""
        return "draws" if len(self.scenarios) > 1 else "seeds"

    @property
    def replicated(self) -> bool:
        """Whether any method has several finished runs of one sample, so that there are means and deviations."""
        return any(len(group.of(m)) > 1 for group, m in product(self.groups.values(), self.methods))

    def of(self, method: str) -> dict[Replicate, StudiedRun]:
        """Finished runs of a method; of ``retrained`` and ``before`` the first run that holds their values."""
        found: dict[Replicate, StudiedRun] = {}
        for run in self.finished:
            fits = run.side(method) if method in (RETRAINED, BEFORE) else run.method == method
            if fits:
                found.setdefault((run.scenario, run.seed), run)
        return found

    @property
    def ran(self) -> list[str]:
        """Methods with a finished run."""
        return [m for m in self.methods if self.of(m)]

    def entries(self, method: str, metric: str) -> dict[Replicate, dict[str, Any]]:
        """A metric of a method (or ``retrained``, ``before``) by replicate, as results have it."""
        side = method if method in (RETRAINED, BEFORE) else "metrics"
        return {key: run.metric(metric, side) for key, run in self.of(method).items()}

    def values(self, method: str, metric: str) -> dict[Replicate, float]:
        """The values of a metric by replicate; without those that are missing."""
        found = {key: number(entry.get("value")) for key, entry in self.entries(method, metric).items()}
        return {key: value for key, value in found.items() if value is not None}

    def entry(self, metric: str) -> dict[str, Any]:
        """Any run's entry of a metric, for its declaration and whether it has a target."""
        return next((r.metric(metric) for r in self.finished if r.metric(metric)), {})

    def declared(self, metric: str) -> Metric:
        """A metric's direction, unit and the like."""
        return declaration(metric, self.entry(metric))

    def label(self, metric: str) -> str:
        """An axis's label: name and unit of a metric."""
        return f"{words(metric)} ({self.declared(metric).unit})"

    def tested(self, metric: str) -> str:
        """What stands for a metric in tests: for a p-value its distance D, which is not crowded at both ends."""
        other = self.declared(metric).tested_as
        return other if other and self.entry(other) else metric

    @property
    def columns(self) -> list[str]:
        """Metrics that some run has, in order."""
        return [m for m in self.metrics if self.entry(m)]


def declaration(name: str, entry: Mapping[str, Any]) -> Metric:
    """The declaration of a metric, as any results have it; others may have written it. Empty: none have it.

    >>> declaration("speed", {"value": 1.0, "higher_is_better": False, "unit": "nats"}).unit
    'nats'
    """
    kinds = {"unit": str, "group": str, "column": int, "tested_as": str, "family": str}
    known = {field: entry[field] for field, kind in kinds.items() if isinstance(entry.get(field), kind)}
    return Metric(name, bool(entry.get("higher_is_better", True)), **known)


def number(x: Any) -> float | None:
    """A finite float, or ``None`` for anything else, an integer that is too large for a float among it."""
    if not isinstance(x, int | float) or isinstance(x, bool):
        return None
    try:
        value = float(x)
    except OverflowError:
        return None
    return value if math.isfinite(value) else None


def value_of(entries: Entries, name: str) -> float | None:
    """A metric's value; ``None`` where it is missing or not finite."""
    return number((entries.get(name) or {}).get("value"))


def words(metric: str) -> str:
    """A metric's name for people."""
    return metric.replace("_", " ")


def default_metrics(runs: list[StudiedRun]) -> list[str]:
    """Columns where nobody has chosen: the suite's main metrics, or all of a suite that is not known."""
    entries: Entries = {}
    for run in runs:
        entries |= {name: entry for name, entry in run.side("metrics").items() if name not in entries}
    columns = {name: declaration(name, entry).column for name, entry in entries.items()}
    chosen = [name for name, column in columns.items() if column is not None]
    return sorted(chosen, key=lambda name: columns[name] or 0) or list(columns)


def foreign_rows(paths: list[Path], problems: list[str]) -> Foreign:
    """Each by its folder's name, and those above where folders have one name.

    A folder has ``TOFU_EVAL.json``, ``TOFU_SUMMARY.json`` or both; without numbers it is a sentence in ``problems``.
    """
    found = {}
    for path in paths:
        values = _totals(path, problems)
        if values:
            found[path.resolve()] = ("open_unlearning", values)
        else:
            problems.append(
                f"The foreign folder '{path}' has no readable TOFU_SUMMARY.json or TOFU_EVAL.json: left out."
            )
    parts = 1
    while len({path.parts[-parts:] for path in found}) < len(found):
        parts += 1
    return {"/".join(path.parts[-parts:]): row for path, row in found.items()}


def _totals(path: Path, problems: list[str]) -> dict[str, float]:
    """Totals by metric, and D, which neither file has."""
    values: dict[str, float] = {}
    for file in (path / "TOFU_EVAL.json", path / "TOFU_SUMMARY.json"):
        try:
            content = read_json(file) if file.is_file() else {}
            totals = {k: number(v.get("agg_value") if isinstance(v, dict) else v) for k, v in content.items()}
            ratios = content.get("forget_truth_ratio")
        except (OSError, ValueError, AttributeError) as error:
            problems.append(f"{file} cannot be read ({' '.join(str(error).split())}): left out.")
            continue
        values |= {k: v for k, v in totals.items() if v is not None}
        items = ratios.get("value_by_index") if isinstance(ratios, dict) else None
        if items and "forget_quality" in values:
            values["forget_quality_D"] = forget_quality_distance(values["forget_quality"], len(items))
    return values
