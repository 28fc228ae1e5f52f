"""Speed and precision, each a case: `python scripts/bench.py CASE [options] [--json FILE]`; --help lists them.

Contenders run interleaved in one process; times are medians of the process's CPU time on a CPU (set
OMP_WAIT_POLICY=passive, or threads that wait count too) and of wall time on a GPU; OMP_NUM_THREADS says how many
threads. A new case is a function that returns its figures, and stands in ``CASES``: its arguments are its options.
"""

import ctypes
import platform
import statistics
import time
from collections.abc import Callable
from contextlib import nullcontext
from datetime import date
from functools import partial
from pathlib import Path
from typing import Any

import torch
from engine_audit import compare, parts
from jsonargparse import ArgumentParser
from results import texts
from torch import Tensor

from ofmu_pl.core.algorithm import ascend
from ofmu_pl.core.autograd import Autograd
from ofmu_pl.core.derivatives import Engine, Loss, trainable
from ofmu_pl.core.finite_difference import FiniteDifference
from ofmu_pl.core.objective import outer_gradient
from ofmu_pl.core.safeguards import Safeguards
from ofmu_pl.core.vectors import Vector, add_
from ofmu_pl.data import TOFU
from ofmu_pl.losses import token_nll
from ofmu_pl.networks import CausalLM
from ofmu_pl.report.tables import to_markdown
from ofmu_pl.support.files import write_json

ON_GPU = torch.cuda.is_available()
DEVICE = "cuda" if ON_GPU else "cpu"
Figures = dict[str, Any]
Call = Callable[[], Any]


def main() -> None:
    parser = ArgumentParser(description=__doc__)
    cases = parser.add_subcommands(dest="case", metavar="CASE")
    for name, case in CASES.items():
        own = ArgumentParser(description=case.__doc__)
        own.add_function_arguments(case, as_group=False)
        own.add_argument("--json", type=Path | None, help="file for the figures")
        cases.add_subcommand(name, own)
    options = parser.parse_args()
    given = options[options.case].as_dict()
    file = given.pop("json")
    device = torch.cuda.get_device_name() if ON_GPU else f"CPU {platform.machine()}"
    versions = {"python": platform.python_version(), "torch": torch.__version__}
    facts = {"date": str(date.today()), "device": device, "threads": torch.get_num_threads(), "versions": versions}
    figures = facts | CASES[options.case](**given)
    if file:
        write_json(file, figures)


def seconds_of(call: Call) -> float:
    """CPU seconds of the process in one call; on a GPU the seconds until its work is done."""
    clock = time.perf_counter if ON_GPU else time.process_time
    if ON_GPU:
        torch.cuda.synchronize()
    start = clock()
    call()
    if ON_GPU:
        torch.cuda.synchronize()
    return clock() - start


def interleaved(
    contenders: dict[str, Call], rounds: int, often: dict[str, int] | None = None
) -> dict[str, list[float]]:
    """Seconds of contenders' calls, in turn, after a round that warms up; some are called ``often`` a round."""
    times: dict[str, list[float]] = {name: [] for name in contenders}
    for r in range(rounds + 1):
        for name, call in contenders.items():
            seconds = [seconds_of(call) for _ in range((often or {}).get(name, 1))]
            times[name] += seconds if r else []
    return times


def medians(times: dict[str, list[float]]) -> dict[str, float]:
    """The median of each contender's seconds."""
    return {name: statistics.median(seconds) for name, seconds in times.items()}


def show(title: str, head: list[str], rows: list[list[str]]) -> None:
    """Print a table."""
    about = f"{title} ({DEVICE}, {torch.get_num_threads()} threads, torch {torch.__version__})"
    print(to_markdown(texts("", about, [head, *rows])))


# An iteration

BETA, RHO, RATE = 0.5, 0.3, 1e-6
EVERYWHERE = Safeguards(aligned_only=False)
"""With the similarity in every step, whatever its sign here."""
UNIT = "gradient ascent step"


class TinyLlama:
    """4.5 M parameters, T + 1 pairs of random batches, and what is done with them."""

    def __init__(self, batch: int, length: int, steps: int) -> None:
        from transformers import LlamaConfig, LlamaForCausalLM

        torch.manual_seed(0)
        shape = {"vocab_size": 4096, "hidden_size": 256, "intermediate_size": 768, "num_hidden_layers": 4}
        shape |= {"num_attention_heads": 4, "tie_word_embeddings": True, "use_cache": False}
        self.model = LlamaForCausalLM(LlamaConfig(**shape, attn_implementation="eager")).to(DEVICE).eval()
        self.parameters, self.steps = list(self.model.parameters()), steps
        self.batches = torch.randint(4096, (2 * (steps + 1), batch, length), device=DEVICE)

    def loss(self, i: int) -> Loss:
        """The mean loss of batch i as one term."""
        ids = self.batches[i]
        return [lambda: token_nll(self.model(input_ids=ids[:, :-1]).logits, ids[:, 1:]).mean()]

    def ascent_step(self) -> None:
        """One gradient-ascent step on a forget batch: the unit of time."""
        gradient = torch.autograd.grad(self.loss(0)[0](), self.parameters)
        with torch.no_grad():
            add_(self.parameters, [(RATE, gradient)])

    def iteration(self, engine: Engine) -> None:
        """The inner loop, the outer gradient, and a plain step along it."""
        pairs = [(self.loss(2 * t), self.loss(2 * t + 1)) for t in range(self.steps)]
        ascend(engine, pairs, RATE, BETA, EVERYWHERE)
        outer = outer_gradient(engine, self.loss(-2), self.loss(-1), RHO, BETA, EVERYWHERE)
        with torch.no_grad():
            add_(self.parameters, [(-RATE, outer.total_())])


def keep_freed_memory() -> None:
    """Tell glibc to keep freed blocks for reuse, as a GPU's allocator does: page faults are the system's cost."""
    trim_threshold, mmap_threshold = -1, -3
    libc = ctypes.CDLL(None)
    libc.mallopt(trim_threshold, 2**31 - 1)
    libc.mallopt(mmap_threshold, 32 * 2**20)


def step(batch: int = 32, length: int = 64, inner_steps: int = 5, rounds: int = 5) -> Figures:
    """Time and gradients of one outer iteration, as ratios to a gradient-ascent step.

    The paper's table of runtimes at the scale of a tiny Llama.

    Args:
        batch: Samples of a batch (paper: 32).
        length: Tokens of a sample.
        inner_steps: T (paper: 5).
        rounds: Interleaved ones, of which medians are taken.
    """
    if not ON_GPU:
        keep_freed_memory()
    llama = TinyLlama(batch, length, inner_steps)
    engines: dict[str, Engine] = {"exact": Autograd(llama.parameters)}
    engines["finite differences"] = FiniteDifference(llama.parameters)
    calls = {name: partial(llama.iteration, engine) for name, engine in engines.items()}
    times = interleaved({UNIT: llama.ascent_step, **calls}, rounds, {UNIT: 5})
    unit = medians(times)[UNIT]
    gradients = {name: engine.gradient_evaluations / (rounds + 1) for name, engine in engines.items()}
    found: Figures = {"batch": batch, "length": length, "inner_steps": inner_steps}
    found |= {"gradient_ascent_seconds": unit, "time_ratio": {name: t / unit for name, t in medians(times).items()}}
    found |= {"gradients": {UNIT: 1.0, **gradients}}
    lines = []
    for name, ratio in found["time_ratio"].items():
        per_update = f"{ratio / (inner_steps + 1):.2f}" if name in engines else ""
        lines.append([name, f"{ratio:.2f}", per_update, f"{found['gradients'][name]:.0f}"])
    show(f"One outer iteration, T = {inner_steps}", ["contender", "time / GA step", "per update", "gradients"], lines)
    return found


# Derivatives

FLOOR = 1e-4
STEPS: dict[str, tuple[float, float] | tuple[()]] = {"default": (), "1e-3 / 3e-3": (1e-3, 3e-3), "1e-2": (1e-2, 1e-2)}
"""Relative displacements for H u and for the derivative of grad Phi."""


def tofu(model: str, data: str, rows: int) -> TOFU:
    """TOFU's forget10, in batches of so many rows."""
    found = TOFU(data=data, forget_split="forget10", batch_size=rows, tokenizer=model)
    found.setup()
    return found


def precision(model: str, data: str, rows: int = 4) -> Figures:
    """What each engine loses under bf16: its derivatives beside the exact ones in float32, on a trained model.

    bf16 is autocast around forward passes only, as ``--trainer.precision bf16-mixed`` does; weights and vectors are
    float32. Cosine and relative error of -beta (H_f u_f + H_r u_r), the decorrelation part of grad Phi, and of
    Hess(Phi) grad Phi, for steps of finite differences from the defaults of float32 up.

    Args:
        model: Folder of a trained language model.
        data: Folder of TOFU's files.
        rows: Rows of a side.
    """
    recipe, sides = CausalLM(path=model), tofu(model, data, rows)
    network = recipe.build(sides, exact=True).to(DEVICE)
    batch = {s: {k: v.to(DEVICE) for k, v in b[0].items()} for s, b in sides.iteration(0).items()}

    def loss(stream: str, bf16: bool) -> Loss:
        def term() -> Tensor:
            with torch.autocast(DEVICE, torch.bfloat16, cache_enabled=False) if bf16 else nullcontext():
                return recipe.sample_losses(network, batch[stream]).mean()

        return [term]

    def measure(engine: Engine, bf16: bool) -> dict[str, Vector]:
        return parts(engine, loss("forget", bf16), loss("retain", bf16), BETA, FLOOR)

    parameters = trainable(network)
    engines: dict[str, Callable[[], Engine]] = {"exact": partial(Autograd, parameters)}
    for scheme in ("forward", "central"):
        for name, steps in STEPS.items():
            engines[f"{scheme} differences, steps {name}"] = partial(FiniteDifference, parameters, scheme, *steps)
    truth = measure(Autograd(parameters), bf16=False)
    found: Figures = {}
    for name, make in engines.items():
        for form in ("float32", "bf16"):
            found[f"{name}, {form}"] = compare(measure(make(), form == "bf16"), truth)
    head = ["engine, forward pass", *(name.replace("_", ": ") for name in next(iter(found.values())))]
    table = [[name, *(f"{value:.4g}" for value in row.values())] for name, row in found.items()]
    show("Beside the exact engine in float32", head, table)
    return {"engines": found}


# Evaluation


def evaluation(model: str, data: str, rounds: int = 3, rows: int | None = None) -> Figures:
    """Cost of TOFU's default suite, as a ratio to a yardstick that any machine can time: time, and tokens forwarded.

    The suite is what ``validate`` measures: forget10, retain_perturbed, real authors, world facts and the holdout rows,
    generations of up to 200 tokens included. One yardstick is one plain transformers forward pass over the 400 forget10
    conversations, batch 32 in file order, right-padded, float32, no gradients.

    Args:
        model: Folder of a trained language model.
        data: Folder of TOFU's files.
        rounds: Interleaved ones, of which medians are taken.
        rows: Evenly spaced rows of each set, for a quick look. The yardstick stays whole, so that only the ratio of two
            versions of the code says something; ``null``: all.
    """
    from transformers import AutoModelForCausalLM

    from ofmu_pl.data.encoded import collate
    from ofmu_pl.evaluation.scoring import score_rows
    from ofmu_pl.metrics import tofu_metrics

    sets = TOFU(data, tokenizer=model)
    sets.setup()
    network = AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32).to(DEVICE).eval()
    encoded = [sets.encoder.encode(row["question"], row["answer"]) for row in sets.evaluation_sets["forget"]]
    starts = range(0, len(encoded), 32)
    batches = [collate(encoded[i : i + 32], range(32), sets.tokenizer.pad_token_id) for i in starts]
    counts = {"answers": 0, "generation": 0}

    def count(_: Any, args: Any, kwargs: Any) -> None:
        ids = kwargs["input_ids"]
        counts["generation" if ids.shape[1] == 1 else "answers"] += ids.numel()  # one column is a token said

    @torch.no_grad()
    def yardstick() -> None:
        for batch in batches:
            inputs = {name: batch[name].to(DEVICE) for name in ("input_ids", "attention_mask")}
            network(**inputs).logits.sum().item()

    def suite() -> Any:
        how = {"max_new_tokens": 200, "items": rows, "kinds": sets.kinds}
        scores = score_rows(network, sets.encoder, sets.evaluation_sets, **how)
        return tofu_metrics(scores, scores, intervals=True)

    with network.base_model.register_forward_pre_hook(count, with_kwargs=True):
        metrics = suite()
    times = interleaved({"yardstick": yardstick, "suite": suite}, rounds, {"yardstick": 3})
    unit, whole = medians(times).values()
    tokens = {"forwarded": sum(counts.values()), **counts}
    lines = [
        ["yardstick", f"{unit:.2f}", "1", f"{sum(len(e.input_ids) for e in encoded)}"],
        ["this suite", f"{whole:.2f}", f"{whole / unit:.1f}", f"{tokens['forwarded']}"],
        ["  of which generation", "", "", f"{counts['generation']}"],
    ]
    show("TOFU evaluation", ["", "seconds", "yardsticks", "tokens forwarded"], lines)
    about = {"rows": rows, "seconds": times, "yardsticks": whole / unit, "tokens": tokens}
    return about | {"model_utility": metrics["model_utility"].value}


CASES: dict[str, Callable[..., Figures]] = {case.__name__: case for case in (step, precision, evaluation)}
"""What each measures, by its name."""

if __name__ == "__main__":
    main()
