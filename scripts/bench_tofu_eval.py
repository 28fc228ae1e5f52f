"""Cost of TOFU's default suite, as a ratio to a yardstick that any machine can time: time, and tokens forwarded.

    python scripts/bench_tofu_eval.py --data FOLDER --model FOLDER [--rounds 3] [--rows 100] [--json FILE]

The suite is what ``validate`` measures: forget10, retain_perturbed, real authors, world facts and the holdout rows,
generations of up to 200 tokens included. One yardstick is one plain transformers forward pass over the 400 forget10
conversations, batch 32 in file order, right-padded, float32, no gradients. Both are interleaved in one process.

On a CPU, time is the process's own, which other work on the machine disturbs least: set OMP_WAIT_POLICY=passive, or
threads that wait count too. With ``--rows`` each set has so many evenly spaced rows, for a quick look; the yardstick
stays whole, so that only the ratio of two versions of the code says something.
"""

import argparse
import platform
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import date
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.table import Table
from transformers import AutoModelForCausalLM

from ofmu_pl.data import TOFU
from ofmu_pl.data.encoded import collate
from ofmu_pl.evaluation.scoring import score_rows
from ofmu_pl.metrics import Scores, tofu_metrics
from ofmu_pl.support.files import write_json

OPEN_UNLEARNING = 31
"""Yardsticks of open-unlearning at d3d7cf9, by CPU time and without its start-up (docs/results/evaluation.md)."""


def seconds_of(work: Callable[[], Any], clock: Callable[[], float]) -> float:
    start = clock()
    work()
    return clock() - start


@contextmanager
def counting(model: Any) -> Iterator[dict[str, int]]:
    """Tokens and calls of the model's body meanwhile, split at the first call with one column (generation)."""
    counts = {"answers": 0, "generation": 0, "calls": 0}

    def hook(module: Any, args: Any, kwargs: Any) -> None:
        ids = kwargs["input_ids"]
        counts["generation" if ids.shape[1] == 1 else "answers"] += ids.numel()
        counts["calls"] += 1

    handle = model.base_model.register_forward_pre_hook(hook, with_kwargs=True)
    yield counts
    handle.remove()


def fewest(data: TOFU, scores: Scores) -> dict[str, int]:
    """Tokens of each prompt, each distinct answer and each generation once, without padding.

    ``every_pair`` is what scoring each (question, answer) as a conversation of its own takes, with generation on top.
    """
    encoder = data.encoder
    prompts: set[tuple[int, ...]] = set()
    answers: set[tuple[int, ...]] = set()
    every_pair = 0
    for name, rows in data.evaluation_sets.items():
        for row in (rows[i] for i in scores[name].ids):
            for e in encoder.encode_row(row):
                prompts.add(tuple(e.input_ids[: e.prompt_length]))
                answers.add((e.prompt_length, *e.input_ids))
                every_pair += len(e.input_ids)
    generated = prompted = 0
    for name, s in scores.items():
        if s.generations is not None:
            generated += sum(len(encoder.tokenizer(text)["input_ids"]) for text in s.generations)
            prompted += sum(len(encoder.prompt(data.evaluation_sets[name][i]["question"])) for i in s.ids)
    # The last token of an answer predicts nothing, so it is never an input.
    shared = sum(len(p) for p in prompts) + sum(len(a) - 1 - a[0] - 1 for a in answers) + generated
    return {"fewest": shared, "every_pair": every_pair + prompted + generated}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", required=True, help="TOFU's files")
    parser.add_argument("--model", required=True, help="a Hugging Face folder")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--rows", type=int, help="of each set; all without it")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()

    data = TOFU(options.data, tokenizer=options.model)
    data.setup()
    model = AutoModelForCausalLM.from_pretrained(options.model, dtype=torch.float32).to(options.device).eval()
    rows = data.evaluation_sets["forget"]
    encoded = [data.encoder.encode(row["question"], row["answer"]) for row in rows]
    batches = [collate(encoded[i : i + 32], range(32), data.tokenizer.pad_token_id) for i in range(0, len(rows), 32)]

    @torch.no_grad()
    def yardstick() -> None:
        for batch in batches:
            model(
                input_ids=batch["input_ids"].to(options.device),
                attention_mask=batch["attention_mask"].to(options.device),
            ).logits.sum().item()

    found: dict[str, Any] = {}

    def suite() -> None:
        how = {"max_new_tokens": 200, "items": options.rows, "kinds": data.kinds}
        found["scores"] = score_rows(model, data.encoder, data.evaluation_sets, **how)
        found["metrics"] = tofu_metrics(found["scores"], found["scores"], intervals=True)

    clock = time.process_time if options.device == "cpu" else time.perf_counter
    yardstick()
    times: dict[str, list[float]] = {"yardstick": [], "suite": []}
    with counting(model) as counts:
        times["suite"].append(seconds_of(suite, clock))
    for _ in range(options.rounds):
        times["yardstick"] += [seconds_of(yardstick, clock) for _ in range(3)]
        times["suite"].append(seconds_of(suite, clock))
    unit = statistics.median(times["yardstick"])
    medians = {name: statistics.median(x) for name, x in times.items()}
    tokens = fewest(data, found["scores"])
    forwarded = counts["answers"] + counts["generation"]

    table = Table(title=f"TOFU evaluation, {options.device}, {torch.get_num_threads()} threads, {date.today()}")
    for column in ("", "seconds", "yardsticks", "tokens forwarded"):
        table.add_column(column, justify="left" if not column else "right")
    table.add_row("yardstick", f"{unit:.2f}", "1", f"{sum(len(e.input_ids) for e in encoded)}")
    table.add_row("this suite", f"{medians['suite']:.2f}", f"{medians['suite'] / unit:.1f}", f"{forwarded}")
    table.add_row("  of which generation", "", "", f"{counts['generation']}")
    table.add_row("each prompt, answer and generation once", "", "", f"{tokens['fewest']}")
    table.add_row("each pair by itself", "", "", f"{tokens['every_pair']}")
    table.add_row("open-unlearning (stored)", "", f"{OPEN_UNLEARNING}", "")
    Console().print(table)
    if options.json:
        versions = {"python": platform.python_version(), "torch": torch.__version__}
        write_json(
            options.json,
            {
                "date": str(date.today()),
                "device": options.device,
                "threads": torch.get_num_threads(),
                "rows": options.rows,
                "versions": versions,
                "seconds": times,
                "yardsticks": medians["suite"] / unit,
                "tokens": {"forwarded": forwarded, **counts, **tokens},
                "model_utility": found["metrics"]["model_utility"].value,
            },
        )


if __name__ == "__main__":
    main()
