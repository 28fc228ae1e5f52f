"""What starting costs: CPU time of whole processes, medians, with another checkout's beside it.

    python scripts/bench_start.py [--before CHECKOUT] [--rounds 5] [--json FILE]

Contenders take turns, so that a busy machine is as busy for all of them.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parents[1]
WORDS = {
    "python -m ofmu_pl --help": ["-m", "ofmu_pl", "--help"],
    "python -m ofmu_pl report --help": ["-m", "ofmu_pl", "report", "--help"],
    "import ofmu_pl": ["-c", "import ofmu_pl"],
    "import ofmu_pl.metrics": ["-c", "import ofmu_pl.metrics"],
    "the imports of fit": ["-c", "import ofmu_pl.cli.configured"],
    "import torch, lightning.pytorch, transformers": ["-c", "import torch, lightning.pytorch, transformers"],
}
OLD = {"the imports of fit": ["-c", "import ofmu_pl.cli"]}
"""Where version 0.1.0 has them."""


def cpu_seconds(words: list[str], checkout: Path) -> float:
    """CPU time, of user and system, of a Python process that runs with a checkout's package."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    environment = os.environ | {"PYTHONPATH": str(checkout), "OMP_NUM_THREADS": "1"}
    subprocess.run([sys.executable, *words], env=environment, cwd="/", check=True, stdout=subprocess.DEVNULL)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main() -> None:
    """Measure, print, and write JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--before", type=Path, help="A checkout of version 0.1.0, measured too.")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", type=Path, help="Where the figures go.")
    options = parser.parse_args()
    found: dict[str, dict[str, list[float]]] = {}
    for _ in range(options.rounds):
        for name, words in WORDS.items():
            if options.before:
                seconds = cpu_seconds(OLD.get(name, words), options.before.resolve())
                found.setdefault(name, {}).setdefault("before", []).append(seconds)
            found.setdefault(name, {}).setdefault("now", []).append(cpu_seconds(words, HERE))
    medians = {name: {side: statistics.median(s) for side, s in sides.items()} for name, sides in found.items()}
    for name, sides in medians.items():
        print(f"{name:48s}" + "".join(f"  {side} {seconds:6.2f} s" for side, seconds in sides.items()))
    if options.json:
        options.json.write_text(json.dumps(medians, indent=2) + "\n")


if __name__ == "__main__":
    main()
