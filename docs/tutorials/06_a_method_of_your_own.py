"""
A method of your own
====================

A method is a direction from batches. If yours lowers a loss of the forget rows and a loss of the retain rows, you
write one function; the rest (weights, batches, adapters, several devices, resumed runs, measurements) is there.
"""

# %%
# Ascent that tires
# -----------------
#
# Gradient ascent raises the loss *l* of the forgotten rows without end. Here is ascent on *log(1 + l)*: its pull
# fades as a row is forgotten. The loss comes sample by sample, from the network's recipe, so that one definition
# serves text and images.

import copy
from functools import partial

import matplotlib.pyplot as plt
import torch
from tiny import authors, taught
from torch.optim import AdamW

import ofmu_pl


class LogAscent(ofmu_pl.GradDiff):
    """Ascent on log(1 + l), whose pull fades as a row is forgotten."""

    in_words = (
        "The model was trained to do badly on the forgotten rows, the less the worse "
        "it already did."
    )

    def forget_losses(self, part):
        """Minus the logarithms of one plus the losses, (b,)."""
        return -torch.log1p(self.recipe.sample_losses(self.trained, part))


# %%
# Beside what it changes
# ----------------------

rows, tokenizer = authors(people=4, forget=1, strangers=2)
model = taught(rows["forget"] + rows["retain"], tokenizer)


def run(method, steps):
    """What a method leaves of the forgotten and of the retained answers."""
    make = partial(method, optimizer=partial(AdamW, lr=1e-3))
    result = ofmu_pl.unlearn(
        copy.deepcopy(model),
        tokenizer,
        **rows,
        method=make,
        steps=steps,
        progress=False,
        accelerator="cpu",
    )
    return result.metrics["forget_Q_A_Prob"].value, result.metrics[
        "retain_Q_A_Prob"
    ].value


lengths = [5, 15, 30]
courses = {
    method.__name__: [run(method, steps) for steps in lengths]
    for method in (ofmu_pl.GradDiff, LogAscent)
}

# %%
# After as many steps the bounded pull leaves the forgotten answers likelier and the others more alone.

figure, axes = plt.subplots(1, 2, figsize=(8.5, 3.2), layout="constrained")
for name, points in courses.items():
    for axis, values in zip(axes, zip(*points, strict=True), strict=True):
        axis.plot(lengths, values, marker="o", label=name)
axes[0].set(yscale="log", xlabel="steps", ylabel="probability of forgotten answers")
axes[1].set(xlabel="steps", ylabel="probability of retained answers")
axes[1].legend(frameon=False)
figure.show()

# %%
# From the command line
# ---------------------
#
# Put the class into ``my_methods.py``, and name it:
#
# .. code-block:: bash
#
#    python -m ofmu_pl fit --config configs/tofu.yaml --model my_methods.LogAscent --model.optimizer.lr 1e-4 ...
#
# ``plan``, ``benchmark`` and ``report`` know it from there on. Methods of another shape subclass
# ``ofmu_pl.UnlearningModule``: :doc:`/extending`.
