"""
First unlearning
================

A language model has learnt rows about six authors. Two of them must go. In this tutorial you make the model forget
them, and look at the three models that matter: the model before (the *target*), the model after, and the *retrained
model*, which never saw the two authors and is what forgetting should look like.
"""

# %%
# A model that knows too much
# ---------------------------
#
# The authors are invented, so nothing has to be downloaded. :download:`tiny.py` makes the rows and teaches a very
# small Llama; with a model of yours you would call ``from_pretrained`` here.

import matplotlib.pyplot as plt
from tiny import authors, taught

import ofmu_pl

rows, tokenizer = authors()
model = taught(rows["forget"] + rows["retain"], tokenizer)
retrained = taught(rows["retain"], tokenizer)
{side: len(of) for side, of in rows.items()}

# %%
# This is one of the rows that must go.

rows["forget"][0]

# %%
# Forget
# ------
#
# One call is enough. ``holdout`` holds rows of the same kind that no model has seen: with them OFMU finds its rates
# and its end by itself, which is when the forgotten rows look like held-out ones. Without them nobody could tell
# whether the rows are gone. The model is changed in place.

result = ofmu_pl.unlearn(
    model, tokenizer, **rows, reference=retrained, progress=False, accelerator="cpu"
)
result.table()

# %%
# Read the table in three steps.
#
# - **Forgotten?** The probability of the forgotten answers, ``forget_Q_A_Prob``, should go from *before* to
#   *target*, which is the retrained model's value. Lower would not be better: a model that avoids an answer gives
#   it away, too.
# - **Kept?** The ``retain`` rows should stay where they were.
# - **Noticeable?** The ``mia`` rows are attackers who guess which rows were forgotten. 0.5 is a coin.

# %%
# The same as a figure
# --------------------

sides = {
    "before": result.before,
    "after": result.metrics,
    "retrained": result.retrained,
}
names = {
    "forget_Q_A_Prob": "forgotten authors",
    "retain_Q_A_Prob": "authors that stay",
    "holdout_Q_A_Prob": "strangers",
}
figure, axis = plt.subplots(figsize=(7, 3.4), layout="constrained")
for i, (name, metrics) in enumerate(sides.items()):
    axis.bar(
        [k + 0.27 * (i - 1) for k in range(len(names))],
        [metrics[n].value for n in names],
        0.25,
        label=name,
    )
axis.set(
    xticks=range(len(names)),
    xticklabels=names.values(),
    ylabel="probability of the answers",
    ylim=(0, 1.05),
)
axis.legend(frameon=False)
figure.show()

# %%
# Keep it
# -------
#
# ``result.save("forgotten")`` writes a folder for ``from_pretrained`` with a model card, and
# ``result.report("runs")`` the numbers and a page to read (:doc:`/generated/tutorials/08_reading_a_report`). The
# command line does all this with ``configs/text.yaml``: see :doc:`/own-data`. Whether the rows can be brought back
# is another question: :doc:`/generated/tutorials/05_is_it_gone`.
