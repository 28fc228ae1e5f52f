"""
A metric of your own
====================

A mean hides its worst row. In this tutorial you write a metric that does not: the probability of the forgotten
answer that is remembered best. A metric is a declaration and a computation; it then stands wherever the others
stand.
"""

# %%
# Declaration and computation
# ---------------------------
#
# The declaration says the name, which direction is better, and the group that it is printed with. ``compute`` gets
# the scores of each evaluation set, among them the loss of each answer in nats a token, and gives results with
# their number of rows.

import matplotlib.pyplot as plt
import numpy as np
from tiny import authors, taught

import ofmu_pl

WORST = ofmu_pl.Metric("forget_worst_Prob", higher_is_better=False, group="forgotten")


class Worst(ofmu_pl.OwnMetric):
    """The probability of the forget answer that is remembered best."""

    def compute(self, scores):
        losses = scores["forget"].answer_loss
        return [WORST.result(float(np.exp(-losses.min())), n=len(losses))]


# %%
# Beside the others
# -----------------

rows, tokenizer = authors(people=4, forget=1, strangers=2)
model = taught(rows["forget"] + rows["retain"], tokenizer)
retrained = taught(rows["retain"], tokenizer)
result = ofmu_pl.unlearn(
    model,
    tokenizer,
    **rows,
    reference=retrained,
    own_metrics=[Worst()],
    progress=False,
    accelerator="cpu",
)
result.metrics["forget_worst_Prob"]

# %%
# Since there is a retrained model, its value became the goal, without a word from us. Compare the worst row with
# the mean:

names = {"forget_Q_A_Prob": "mean", "forget_worst_Prob": "worst row"}
sides = {
    "before": result.before,
    "after": result.metrics,
    "retrained": result.retrained,
}
figure, axis = plt.subplots(figsize=(6.5, 3.2), layout="constrained")
for i, (name, metrics) in enumerate(sides.items()):
    axis.bar(
        [k + 0.27 * (i - 1) for k in range(2)],
        [metrics[n].value for n in names],
        0.25,
        label=name,
    )
axis.set(
    xticks=range(2),
    xticklabels=names.values(),
    ylabel="probability of forgotten answers",
    yscale="log",
)
axis.legend(frameon=False)
figure.show()

# %%
# From the command line
# ---------------------
#
# In a file ``my_metrics.py`` it runs with every command that measures: ``--evaluation.own_metrics
# '[my_metrics.Worst]'``. It is then in the printed table, in ``results.json`` and in the report. What the built-in
# metrics see and do not see: :doc:`/generated/metrics/index`.
