"""Writes what an evaluation found of a run: ``results.json``, the model card and the audit page."""

import os
from dataclasses import asdict
from pathlib import Path

from lightning.pytorch.utilities import rank_zero_info

from ofmu_pl.data.base import data_of
from ofmu_pl.evaluation.account import Account, Example, Measured, account
from ofmu_pl.evaluation.audit import write_audit
from ofmu_pl.evaluation.card import write_card
from ofmu_pl.evaluation.reference import Facts, Reference
from ofmu_pl.evaluation.table import Metrics
from ofmu_pl.support.pages import AUDIT
from ofmu_pl.support.provenance import STARTED_IN, provenance
from ofmu_pl.support.records.reading import Entries
from ofmu_pl.support.records.results import RESULTS, Cost, Interim, ReferenceRecord, Results
from ofmu_pl.training.record import peak_memory


def facts_of(run: Measured, scoring: Facts, second: Reference | None) -> Facts:
    """Where a run's numbers come from, ``scoring`` being how models were scored; and what attacks need to go on."""
    data, module = data_of(run.trainer), run.module
    facts = provenance(data, method=type(module).__name__, steps=run.trainer.global_step, seed=data.seed)
    facts |= {"weights": run.weights, **scoring}
    facts |= {"second_reference": second.source} if second else {}
    if "before" in run.columns:
        facts |= {"target": str(getattr(module.recipe, "path", None)), STARTED_IN: os.path.relpath(".", run.folder)}
    return facts


def tell(run: Measured, facts: Facts, examples: list[Example], limit: int | None) -> Account:
    """Write the card and the audit page of a run that had a model before; returns what they tell."""
    told = account(run, facts, examples, limit)
    write_card(told)
    write_audit(run.folder / AUDIT, told)
    return told


def write_results(
    run: Measured, facts: Facts, r: Reference | None, definition: str, remark: str | None, seconds: dict[str, float]
) -> None:
    """Write ``results.json``, the last of a run's files; ``r`` is the retrained model."""
    module, columns = run.module, run.columns
    Results(
        definition=definition,
        metrics=as_dicts(columns[run.judged]),
        before=as_dicts(columns.get("before", {})),
        reference=ReferenceRecord(r.source, r.model, r.evaluation, as_dicts(columns["retrained"])) if r else None,
        history=[Interim(**entry) for entry in module.record.history],
        curves=module.record.curves,
        data={name: asdict(lengths) for name, lengths in data_of(run.trainer).lengths.items()},
        remark=remark,
        provenance=facts,
        cost=Cost(
            training_seconds=seconds["training"],
            evaluation_seconds=seconds["evaluation"],
            gradient_evaluations=float(module.gradient_evaluations),
            peak_memory_bytes=peak_memory(module.device),
        ),
    ).write(run.folder / RESULTS)


def tell_where(folder: Path, unlearned: str | None) -> None:
    """Print where the files are; and what comes next, where a model unlearned data of this modality."""
    rank_zero_info(f"Results: {folder / RESULTS}")
    if unlearned is not None:
        attack = f"attack --config ofmu_pl:attacks.yaml --runs {folder}"
        then = attack if unlearned == "text" else f"report {folder.parents[1]}"
        rank_zero_info(f"Page to sign: {folder / AUDIT}\nNext: ofmu_pl {then}")


def as_dicts(metrics: Metrics) -> Entries:
    """Entries of ``results.json`` by metric."""
    return {name: result.as_dict() for name, result in metrics.items()}
