"""All methods at the same cost on one target: a small search for each one's rate, then one run each, then one table.

    python scripts/compare_methods.py --config configs/tofu.yaml --target FOLDER --reference FOLDER [--data FOLDER]
        [--gradients 260] [--search 64] [--rates 1e-4 3e-4 1e-3] [--logs logs/compare] [--methods npo ofmu ...]

Cost is counted in gradients of one batch's loss. A rate is chosen by the harmonic mean of 1 - p(forget) and p(retain)
after ``--search`` gradients, over retain rows that no reported metric looks at. Finished runs are not run again; a
method that diverges at every rate is reported and does not stop the rest.
"""

from __future__ import annotations

import argparse
import json
import math
import subprocess
import sys
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from ofmu_pl.files import write_json
from ofmu_pl.metrics import harmonic_mean

ROOT = Path(__file__).parent.parent
OVERLAYS = "grad_ascent grad_diff kl npo simnpo idk_dpo rmu undial wga satimp pdu ce_u".split()
"""Besides ofmu, which is the configuration's own method."""
SHOWN = {
    "forget_quality": "FQ",
    "forget_quality_D": "D",
    "model_utility": "MU",
    "forget_truth_ratio": "FTR",
    "forget_Q_A_ROUGE": "forget ROUGE",
    "retain_Q_A_ROUGE": "retain ROUGE",
    "extraction_strength": "ES",
}


class Comparison:
    """The runs of one comparison, each in a folder of its own."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options

    def words(self, method: str, rate: float, gradients: int) -> list[str]:
        """The command line of one run."""
        o = self.options
        words = ["fit", "--config", str(o.config)]
        if method != "ofmu":
            words += ["-c", str(ROOT / f"configs/methods/{method}.yaml")]
        words += ["--model.network.path", str(o.target), "--model.micro_batch_size", "8", "--model.scheduler", "null"]
        words += ["--model.optimizer", "torch.optim.AdamW", "--model.optimizer.lr", str(rate)]
        words += ["--model.optimizer.weight_decay", "0", "--trainer.max_steps", "-1"]
        words += ["--trainer.callbacks", "ofmu_pl.callbacks.budget.GradientBudget"]
        words += ["--trainer.callbacks.gradients", str(gradients)]
        words += ["--trainer.callbacks+", "ofmu_pl.callbacks.validation.ValidationRows"]
        words += ["--logs", str(o.logs), "--export.folder", "null", "--evaluation.every_n_steps", "null"]
        if method == "rmu":
            words += ["--model.layer", o.layer]
        return words + (["--data.data", str(o.data)] if o.data else [])

    def run(self, method: str, rate: float, gradients: int, benchmark: str, *more: str) -> dict[str, Any] | None:
        """Results and validation of one run, from disk if it has finished before; ``None`` if it failed."""
        name = f"{method}-{rate:g}"
        path = self.options.logs / benchmark / name / "latest" / "results.json"
        if not path.is_file():
            words = self.words(method, rate, gradients)
            command = [sys.executable, "-m", "ofmu_pl", *words, "--benchmark", benchmark, "--method", name, *more]
            if subprocess.run(command, check=False).returncode:  # a process of its own: peak memory is the run's
                return None
        return {name: json.loads((path.parent / f"{name}.json").read_text()) for name in ("results", "validation")}

    def search(self, method: str) -> tuple[float | None, dict[str, float | None]]:
        """The best rate, and the criterion at each."""
        scores: dict[str, float | None] = {}
        cheap = ("--evaluation.reference", "null", "--evaluation.max_new_tokens", "1")
        for rate in self.options.rates:
            results = self.run(method, rate, self.options.search, "search", *cheap)
            p = results and results["validation"]
            scores[f"{rate:g}"] = harmonic_mean([1 - p["forget"], p["retain"]]) if p else None
        found = {rate: s for rate, s in scores.items() if s is not None and math.isfinite(s)}
        return (float(max(found, key=lambda rate: found[rate])) if found else None), scores


def show(rows: dict[str, dict[str, Any]], target: dict[str, Any], reference: dict[str, Any]) -> None:
    """Print the table."""
    table = Table("method", "rate", *SHOWN.values(), "gradients", "seconds", "peak MB", title="Methods at equal cost")

    def values(metrics: dict[str, Any]) -> list[str]:
        found = [metrics[name]["value"] if name in metrics else None for name in SHOWN]
        return ["" if v is None else f"{v:.1e}" if 0 < abs(v) < 1e-3 else f"{v:.3f}" for v in found]

    table.add_row("target (before)", "", *values(target), "", "", "")
    table.add_row("retrained (goal)", "", *values(reference), "", "", "", end_section=True)
    for method, row in rows.items():
        if row["results"] is None:
            table.add_row(method, "", *["diverged", *[""] * (len(SHOWN) - 1)], "", "", "")
            continue
        cost = row["results"]["cost"]
        work = [f"{cost['gradient_evaluations']:.0f}", f"{cost['training_seconds']:.0f}"]
        work.append(f"{cost['peak_memory_bytes'] / 1e6:.0f}")
        table.add_row(method, f"{row['rate']:g}", *values(row["results"]["metrics"]), *work)
    Console(width=150).print(table)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--config", type=Path, default=ROOT / "configs/tofu.yaml")
    parser.add_argument("--target", type=Path, required=True)
    parser.add_argument("--reference", required=True)
    parser.add_argument("--data")
    parser.add_argument("--gradients", type=int, default=260)
    parser.add_argument("--search", type=int, default=64)
    parser.add_argument("--rates", type=float, nargs="+", default=[1e-4, 3e-4, 1e-3])
    parser.add_argument("--layer", default="model.layers.2", help="RMU's")
    parser.add_argument("--methods", nargs="+", default=["ofmu", *OVERLAYS])
    parser.add_argument("--logs", type=Path, default=Path("logs/compare"))
    comparison = Comparison(parser.parse_args())
    options = comparison.options
    rows: dict[str, dict[str, Any]] = {}
    target = reference = None
    for method in options.methods:
        rate, criterion = comparison.search(method)
        judged = ("--evaluation.reference", options.reference)
        found = None if rate is None else comparison.run(method, rate, options.gradients, "final", *judged)
        results = found and found["results"]
        rows[method] = {"rate": rate, "search": criterion, "results": results}
        if results:
            target, reference = results["before"], results["reference"]["metrics"]
        write_json(options.logs / "comparison.json", rows)
    if target is None or reference is None:
        sys.exit("Every method diverged at every rate.")
    show(rows, target, reference)


if __name__ == "__main__":
    main()
