"""
Several devices
===============

A run on several devices has the numbers of a run on one: every device takes its share of the same batches, and what
is not linear in the data is computed from sums. Here two processes on a CPU stand for two GPUs.
"""

# %%
# The same words, and two options
# -------------------------------
#
# A run is started as always, by the command line. ``--trainer.devices`` says how many devices there are, and
# ``--trainer.strategy`` how they share the work: ``ddp`` gives each the whole model, and
# ``configs/hardware/fsdp2_4xh100.yaml`` a shard of it. The command starts the other processes itself. On GPUs leave
# ``--trainer.accelerator cpu`` out.

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import matplotlib.pyplot as plt

import ofmu_pl

folder = Path(tempfile.mkdtemp())
small = "--original.epochs 3 --trainer.max_steps 8 --evaluation.attack_samples 100"
exact = "--model.engine autograd --model.upper.every 1"
environment = os.environ | {
    "PYTHONPATH": str(Path(ofmu_pl.__file__).parents[1]),
    "OFMU_CACHE": str(folder / "cache"),  # the target is trained once
}


def fit(name, devices):
    """OFMU on the digits, on so many devices; what the run measured."""
    words = f"fit --config ofmu_pl:digits.yaml {small} {exact}"
    words += f" --trainer.accelerator cpu --trainer.devices {devices}"
    words += f" --trainer.strategy ddp --trainer.precision 64-true --method {name}"
    command = [sys.executable, "-m", "ofmu_pl", *words.split(), "--logs", str(folder)]
    subprocess.run(command, env=environment, check=True, capture_output=True)
    return json.loads((folder / f"digits/{name}/latest/results.json").read_text())


one, two = fit("one", 1), fit("two", 2)

# %%
# The same numbers
# ----------------
#
# Metrics after the run, of one process and of two. The run computes in float64 and by exact derivatives, so that
# nothing hides what the sharing itself changes, which is the order of sums.

for name in ("UA", "RA", "TA", "MIA"):
    values = [run["metrics"][name]["value"] for run in (one, two)]
    print(f"{name:4} {values[0]:8.4f} {values[1]:8.4f}")

# %%
# And along the way: the similarity of the two gradients, the forget loss and the retain loss in every iteration.

for name in ("L_f", "L_r", "Sim"):
    pairs = zip(one["curves"][name]["value"], two["curves"][name]["value"], strict=True)
    print(f"{name:4} differs by {max(abs(a - b) for a, b in pairs):.0e} at most")

# %%

figure, axis = plt.subplots(figsize=(7, 3.2), layout="constrained")
for name, color in (("L_f", "tab:red"), ("L_r", "tab:blue")):
    steps, values = one["curves"][name]["step"], one["curves"][name]["value"]
    axis.plot(steps, values, color=color, linewidth=5, alpha=0.3, label=f"{name}, one")
    steps, values = two["curves"][name]["step"], two["curves"][name]["value"]
    axis.plot(steps, values, "--", color=color, label=f"{name}, two")
axis.set(xlabel="iteration", ylabel="loss")
axis.legend(frameon=False)
figure.show()

# %%
# What else to know
# -----------------
#
# - ``--data.batch_size`` is the size of the whole batch, whatever the number of devices: more devices take smaller
#   shares of the same batch, and no rate has to be changed.
# - A run goes on with ``--ckpt_path last`` on the same number of devices bit for bit, and on another number too.
# - ``fit --dry_run`` tries a configuration for GPUs on a machine without any (:doc:`/dry-run`), and ``plan`` says
#   what memory each would need (:doc:`/hardware`).
