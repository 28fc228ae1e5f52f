"""Time and memory of unlearning a Llama with random weights on one GPU: `python scripts/bench_gpu.py --json FILE`.

The network has the shape of Llama-3.2-1B, the rows are TOFU's forget10 (``--data``), the options those of
configs/tofu.yaml. Of each contender a process of its own gives the median seconds of an iteration, of one of second
order (with similarity and printed penalty) and of the others, the seconds before the first iteration and after the
last one, and the most memory that torch allocated. What is known is written after each iteration, so that a stop loses
nothing.
"""

import argparse
import fcntl
import json
import statistics
import subprocess
import sys
import tempfile
import time
from functools import wraps
from pathlib import Path
from typing import Any
from unittest import mock

import torch
from transformers import AutoConfig, AutoTokenizer, LlamaForCausalLM

from ofmu_pl import UnlearningModule
from ofmu_pl.cli import main as command
from ofmu_pl.support.files import write_json

SHAPES = Path(__file__).parents[1] / "ofmu_pl" / "networks" / "shapes"
SMALL = {"hidden_size": 64, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2, "head_dim": 32}
SMALL |= {"num_key_value_heads": 2, "vocab_size": 8192}
MIXED = ["--trainer.precision", "bf16-mixed"]
ONE = {"data_parallel_size": 1, "tensor_parallel_size": 1, "save_distributed_checkpoint": False}
SHARDED = {"class_path": "lightning.pytorch.strategies.ModelParallelStrategy", "init_args": ONE}
PAPERS_RATES = ["--model.stepper.lr", "1e-5", "--model.optimizer.lr", "1e-5"]
LORA = ["--model.network.lora", "{r: 8, lora_alpha: 16}", "--model.network.base_dtype", "bfloat16"]
QLORA = ["-c", "configs/hardware/qlora_1x80.yaml", "--trainer.accelerator", "auto", "--model.micro_batch_size", "4"]
CONTENDERS: dict[str, tuple[int, list[str]]] = {
    "ofmu, bf16-mixed": (9, MIXED),
    "ofmu_printed, bf16-mixed": (21, ["-c", "configs/methods/ofmu_printed.yaml", *MIXED]),
    "npo, bf16-mixed": (6, ["-c", "configs/methods/npo.yaml", *MIXED]),
    "ofmu_first_order, bf16-mixed": (6, ["-c", "configs/methods/ofmu_first_order.yaml", *MIXED]),
    "ofmu_paper, bf16-mixed": (4, ["-c", "configs/methods/ofmu_paper.yaml", *MIXED, *PAPERS_RATES]),
    "ofmu, bf16-mixed, FSDP2": (6, [*MIXED, "--trainer.strategy", json.dumps(SHARDED)]),
    "ofmu, bf16-mixed, LoRA": (9, [*MIXED, *LORA]),
    "ofmu, QLoRA": (9, QLORA),
    "ofmu": (9, []),
}
"""Iterations and options of each. An iteration of second order is the 20th."""


def worker(file: str) -> None:
    """Run ``fit`` with the words in a file; after each iteration write what is known into the results."""
    words, name, results, turn = json.loads(Path(file).read_text())
    step, on_gpu = UnlearningModule.training_step, torch.cuda.is_available()
    found: dict[str, Any] = {"seconds": []}
    began = 0.0

    def write() -> None:
        peak = torch.cuda.max_memory_allocated() if on_gpu else 0
        write_json(Path(results), read(Path(results)) | {name: told(found) | {"peak_gb": peak / 1e9}})

    def now() -> float:
        if on_gpu:
            torch.cuda.synchronize()
        return time.perf_counter()

    @wraps(step)
    def timed(*args: Any, **kwargs: Any) -> Any:
        start = now()
        found.setdefault("before", start - began)
        made = step(*args, **kwargs)
        found["seconds"].append(now() - start)
        write()
        return made

    mock.patch.object(UnlearningModule, "training_step", timed).start()
    with Path(turn).open("w") as lock:  # one at a time, but for their imports
        fcntl.flock(lock, fcntl.LOCK_EX)
        began = now()
        command(words)
    found["after"] = now() - began - found["before"] - sum(found["seconds"])
    write()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=Path, required=True)
    parser.add_argument("--data", type=Path, required=True, help="Folder with TOFU's files.")
    parser.add_argument("--tokenizer", type=Path, required=True)
    parser.add_argument("--shape", default="llama-3.2-1b", help="A folder of ofmu_pl/networks/shapes, or small.")
    parser.add_argument("--only", nargs="+", default=list(CONTENDERS))
    parser.add_argument("--device", default="gpu")
    options = parser.parse_args()
    write_json(options.json, {name: old for name, old in read(options.json).items() if name not in options.only})
    with tempfile.TemporaryDirectory() as folder:
        model = Path(folder, "model")
        make(model, options.shape, options.tokenizer)
        waiting = [(name, start(name, Path(folder), model, options)) for name in options.only[:1]]
        for name in [*options.only[1:], None]:  # the next one imports its libraries meanwhile
            if name is not None:
                waiting.append((name, start(name, Path(folder), model, options)))
            ran, process = waiting.pop(0)
            code = process.wait()
            print(ran, read(options.json).get(ran), f"exit code {code}", flush=True)


def make(model: Path, shape: str, tokenizer: Path) -> None:
    """Write a folder of random weights in bfloat16."""
    device = "cuda" if torch.cuda.is_available() else "cpu"
    found = next(SHAPES.glob(f"{shape}/config.json"), SHAPES / "llama-3.2-1b" / "config.json")
    config = AutoConfig.from_pretrained(found.parent)
    if shape == "small":
        config.update(SMALL)
    with torch.device(device):
        network = LlamaForCausalLM(config).to(torch.bfloat16)
    network.save_pretrained(model)
    AutoTokenizer.from_pretrained(tokenizer).save_pretrained(model)


def start(name: str, folder: Path, model: Path, options: argparse.Namespace) -> subprocess.Popen[bytes]:
    """Start a contender's process; its words are a file, for a shell that wants to see them."""
    steps, more = CONTENDERS[name]
    words = ["fit", "--config", "configs/tofu.yaml", "--model.network.path", str(model), *more]
    words += ["--data.data", str(options.data), "--evaluation.reference", "null", "--evaluation.every_n_steps", "null"]
    words += ["--evaluation.rows", "16", "--evaluation.max_new_tokens", "4", "--trainer.max_steps", str(steps)]
    words += ["--trainer.accelerator", options.device, "--logs", str(folder / f"logs of {name}")]
    words += ["--trainer.enable_progress_bar", "false", "--export.folder", "null", "--checkpoint.save_top_k", "0"]
    file = folder / f"{name}.words"
    file.write_text(json.dumps([words, name, str(options.json), str(folder / "turn")]))
    return subprocess.Popen([sys.executable, __file__, "--worker", str(file)])


def read(results: Path) -> dict[str, Any]:
    """What contenders have written so far, by name; they run in turn, so none writes beside another."""
    return json.loads(results.read_text()) if results.exists() else {}


def told(found: dict[str, Any]) -> dict[str, Any]:
    """Medians of iterations, without the first two; the 20th is of second order where there are so many."""
    seconds = found["seconds"]
    plain = [x for i, x in enumerate(seconds, 1) if i > 2 and i != 20] or seconds
    told = {"iterations": len(seconds), "seconds": statistics.median(plain)}
    told |= {name: found[name] for name in ("before", "after") if name in found}
    return told | ({"whole_seconds": seconds[19]} if len(seconds) >= 20 else {})


if __name__ == "__main__":
    if sys.argv[1:2] == ["--worker"]:
        worker(sys.argv[2])
    else:
        main()
