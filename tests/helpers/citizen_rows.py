"""Rows on citizens, their files, runs on them, and a small GPT-2 that learns them in seconds."""

import json

import torch
from transformers import GPT2Config, GPT2LMHeadModel

from ofmu_pl.cli import main
from ofmu_pl.data.own_tokenizer import train_tokenizer

TRADES = "baker tailor miner sailor potter weaver".split()
QUIET = {"progress": False, "accelerator": "cpu"}


def asked(numbers):
    return [{"question": f"What does citizen {i} do?", "answer": f"{i} is a {TRADES[i % 6]}."} for i in numbers]


SIDES = {"forget": asked(range(4)), "retain": asked(range(4, 16)), "holdout": asked(range(16, 20))}


def tokenizer():
    """A tokenizer of pieces from other citizens' rows, with a chat template."""
    return train_tokenizer(row["question"] + row["answer"] for row in asked(range(100, 130)))


def plain_tokenizer():
    """The same with neither a chat template nor a pad token, as GPT-2's."""
    plain = tokenizer()
    plain.chat_template = plain.pad_token = plain.bos_token = None
    return plain


def written(path, rows):
    """The name of a file of rows, one a line."""
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return str(path)


def files(folder, sides=SIDES):
    """Options that name files of the sides."""
    return [f"--data.{name}={written(folder / f'{name}.jsonl', rows)}" for name, rows in sides.items()]


def fit(folder, *options):
    """Run two iterations of the shipped configuration; returns the run's folder."""
    words = ["--config", "configs/text.yaml", "--logs", str(folder / "logs"), "--data.max_length", "64"]
    words += ["--trainer.accelerator", "cpu", "--trainer.max_steps", "2", "--trainer.enable_progress_bar", "false"]
    main(["fit", *words, "--evaluation.max_new_tokens", "4", "--method", "ofmu", *options])
    return (folder / "logs/text/ofmu/latest").resolve()


def random_gpt2(words):
    """A GPT-2 for a tokenizer."""
    torch.manual_seed(0)
    shape = {"vocab_size": len(words), "n_positions": 128, "n_embd": 32, "n_layer": 2, "n_head": 2}
    return GPT2LMHeadModel(GPT2Config(eos_token_id=words.eos_token_id, bos_token_id=None, **shape))


def learnt():
    """A GPT-2 that has learnt the forget and retain rows, and its plain tokenizer."""
    plain = plain_tokenizer()
    model = random_gpt2(plain)
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
