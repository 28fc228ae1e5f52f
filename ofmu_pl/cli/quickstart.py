"""``quickstart``: from nothing to an unlearned language model and a page about what happened."""

from __future__ import annotations

import shlex
import subprocess
import sys
from pathlib import Path

from ofmu_pl.cli.said import fail


def quickstart(seed: int, logs: Path) -> None:
    """Train a model on invented authors and one without five of them, unlearn the five, and make the report.

    Each step is a command that is printed before it runs, in a process of its own. A step whose model is there is
    passed over, so that the same line goes on after an interruption.

    Args:
        seed: Seed of the models, of the run and of its folder.
        logs: Root of all outputs.

    Raises:
        SystemExit: A step failed, which has said why; the exit code is the step's.
    """
    name = "quickstart" if seed == 0 else f"quickstart-seed{seed}"
    runs = logs / name
    models = {method: str(runs / method / "latest" / "hf") for method in ("target", "retrained", "ofmu")}
    steps = {
        "target": ["--config", "ofmu_pl:authors_finetune.yaml"],
        "retrained": ["--config", "ofmu_pl:authors_finetune.yaml", "--model.split", "retain"],
        "ofmu": [
            *("--config", "ofmu_pl:authors.yaml", "-c", "ofmu_pl:methods/ofmu_holdout.yaml"),
            *("--model.network.path", models["target"], "--evaluation.reference", models["retrained"]),
            *("--data.holdout_authors", "5"),  # whom no model has seen: the forgotten are to end where these are
            *("--evaluation.samples", "full"),  # these people are invented: see what is said of them
        ],
    }
    for method, options in steps.items():
        place = ["--logs", str(logs), "--benchmark", name, "--method", method, "--seed_everything", str(seed)]
        _run(["fit", *options, *place], models[method], runs / method)
    _run(["report", str(runs)])


def _run(words: list[str], model: str | None = None, folder: Path | None = None) -> None:
    """Print a command and run it, unless its model is there."""
    print(f"\n$ ofmu_pl {shlex.join(words)}", flush=True)
    if model is not None and Path(model).is_dir():
        print(f"  done before: {model} (delete {folder} to run it again)")
        return
    code = subprocess.run([sys.executable, "-m", "ofmu_pl", *words], check=False).returncode
    if code:
        fail(f"The step above ended with exit code {code}: mend what it says, and start quickstart again.", code)
