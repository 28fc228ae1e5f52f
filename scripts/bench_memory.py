"""Peaks of memory of real runs on this CPU beside what `plan` says: `python scripts/bench_memory.py --json FILE`.

A random Llama is loaded, trained by two iterations of NPO, evaluated and exported by `fit` on 1, 2 and 4 ranks (gloo,
FSDP2). Of each phase the largest resident memory of the fullest rank is printed, less what the rank held before the
model was made, and less the same of a model of 1 M parameters, for what libraries take; pages of the model's file are
in it. On a CPU a device's memory is the host's.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from functools import wraps
from pathlib import Path
from typing import Any
from unittest import mock

import torch
from transformers import LlamaConfig, LlamaForCausalLM

from ofmu_pl import Authors
from ofmu_pl.cli import main as command
from ofmu_pl.evaluation.text import TextEvaluation
from ofmu_pl.modules import NPO
from ofmu_pl.planning.needs import Needs
from ofmu_pl.training import export

LAYERS = {"1M": (64, 64, 1), "300M": (1024, 2816, 22), "20M": (384, 1024, 10)}
"""Width, inner width and depth."""
PLACES = [(NPO, "configure_model", "loading"), (NPO, "training_step", "training")]
PLACES += [(TextEvaluation, "score", "evaluating"), (export, "save_model", "exporting")]
STRATEGY = "lightning.pytorch.strategies.ModelParallelStrategy"


def resident() -> int:
    """Bytes of memory that this process holds."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return 1024 * next(int(line.split()[1]) for line in lines if line.startswith("VmRSS"))


def worker(file: str) -> None:
    """Run ``fit`` with the words in a file, and write the peak of each phase, sampled every 2 ms."""
    torch.set_num_threads(1)
    phases, peaks, before = ["starting"], {"starting": 0}, 0

    def sample() -> None:
        while True:
            peaks[phases[-1]] = max(peaks.get(phases[-1], 0), resident())
            time.sleep(0.002)

    def marked(function: Any, phase: str) -> Any:
        @wraps(function)
        def inner(*args: Any, **kwargs: Any) -> Any:
            nonlocal before
            before = before or resident()
            phases.append(phase)
            try:
                return function(*args, **kwargs)
            finally:
                phases.pop()

        return inner

    threading.Thread(target=sample, daemon=True).start()
    for owner, name, phase in PLACES:
        mock.patch.object(owner, name, marked(getattr(owner, name), phase)).start()
    command(json.loads(Path(file).read_text()))
    found = {phase: peaks.get(phase, 0) - before for _, _, phase in PLACES}
    Path(f"{file}-{os.environ.get('RANK', '0')}").write_text(json.dumps(found))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=Path, required=True)
    parser.add_argument("--size", choices=LAYERS, default="300M")
    parser.add_argument("--ranks", type=int, nargs="+", default=[1, 2, 4])
    parser.add_argument("more", nargs="*", help="Options of fit, after --.")
    options = parser.parse_args()
    results = {}
    for n in options.ranks:
        least, _ = run("1M", n, options.more)
        found, planned = run(options.size, n, options.more)
        results[n] = {phase: found[phase] - least[phase] for phase in found}
        results[n] |= {"planned device": planned.total, "planned host": planned.host}
        print(n, {name: f"{x / 1e9:.3f} GB" for name, x in results[n].items()}, flush=True)
        options.json.write_text(json.dumps(results, indent=1))


def run(size: str, n: int, more: list[str]) -> tuple[dict[str, int], Needs]:
    """The peaks of the fullest of n ranks, and what ``plan`` says."""
    found: list[Needs] = []
    width, inner, layers = LAYERS[size]
    with tempfile.TemporaryDirectory() as folder:
        data = Authors(authors=8, forget_authors=2)
        data.setup()
        shape = {"hidden_size": width, "intermediate_size": inner, "num_hidden_layers": layers}
        config = LlamaConfig(**shape, num_attention_heads=width // 64, vocab_size=8192)
        LlamaForCausalLM(config).save_pretrained(f"{folder}/model")
        data.tokenizer.save_pretrained(f"{folder}/model")
        words = ["--config", "configs/authors.yaml", "-c", "configs/methods/npo.yaml", "--model.network.path"]
        words += [f"{folder}/model", "--data.authors", "8", "--data.forget_authors", "2", "--data.batch_size", "4"]
        words += ["--data.max_length", "64", "--trainer.max_steps", "2", "--trainer.accelerator", "cpu"]
        words += ["--trainer.devices", str(n), *more]
        if n > 1:
            made = {"data_parallel_size": n, "tensor_parallel_size": 1, "process_group_backend": "gloo"}
            words += ["--trainer.strategy", json.dumps({"class_path": STRATEGY, "init_args": made})]
        later = ["--evaluation.rows", "4", "--evaluation.max_new_tokens", "4", "--logs", f"{folder}/logs"]
        file = Path(folder, "run")
        file.write_text(json.dumps(["fit", *words, *later, "--evaluation.reference", "null"]))
        start = [sys.executable] if n == 1 else ["torchrun", "--standalone", f"--nproc_per_node={n}"]
        subprocess.run([*start, __file__, "--worker", str(file)], check=True)
        ranks = [json.loads(path.read_text()) for path in Path(folder).glob("run-*")]
        with mock.patch.object(Needs, "show", lambda self, _: found.append(self)):
            command(["plan", *words])
    return {phase: max(rank[phase] for rank in ranks) for phase in ranks[0]}, found[0]


if __name__ == "__main__":
    if sys.argv[1:2] == ["--worker"]:
        worker(sys.argv[2])
    else:
        main()
