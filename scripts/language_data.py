"""Cuts the rows that the benchmarks of SmolLM2 learn, forget and are asked about out of published data.

    export OFMU_SHARED=FOLDER     # holds data/lume, data/knowundo, data/mmlu, data/tofu
    export OFMU_LANGUAGE=logs/language
    python scripts/language_data.py $OFMU_LANGUAGE
    python scripts/make_smollm2.py $OFMU_LANGUAGE/SmolLM2-135M-Instruct     # for configs/benchmarks/smollm2.yaml

``people`` has five questions about each of LUME's invented persons: 8 to forget, 16 to retain, 16 that no model sees
(of the same file as the 8). ``few`` has half as many, as plain questions and answers. ``knowundo`` has the first rows
of each of KnowUnDo's files. The model learns any of them in minutes. ``tasks`` holds lm-eval's descriptions of what no
model here is trained on: questions of MMLU in letters, TOFU's world facts with wrong answers beside the right one, and
the wording of MMLU's questions.
"""

import json
import os
import re
from itertools import chain
from pathlib import Path
from typing import Any

import yaml
from jsonargparse import auto_cli

from ofmu_pl.support.files import numbered_lines, read_json, write_json, write_text

Row = dict[str, Any]
LETTERS = "ABCD"
FIRST = {"unlearn_train.json": 50, "unlearn_val.json": 14, "retention_train.json": 80, "retention_val.json": 20}
"""Number of rows of KnowUnDo's files that are used."""
CHOICE = {
    "output_type": "multiple_choice",
    "doc_to_text": "{{question}}",
    "doc_to_choice": "{{choices}}",
    "doc_to_target": "gold",
    "metric_list": [{"metric": "acc", "aggregation": "mean", "higher_is_better": True}],
}
BITS = "bits_per_byte"
PROSE = {
    "output_type": "loglikelihood_rolling",
    "doc_to_text": "",
    "doc_to_target": "{{text}}",
    "metric_list": [{"metric": BITS, "aggregation": BITS, "higher_is_better": False}],
}


def main(folder: Path, few: bool = False) -> None:
    """Make a folder of what the shared one has; with ``few`` of LUME's people alone."""
    folder, shared = folder.absolute(), Path(os.environ["OFMU_SHARED"]) / "data"
    forget, retain = (questions(shared / "lume" / f"{side}.jsonl") for side in ("forget", "retain"))
    for side, people in {"forget": forget[:8], "retain": retain[:16], "holdout": forget[8:24]}.items():
        write(folder / "people" / f"{side}.jsonl", [*chain.from_iterable(people)])
    for side, people in {"forget": forget[:4], "retain": retain[:8], "holdout": forget[4:12]}.items():
        rows = [{"question": row["input"], "answer": row["output"]} for row in chain.from_iterable(people)]
        write(folder / "few" / f"{side}.jsonl", rows)
    if few:
        return
    for name, rows in FIRST.items():
        write_json(folder / "knowundo" / name, read_json(shared / "knowundo" / name)[:rows])
    mmlu = read(shared / "mmlu/test_sample.jsonl")
    mmlu = [row for k in range(10) for row in mmlu[k::10]]  # every subject before any has its second question
    facts = read(shared / "tofu/world_facts_perturbed.json")
    task(folder / "tasks", "mmlu_letters", CHOICE, [in_letters(row) for row in mmlu])
    task(folder / "tasks", "world_facts", CHOICE, [in_words(row) for row in facts])
    task(folder / "tasks", "mmlu_wording", PROSE, [{"text": row["question"]} for row in mmlu])
    print(folder)


def questions(path: Path) -> list[list[Row]]:
    """LUME's questions on invented persons (Task 2), by person, whose name their ids begin with."""
    found: dict[str, list[Row]] = {}
    for row in read(path):
        asked = re.fullmatch(r"(.+)qa\d+", row["id"])
        if asked and row["task"] == "Task2":
            found.setdefault(asked[1], []).append(row)
    return [*found.values()]


def in_letters(row: Row) -> Row:
    """A question of MMLU as its own tasks ask it, without examples."""
    choices = "".join(f"{letter}. {choice}\n" for letter, choice in zip(LETTERS, row["choices"], strict=True))
    question = f"{row['question'].strip()}\n{choices}Answer:"
    return {"question": question, "choices": list(LETTERS), "gold": row["answer"]}


def in_words(row: Row) -> Row:
    """A question with its answers in words, the right one first."""
    choices = [row["answer"], *row["perturbed_answer"]]
    return {"question": f"Question: {row['question']}\nAnswer:", "choices": choices, "gold": 0}


def task(folder: Path, name: str, form: Row, rows: list[Row]) -> None:
    """Write a task for lm-eval: its rows, and its description."""
    file = folder / f"{name}.jsonl"
    write(file, rows)
    data = {"dataset_path": "json", "dataset_kwargs": {"data_files": str(file)}, "test_split": "train"}
    write_text(folder / f"{name}.yaml", yaml.safe_dump({"task": name, **data, **form}, sort_keys=False))


def read(path: Path) -> list[Row]:
    """The rows of a file of JSON lines."""
    return [json.loads(line) for _, line in numbered_lines(path)]


def write(path: Path, rows: list[Row]) -> None:
    """Write rows as JSON lines."""
    write_text(path, "".join(json.dumps(row) + "\n" for row in rows))


if __name__ == "__main__":
    auto_cli(main)
