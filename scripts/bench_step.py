"""Cost of one OFMU outer iteration, as a ratio to one gradient-ascent (GA) step: time, gradients, memory.

    python scripts/bench_step.py [--inner-steps 5] [--json FILE]

The paper's runtime and memory tables at the scale of a tiny Llama (4.5 M parameters, batch 32, 64 tokens), and what
bounds an iteration: the share of matrix products, of the network's other operations, and of vector algebra.
Contenders run interleaved in one process; times are medians of the process's CPU time on a CPU and of wall time on a
GPU. Memory is parameters plus what a call's peak adds to the process (CPU: resident, GPU: allocated), over the same
for a forward pass.
"""

import argparse
import ctypes
import multiprocessing
import platform
import statistics
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from datetime import date
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.table import Table
from torch.profiler import ProfilerActivity, profile
from transformers import LlamaConfig, LlamaForCausalLM

from ofmu_pl.core.algorithm import ascend
from ofmu_pl.core.autograd import Autograd
from ofmu_pl.core.derivatives import Engine, Loss
from ofmu_pl.core.finite_difference import FiniteDifference
from ofmu_pl.core.objective import outer_gradient
from ofmu_pl.core.safeguards import Safeguards
from ofmu_pl.core.vectors import add_
from ofmu_pl.losses import token_nll
from ofmu_pl.support.files import write_json

BETA, RHO, LR = 0.5, 0.3, 1e-6
EVERYWHERE = Safeguards(aligned_only=False)
"""With the similarity in every step, whatever its sign here."""
UNIT = "gradient ascent step"


MATRICES = ("mm", "bmm", "addmm", "baddbmm", "_scaled_dot_product", "convolution")
VECTORS = ("_foreach", "dot", "zero", "fill_", "add_", "stack", "detach", "alias", "clone")
"""Beginnings of the names of aten operations that are products of matrices, or algebra of whole gradients."""


class Bench:
    """A tiny Llama with T + 1 pairs of random batches, and the contenders on it."""

    def __init__(
        self, device: str, batch: int, length: int, attention: str, checkpointing: bool, inner_steps: int = 1
    ) -> None:
        torch.manual_seed(0)
        config = LlamaConfig(
            vocab_size=4096,
            hidden_size=256,
            intermediate_size=768,
            num_hidden_layers=4,
            num_attention_heads=4,
            tie_word_embeddings=True,
            use_cache=False,
            attn_implementation=attention,
        )
        self.model = LlamaForCausalLM(config).to(device).eval()
        if checkpointing:
            self.model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
            self.model.train()
        self.parameters = list(self.model.parameters())
        self.inner_steps = inner_steps
        self.batches = torch.randint(4096, (2 * (inner_steps + 1), batch, length), device=device)
        self.device = device

    def loss(self, i: int) -> Loss:
        """The mean loss of batch i as one term."""
        ids = self.batches[i]
        return [lambda: token_nll(self.model(input_ids=ids[:, :-1]).logits, ids[:, 1:]).mean()]

    def forward(self) -> None:
        """One forward pass without a graph: the unit of memory."""
        with torch.no_grad():
            self.loss(0)[0]()

    def ascent_step(self) -> None:
        """One gradient-ascent step on a forget batch: the unit of time."""
        gradient = torch.autograd.grad(self.loss(0)[0](), self.parameters)
        with torch.no_grad():
            add_(self.parameters, [(LR, gradient)])

    def inner(self, engine: Engine) -> None:
        """The inner loop."""
        pairs = [(self.loss(2 * t), self.loss(2 * t + 1)) for t in range(self.inner_steps)]
        ascend(engine, pairs, LR, BETA, EVERYWHERE)

    def outer(self, engine: Engine) -> None:
        """The outer gradient, and a plain step along it."""
        outer = outer_gradient(engine, self.loss(-2), self.loss(-1), RHO, BETA, EVERYWHERE)
        with torch.no_grad():
            add_(self.parameters, [(-LR, outer.total_())])

    def seconds(self, call: Callable[[], object]) -> float:
        """Time of one call (see the module's text)."""
        if self.device == "cpu":
            start = time.process_time()
            call()
            return time.process_time() - start
        torch.cuda.synchronize()
        start = time.perf_counter()
        call()
        torch.cuda.synchronize()
        return time.perf_counter() - start

    def memory(self, call: Callable[[], object]) -> int:
        """Parameters plus peak allocation above the present one, in bytes."""
        parameters = sum(p.numel() * p.element_size() for p in self.parameters)
        if self.device == "cuda":
            before = torch.cuda.memory_allocated()
            torch.cuda.reset_peak_memory_stats()
            call()
            torch.cuda.synchronize()
            return parameters + torch.cuda.max_memory_allocated() - before
        before = resident("VmRSS")
        Path("/proc/self/clear_refs").write_text("5")  # resets the peak, Linux only
        call()
        return parameters + resident("VmHWM") - before


def resident(field: str) -> int:
    """Resident memory of this process now (VmRSS) or at its peak (VmHWM), in bytes."""
    status = Path("/proc/self/status").read_text()
    return 1024 * int(next(line.split()[1] for line in status.splitlines() if line.startswith(field)))


def keep_freed_memory(keep: bool) -> None:
    """Tell glibc to keep freed blocks for reuse, as a GPU's allocator does, or to give each tensor's back at once.

    The first saves page faults, whose cost is the system's and not the method's; the second makes resident memory
    equal to what is in use.
    """
    trim_threshold, mmap_threshold = -1, -3
    libc = ctypes.CDLL(None)
    libc.mallopt(trim_threshold, 2**31 - 1 if keep else 0)
    libc.mallopt(mmap_threshold, 32 * 2**20 if keep else 2**16)
    libc.malloc_trim(0)


MEMORY: dict[str, tuple[str, bool, Callable[[Bench], object]]] = {
    "forward": ("sdpa", False, Bench.forward),
    UNIT: ("eager", False, Bench.ascent_step),
    "exact, inner step": ("eager", False, lambda b: b.inner(Autograd(b.parameters))),
    "exact, outer step": ("eager", False, lambda b: b.outer(Autograd(b.parameters))),
    "finite differences + checkpointing, inner step": (
        "sdpa",
        True,
        lambda b: b.inner(FiniteDifference(b.parameters)),
    ),
    "finite differences + checkpointing, outer step": ("sdpa", True, lambda b: b.outer(FiniteDifference(b.parameters))),
}
"""Attention kernel, activation checkpointing and the call, by name."""


def peak_memory(name: str, batch: int, length: int) -> int:
    """Memory of one contender, in bytes; in a process of its own, so that no other's leftovers hide its peak."""
    keep_freed_memory(False)
    attention, checkpointing, call = MEMORY[name]
    bench = Bench("cuda" if torch.cuda.is_available() else "cpu", batch, length, attention, checkpointing)
    call(bench)  # the first call also makes thread pools and workspaces
    return bench.memory(lambda: call(bench))


def shares(call: Callable[[], object]) -> dict[str, float]:
    """Where the operators' time of a call goes, of 1."""
    activities = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if torch.cuda.is_available() else [])]
    with profile(activities=activities) as profiler:
        call()
    found = {"matrix products": 0.0, "vector algebra": 0.0, "the network's other operations": 0.0}
    for event in profiler.key_averages():
        name = event.key.removeprefix("aten::")
        kind = "the network's other operations"
        if name.startswith(MATRICES):
            kind = "matrix products"
        elif name.startswith(VECTORS) and name != "add":
            kind = "vector algebra"
        found[kind] += event.self_device_time_total if torch.cuda.is_available() else event.self_cpu_time_total
    total = sum(found.values())
    return {kind: t / total for kind, t in found.items()}


def measure(args: argparse.Namespace) -> dict[str, Any]:
    """All figures."""
    device = "cuda" if torch.cuda.is_available() else "cpu"
    if device == "cpu":
        keep_freed_memory(True)
    steps = args.inner_steps
    bench = Bench(device, args.batch, args.length, "eager", checkpointing=False, inner_steps=steps)
    exact, differences = Autograd(bench.parameters), FiniteDifference(bench.parameters)

    def iteration(engine: Engine) -> None:
        bench.inner(engine)
        bench.outer(engine)

    contenders: dict[str, tuple[Callable[[], None], Engine | None]] = {
        UNIT: (bench.ascent_step, None),
        "exact": (lambda: iteration(exact), exact),
        "finite differences": (lambda: iteration(differences), differences),
    }
    times: dict[str, list[float]] = {name: [] for name in contenders}
    counts: dict[str, float] = {}
    for r in range(args.rounds + 1):  # the first round warms up
        for name, (call, engine) in contenders.items():
            before = engine.gradient_evaluations if engine else 0.0
            seconds = [bench.seconds(call) for _ in range(5 if engine is None else 1)]
            counts[name] = engine.gradient_evaluations - before if engine else 1.0
            times[name] += seconds if r else []
    unit = statistics.median(times[UNIT])

    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn"), max_tasks_per_child=1) as pool:
        memory = {name: pool.submit(peak_memory, name, args.batch, args.length).result() for name in MEMORY}
    forward = memory.pop("forward")
    return {
        "date": date.today().isoformat(),
        "device": torch.cuda.get_device_name() if device == "cuda" else f"CPU {platform.machine()}",
        "threads": args.threads,
        "torch": torch.__version__,
        "batch": args.batch,
        "length": args.length,
        "gradient_ascent_seconds": unit,
        "time_ratio": {name: statistics.median(t) / unit for name, t in times.items()},
        "inner_steps": steps,
        "gradients": counts,
        "shares": {name: shares(call) for name, (call, engine) in contenders.items() if engine},
        "forward_megabytes": forward / 1e6,
        "memory_ratio": {name: m / forward for name, m in memory.items()},
    }


def show(figures: dict[str, Any]) -> None:
    """Print the two tables."""
    console = Console(width=110)
    where = f"{figures['device']}, {figures['threads']} thread(s), torch {figures['torch']}"
    steps = figures["inner_steps"]
    table = Table("contender", title=f"One outer iteration, T = {steps} ({where})", title_justify="left")
    for column in ("time / GA step", "per update", "gradients"):
        table.add_column(column, justify="right")
    for name, ratio in figures["time_ratio"].items():
        per_update = "" if name == UNIT else f"{ratio / (steps + 1):.2f}"
        table.add_row(name, f"{ratio:.2f}", per_update, f"{figures['gradients'][name]:.0f}")
    console.print(table)
    table = Table(
        "step", title=f"Peak memory / forward pass ({figures['forward_megabytes']:.0f} MB)", title_justify="left"
    )
    table.add_column("ratio", justify="right")
    for name, ratio in figures["memory_ratio"].items():
        table.add_row(name, f"{ratio:.2f}")
    console.print(table)
    table = Table("contender", title="Where the operators' time goes", title_justify="left")
    for column in next(iter(figures["shares"].values())):
        table.add_column(column, justify="right")
    for name, parts in figures["shares"].items():
        table.add_row(name, *(f"{share:.1%}" for share in parts.values()))
    console.print(table)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path, help="where to write the figures")
    parser.add_argument("--batch", type=int, default=32, help="samples a batch (paper: 32)")
    parser.add_argument("--inner-steps", type=int, default=5, help="T (paper: 5)")
    parser.add_argument("--length", type=int, default=64, help="tokens a sample")
    parser.add_argument("--rounds", type=int, default=5, help="interleaved rounds of which medians are taken")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads(), help="CPU threads")
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    figures = measure(args)
    show(figures)
    if args.json:
        write_json(args.json, figures)


if __name__ == "__main__":
    main()
