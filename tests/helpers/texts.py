"""A small float64 Llama without ties, conversations for it, and slow ways to get what it says."""

import numpy as np
import torch
from transformers import LlamaConfig, LlamaForCausalLM

VOCABULARY = 11
SHAPE = {"vocab_size": VOCABULARY, "hidden_size": 32, "intermediate_size": 48, "initializer_range": 0.5}
SHAPE |= {"num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2}
SHAPE |= dict.fromkeys(("pad_token_id", "eos_token_id", "bos_token_id"))


def make_model():
    torch.manual_seed(0)
    return LlamaForCausalLM(LlamaConfig(**SHAPE)).double()  # float64: no ties that rounding could break


def taught(vocabulary, **batch):
    """A small Llama after 60 steps on one batch."""
    torch.manual_seed(0)
    model = LlamaForCausalLM(LlamaConfig(**{**SHAPE, "vocab_size": vocabulary, "initializer_range": 0.02}))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    for _ in range(60):
        optimizer.zero_grad()
        model(**batch).loss.backward()
        optimizer.step()
    return model.eval()


def conversations(n=30):
    """Pairs of prompt and answer tokens."""
    rng = np.random.default_rng(0)
    shapes = rng.integers(2, 20, (n, 2))
    return [(rng.integers(0, VOCABULARY, p).tolist(), rng.integers(0, VOCABULARY, a).tolist()) for p, a in shapes]


def log_probabilities(model, prompt, answer, **kwargs):
    """(n, V) after each token before an answer's token: one sequence, no cache, no padding."""
    with torch.no_grad():
        logits = model(torch.tensor([[*prompt, *answer]]), **kwargs).logits[0].double().numpy()
    logp = logits - np.log(np.exp(logits).sum(1, keepdims=True))
    return logp[len(prompt) - 1 : -1]


def token_losses(model, prompt, answer, **kwargs):
    """(n,) minus log-probabilities of the answer's tokens."""
    return -log_probabilities(model, prompt, answer, **kwargs)[np.arange(len(answer)), answer]


def greedy(model, prompt, stops, new):
    """No cache, no padding, no batch."""
    ids = list(prompt)
    for _ in range(new):
        with torch.no_grad():
            token = int(model(torch.tensor([ids])).logits[0, -1].argmax())
        if token in stops:
            break
        ids.append(token)
    return ids[len(prompt) :]
