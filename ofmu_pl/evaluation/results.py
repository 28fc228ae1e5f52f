"""Writes what an evaluation found: ``results.json``, card, audit page, samples, and open-unlearning's logs."""

import json
import os
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Literal

import numpy as np
from huggingface_hub import ModelCard, ModelCardData
from lightning.pytorch.utilities import rank_zero_info

from ofmu_pl.data.base import data_of
from ofmu_pl.data.encoded import Row
from ofmu_pl.data.text_base import TextDataModule
from ofmu_pl.evaluation.account import Account, Example, Measured, account
from ofmu_pl.evaluation.attacked import parts
from ofmu_pl.evaluation.plain import ends, joined, shown
from ofmu_pl.evaluation.reference import Facts, Reference
from ofmu_pl.evaluation.table import Metrics, figure
from ofmu_pl.metrics import Scores, probability
from ofmu_pl.metrics.open_unlearning import write_eval
from ofmu_pl.support.escapes import command, visible
from ofmu_pl.support.files import replacing, write_json, write_text
from ofmu_pl.support.keyed import hashed, make_key
from ofmu_pl.support.pages import AUDIT, CARD, ROWS, plain, templates
from ofmu_pl.support.provenance import STARTED_IN, provenance
from ofmu_pl.support.records.reading import Entries
from ofmu_pl.support.records.results import RESULTS, Cost, Interim, ReferenceRecord, Results
from ofmu_pl.support.sets import is_document
from ofmu_pl.training.export import exported
from ofmu_pl.training.record import peak_memory

KINDS = {"text": ("transformers", "text-generation"), "images": ("ofmu_pl", "image-classification")}
"""The library that loads the model and its task on the hub, by modality."""
SamplesName = Literal["none", "hashes", "full"]  # how much a run's files show of the rows' texts and of what models say


def facts_of(run: Measured, scoring: Facts, second: Reference | None) -> Facts:
    """Where a run's numbers come from, ``scoring`` being how models were scored; and what attacks need to go on."""
    data, module = data_of(run.trainer), run.module
    facts = provenance(data, method=type(module).__name__, steps=run.trainer.global_step, seed=data.seed)
    facts |= {"weights": run.weights, **scoring}
    facts |= {"second_reference": second.source} if second else {}
    if "before" in run.columns:
        facts |= {"target": str(getattr(module.recipe, "path", None)), STARTED_IN: os.path.relpath(".", run.folder)}
        facts |= {"weights_before": run.weights_before}
    return facts


def tell(run: Measured, facts: Facts, examples: list[Example], limit: int | None, caveats: list[str]) -> Account:
    """Write the card and the audit page of a run that had a model before; returns what they tell."""
    told = account(run, facts, examples, limit, caveats)
    write_card(told)
    write_text(run.folder / AUDIT, page(told))
    return told


def page(account: Account) -> str:
    """Return the page for the person who must sign that rows were unlearned; it makes no claim of proof."""
    made = templates("ofmu_pl.evaluation", shown=shown, ends=ends, joined=joined).get_template("audit.html.jinja")
    return made.render(a=account, marks=ROWS, attacks=parts(AUDIT, account.modality))


def write_card(account: Account) -> None:
    """Write the card into the model's folder, whole or not at all; nothing where no model was exported."""
    if account.model is not None:
        write_text(account.model / CARD, str(card(account)))


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


def tell_where(run: Measured, unlearned: bool) -> None:
    """Print where the files are, and what comes next: after unlearning, or after one's own rows have been learnt."""
    folder, data, model = run.folder, data_of(run.trainer), exported(run.trainer, run.folder)
    rank_zero_info(f"Results: {folder / RESULTS}")
    if unlearned:
        attack = ["attack", "--config", "ofmu_pl:attacks.yaml", "--runs", str(folder)]
        then = attack if data.modality == "text" else ["report", str(folder.parents[1])]
        rank_zero_info(f"Page to sign: {folder / AUDIT}\nNext: {command(*then)}")
    elif model is not None and data.name == "text" and run.module.streams == ("full",):
        forget = command("fit", "--config", "ofmu_pl:text.yaml", "--model.network.path", str(model))
        rank_zero_info(f"Next: {forget}, with the same options of data")


def as_dicts(metrics: Metrics) -> Entries:
    """Entries of ``results.json`` by metric."""
    return {name: result.as_dict() for name, result in metrics.items()}


def write_samples(path: Path, sets: dict[str, list[Row]], before: Scores, after: Scores, full: bool) -> None:
    """Write a line per question: how likely the true answer was and how much of it was said, before and after.

    With ``full`` it shows the question, the true answer and what the model said; otherwise keyed hashes of the first
    two.
    """
    shown = str if full else partial(hashed, key=make_key(path.parent))
    with replacing(path) as temporary, temporary.open("w", encoding="utf-8") as file:
        for name, s in after.items():
            if s.rouge is None:
                continue
            for k, i in enumerate(s.ids.tolist()):
                row = sets[name][i]
                line = {"set": name, "id": i, "question": shown(row["question"]), "truth": shown(row["answer"])}
                for side, scores in (("before", before.get(name)), ("after", s)):
                    said, rouge = (scores.generations, scores.rouge) if scores else (None, None)
                    if full:
                        line[side] = None if said is None else said[k]
                    line[f"probability_{side}"] = float(probability(scores.answer_loss[k])) if scores else None
                    line[f"rouge_{side}"] = None if rouge is None else rouge[k]
                file.write(json.dumps(line, ensure_ascii=False) + "\n")


def write_open_unlearning_logs(
    folder: Path, data: TextDataModule, scores: Scores, metrics: Metrics, samples: SamplesName
) -> None:
    """Write ``TOFU_EVAL.json`` and ``TOFU_SUMMARY.json`` as open-unlearning writes and reads them.

    With ``hashes`` the first file has hashes instead of texts; with ``none`` it is left out.
    """
    encoder, inputs, truths = data.encoder, {}, {}
    for name, s in scores.items():
        if is_document(name):
            continue
        rows = [data.evaluation_sets[name][i] for i in np.asarray(s.ids)]
        asked = [encoder.encode_row(row)[0] for row in rows]
        prompts = [x.input_ids[: x.prompt_length] for x in asked]
        inputs[name] = encoder.tokenizer.batch_decode(prompts, skip_special_tokens=True)
        truths[name] = [row["answer"].strip() for row in rows]
    log, summary = write_eval(scores, metrics, inputs, truths)
    if samples == "hashes":
        key = make_key(folder)
        for metric in (log[name] for name in log if name.endswith("_Q_A_ROUGE")):
            for item in metric["value_by_index"].values():
                item |= {field: hashed(item[field], key) for field in ("input", "ground_truth", "generation")}
    if samples != "none":
        write_json(folder / "TOFU_EVAL.json", log)
    write_json(folder / "TOFU_SUMMARY.json", summary)
