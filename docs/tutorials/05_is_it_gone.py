"""
Is it gone?
===========

A model can answer as if it had never seen the forgotten rows, and still hold them. Attacks try to bring them back.
Each is made on three models, since a figure means little without the retrained model's beside it.
"""

# %%
# Three models
# ------------
#
# Attacks load models anew each time, because they spoil what they touch, so the three are saved first.

import copy
import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
from tiny import authors, taught

import ofmu_pl

folder = Path(tempfile.mkdtemp())
rows, tokenizer = authors(people=4, forget=1, strangers=2)
target = taught(rows["forget"] + rows["retain"], tokenizer)
result = ofmu_pl.unlearn(
    copy.deepcopy(target), tokenizer, **rows, progress=False, accelerator="cpu"
)
models = {
    "target": target,
    "unlearned": result.model,
    "retrained": taught(rows["retain"], tokenizer),
}
for name, model in models.items():
    model.save_pretrained(folder / name)
    tokenizer.save_pretrained(folder / name)

# %%
# Three attacks
# -------------
#
# - ``Relearn`` trains on rows that stay, and asks for the forgotten ones now and then. If they come back sooner
#   than in the retrained model, they were there.
# - ``Quantise`` rounds the weights. What was only just pushed below the surface may come up again.
# - ``LogitLens`` asks every layer, not only the last.

data = ofmu_pl.TextFiles(**rows, tokenizer=str(folder / "target"), batch_size=8)
data.setup()
attacks = [
    ofmu_pl.Relearn(source="retain", steps=30, every=5, rates=[1e-3]),
    ofmu_pl.Quantise(widths=[8, 4, 3]),
    ofmu_pl.LogitLens(),
]
found = {
    attack.name: {
        name: attack.run(
            ofmu_pl.Subject(ofmu_pl.CausalLM(str(folder / name)), data), seed=0
        )
        for name in models
    }
    for attack in attacks
}

# %%
# What they found
# ---------------
#
# The target is what an attack finds where nothing was forgotten, the retrained model what it finds where the rows
# were never seen. The unlearned model should follow the latter.

figure, axes = plt.subplots(1, 3, figsize=(10, 3.2), sharey=True, layout="constrained")
styles = {
    "target": {"color": "gray"},
    "unlearned": {"color": "tab:orange"},
    "retrained": {"color": "black", "linestyle": "--"},
}
for axis, attack in zip(axes, attacks, strict=True):
    for name, finding in found[attack.name].items():
        axis.plot(
            [str(x) for x in finding.x],
            finding.y,
            marker="o",
            label=name,
            **styles[name],
        )
    axis.set(title=type(attack).__name__, xlabel=attack.x_label, ylim=(-0.03, 1.03))
axes[0].set_ylabel("probability of forgotten answers")
axes[0].legend(frameon=False)
figure.show()

# %%
# What returns
# ------------
#
# The share of the way from the retrained model to the target: 0 % is as if the rows had never been seen, 100 % as
# if nothing had been forgotten.

for attack in attacks:
    figures = {
        name: finding.figures[attack.metrics[0].name]
        for name, finding in found[attack.name].items()
    }
    returns = (figures["unlearned"] - figures["retrained"]) / (
        figures["target"] - figures["retrained"]
    )
    print(f"{attack.name:16} returns {returns:6.1%}")

# %%
# Relearning brings back more than the probabilities before it let one expect. How much, differs widely between
# methods that look alike in the main table: :doc:`/results/attacks`. It is the reason to attack before you believe.
#
# The command ``attack`` does this for finished runs, with more attacks, intervals over rows, and files that an
# interrupted command goes on from: :doc:`/attacks`.
