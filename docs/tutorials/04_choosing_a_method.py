"""
Choosing a method
=================

No method is best on every model and budget. Comparing a few on your own rows takes a loop: the same model, the same
rows, the same metrics, another method.
"""

# %%
# The rows and the model
# ----------------------

import copy
from functools import partial

import matplotlib.pyplot as plt
from tiny import authors, taught
from torch.optim import AdamW

import ofmu_pl

rows, tokenizer = authors(people=4, forget=1, strangers=2)
model = taught(rows["forget"] + rows["retain"], tokenizer)
retrained = taught(rows["retain"], tokenizer)

# %%
# A method is a class, or anything that makes one from a network. ``functools.partial`` gives it arguments. The
# rates suit this tiny model; those of the papers are for billions of parameters and a hundred times smaller. OFMU
# without arguments finds its own.

rate = {"optimizer": partial(AdamW, lr=1e-3)}
methods = {
    "gradient ascent": partial(ofmu_pl.GradDiff, alpha=0, **rate),
    "GradDiff": partial(ofmu_pl.GradDiff, **rate),
    "NPO": partial(ofmu_pl.NPO, beta=0.1, **rate),
    "WGA": partial(ofmu_pl.WeightedAscent, **rate),
    "OFMU": None,
}
results = {
    name: ofmu_pl.unlearn(
        copy.deepcopy(model),
        tokenizer,
        **rows,
        reference=retrained,
        method=method,
        steps=40 if method is None else 20,
        progress=False,
        accelerator="cpu",
    )
    for name, method in methods.items()
}

# %%
# What is forgotten against what is kept
# --------------------------------------
#
# The star is the retrained model. Being *left* of it is no merit: a model that gives the forgotten answers less
# than somebody who never saw them avoids them, and an attacker sees that.

figure, axis = plt.subplots(figsize=(7, 4), layout="constrained")
x, y = "forget_Q_A_Prob", "retain_Q_A_Prob"
for name, result in results.items():
    axis.plot(
        max(result.metrics[x].value, 1e-6),
        result.metrics[y].value,
        "o",
        markersize=9,
        label=name,
    )
ends = {"before": (result.before, "s"), "retrained": (result.retrained, "*")}
for name, (metrics, mark) in ends.items():
    axis.plot(
        metrics[x].value,
        metrics[y].value,
        mark,
        color="black",
        markersize=13,
        label=name,
    )
axis.set(
    xscale="log",
    xlabel="probability of forgotten answers (1e-6 and less at the left edge)",
    ylabel="of retained answers",
)
axis.legend(frameon=False, loc="center left", bbox_to_anchor=(1, 0.5))
figure.show()

# %%
# One number that says how far each attacker still is from the retrained model's value, and what was kept:

for name, result in results.items():
    gaps = [
        abs(m.value - m.target)
        for key, m in result.metrics.items()
        if key.startswith("mia_") and m.target is not None
    ]
    gap, kept = sum(gaps) / len(gaps), result.metrics[y].value
    print(f"{name:16} attackers' gap {gap:.2f}   kept {kept:.2f}")

# %%
# One seed and eight forgotten rows decide nothing. :doc:`/benchmarks` runs grids over seeds with a search of equal
# size for every method, and the report adds the tests. In words: :doc:`/choosing`; a page a method:
# :doc:`/generated/methods/index`.
