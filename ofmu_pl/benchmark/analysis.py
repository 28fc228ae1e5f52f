"""What is compared after the runs: difficulty against the drop in utility, embeddings against the retrained model's.

``tab:udi-corr`` correlates a sample's difficulty with "the induced utility drop ... across samples", but a run has one
utility, not one a sample. Our reading: a point is a draw of the forget set, its difficulty the mean over the drawn
samples, its drop the model utility that a method's run on this draw loses.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch

from ofmu_pl.analysis import analyse, spearman
from ofmu_pl.data.of_run import data_of_run
from ofmu_pl.support.files import write_json
from ofmu_pl.support.records import ANALYSIS, RESULTS, Results

FEWEST = 3
"""Fewest points of a correlation."""


def compare_models(target: str, retrained: str, unlearned: dict[str, str], config: str, place: str) -> None:
    """Write ``analysis.json`` with what ``analysis.analyse`` finds.

    Args:
        target: Folder of the target.
        retrained: Folder of the retrained model.
        unlearned: Folders of the models that methods made of the target, by name.
        config: ``config.yaml`` of one of their runs: all have its data.
        place: Folder of the result.
    """
    device = "cuda" if torch.cuda.is_available() else "cpu"
    found = analyse(data_of_run(Path(config), target), target, retrained, unlearned, device=device)
    write_json(Path(place) / ANALYSIS, found)


def utility_drop(run: Path) -> float | None:
    """Model utility before a run less that after it; ``None`` where one does not exist."""
    results = Results.read(run / RESULTS)
    before, after = (side.get("model_utility", {}).get("value") for side in (results.before, results.metrics))
    return None if before is None or after is None else float(before - after)


def difficulty_and_drop(draws: list[dict[str, Any]]) -> dict[str, Any]:
    """Spearman's correlation over draws, by method.

    Args:
        draws: One entry a draw, with ``udi_mean`` and ``utility_drop`` by method.

    Returns:
        ``draws``, and ``spearman`` by method: ``rho``, ``low``, ``high``, ``p``, ``n``; methods with fewer than three
        draws are left out.
    """
    found = {}
    for method in dict.fromkeys(m for draw in draws for m in draw["utility_drop"]):
        pairs = [(d["udi_mean"], d["utility_drop"][method]) for d in draws if d["utility_drop"].get(method) is not None]
        if len(pairs) >= FEWEST:
            c = spearman(*np.array(pairs).T)
            found[method] = {"rho": c.value, "low": c.interval[0], "high": c.interval[1], "p": c.p_value, "n": c.n}
    return {"draws": draws, "spearman": found}
