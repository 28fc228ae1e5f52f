"""How far finite differences are from the exact engine where all weights are trained, and where only some are.

    python scripts/bench_finite_differences.py --model FOLDER --data FOLDER_WITH_TOFU_FILES
    python scripts/bench_finite_differences.py      # the page again, from docs/results/finite-differences.json

Relative error and cosine of -beta (H_f u_f + H_r u_r), the decorrelation part of grad Phi, and of
Hess(Phi) grad Phi in float32, by forward differences: *before*, with steps that follow the norm of what is trained
(the table in ``core/finite_difference.py``), and *after*, with the steps that ``core/steps.py`` settles on by 4 samples
a side, as a run does. At the start (the model as it is given, which knows its data by heart) and in the middle of a run
(after ``--iterations`` ascents on L_f by Adam and descents on L_r by AdamW).
"""

import argparse
from datetime import date
from functools import partial
from typing import Any

import torch
from engine_audit import compare, parts
from results import RESULTS, texts, write_below
from torch import Tensor

from ofmu_pl.core.autograd import Autograd
from ofmu_pl.core.derivatives import Loss, trainable
from ofmu_pl.core.finite_difference import FiniteDifference
from ofmu_pl.core.steps import settle
from ofmu_pl.data import TOFU
from ofmu_pl.losses import ceiling
from ofmu_pl.modules.steppers import INNER_BETAS
from ofmu_pl.networks import CausalLM
from ofmu_pl.report.tables import to_markdown
from ofmu_pl.support.files import read_json, write_json

BETA, FLOOR, LR = 0.5, 1e-4, 3e-4
TRAINED: dict[str, dict[str, Any]] = {
    "all weights": {},
    "LoRA, r = 8, all linear layers": {"lora": {"r": 8, "lora_alpha": 16, "target_modules": "all-linear"}},
    "one module (layer 1's down_proj)": {"trainable": r"layers\.1\.mlp\.down_proj"},
    "norms only": {"trainable": "norm"},
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", help="folder of a trained language model; left out: the page is written again")
    parser.add_argument("--data", help="folder of TOFU's files")
    parser.add_argument("--rows", type=int, default=8, help="samples a side")
    parser.add_argument("--iterations", type=int, default=30, help="of the run before its middle")
    args = parser.parse_args()
    data = RESULTS / "finite-differences.json"
    if args.model:
        figures = {
            "torch": torch.__version__,
            "date": str(date.today()),
            "rows": args.rows,
            "iterations": args.iterations,
            "cases": [row for name in TRAINED for row in measure(name, args)],
        }
        write_json(data, figures)
    write_below("finite-differences", page(read_json(data)))


def measure(name: str, args: argparse.Namespace) -> list[dict[str, Any]]:
    """Both states of one choice of trained parameters."""
    torch.manual_seed(0)
    recipe = CausalLM(path=args.model, **TRAINED[name])
    data = TOFU(data=args.data, forget_split="forget10", batch_size=args.rows, tokenizer=args.model)
    data.setup()
    model = recipe.build(data, exact=True)
    parameters = trainable(model)
    level = recipe.uniform_loss(model)

    def loss(stream: str, number: int, rows: int | None = None) -> Loss:
        batch = {k: v[:rows] for k, v in data.iteration(number)[stream][0].items()}

        def term() -> Tensor:
            values = recipe.sample_losses(model, batch)
            return (ceiling(values, level) if stream == "forget" else values).mean()

        return [term]

    ascent = torch.optim.Adam(parameters, lr=LR, betas=INNER_BETAS, maximize=True)
    descent = torch.optim.AdamW(parameters, lr=LR, betas=INNER_BETAS, weight_decay=0.0)
    rows = []
    for state, iterations in (("start", 0), ("middle", args.iterations)):
        for k in range(iterations):
            for stream, optimizer in (("forget", ascent), ("retain", descent)):
                optimizer.zero_grad()
                loss(stream, k)[0]().backward()
                optimizer.step()
        for p in parameters:
            p.grad = None
        pair = partial(loss, number=iterations, rows=args.rows)
        case = pair("forget"), pair("retain"), BETA, FLOOR
        exact = parts(Autograd(parameters), *case)
        engine = FiniteDifference(parameters)
        row: dict[str, Any] = {
            "trained": name,
            "parameters": sum(p.numel() for p in parameters),
            "state": state,
            "L_f": case[0][0]().item(),
            "before": compare(parts(engine, *case), exact),
        }
        work = engine.gradient_evaluations
        found = settle(engine, *case)
        row |= {
            "settling": engine.gradient_evaluations - work,
            "disagreement": [found.decorrelation, found.penalty],
            "steps": [engine.step / engine.default_steps[0], engine.field_step / engine.default_steps[1]],
            "after": compare(parts(engine, *case), exact),
        }
        print(row, flush=True)
        rows.append(row)
    return rows


def page(figures: dict[str, Any]) -> str:
    """The figures as Markdown."""
    n = figures["rows"]
    parts = [
        f"Made on {figures['date']} with torch {figures['torch']} on a CPU; {n} + {n} rows, the "
        f"middle after {figures['iterations']} ascents by Adam and as many descents by AdamW."
    ]
    head = ["trained", "state", "error before", "after", "cosine before", "after", "step, in the default's"]
    for part, title in (("decorrelation", "Decorrelation"), ("penalty", "Hess(Phi) grad Phi")):
        rows = [head]
        for row in figures["cases"]:
            cells = [row[when][f"{part}_{what}"] for what in ("error", "cosine") for when in ("before", "after")]
            cells.append(row["steps"][part == "penalty"])
            rows.append([row["trained"], row["state"], *(f"{cell:.3g}" for cell in cells)])
        parts.append(to_markdown(texts("", title, rows)).rstrip())
    return "\n\n".join(parts) + "\n"


if __name__ == "__main__":
    main()
