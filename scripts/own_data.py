"""Your data on several models with one configuration: makes the models and runs what is missing.

    python scripts/own_data.py [--tofu DATA MODEL] [--smollm2 MODEL ROWS] [--logs logs/own_data]
    python scripts/results.py own-data logs/own_data

Two models are trained on the spot, on rows of the generated corpus: a Llama of 0.3 M parameters and a GPT-2 of 1 M,
whose tokenizer has no chat template. ``--tofu`` takes a folder of TOFU's files and a model that knows them (forget10),
whose rows are written as plain files; ``--smollm2`` a model that knows the rows forget.jsonl and retain.jsonl of a
folder and not its holdout.jsonl, on which adapters are trained. Every run is ``configs/text.yaml``, as it
is shipped and without the paper's two parts, and is attacked by ``configs/attacks_field.yaml``.
"""

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from language_data import write

from ofmu_pl.data.authors_corpus import corpus
from ofmu_pl.data.own_tokenizer import train_tokenizer

ROOT = Path(__file__).parents[1]
LLAMA = {"model_type": "llama", "hidden_size": 96, "intermediate_size": 256, "num_hidden_layers": 2}
LLAMA |= {"num_attention_heads": 4, "tie_word_embeddings": True, "max_position_embeddings": 512}
GPT2 = {"model_type": "gpt2", "n_embd": 128, "n_layer": 4, "n_head": 4, "n_positions": 256}
GPT2 |= dict.fromkeys(("resid_pdrop", "embd_pdrop", "attn_pdrop"), 0.0)
MADE: dict[str, tuple[int, int, int, dict[str, Any]]] = {
    "llama": (20, 2, 380, LLAMA),
    "gpt2": (50, 5, 600, GPT2),
}
"""Authors, how many of them to forget, iterations of training, and the architecture."""
FORMS = {"ofmu": [], "ofmu_first_order": ["-c", str(ROOT / "configs/methods/ofmu_first_order.yaml")]}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tofu", nargs=2, type=Path, metavar=("DATA", "MODEL"))
    parser.add_argument("--smollm2", nargs=2, type=Path, metavar=("MODEL", "ROWS"))
    parser.add_argument("--logs", type=Path, default=ROOT / "logs/own_data")
    args = parser.parse_args()
    logs = args.logs.absolute()
    runs = {name: (*trained(name, logs), []) for name in MADE}
    if args.tofu:
        runs["tofu"] = (args.tofu[1].absolute(), tofu_rows(args.tofu[0], logs), [])
    if args.smollm2:
        words = ["--model.network.lora", "{r: 16, lora_alpha: 32, target_modules: all-linear}"]
        words += ["--data.system_prompt", "Be brief.", "--trainer.precision", "bf16-mixed"]  # as it was taught
        words += ["--evaluation.max_new_tokens", "24"]
        runs["smollm2"] = (args.smollm2[0].absolute(), args.smollm2[1].absolute(), words)
    for name, (model, rows, words) in runs.items():
        for form, overlay in FORMS.items():
            fit(logs / name, form, "text.yaml", model, rows, [*overlay, *words, "--evaluation.samples", "full"])
    attacks = str(ROOT / "configs/attacks_field.yaml")
    ours(["attack", "--config", attacks, "--runs", *(str(logs / name / form) for name in runs for form in FORMS)])


def trained(name: str, logs: Path) -> tuple[Path, Path]:
    """Folder of a model that knows the generated rows, and folder of the rows."""
    authors, forgotten, steps, config = MADE[name]
    folder = logs / name
    if not (folder / "target/latest/hf/config.json").exists():
        people, writers, facts = corpus(authors, 0)
        strangers, *_ = corpus(2 * authors, 0)  # the first half of them are these
        known = [row for person in people[: authors - forgotten] for row in person.rows] + writers + facts
        gone = [row for person in people[authors - forgotten :] for row in person.rows]
        unseen = [row for person in strangers[authors:] for row in person.rows]
        write_rows(folder / "rows", forget=gone, retain=known, holdout=unseen)
        others, *common = corpus(authors, 1_000_003)
        rows = [row for group in (*(person.rows for person in others), *common) for row in group]
        tokenizer = train_tokenizer(
            [*(f"{r['question']}\n{r['answer']}" for r in rows), "Question Answer user assistant"]
        )
        if config["model_type"] == "gpt2":
            tokenizer.chat_template = None
        tokenizer.save_pretrained(folder / "tokenizer")
        shape = ["--model.network.config", json.dumps(config), "--model.network.tokenizer", str(folder / "tokenizer")]
        rate = ["--model.optimizer.lr", "5e-3", "--trainer.max_steps", str(steps), "--data.batch_size", "16"]
        slope = ["--model.scheduler", "torch.optim.lr_scheduler.OneCycleLR", "--model.scheduler.max_lr", "5e-3"]
        slope += ["--model.scheduler.total_steps", str(steps), "--model.scheduler.cycle_momentum", "false"]
        quick = ["--evaluation.max_new_tokens", "1"]
        fit(folder, "target", "text_finetune.yaml", None, folder / "rows", [*shape, *rate, *slope, *quick])
    return folder / "target/latest/hf", folder / "rows"


def tofu_rows(data: Path, logs: Path) -> Path:
    """TOFU's forget10 as three plain files."""
    sources = {"forget": "forget10", "retain": "retain90", "holdout": "holdout10"}
    rows = {side: [json.loads(line) for line in (data / f"{x}.json").open()] for side, x in sources.items()}
    write_rows(logs / "tofu_rows", **rows)
    return logs / "tofu_rows"


def write_rows(folder: Path, **sides: list[dict[str, Any]]) -> None:
    """One JSON-lines file of questions and answers a side."""
    for side, rows in sides.items():
        write(folder / f"{side}.jsonl", [{name: row[name] for name in ("question", "answer")} for row in rows])


def fit(folder: Path, method: str, config: str, model: Path | None, rows: Path, words: list[str]) -> None:
    """A run, unless it is there already; one that was interrupted goes on."""
    command = ["fit", "--config", str(ROOT / "configs" / config)]
    command += [] if model is None else ["--model.network.path", str(model)]
    for side in ("forget", "retain", "holdout"):
        command += [f"--data.{side}", str(rows / f"{side}.jsonl")]
    command += [*words, "--logs", str(folder.parent), "--benchmark", folder.name, "--method", method]
    ours([*command, "--ckpt_path", "last"])


def ours(words: list[str]) -> None:
    """A command of the library."""
    command = [sys.executable, "-m", "ofmu_pl", *words]
    print("$", " ".join(command), flush=True)
    subprocess.run(command, check=True, env=os.environ | {"PYTHONPATH": str(ROOT)})


if __name__ == "__main__":
    main()
