"""Writes what an evaluation found of a run: ``results.json``, the model card and the audit page."""

import os
from dataclasses import asdict
from pathlib import Path

from lightning.pytorch.utilities import rank_zero_info

from ofmu_pl.data.base import data_of
from ofmu_pl.evaluation.account import Account, Measured, account
from ofmu_pl.evaluation.audit import write_audit
from ofmu_pl.evaluation.card import write_card
from ofmu_pl.evaluation.table import Metrics
from ofmu_pl.support.pages import AUDIT
from ofmu_pl.support.provenance import STARTED_IN, provenance
from ofmu_pl.support.records.reading import Entries
from ofmu_pl.support.records.results import RESULTS, Cost, Interim, ReferenceRecord, Results
from ofmu_pl.training.record import peak_memory


def write_results(run: Measured) -> Account | None:
    """Write the run's files, ``results.json`` last; returns the account, where there is a model before."""
    trainer, module, columns, r = run.trainer, run.module, run.columns, run.reference
    data, told = data_of(trainer), None
    facts = provenance(data, method=type(module).__name__, steps=trainer.global_step, seed=data.seed)
    facts |= {"weights": run.weights, **run.facts}
    if "before" in columns:
        target, here = getattr(module.recipe, "path", None), os.path.relpath(".", run.folder)
        facts |= {"target": str(target), STARTED_IN: here}  # for attacks
        told = account(run, facts)
        write_card(told)
        write_audit(run.folder / AUDIT, told)
    Results(
        definition=run.definition,
        metrics=as_dicts(columns[run.judged]),
        before=as_dicts(columns.get("before", {})),
        reference=ReferenceRecord(r.source, r.model, r.evaluation, as_dicts(columns["retrained"])) if r else None,
        history=[Interim(**entry) for entry in module.record.history],
        curves=module.record.curves,
        data={name: asdict(lengths) for name, lengths in data.lengths.items()},
        remark=run.remark,
        provenance=facts,
        cost=Cost(
            training_seconds=run.seconds["training"],
            evaluation_seconds=run.seconds["evaluation"],
            gradient_evaluations=float(module.gradient_evaluations),
            peak_memory_bytes=peak_memory(module.device),
        ),
    ).write(run.folder / RESULTS)
    return told


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
