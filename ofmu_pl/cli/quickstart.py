"""``quickstart``: from nothing to models that two methods made forget, what relearning brings back, and a page."""

import os
import shlex
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from ofmu_pl.cli.words import fail
from ofmu_pl.support.escapes import say
from ofmu_pl.support.pages import REPORT
from ofmu_pl.support.records.results import ATTACKS

_ADAMW = "{class_path: torch.optim.AdamW, init_args: {lr: 1.0e-3, betas: [0.9, 0.99], weight_decay: 0.0}}"
METHODS = {
    "ofmu": [],
    # The rival has the settings that were best for it on this corpus (docs/results/front.md).
    "npo": [
        *("-c", "ofmu_pl:methods/npo.yaml", "--model.optimizer", _ADAMW),
        *("--trainer.max_steps", "178"),  # of two gradients each: 356 in all, for OFMU's 371
    ],
}
"""Options of each method beside those that all share."""
_MEASURED = [
    *("--data.holdout_authors", "5"),  # whom no model has seen: the forgotten are to end where these are
    *("--evaluation.max_new_tokens", "30"),
]
"""Alike for all four models, so that each is measured once: scores are kept."""


def quickstart(seed: int, logs: Path) -> None:
    """Train two models on invented authors, one without five of them, unlearn the five by two methods, and attack both.

    Each step is a command that is printed before it runs, in a process of its own. A step whose output is there is
    passed over, so that the same line goes on after an interruption.
    """
    name = "quickstart" if seed == 0 else f"quickstart-seed{seed}"
    runs = logs / name
    models = {method: runs / method / "latest" / "hf" for method in ("target", "retrained", *METHODS)}
    made = ["--config", "ofmu_pl:authors_finetune.yaml"]
    steps = {"target": made, "retrained": [*made, "--model.split", "retain"]}
    for method, options in METHODS.items():
        steps[method] = [
            *("--config", "ofmu_pl:authors.yaml", *options),
            *("--model.network.path", str(models["target"]), "--evaluation.reference", str(models["retrained"])),
            *("--evaluation.every_n_steps", "40"),
            *("--evaluation.samples", "full"),  # these people are invented: see what is said of them
        ]
    for method, options in steps.items():
        place = ["--logs", str(logs), "--benchmark", name, "--method", method, "--seed_everything", str(seed)]
        _run(["fit", *options, *_MEASURED, *place], [models[method]])
    found = [runs / method / "latest" / ATTACKS for method in METHODS]
    _run(["attack", "--config", "ofmu_pl:attacks_quickstart.yaml", "--runs", str(runs)], found)
    page = runs / REPORT / "index.html"
    _run(["report", str(runs)], [page], sources=found)

    from ofmu_pl.cli.closing import closing  # slow to import, as nothing above is

    print()
    closing(runs, list(METHODS))
    attack = shlex.join(["attack", "--config", "ofmu_pl:attacks.yaml", "--runs", str(runs)])
    say(f"\nThe page: {page}\nNext, all attacks: ofmu_pl {attack}")


def _run(words: list[str], outputs: Sequence[Path], sources: Sequence[Path] = ()) -> None:
    """Print a command and run it, unless its outputs are there and none of its sources is newer."""
    say(f"\n$ ofmu_pl {shlex.join(words)}")
    sys.stdout.flush()
    if all(path.exists() for path in outputs):
        made = min(path.stat().st_mtime for path in outputs)
        if all(path.stat().st_mtime <= made for path in sources):
            say(f"  done before: {', '.join(map(str, outputs))} (delete it to run this again)")
            return
    quiet = os.environ | {"HF_HUB_DISABLE_PROGRESS_BARS": "1"}  # the models are small: a bar would be noise
    code = subprocess.run([sys.executable, "-m", "ofmu_pl", *words], check=False, env=quiet).returncode
    if code:
        fail(f"The step above ended with exit code {code}: mend what it says, and start quickstart again.", code)
