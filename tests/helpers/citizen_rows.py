"""Rows on citizens, and a small GPT-2 that learns them in seconds."""

from __future__ import annotations

import torch
from transformers import GPT2Config, GPT2LMHeadModel

from ofmu_pl.data.own_tokenizer import train_tokenizer

TRADES = "baker tailor miner sailor potter weaver".split()
QUIET = {"progress": False, "accelerator": "cpu"}


def asked(numbers):
    return [{"question": f"What does citizen {i} do?", "answer": f"{i} is a {TRADES[i % 6]}."} for i in numbers]


SIDES = {"forget": asked(range(4)), "retain": asked(range(4, 16)), "holdout": asked(range(16, 20))}


def tokenizer():
    """A tokenizer of pieces from other citizens' rows, with a chat template."""
    return train_tokenizer(row["question"] + row["answer"] for row in asked(range(100, 130)))


def learnt():
    """A GPT-2 that has learnt the forget and retain rows, and its tokenizer, which has no template and no pad token."""
    torch.manual_seed(0)
    plain = tokenizer()
    plain.chat_template = plain.pad_token = plain.bos_token = None
    shape = {"n_positions": 128, "n_embd": 32, "n_layer": 2, "n_head": 2}
    config = GPT2Config(vocab_size=len(plain), eos_token_id=plain.eos_token_id, bos_token_id=None, **shape)
    model = GPT2LMHeadModel(config)
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-3)
    rows = [f"Question: {r['question']}\nAnswer: {r['answer']}" for r in SIDES["forget"] + SIDES["retain"]]
    ids = [torch.tensor([[*plain(text)["input_ids"], plain.eos_token_id]]) for text in rows]
    for _ in range(8):
        for row in ids:
            logits = model(input_ids=row[:, :-1]).logits
            torch.nn.functional.cross_entropy(logits[0], row[0, 1:]).backward()
            optimizer.step()
            optimizer.zero_grad()
    return model.eval(), plain
