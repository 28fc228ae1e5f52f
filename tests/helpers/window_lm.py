"""A small language model that stays in float64 throughout: transformers' compute norms and softmax in float32."""

import math

import torch
import torch.nn.functional as F
from torch import nn

from ofmu_pl.losses import shifted
from ofmu_pl.networks.base import Network

WINDOW = 3
"""Tokens that the network sees one by one; of all tokens so far it sees the mean."""


class Window(nn.Module):
    """Predicts each token from the three before it and from the mean of all of them."""

    def __init__(self, vocabulary, width):
        super().__init__()
        self.tokens = nn.Embedding(vocabulary, width)
        self.mixed = nn.Linear((WINDOW + 1) * width, 2 * width)
        self.scores = nn.Linear(2 * width, vocabulary)

    def forward(self, input_ids):
        """Logits, (b, S, V), of the token after each of ``input_ids``, (b, S)."""
        e = self.tokens(input_ids)
        length = e.shape[1]
        near = [F.pad(e, (0, 0, k, 0))[:, :length] for k in range(WINDOW)]
        count = torch.arange(1, length + 1, dtype=e.dtype)[None, :, None]
        return self.scores(self.mixed(torch.cat([*near, e.cumsum(1) / count], 2)).tanh())


class WindowLM(Network):
    """The recipe of ``Window``, with the weights of ``state`` if there are some, in ``dtype`` before a run's own."""

    modality = "text"

    def __init__(self, width=12, state=None, dtype=torch.float32):
        self.width, self.state, self.dtype = width, state, dtype

    def build(self, datamodule, *, exact):
        network = Window(len(datamodule.tokenizer), self.width)
        if self.state is not None:
            network.load_state_dict(self.state)
        return network.to(self.dtype).eval()

    def skeleton(self, datamodule, *, exact):
        raise NotImplementedError("no plan is made of it")

    def save(self, module, folder, datamodule):
        raise NotImplementedError("nothing is exported")

    def logits(self, module, batch):
        return module(batch["input_ids"]), shifted(batch["labels"])

    def split(self, batch, size):
        rows = torch.arange(len(batch["ids"]))
        return [{name: x[part] for name, x in batch.items()} for part in rows.split(size or len(rows))]

    def uniform_loss(self, module):
        return math.log(module.tokens.num_embeddings)
