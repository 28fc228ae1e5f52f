"""What a model says by itself, begun by its scores of a given answer and continued for many prompts together."""

from __future__ import annotations

from collections.abc import Sequence

from transformers import PreTrainedModel

from ofmu_pl.data.encoded import shared
from ofmu_pl.data.text import Encoder
from ofmu_pl.evaluation.branches import Tokens, merge
from ofmu_pl.evaluation.prompts import Prompts, continue_prompts, stops_of
from ofmu_pl.networks.positions import positions_of

ROWS = {"cpu": 256, "cuda": 64}
"""Rows that go on together: a step costs little more for many (256: a fifth faster than 64 on a CPU)."""


class Sayings:
    """Greedy answers; the most likely tokens in a given answer's places are their beginning.

    Up to the first place where the given answer parts from them they are what the model would say, token for token; so
    is the token in that place. Only what follows is generated.

    Attributes:
        said: Tokens of what has been said so far, by the tokens of its prompt.
    """

    def __init__(self, model: PreTrainedModel, encoder: Encoder, max_new_tokens: int) -> None:
        self.model, self.max_new_tokens = model, max_new_tokens
        self.stops = stops_of(model, encoder)
        self.rows = ROWS.get(model.device.type, 64)
        self.said: dict[Tokens, list[int]] = {}
        self._prompts: list[Tokens] = []  # of what waits, with what follows each
        self._begun: list[list[int]] = []
        self._read: list[Prompts] = []

    def begin(self, prompt: Tokens, answer: Tokens, likely: Sequence[int]) -> list[int] | None:
        """Take what scores say of the model's own answer: the most likely tokens in the places of a given one.

        Returns:
            What must be continued; ``None``: nothing, for the end is known.
        """
        tokens = list(likely[: shared(answer, likely) + 1])
        room = max(1, min(self.max_new_tokens, positions_of(self.model.config) - len(prompt)))
        end = next((i for i, token in enumerate(tokens) if token in self.stops), len(tokens))
        if end == len(tokens) < room:
            return tokens
        self.said[prompt] = tokens[: min(end, room)]
        return None

    def wait(self, prompts: list[Tokens], begun: list[list[int]], read: Prompts) -> None:
        """Keep what has been begun until there are enough; ``read`` holds it but for its last token."""
        self._prompts += prompts
        self._begun += begun
        self._read.append(read)
        if len(self._prompts) >= self.rows:
            self.finish()

    def finish(self) -> None:
        """Continue all that waits."""
        if self._prompts:
            prompts, begun, read = self._prompts, self._begun, merge(self._read)
            self._prompts, self._begun, self._read = [], [], []
            self.ask(prompts, read, begun)

    def ask(self, prompts: list[Tokens], read: Prompts, begun: list[list[int]] | None = None) -> None:
        """Generate, from the first token on where nothing is begun."""
        said = continue_prompts(self.model, read, self.stops, self.max_new_tokens, begun=begun)
        self.said |= zip(prompts, said, strict=True)
