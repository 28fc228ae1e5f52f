"""Makes the rows and tokenizers of configs/benchmarks/own-data.yaml.

    export OFMU_LANGUAGE=logs/language OFMU_SHARED=FOLDER     # holds data/tofu and models/tofu-tiny-full
    python scripts/own_data.py $OFMU_LANGUAGE/own             # or: bash scripts/reproduce.sh own-data

Rows of the generated corpus are for two models that the benchmark trains: a Llama, and a GPT-2 whose tokenizer has no
chat template. TOFU's rows are written as plain files.
"""

import os
from itertools import chain
from pathlib import Path
from typing import Any

from jsonargparse import auto_cli
from language_data import read, write

from ofmu_pl import Authors
from ofmu_pl.data.authors import TOKENIZERS
from ofmu_pl.data.authors_corpus import corpus, rows_of
from ofmu_pl.data.own_tokenizer import train_tokenizer

AUTHORS = {"llama": (20, 2), "gpt2": (50, 5)}
"""Authors of a model's corpus, and how many of them are to be forgotten."""
TOFU = {"forget": "forget10", "retain": "retain90", "holdout": "holdout10"}


def main(folder: Path) -> None:
    """Write a folder for each model."""
    for name, (authors, forgotten) in AUTHORS.items():
        splits, _ = Authors(authors, forgotten).load()
        unseen, _ = Authors(2 * authors, authors).load()  # the first half of them are these
        write_rows(folder / name, {**splits, "holdout": unseen["forget"]})
        others, *common = corpus(authors, TOKENIZERS)
        texts = [f"{row['question']}\n{row['answer']}" for row in chain(rows_of(others), *common)]
        tokenizer = train_tokenizer([*texts, "Question Answer user assistant"])
        if name == "gpt2":
            tokenizer.chat_template = None
        tokenizer.save_pretrained(folder / name / "tokenizer")
    tofu = Path(os.environ["OFMU_SHARED"]) / "data/tofu"
    write_rows(folder / "tofu", {side: read(tofu / f"{file}.json") for side, file in TOFU.items()})


def write_rows(folder: Path, sides: dict[str, list[dict[str, Any]]]) -> None:
    """One JSON-lines file of questions and answers a side."""
    for side in TOFU:
        write(folder / f"{side}.jsonl", [{name: row[name] for name in ("question", "answer")} for row in sides[side]])


if __name__ == "__main__":
    auto_cli(main)
