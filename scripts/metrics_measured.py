"""Writes docs/results/metrics-measured.md: do metrics tell models that were taught the forget rows from others?

python scripts/metrics_measured.py CONFIG TITLE "taught/*" "never/*" [TITLE "taught/*" "never/*" ...]
CONFIG: a run's config.yaml, for its data. The first model never taught is the retrained one of metrics that need one.
"""

import sys
from glob import glob
from pathlib import Path
from pkgutil import resolve_name

import numpy as np
from nulls import markdown
from results import write_below
from torch import nn

from ofmu_pl import CausalLM, Relearn, Scores, TextDataModule
from ofmu_pl.attacks.subject import Subject
from ofmu_pl.attacks.tuning import sides, stream
from ofmu_pl.data.of_run import data_of_run
from ofmu_pl.evaluation.scoring import score_rows
from ofmu_pl.metrics.membership import auc, auc_interval
from ofmu_pl.support.sets import forgets


def looks(folder: str, data: TextDataModule) -> list[Scores]:
    """Scores before and after relearning, both times of the forget rows that relearning does not show."""
    attack, found = Relearn(share=0.25, steps=40, every=40, rates=[1e-3]), list[Scores]()
    shown, asked = sides(len(data.splits["forget"]), attack.share, seed=0)
    sets = {name: [rows[i] for i in asked] if forgets(name) else rows for name, rows in data.evaluation_sets.items()}

    def look(model: nn.Module) -> np.ndarray:
        found.append(score_rows(model, data.encoder, sets, max_new_tokens=60, kinds=data.kinds, thorough=data.thorough))
        return -found[-1]["forget"].answer_loss

    subject = Subject(CausalLM(folder), data)
    attack.sweep(subject, stream(subject, "forget", shown, seed=0), look, asked)
    return found


head, rows, words = "| metric | group |", dict[str, list[tuple[float, ...]]](), sys.argv[2:]
for title, *patterns in zip(words[::3], words[1::3], words[2::3], strict=True):
    data = data_of_run(Path(sys.argv[1]), glob(patterns[0])[0])
    data.setup("fit")
    taught, (retrained, *never) = ([looks(folder, data) for folder in sorted(glob(pattern))] for pattern in patterns)
    for i, when in enumerate(("before", "after")):
        head += f" {title}, {len(taught)} : {len(never)}, {when} |"
        models = [[resolve_name(data.suite)(s[i], retrained[i]) for s in side] for side in (taught, never)]
        for name, r in models[0][0].items():
            merit = [np.array([(2 * r.higher_is_better - 1) * m[name].value for m in side]) for side in models]
            rows.setdefault(f"| {name} | {r.group} |", []).append((auc(*merit), *auc_interval(*merit)))
lines = []
for name, areas in sorted(rows.items(), key=lambda row: -np.nan_to_num(row[1])[:2, 0].mean()):  # by the first title
    lines.append(name + "".join(f" {a:.2f} [{low:.2f}, {high:.2f}] |" for a, low, high in areas))
write_below("metrics-measured", markdown(head, lines) + "\n")
