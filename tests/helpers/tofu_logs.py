"""Reads TOFU's own evaluation logs (locuslab/tofu, ``eval_log_aggregated.json``)."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from ofmu_pl.metrics.scores import Scores, SetScores

BLOCKS = {
    "forget": "eval_log_forget.json",
    "retain": "eval_log.json",
    "real_authors": "eval_real_author_wo_options.json",
    "world_facts": "eval_real_world_wo_options.json",
}


def read_log(log: Mapping[str, Any]) -> Scores:
    """Read the scores of an aggregated log.

    Args:
        log: The parsed file: values by block, field and row number.

    Raises:
        KeyError: The log lacks a block or a field.
    """

    def column(block: str, field: str) -> np.ndarray:
        return np.array([value for _, value in sorted(log[block][field].items(), key=lambda item: int(item[0]))])

    return {
        name: SetScores(
            np.array(sorted(int(i) for i in log[block]["avg_gt_loss"])),
            column(block, "avg_gt_loss"),
            column(block, "avg_paraphrased_loss"),  # of real authors and world facts: the answer, in a second bf16 pass
            column(block, "average_perturb_loss"),
            column(block, "rougeL_recall"),
        )
        for name, block in BLOCKS.items()
    }
