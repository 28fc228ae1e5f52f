"""The parts of `scripts/gpu.py`: each measures in a process of its own, and tells what it finds as it goes."""

import gc
import os
import shutil
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial, wraps
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

import torch

from ofmu_pl.networks.predictions import CHUNK
from ofmu_pl.support.files import read_json, replacing, write_json

ROOT = Path(__file__).parents[1]
CONFIGS = ROOT / "configs"
SMALL = {"hidden_size": 64, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2, "head_dim": 32}
SMALL |= {"num_key_value_heads": 2, "vocab_size": 4096}
MIDDLE = {"hidden_size": 768, "intermediate_size": 3072, "num_hidden_layers": 12, "num_attention_heads": 12}
MIDDLE |= {"num_key_value_heads": 12, "head_dim": 64, "vocab_size": 4096, "tie_word_embeddings": True}
SHAPES: dict[str, tuple[str, dict[str, Any]]] = {
    "1B": ("llama-3.2-1b", {}),
    "8B": ("llama-3.1-8b", {}),
    "117M": ("llama-3.2-1b", MIDDLE),
    "small": ("llama-3.2-1b", SMALL),
}
"""Folder of ``networks/shapes``, and what differs from it."""
MIXED = ["--trainer.precision", "bf16-mixed"]
LORA = [*MIXED, "--model.network.lora", "{r: 8, lora_alpha: 16}", "--model.network.base_dtype", "bfloat16"]
LORA += ["--model.network.activation_checkpointing", "true"]
QLORA = ["-c", str(CONFIGS / "hardware/qlora_1x80.yaml"), "--trainer.accelerator", "auto"]
QLORA += ["--model.micro_batch_size", "4"]
DEVICES = ["tests/core", "tests/unlearning", "tests/training", "tests/modules", "tests/networks", "tests/attacks"]
DEVICES += [f"tests/cli/test_{name}.py" for name in ("fit", "validate", "exports", "interrupts")]
"""Tests that touch devices: derivatives, methods, networks, trainers, attacks, both front doors."""


@dataclass
class Place:
    """Where a part works.

    Attributes:
        folder: Models and logs; it stays between parts.
        tells: The file of what the part has found so far.
        rehearsal: Whether all of it is tiny.
        seconds: When the part will be ended.
    """

    folder: Path
    tells: Path
    rehearsal: bool
    seconds: float
    figures: dict[str, Any] = field(default_factory=dict)

    def tell(self, figures: dict[str, Any]) -> None:
        """Keep figures for good."""
        self.figures |= figures
        write_json(self.tells, self.figures)

    def few(self, many: Any, few: Any) -> Any:
        """One value for the device, another for a rehearsal."""
        return few if self.rehearsal else many

    def model(self, shape: str) -> Path:
        """The folder of a Llama with random weights in bfloat16, made unless it lies there already.

        Its tokenizer, the tiny models', does not know all tokens of a larger model, which random weights do not mind.
        """
        from transformers import AutoConfig, AutoTokenizer, LlamaForCausalLM

        folder = self.folder / "models" / ("small" if self.rehearsal else shape)
        if not folder.is_dir():
            like, other = SHAPES[folder.name]
            config = AutoConfig.from_pretrained(ROOT / "ofmu_pl/networks/shapes" / like)
            config.update(other)
            torch.manual_seed(0)
            with torch.device("cuda" if torch.cuda.is_available() else "cpu"), replacing(folder) as made:
                LlamaForCausalLM._from_config(config, dtype=torch.bfloat16).save_pretrained(made)
                AutoTokenizer.from_pretrained(shared() / "models/tofu-tiny-full").save_pretrained(made)
            gc.collect()  # nothing of it is to count in what is measured next
            torch.cuda.empty_cache()
        return folder

    def words(self, model: Path, *more: str) -> list[str]:
        """The options of a run of configs/tofu.yaml on a model, evaluated on few rows and not kept."""
        words = ["--config", str(CONFIGS / "tofu.yaml"), "--model.network.path", str(model)]
        words += ["--data.data", str(shared() / "data/tofu"), "--evaluation.reference", "null"]
        words += ["--evaluation.every_n_steps", "null", "--evaluation.rows", str(self.few(16, 2))]
        words += ["--evaluation.max_new_tokens", str(self.few(4, 2)), "--checkpoint.save_top_k", "0"]
        words += ["--trainer.enable_progress_bar", "false", "--export.folder", "null"]
        words += ["--data.batch_size", str(self.few(32, 2)), "--logs", str(self.folder / "logs")]
        return [*words, *more]


def shared() -> Path:
    """The folder with TOFU's files (data/tofu) and the tiny models' tokenizer."""
    return Path(os.environ["OFMU_SHARED"])


def overlay(name: str) -> list[str]:
    """The words that put on a method."""
    return ["-c", str(CONFIGS / f"methods/{name}.yaml")]


# Runs of fit in this process


def fit(place: Place, words: list[str]) -> None:
    """Run ``fit``, and tell seconds and peak GB of loading, of an iteration, of evaluating and of exporting."""
    from ofmu_pl import UnlearningModule
    from ofmu_pl.cli import main as command
    from ofmu_pl.evaluation.text import TextEvaluation
    from ofmu_pl.training import export

    phases = {"loading": (UnlearningModule, "configure_model"), "iteration": (UnlearningModule, "training_step")}
    phases |= {"evaluating": (TextEvaluation, "score"), "exporting": (export, "save_model")}
    os.environ["OFMU_CACHE"] = ""  # scores of frozen models are part of the cost, and are not read
    for phase, (owner, name) in phases.items():
        mock.patch.object(owner, name, timed(place, phase, getattr(owner, name))).start()
    command(["fit", *words])


def timed(place: Place, phase: str, call: Callable[..., Any]) -> Callable[..., Any]:
    """A function whose calls tell their seconds (of iterations the median, without the first two) and the peak."""
    from ofmu_pl.training.record import peak_memory

    on_gpu, seconds, peaks = torch.cuda.is_available(), list[float](), list[float]()

    @wraps(call)
    def inner(*args: Any, **kwargs: Any) -> Any:
        if on_gpu:
            torch.cuda.synchronize()
            torch.cuda.reset_peak_memory_stats()
        began = time.perf_counter()
        made = call(*args, **kwargs)
        if on_gpu:
            torch.cuda.synchronize()
        seconds.append(time.perf_counter() - began)
        peaks.append(peak_memory(torch.device("cuda" if on_gpu else "cpu")) / 1e9)
        later = seconds[2:] or seconds
        figures = {f"{phase} s": statistics.median(later) if phase == "iteration" else sum(seconds)}
        figures[f"{phase} GB"] = max(peaks)
        if phase == "iteration":
            figures |= {"iterations": len(seconds), "first iteration s": seconds[0]}
        place.tell(figures)
        return made

    return inner


class Run(NamedTuple):
    """A run of ``fit`` on random weights of a shape, for which ``plan`` is asked, too; its limit in seconds.

    ``chunk`` is the number of logits that are made at a time (``networks/predictions.py``).
    """

    shape: str
    words: list[str]
    seconds: int
    what: str
    chunk: int = CHUNK


def unlearn(place: Place, run: Run) -> None:
    """Some iterations on a random model."""
    with mock.patch("ofmu_pl.networks.predictions.CHUNK", run.chunk):
        fit(place, place.words(place.model(run.shape), *run.words, "--trainer.max_steps", str(place.few(8, 3))))


def whole_evaluation(place: Place) -> None:
    """One iteration, evaluations of 400 rows a set with answers of 60 tokens before and after it, and the export."""
    more = [*MIXED, *overlay("ofmu_first_order"), "--trainer.max_steps", "1", "--export.folder", "hf"]
    more += ["--evaluation.rows", str(place.few(400, 4)), "--evaluation.max_new_tokens", str(place.few(60, 2))]
    fit(place, place.words(place.model("1B"), *more))


def plan(place: Place, item: str) -> None:
    """What ``plan`` says of an item's runs; it needs no device."""
    from plans import needs

    for name, run in RUNS.items():
        if name.startswith(item):
            like = place.model("small") if place.rehearsal else ROOT / "ofmu_pl/networks/shapes" / SHAPES[run.shape][0]
            with mock.patch("ofmu_pl.networks.predictions.CHUNK", run.chunk):
                found = needs(place.words(like, *run.words))
            place.tell({name: {"plan GB": found.total / 1e9, "plan host GB": found.host / 1e9}})


# Tests


class Told:
    """A plugin of pytest that tells which tests failed, and the first line of each one's cause."""

    def __init__(self, place: Place) -> None:
        self.place, self.counts, self.failures = place, dict.fromkeys(("passed", "failed", "skipped"), 0), {}

    def pytest_runtest_logreport(self, report: Any) -> None:
        """Count a test once, by its call or by what went wrong around it."""
        if report.when != "call" and report.passed:
            return
        self.counts[report.outcome] += 1
        if report.failed:
            crash = getattr(report.longrepr, "reprcrash", None)
            lines = str(crash.message if crash else report.longrepr).strip().splitlines()
            self.failures[report.nodeid] = "".join(lines[:1])[:300]
        if report.failed or self.counts["passed"] % 20 == 0:
            self.tell()

    def tell(self) -> None:
        """Keep what is known."""
        self.place.tell({**self.counts, "failures": self.failures})


def suite(place: Place, paths: list[str], more: list[str]) -> None:
    """Run tests, and tell what failed; failures are what it looks for, no failure of its own."""
    import pytest

    told = Told(place)
    if not (shared() / "models/tofu-tiny-full/model.safetensors").is_file():
        os.environ["OFMU_SHARED"] = str(place.folder / "not carried")  # so that tests which need it are skipped
    workers = ["-n", str(min(8, os.cpu_count() or 1)), "--dist", "loadfile", "--no-loadscope-reorder"]
    words = ["-q", "-p", "no:cacheprovider", *place.few(workers, ["-n", "0"]), *more]
    code = pytest.main([*words, *place.few(paths, paths[:1])], plugins=[told])
    told.tell()
    if code not in (0, 1):
        raise SystemExit(f"pytest ended with {code}")


# Whole runs in processes of their own


def between(place: Place) -> None:
    """Run configs/benchmarks/between.yaml as far as the time goes, and keep the values of the runs that have ended."""
    import yaml
    from results import store

    config = yaml.safe_load((CONFIGS / "benchmarks/between.yaml").read_text())
    if place.rehearsal:
        rehearsed(config)
    file = place.folder / "between.yaml"
    file.write_text(yaml.safe_dump(config, sort_keys=False))
    words = ["--config", str(file), "--workers", str(place.few(6, 2)), "--logs", str(place.folder)]
    child = subprocess.Popen(ours("benchmark", *words))
    try:
        code = child.wait(place.seconds - place.few(40, 15))
    except subprocess.TimeoutExpired:
        child.terminate()  # its workers end with it
        code = child.wait()
    found = store("between", [place.folder / "between"], None)
    kept = place.folder / "stored.json"
    found.write(kept)
    place.tell({"stored": read_json(kept)})
    runs = [run for e in found.experiments for run in e.finished]
    utility = {f"utility of {run.method}": run.value("model_utility", "metrics") for run in runs}
    place.tell({"runs": len(runs), **utility, "missing": "; ".join(found.problems)})
    if code:
        raise SystemExit(f"the benchmark ended with {code}, and goes on when it is started again")


def rehearsed(config: dict[str, Any]) -> None:
    """Make the benchmark tiny: two methods without a search, few rows, few steps."""
    (e,) = config["experiments"].values()
    overlays = {name: {"overlay": e["methods"][name].get("overlay")} for name in ("ofmu", "npo")}
    e |= {"gradients": 40, "methods": overlays, "attacks": str(CONFIGS / "attacks_quickstart.yaml")}
    small = {"evaluation.rows": 2, "evaluation.max_new_tokens": 1, "data.batch_size": 2}
    small |= {"data.forget_split": "forget01", "trainer.precision": "32-true"}
    shape = {"model_type": "llama", "tie_word_embeddings": True, **SMALL}
    few = {"model.scheduler.total_steps": 2, "trainer.max_steps": 2, "model.network.config": shape}
    e["options"] |= small
    for made in e["prepare"].values():
        made["options"] |= small | few


def ours(*words: str) -> list[str]:
    """A command of the library."""
    return [sys.executable, "-m", "ofmu_pl", *words]


def precision(place: Place) -> None:
    """The exact engine beside differences, in both precisions, on the model that `between` taught, if any."""
    taught = next((place.folder / "between/prepared").glob("**/target/**/hf/config.json"), None)
    model, data = taught.parent if taught else place.model("117M"), shared() / "data/tofu"
    place.tell({"model": "taught TOFU" if taught else "random weights"})
    file = place.folder / "precision.json"
    words = ["--model", str(model), "--data", str(data), "--rows", str(place.few(4, 1)), "--json", str(file)]
    subprocess.run([sys.executable, str(ROOT / "scripts/bench.py"), "precision", *words], check=True)
    place.tell({"engines": read_json(file)["engines"]})


def recovery(place: Place) -> None:
    """Two runs of deterministic operations, and one that is killed and goes on: are their weights equal?"""
    from safetensors.torch import load_file

    more = ["--trainer.deterministic", "true", "--trainer.max_steps", str(place.few(24, 6)), "--export.folder", "hf"]
    more += ["--checkpoint.every_n_train_steps", str(place.few(4, 2)), "--checkpoint.save_top_k", "1"]
    words = ["fit", *place.words(place.model("117M"), *more), "--benchmark", "recovery", "--method"]
    folder, names = place.folder / "logs/recovery", ("first", "again", "killed")
    shutil.rmtree(folder, ignore_errors=True)  # of a call that was ended
    os.environ["CUBLAS_WORKSPACE_CONFIG"] = ":4096:8"  # what deterministic products of matrices need
    running = {name: subprocess.Popen(ours(*words, name)) for name in names}
    while running["killed"].poll() is None and not any((folder / "killed").glob("**/*.ckpt")):
        time.sleep(0.01)
    running["killed"].kill()
    place.tell({"killed": running["killed"].wait() == -signal.SIGKILL})
    running["killed"] = subprocess.Popen(ours(*words, "killed", "--ckpt_path", "last"))
    if any(ended := [run.wait() for run in running.values()]):
        raise SystemExit(f"runs ended with {ended}")
    first, again, killed = (load_file(folder / name / "latest/hf/model.safetensors") for name in names)
    for name, other in (("deterministic twice", again), ("killed and gone on", killed)):
        most = max((first[key].double() - other[key].double()).abs().max().item() for key in first)
        place.tell({name: "equal to the bit" if most == 0 else f"differs by {most:.2g}"})


def eight_bits(place: Place) -> None:
    """Norms of a tiny model's weights after each step of AdamW at a rate of .01, in 8 bits and in 32."""
    from ofmu_pl import UnlearningModule
    from ofmu_pl.cli import main as command

    step = UnlearningModule.training_step
    words = ["fit", *place.words(place.model("small"), *overlay("npo"), "--trainer.max_steps", "6")]
    for optimizer in ("bitsandbytes.optim.AdamW8bit", "torch.optim.AdamW"):
        norms: list[float] = []

        def noting(module: Any, *args: Any, norms: list[float] = norms, **kwargs: Any) -> Any:
            made = step(module, *args, **kwargs)
            norms.append(float(torch.stack([p.detach().norm() for p in module.network.parameters()]).norm()))
            return made

        with mock.patch.object(UnlearningModule, "training_step", noting), suppress(SystemExit):
            command([*words, "--model.optimizer", optimizer, "--model.optimizer.lr", "0.01"])
        name = optimizer.rpartition(".")[2]
        place.tell({f"{name} steps": len(norms), f"{name} growth": norms[-1] / norms[0], f"{name} norms": norms})


class Part(NamedTuple):
    """Something to learn: its limit in seconds, what measures it, in some words, and the part that comes before it."""

    seconds: int
    call: Callable[[Place], None]
    what: str
    after: str | None = None


RUNS: dict[str, Run] = {
    "b.ofmu": Run("1B", MIXED, 90, "ofmu, 1.24 B, bf16-mixed"),
    "b.first_order": Run("1B", [*MIXED, *overlay("ofmu_first_order")], 75, "ofmu of first order"),
    "b.npo": Run("1B", [*MIXED, *overlay("npo")], 75, "npo"),
    "b.grad_diff": Run("1B", [*MIXED, *overlay("grad_diff")], 75, "grad_diff"),
    "c.lora": Run("8B", LORA, 240, "ofmu, 8 B, LoRA on bfloat16"),
    "c.qlora": Run("8B", QLORA, 240, "ofmu, 8 B, LoRA on 4 bits"),
    "c.whole": Run("8B", LORA, 150, "c.lora, all logits at once", chunk=2**62),
}
"""The runs on random weights."""
PARTS: dict[str, Part] = {
    "a.gpu": Part(120, partial(suite, paths=["tests/training/test_gpu.py"], more=["-n", "0"]), "tests for a GPU alone"),
    "a.devices": Part(240, partial(suite, paths=DEVICES, more=[]), "tests that touch devices"),
    **{name: Part(run.seconds, partial(unlearn, run=run), run.what) for name, run in RUNS.items()},
    "b.evaluation": Part(200, whole_evaluation, "1.24 B: 400 rows evaluated twice, 60 tokens each; export"),
    "d.between": Part(560, between, "117 M, taught TOFU: six methods, relearning"),
    "e.precision": Part(120, precision, "engines in float32 and bf16, 117 M", after="d.between"),
    "f.recovery": Part(150, recovery, "deterministic twice; killed, gone on"),
    "g.eight_bits": Part(60, eight_bits, "AdamW8bit at a rate of .01"),
    "plan.b": Part(240, partial(plan, item="b."), "plans of item b"),
    "plan.c": Part(560, partial(plan, item="c."), "plans of item c"),
}
"""In order of worth; plans come last, since they can be made without the device."""
