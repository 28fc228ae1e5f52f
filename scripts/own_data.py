"""Rows of one's own on several models with one configuration: runs what is missing, and writes the table.

    python scripts/own_data.py [--tofu DATA MODEL] [--smollm2 MODEL ROWS] [--logs logs/own_data] [--only-table]

Two models are trained on the spot, on rows of the generated corpus: a Llama of 0.3 M parameters and a GPT-2 of 1 M,
whose tokenizer has no chat template. ``--tofu`` takes a folder of TOFU's files and a model that knows them (forget10),
whose rows are written as plain files; ``--smollm2`` a model that knows the rows forget.jsonl and retain.jsonl of a
folder and not its holdout.jsonl, on which adapters are trained. Every run is ``configs/text.yaml`` as it is shipped.
Summaries go to docs/results/data/own-data.json, the page to docs/results/own-data.md; a run that is there is not made
again.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pages

from ofmu_pl.data.authors_corpus import corpus
from ofmu_pl.data.own_tokenizer import train_tokenizer
from ofmu_pl.support.files import replacing, write_json
from ofmu_pl.support.records import RESULTS, Results

ROOT = Path(__file__).parents[1]
DATA, PAGE = ROOT / "docs/results/data/own-data.json", ROOT / "docs/results/own-data.md"
Row = dict[str, Any]
LLAMA = {"model_type": "llama", "hidden_size": 96, "intermediate_size": 256, "num_hidden_layers": 2}
LLAMA |= {"num_attention_heads": 4, "tie_word_embeddings": True, "max_position_embeddings": 512}
GPT2 = {"model_type": "gpt2", "n_embd": 128, "n_layer": 4, "n_head": 4, "n_positions": 256}
GPT2 |= dict.fromkeys(("resid_pdrop", "embd_pdrop", "attn_pdrop"), 0.0)
MADE: dict[str, tuple[int, int, int, dict[str, Any]]] = {
    "Llama, 0.3 M": (20, 2, 380, LLAMA),
    "GPT-2, 1 M": (50, 5, 600, GPT2),
}
"""Authors, how many of them to forget, iterations of training, and the architecture."""
ABOUT = f"""# Rows of one's own, several models, one configuration

Written by `scripts/own_data.py` from docs/results/data/own-data.json. Every run is `configs/text.yaml` as it is
shipped: no rate, no length, no other option was chosen for a model (SmolLM2 has adapters, bf16 and the system prompt
that it was taught with, and shorter answers, for memory and time alone). Seconds are those of a busy machine. p is
exp(-loss) of the true answer, the mean over rows; the AUC is that of telling forgotten from never-seen rows by their
loss, with its 95 % interval. ↑ the higher, → the nearer to never-seen rows' p, or of an AUC to 0.5, the better
({pages.MEANING}).
"""
HEAD = ("model", "rows: forget, never seen", "iterations", "p forget: before, after →", "p never seen", "AUC before")
HEAD += ("AUC after →", "min-k AUC after →", "p retain: before, after ↑, kept ↑", "seconds: training, evaluation")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tofu", nargs=2, type=Path, metavar=("DATA", "MODEL"))
    parser.add_argument("--smollm2", nargs=2, type=Path, metavar=("MODEL", "ROWS"))
    parser.add_argument("--logs", type=Path, default=ROOT / "logs/own_data")
    parser.add_argument("--only-table", action="store_true", help="write the page from the stored summaries")
    args = parser.parse_args()
    stored: dict[str, Any] = json.loads(DATA.read_text()) if DATA.is_file() else {}
    if not args.only_table:
        runs = {name: (*trained(name, args.logs.absolute()), []) for name in MADE}
        if args.tofu:
            runs["Llama, 4.5 M, TOFU forget10"] = (args.tofu[1].absolute(), tofu_rows(args.tofu[0], args.logs), [])
        if args.smollm2:
            words = ["--model.network.lora", "{r: 16, lora_alpha: 32, target_modules: all-linear}"]
            words += ["--data.system_prompt", "Be brief.", "--trainer.precision", "bf16-mixed"]  # as it was taught
            words += ["--evaluation.max_new_tokens", "24"]
            runs["SmolLM2, 135 M, adapters"] = (args.smollm2[0].absolute(), args.smollm2[1].absolute(), words)
        for name, (model, rows, words) in runs.items():
            folder = args.logs.absolute() / short(name)
            fit(folder, "ofmu", "text.yaml", model, rows, [*words, "--evaluation.samples", "full"])
            stored[name] = summary(folder / "ofmu/latest")
            write_json(DATA, stored)
    write_text(PAGE, page(stored))
    print(PAGE)


def trained(name: str, logs: Path) -> tuple[Path, Path]:
    """Folder of a model that knows the generated rows, and folder of the rows."""
    authors, forgotten, steps, config = MADE[name]
    folder = logs / short(name)
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
    write_rows(logs.absolute() / "tofu_rows", **rows)
    return logs.absolute() / "tofu_rows"


def write_rows(folder: Path, **sides: list[Row]) -> None:
    """One JSON-lines file of questions and answers a side."""
    for side, rows in sides.items():
        lines = [json.dumps({name: row[name] for name in ("question", "answer")}) for row in rows]
        write_text(folder / f"{side}.jsonl", "\n".join(lines) + "\n")


def fit(folder: Path, method: str, config: str, model: Path | None, rows: Path, words: list[str]) -> None:
    """A run, unless it is there already; one that was interrupted goes on."""
    command = [sys.executable, "-m", "ofmu_pl", "fit", "--config", str(ROOT / "configs" / config)]
    command += [] if model is None else ["--model.network.path", str(model)]
    for side in ("forget", "retain", "holdout"):
        command += [f"--data.{side}", str(rows / f"{side}.jsonl")]
    command += [
        *words,
        "--logs",
        str(folder.parent),
        "--benchmark",
        folder.name,
        "--method",
        method,
        "--ckpt_path",
        "last",
    ]
    print("$", " ".join(command), flush=True)
    subprocess.run(command, check=True, env=os.environ | {"PYTHONPATH": str(ROOT)})


def summary(run: Path) -> dict[str, Any]:
    """What the page shows of a run."""
    results = Results.read(run / RESULTS)
    sides = {"after": results.metrics, "before": results.before}
    samples = [json.loads(line) for line in (run / "samples.jsonl").open()]
    shown = [x for x in samples if x["set"] == "forget"][:1] + [x for x in samples if x["set"] == "retain"][:1]
    return {
        **pages.facts(),
        "git": results.provenance.get("git"),
        "steps": results.provenance["steps"],
        "cost": vars(results.cost),
        "metrics": sides,
        "samples": shown,
    }


def page(stored: dict[str, Any]) -> str:
    """The table and samples as Markdown."""
    rows = []
    for name, run in stored.items():
        after, before = run["metrics"]["after"], run["metrics"]["before"]
        kept = after["retain_Q_A_Prob"]["value"] / before["retain_Q_A_Prob"]["value"]
        cells = [
            name,
            f"{after['forget_Q_A_Prob']['n']}, {after['holdout_Q_A_Prob']['n']}",
            str(run["steps"]),
            f"{before['forget_Q_A_Prob']['value']:.3f}, {after['forget_Q_A_Prob']['value']:.4f}",
            f"{after['holdout_Q_A_Prob']['value']:.4f}",
            f"{before['mia_loss']['value']:.3f}",
            interval(after["mia_loss"]),
            interval(after["mia_min_k"]),
            f"{before['retain_Q_A_Prob']['value']:.3f}, {after['retain_Q_A_Prob']['value']:.3f}, {kept:.1%}",
            f"{run['cost']['training_seconds']:.0f}, {run['cost']['evaluation_seconds']:.0f}",
        ]
        rows.append(cells)
    lines = [ABOUT, *pages.table(HEAD, rows)]
    for name, run in stored.items():
        lines += ["", f"**{name}** ({run['date']}, {run['machine']}, torch {run['versions']['torch']})", ""]
        samples = []
        for x in run["samples"]:
            texts = [x[name] for name in ("set", "question", "truth", "before", "after")]
            samples.append([str(text).replace("|", "/").replace("\n", " ") for text in texts])
        lines += pages.table(["side", "question", "true answer", "said before", "said after"], samples)
    return "\n".join(lines) + "\n"


def write_text(path: Path, text: str) -> None:
    """A whole file or none."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with replacing(path) as partial:
        partial.write_text(text, encoding="utf-8")


def interval(entry: dict[str, Any]) -> str:
    low, high = entry["interval"]
    return f"{entry['value']:.3f} ({low:.2f} to {high:.2f})"


def short(name: str) -> str:
    return name.split(",")[0].lower().replace("-", "") + ("_tofu" if "TOFU" in name else "")


if __name__ == "__main__":
    main()
