"""Files of an evaluation beside ``results.json``: samples to read, and logs for open-unlearning's users."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from ofmu_pl.callbacks.table import Metrics
from ofmu_pl.data.text import Row
from ofmu_pl.files import replacing, write_json
from ofmu_pl.metrics import Scores, probability
from ofmu_pl.metrics.open_unlearning import write_eval


def write_samples(path: Path, sets: dict[str, list[Row]], before: Scores, after: Scores) -> None:
    """One line a question: the true answer, and what the model said and how likely the true answer was.

    Args:
        path: The file.
        sets: Rows by evaluation set.
        before: Scores before the run; may be empty.
        after: Scores after it.
    """
    with replacing(path) as temporary, temporary.open("w", encoding="utf-8") as file:
        for name, s in after.items():
            if s.generations is None:
                continue
            for k, i in enumerate(s.ids.tolist()):
                row = sets[name][i]
                line = {"set": name, "id": i, "question": row["question"], "truth": row["answer"]}
                line |= {"before": _said(before, name, k), "after": s.generations[k]}
                line |= {"probability_before": _probability(before, name, k)}
                line |= {"probability_after": _probability(after, name, k)}
                file.write(json.dumps(line, ensure_ascii=False) + "\n")


def _said(scores: Scores, name: str, k: int) -> str | None:
    generations = scores[name].generations if name in scores else None
    return None if generations is None else str(generations[k])


def _probability(scores: Scores, name: str, k: int) -> float | None:
    return float(probability(scores[name].answer_loss[k])) if name in scores else None


def write_open_unlearning_logs(folder: Path, data: Any, scores: Scores, metrics: Metrics) -> None:
    """``TOFU_EVAL.json`` and ``TOFU_SUMMARY.json``, as open-unlearning writes them and reads them as retain logs."""
    encoder, inputs, truths = data.encoder, {}, {}
    for name, s in scores.items():
        rows = [data.evaluation_sets[name][i] for i in np.asarray(s.ids)]
        prompts = [encoder.prompt(row["question"]) for row in rows]
        inputs[name] = encoder.tokenizer.batch_decode(prompts, skip_special_tokens=True)
        truths[name] = [row["answer"].strip() for row in rows]
    log, summary = write_eval(scores, metrics, inputs, truths)
    write_json(folder / "TOFU_EVAL.json", log)
    write_json(folder / "TOFU_SUMMARY.json", summary)
