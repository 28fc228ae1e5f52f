"""Writes an evaluation's samples to read, and logs for open-unlearning's users."""

import json
from functools import partial
from pathlib import Path
from typing import Literal

import numpy as np

from ofmu_pl.data.encoded import Row
from ofmu_pl.data.text_base import TextDataModule
from ofmu_pl.evaluation.table import Metrics
from ofmu_pl.metrics import Scores, probability
from ofmu_pl.metrics.open_unlearning import write_eval
from ofmu_pl.support.files import replacing, write_json
from ofmu_pl.support.keyed import hashed, make_key
from ofmu_pl.support.sets import is_document

SamplesName = Literal["none", "hashes", "full"]  # how much a run's files show of the rows' texts and of what models say


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
