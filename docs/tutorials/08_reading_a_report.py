"""
Reading a report
================

Every run leaves its numbers in one file, ``results.json``, and ``report`` makes a page of any number of runs. This
tutorial reads both, so that you know what to look for in yours.
"""

# %%
# Two runs in one folder
# ----------------------

import copy
import json
import tempfile
from functools import partial
from pathlib import Path

import matplotlib.pyplot as plt
from tiny import authors, taught
from torch.optim import AdamW

import ofmu_pl

runs = Path(tempfile.mkdtemp()) / "runs"
rows, tokenizer = authors(people=4, forget=1, strangers=2)
model = taught(rows["forget"] + rows["retain"], tokenizer)
retrained = taught(rows["retain"], tokenizer)
for method in (None, partial(ofmu_pl.NPO, beta=0.1, optimizer=partial(AdamW, lr=1e-3))):
    result = ofmu_pl.unlearn(
        copy.deepcopy(model),
        tokenizer,
        **rows,
        reference=retrained,
        method=method,
        steps=40 if method is None else 20,
        progress=False,
        accelerator="cpu",
    )
    page = result.report(runs)
print(
    *sorted(str(path.relative_to(runs)) for path in runs.glob("*/latest/*")), sep="\n"
)

# %%
# One number, and what it takes to read it
# ----------------------------------------
#
# Never a value alone: beside it stand the number of rows, the goal, an interval over rows and the name of the
# definition that it follows.

record = json.loads((runs / "ofmu/latest/results.json").read_text())
print(json.dumps(record["metrics"]["mia_loss"], indent=2))

# %%
# Where a run says what it cannot say, it stands in ``remark``; where it comes from, in ``provenance``; what it
# took, in ``cost``.

(
    record["remark"],
    record["provenance"]["ofmu_pl"],
    record["cost"]["gradient_evaluations"],
)

# %%
# Goals, not heights
# ------------------
#
# One way to look at many of them: each metric as a dot with its interval, its goal as a line, and what it was
# before as a cross. A good run is a column of dots on their lines.

shown = [
    "forget_Q_A_Prob",
    "extraction_strength",
    "mia_loss",
    "mia_min_k",
    "retain_Q_A_Prob",
]
methods = {
    path.parent.parent.name: json.loads(path.read_text())
    for path in sorted(runs.glob("*/latest/results.json"))
}
figure, axes = plt.subplots(
    1, len(methods), figsize=(9, 2.8), sharey=True, layout="constrained"
)
for axis, (name, results) in zip(axes, methods.items(), strict=True):
    for i, metric in enumerate(shown):
        entry = results["metrics"][metric]
        if entry["interval"]:
            axis.plot(
                entry["interval"], [i, i], color="tab:blue", linewidth=6, alpha=0.35
            )
        axis.plot(entry["value"], i, "o", color="tab:blue")
        axis.plot(results["before"][metric]["value"], i, "x", color="gray")
        if entry["target"] is not None:
            axis.plot(
                [entry["target"]] * 2, [i - 0.35, i + 0.35], color="black", linewidth=2
            )
    axis.set(
        title=name, xlim=(-0.05, 1.05), yticks=range(len(shown)), yticklabels=shown
    )
figure.show()

# %%
# The page
# --------
#
# ``page`` is one HTML file that opens without network. From top to bottom it has
#
# 1. **remarks**: what is missing or strange in one sentence each (a run that diverged, a seed twice, results under
#    two definitions). Read these first;
# 2. **the main table**: mean, deviation and interval over seeds, the best in bold, the distance to the retrained
#    model. With one seed it says that nothing can be tested;
# 3. **figures**: what is forgotten against what is kept, OFMU's losses and gradients on its way;
# 4. **tests**, where there are seeds enough, with the least p that their number allows;
# 5. **does it come back?**, where runs were attacked.
#
# Beside it lie the same tables as Markdown, CSV and LaTeX.

print(*sorted(path.name for path in (page.parent / "tables").iterdir()), sep="\n")

# %%
# ``python -m ofmu_pl report logs/NAME`` makes the page for runs of the command line: :doc:`/outputs`.
