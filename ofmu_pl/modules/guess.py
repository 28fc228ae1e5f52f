"""What someone who knows the retain rows alone would answer to the forget questions.

An ascent that makes the true answer unlikely makes answers like it unlikely, too, and so leaves a trace: wrong answers
become less surprising than the right one. A pull towards a guess leaves neither ahead, and shows what to say in their
place.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence

import numpy as np
import torch
from torch import Tensor

from ofmu_pl.data.base import PairedDataModule
from ofmu_pl.data.sampler import evenly
from ofmu_pl.losses import IGNORED
from ofmu_pl.modules.ngram import NGram, Reply, Sparse, joined
from ofmu_pl.networks.base import Batch
from ofmu_pl.networks.predictions import Predictions

READ = 10_000
"""Rows of a split that are read at most: a table of all contexts of a large corpus would need its size many times."""
LOOKED_AT = 32
"""Held-out rows that the temperature is found on."""
LOWEST, HALVINGS = 0.05, 12
"""The lowest temperature, and how often the range from it to 1 is halved."""


class Guess:
    """What an n-gram model of a data module's retain answers says to forget questions; held-out rows fit its weights.

    A network that was trained for long is sure of what it says also where it only guesses; were it less sure of
    forgotten rows alone, these would stand out. So the guess is sharpened, ``q^(1 / temperature)``, until it is as sure
    at held-out rows as the network is.

    Args:
        data: A ``PairedDataModule`` of text after ``setup``, whose ``never_seen`` names the split of held-out rows.
        vocabulary: Number V of tokens.
        temperature: Temperature of the guesses, until ``sharpen`` has found another.

    Attributes:
        model: The n-gram model.
    """

    def __init__(self, data: PairedDataModule, vocabulary: int, temperature: float = 1.0) -> None:
        assert data.never_seen is not None, "there is nothing to fit the weights to"
        self.data, self.unseen, self.temperature = data, data.never_seen, temperature
        known, held = (
            answers(data, name, evenly(range(len(data.splits[name])), READ)) for name in ("retain", self.unseen)
        )
        self.model = NGram(known, held, vocabulary)
        self._said: dict[tuple[str, int], tuple[Reply, Sparse]] = {}

    def sharpen(self, predict: Callable[[Batch], tuple[Predictions, Tensor]]) -> None:
        """Find the temperature at which the mean entropy at held-out rows' answers is the network's; at most 1.

        Args:
            predict: Maps a batch to what the network says of it, and the tokens that this predicts, (b, S).
        """
        data, stream = self.data, self.unseen
        rows = evenly(range(len(data.splits[stream])), LOOKED_AT)
        found = (predict(data.collate(stream, [i], 0)) for i in rows)
        wanted = torch.cat([x.values(_entropies, targets)[targets != IGNORED] for x, targets in found]).mean()
        said = [self._guessed(stream, i)[1] for i in rows]
        lowest, highest = LOWEST, 1.0
        for _ in range(HALVINGS):
            middle = (lowest + highest) / 2
            guessed = (self.model.dense(x, wanted.device).log() / middle for x in said)
            sure = torch.cat([_entropies(x) for x in guessed]).mean() < wanted
            lowest, highest = (middle, highest) if sure else (lowest, middle)
        self.temperature = highest

    @property
    def can_rank(self) -> bool:
        """Whether there are few enough forget rows to guess at all of them before the first step."""
        return len(self.data.splits["forget"]) <= READ

    def losses(self, stream: str, rows: Sequence[int]) -> list[np.ndarray]:
        """Losses, in nats, of the n-gram model at the tokens of true answers, one array for each of a split's rows."""
        found = []
        for i in rows:
            answer, said = self._guessed(stream, i)
            true = [answer.tokens[place] for place in answer.places]
            found.append(-self.model.of(true, said).double().log().numpy())
        return found

    def predict(self, ids: Tensor, targets: Tensor) -> Predictions:
        """Guesses at the answers of a batch of forget rows, whose logits are float32; none where there is no target.

        ``ids``, (b,), are the numbers of the rows, ``targets``, (b, S), the tokens that are to be predicted.
        """
        said = joined([self._guessed("forget", i)[1] for i in ids.tolist()])
        numbers = (targets != IGNORED).flatten().cumsum(0) - 1

        def logits(some: Tensor) -> Tensor:
            return self.model.dense(said.at(some[:, 0].cpu()), some.device).log() / self.temperature

        return Predictions(numbers.view(*targets.shape, 1), logits, self.model.vocabulary)

    def _guessed(self, stream: str, i: int) -> tuple[Reply, Sparse]:
        """A row's true answer and the guess at it; both are kept, since like questions are sought in all known ones."""
        if (stream, i) not in self._said:
            (answer,) = answers(self.data, stream, [i])
            self._said[stream, i] = answer, self.model.sparse(answer)
        return self._said[stream, i]


def _entropies(logits: Tensor, _: object = None) -> Tensor:
    """Entropies of distributions, in nats, of logits (..., V)."""
    log_p = logits.float().log_softmax(-1)
    return -(log_p.exp() * log_p).sum(-1)


def answers(data: PairedDataModule, stream: str, rows: Iterable[int]) -> Iterator[Reply]:
    """The answers of some rows, by number, of a split of text, as the training loss sees them."""
    for i in rows:
        batch = data.collate(stream, [i], 0)
        labelled = (batch["labels"][0] != IGNORED).nonzero().flatten().tolist()
        yield Reply(batch["input_ids"][0].tolist(), labelled[0], [place for place in labelled if place])
