"""Your data on several models with one configuration: makes the models and runs what is missing.

    python scripts/own_data.py [--tofu "[DATA, MODEL]"] [--logs logs/own_data]
    python scripts/results.py own-data logs/own_data

Two models are trained on the spot, on rows of the generated corpus: a Llama of 0.3 M parameters and a GPT-2 of 1 M,
whose tokenizer has no chat template. TOFU's rows are written as plain files. Every run is ``configs/text.yaml``, as it
is shipped and without the paper's two parts, and is attacked by ``configs/attacks_field.yaml``.
"""

import json
from itertools import chain
from pathlib import Path
from typing import Any

from jsonargparse import auto_cli
from language_data import read, write

from ofmu_pl import Authors
from ofmu_pl.cli import main as ofmu_pl
from ofmu_pl.data.authors import TOKENIZERS
from ofmu_pl.data.authors_corpus import corpus, rows_of
from ofmu_pl.data.own_tokenizer import train_tokenizer

CONFIGS = Path(__file__).parents[1] / "configs"
LLAMA = {"model_type": "llama", "hidden_size": 96, "intermediate_size": 256, "num_hidden_layers": 2}
LLAMA |= {"num_attention_heads": 4, "tie_word_embeddings": True, "max_position_embeddings": 512}
GPT2 = {"model_type": "gpt2", "n_embd": 128, "n_layer": 4, "n_head": 4, "n_positions": 256}
GPT2 |= dict.fromkeys(("resid_pdrop", "embd_pdrop", "attn_pdrop"), 0.0)
MADE: dict[str, tuple[int, int, int, dict[str, Any]]] = {
    "llama": (20, 2, 380, LLAMA),
    "gpt2": (50, 5, 600, GPT2),
}
"""Authors, how many of them to forget, iterations of training, and the architecture."""
FORMS = {"ofmu": [], "ofmu_first_order": ["-c", str(CONFIGS / "methods/ofmu_first_order.yaml")]}


def main(tofu: tuple[Path, Path] | None = None, logs: Path = CONFIGS.parent / "logs/own_data") -> None:
    """Make the models, run and attack; ``tofu`` are a folder of TOFU's files and a model that knows them (forget10)."""
    logs = logs.absolute()
    models = {name: trained(name, logs / name) for name in MADE}
    if tofu:
        data, models["tofu"] = tofu
        rows = {"forget": "forget10", "retain": "retain90", "holdout": "holdout10"}
        write_rows(logs / "tofu/rows", {side: read(data / f"{file}.json") for side, file in rows.items()})
    for name, model in models.items():
        for form, overlay in FORMS.items():
            words = ["--model.network.path", str(model.absolute()), *overlay, "--evaluation.samples", "full"]
            fit(logs / name, form, "text.yaml", words)
    runs = [str(logs / name / form) for name in models for form in FORMS]
    ofmu_pl(["attack", "--config", str(CONFIGS / "attacks_field.yaml"), "--runs", *runs])


def trained(name: str, folder: Path) -> Path:
    """Folder of a model that knows the generated rows, which lie beside it."""
    authors, forgotten, steps, config = MADE[name]
    model = folder / "target/latest/hf"
    if not (model / "config.json").exists():
        splits, _ = Authors(authors, forgotten).load()
        unseen, _ = Authors(2 * authors, authors).load()  # the first half of them are these
        sides = {"forget": splits["forget"], "retain": splits["retain"], "holdout": unseen["forget"]}
        write_rows(folder / "rows", sides)
        others, *common = corpus(authors, TOKENIZERS)
        texts = [f"{row['question']}\n{row['answer']}" for row in chain(rows_of(others), *common)]
        tokenizer = train_tokenizer([*texts, "Question Answer user assistant"])
        if config["model_type"] == "gpt2":
            tokenizer.chat_template = None
        tokenizer.save_pretrained(folder / "tokenizer")
        shape = ["--model.network.config", json.dumps(config), "--model.network.tokenizer", str(folder / "tokenizer")]
        rate = ["--model.optimizer.lr", "5e-3", "--trainer.max_steps", str(steps), "--data.batch_size", "16"]
        slope = ["--model.scheduler", "torch.optim.lr_scheduler.OneCycleLR", "--model.scheduler.max_lr", "5e-3"]
        slope += ["--model.scheduler.total_steps", str(steps), "--model.scheduler.cycle_momentum", "false"]
        fit(folder, "target", "text_finetune.yaml", [*shape, *rate, *slope, "--evaluation.max_new_tokens", "1"])
    return model


def write_rows(folder: Path, sides: dict[str, list[dict[str, Any]]]) -> None:
    """One JSON-lines file of questions and answers a side."""
    for side, rows in sides.items():
        write(folder / f"{side}.jsonl", [{name: row[name] for name in ("question", "answer")} for row in rows])


def fit(folder: Path, method: str, config: str, words: list[str]) -> None:
    """A run on a folder's rows, unless it is there already; one that was interrupted goes on."""
    data = [f"--data.{side}={folder}/rows/{side}.jsonl" for side in ("forget", "retain", "holdout")]
    where = ["--logs", str(folder.parent), "--benchmark", folder.name, "--method", method, "--ckpt_path", "last"]
    ofmu_pl(["fit", "--config", str(CONFIGS / config), *data, *words, *where])


if __name__ == "__main__":
    auto_cli(main)
