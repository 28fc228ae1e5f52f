"""Writes what an evaluation found of a run: ``results.json``, the model card and the audit page."""

import os
import shlex
from dataclasses import asdict
from pathlib import Path

from huggingface_hub import ModelCard, ModelCardData
from lightning.pytorch.utilities import rank_zero_info

from ofmu_pl.data.base import data_of
from ofmu_pl.evaluation.account import Account, Example, Measured, account
from ofmu_pl.evaluation.attacked import parts
from ofmu_pl.evaluation.plain import ends, joined, shown
from ofmu_pl.evaluation.reference import Facts, Reference
from ofmu_pl.evaluation.table import Metrics, figure
from ofmu_pl.support.escapes import visible
from ofmu_pl.support.files import replacing
from ofmu_pl.support.pages import AUDIT, CARD, ROWS, plain, templates
from ofmu_pl.support.provenance import STARTED_IN, provenance
from ofmu_pl.support.records.reading import Entries
from ofmu_pl.support.records.results import RESULTS, Cost, Interim, ReferenceRecord, Results
from ofmu_pl.training.record import peak_memory

KINDS = {"text": ("transformers", "text-generation"), "images": ("ofmu_pl", "image-classification")}
"""The library that loads the model and its task on the hub, by modality."""


def facts_of(run: Measured, scoring: Facts, second: Reference | None) -> Facts:
    """Where a run's numbers come from, ``scoring`` being how models were scored; and what attacks need to go on."""
    data, module = data_of(run.trainer), run.module
    facts = provenance(data, method=type(module).__name__, steps=run.trainer.global_step, seed=data.seed)
    facts |= {"weights": run.weights, **scoring}
    facts |= {"second_reference": second.source} if second else {}
    if "before" in run.columns:
        facts |= {"target": str(getattr(module.recipe, "path", None)), STARTED_IN: os.path.relpath(".", run.folder)}
    return facts


def tell(run: Measured, facts: Facts, examples: list[Example], limit: int | None, caveats: list[str]) -> Account:
    """Write the card and the audit page of a run that had a model before; returns what they tell."""
    told = account(run, facts, examples, limit, caveats)
    write_card(told)
    write_audit(run.folder / AUDIT, told)
    return told


def write_audit(path: Path, account: Account) -> None:
    """Write the page for the person who must sign that rows were unlearned, whole or not at all."""
    with replacing(path) as temporary:
        temporary.write_text(page(account), encoding="utf-8")


def page(account: Account) -> str:
    """Return the page's text, which makes no claim of proof."""
    made = templates("ofmu_pl.evaluation", shown=shown, ends=ends, joined=joined).get_template("audit.html.jinja")
    return made.render(a=account, marks=ROWS, attacks=parts(AUDIT, account.modality))


def write_card(account: Account) -> None:
    """Write the card into the model's folder, whole or not at all; nothing where no model was exported."""
    if account.model is None:
        return
    with replacing(account.model / CARD) as temporary:
        temporary.write_text(str(card(account)), encoding="utf-8")


def card(account: Account) -> ModelCard:
    """Make the card, ``README.md`` as the hub reads it. It has no licence: that is the base model's and not known."""
    library, task = KINDS[account.modality]
    head = ModelCardData(
        library_name=library,
        pipeline_tag=task,
        base_model=account.base_model,
        tags=["machine-unlearning", "ofmu", account.method.lower()],
    )
    made = templates("ofmu_pl.evaluation", escapes=False, text=plain, code=code, number=figure)
    body = made.get_template("card.jinja").render(a=account, attacks=parts(CARD, account.modality))
    return ModelCard(f"---\n{head.to_yaml()}\n---\n\n{body}")


def code(text: object) -> str:
    """Text in one line as code; what would end it, or a cell of a table, or begin a mark, is replaced.

    >>> code("a`|b")
    "`a'/b`"
    """
    line = visible(" ".join(str(text).split())).replace("`", "'").replace("|", "/").replace("<!--", "<! --")
    return f"`{line}`" if line else ""


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
        attack = ["attack", "--config", "ofmu_pl:attacks.yaml", "--runs", str(folder)]
        then = attack if unlearned == "text" else ["report", str(folder.parents[1])]
        rank_zero_info(f"Page to sign: {folder / AUDIT}\nNext: ofmu_pl {shlex.join(then)}")


def as_dicts(metrics: Metrics) -> Entries:
    """Entries of ``results.json`` by metric."""
    return {name: result.as_dict() for name, result in metrics.items()}
