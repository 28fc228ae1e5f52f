"""What each engine loses under bf16: its derivatives beside the exact ones in float32, on a trained model.

    python scripts/bench_precision.py --model FOLDER --data FOLDER_WITH_TOFU_FILES [--json FILE]

bf16 is autocast around forward passes only, as ``--trainer.precision bf16-mixed`` does; weights and vectors are
float32. Cosine and relative error of -beta (H_f u_f + H_r u_r), the decorrelation part of grad Phi, and of
Hess(Phi) grad Phi, for steps of finite differences from the defaults of float32 up.
"""

import argparse
from collections.abc import Callable
from contextlib import nullcontext
from functools import partial
from pathlib import Path

import torch
from engine_audit import compare, parts
from rich.console import Console
from rich.table import Table
from torch import Tensor

from ofmu_pl.core.autograd import Autograd
from ofmu_pl.core.derivatives import Engine, Loss, trainable
from ofmu_pl.core.finite_difference import FiniteDifference
from ofmu_pl.core.vectors import Vector
from ofmu_pl.data import TOFU
from ofmu_pl.networks import CausalLM
from ofmu_pl.support.files import write_json

BETA, FLOOR = 0.5, 1e-4
STEPS: dict[str, tuple[float, float] | None] = {
    "default": None,
    "1e-3 / 3e-3": (1e-3, 3e-3),
    "1e-2 / 1e-2": (1e-2, 1e-2),
}
"""Relative displacements for H u and for the derivative of grad Phi."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True, help="folder of a trained language model")
    parser.add_argument("--data", required=True, help="folder of TOFU's files")
    parser.add_argument("--rows", type=int, default=4, help="samples a side")
    parser.add_argument("--json", type=Path, help="where to write the figures")
    args = parser.parse_args()
    recipe = CausalLM(path=args.model)
    data = TOFU(data=args.data, forget_split="forget10", batch_size=args.rows, tokenizer=args.model)
    data.setup()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    model = recipe.build(data, exact=True).to(device)
    batch = {s: {k: v.to(device) for k, v in b[0].items()} for s, b in data.iteration(0).items()}

    def loss(stream: str, bf16: bool) -> Loss:
        def term() -> Tensor:
            with torch.autocast(device, torch.bfloat16, cache_enabled=False) if bf16 else nullcontext():
                return recipe.sample_losses(model, batch[stream]).mean()

        return [term]

    engines: dict[str, Callable[[], Engine]] = {"exact": partial(Autograd, trainable(model))}
    for scheme in ("forward", "central"):
        for name, steps in STEPS.items():
            engines[f"{scheme} differences, steps {name}"] = partial(
                FiniteDifference, trainable(model), scheme, *(steps or ())
            )

    def measure(engine: Engine, bf16: bool) -> dict[str, Vector]:
        return parts(engine, loss("forget", bf16), loss("retain", bf16), BETA, FLOOR)

    truth = measure(Autograd(trainable(model)), bf16=False)
    figures: dict[str, dict[str, float]] = {}
    for name, make in engines.items():
        for precision in ("float32", "bf16"):
            figures[f"{name}, {precision}"] = compare(measure(make(), precision == "bf16"), truth)
    table = Table(
        "engine, forward pass", title=f"Beside the exact engine in float32 ({device}, torch {torch.__version__})"
    )
    for part in truth:
        table.add_column(f"{part}: cosine", justify="right")
        table.add_column("relative error", justify="right")
    for name, row in figures.items():
        table.add_row(name, *(f"{value:.4g}" for value in row.values()))
    Console(width=130).print(table)
    if args.json:
        write_json(args.json, figures)


if __name__ == "__main__":
    main()
