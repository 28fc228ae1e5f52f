"""Definitions, by which codes that give different numbers for one metric differ; one is written beside every number."""

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class Definition:
    """How metrics are computed from losses.

    Attributes:
        name: The definition's name in every output.
        epsilon: A number added to the denominators of ratios of probabilities.
        wrong_mean: Kind of mean over the wrong answers in truth ratios.
        extraction_floor: Least number of extracted tokens.
        hides_padding_tokens: Whether the attention mask hides every token of the prompt that equals the pad token, even
            a real one (end tokens of earlier turns, where a model pads with its end token).
        assumed_auc: Min-k AUC of the retrained model where none is given; ``None``: there is no privacy leakage then.
    """

    name: str
    epsilon: float = 0.0
    wrong_mean: Literal["geometric", "arithmetic"] = "geometric"
    extraction_floor: int = 0
    hides_padding_tokens: bool = False
    assumed_auc: float | None = None


DefinitionName = Literal["exact", "open_unlearning", "tofu_arithmetic"]

DEFINITIONS: dict[str, Definition] = {
    d.name: d
    for d in (
        Definition("exact"),
        Definition(
            "open_unlearning", epsilon=1e-10, extraction_floor=1, hides_padding_tokens=True, assumed_auc=0.5
        ),  # locuslab/open-unlearning at d3d7cf9, src/evals/metrics
        Definition("tofu_arithmetic", wrong_mean="arithmetic"),  # locuslab/tofu, utils.py:get_model_utility
    )
}
