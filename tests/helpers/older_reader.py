"""Reads exported folders with the transformers on the path, for test_older_transformers; imports nothing of ours.

Usage: python older_reader.py OUTPUT.json FOLDER...
"""

import json
import sys

import torch
import transformers
from transformers import AutoModelForCausalLM, AutoTokenizer, pipeline

TURNS = [{"role": "user", "content": "Who wrote  it?\n\tÉva, in 1984; don't say 日本 <|extra|>!"}]


def read(folder):
    """What the tokenizer makes of a prompt, the logits after each token of it and of 200 more, and a plain pipeline."""
    tokenizer = AutoTokenizer.from_pretrained(folder)
    text = tokenizer.apply_chat_template(TURNS, tokenize=False, add_generation_prompt=True)
    inputs = tokenizer(text, add_special_tokens=False, return_tensors="pt")
    model = AutoModelForCausalLM.from_pretrained(folder, torch_dtype=torch.float32, attn_implementation="eager").eval()
    with torch.no_grad():
        longer = torch.cat([inputs["input_ids"], torch.arange(5, 205)[None] % model.config.vocab_size], 1)
        logits = model(longer).logits[0].double()
        model(**inputs)  # takes all that its tokenizer gives
    said = pipeline("text-generation", model=folder)(TURNS, max_new_tokens=4, do_sample=False)
    return {
        "said": said[0]["generated_text"][-1],
        "tokenizer": type(tokenizer).__name__,
        "prompt": text,
        "ids": inputs["input_ids"][0].tolist(),
        "whole_ids": tokenizer(text)["input_ids"],
        "special": [tokenizer.bos_token_id, tokenizer.eos_token_id, tokenizer.pad_token_id],
        "all_special": sorted(tokenizer.all_special_ids),
        "decoded": tokenizer.decode(inputs["input_ids"][0]),
        "dtype": str(AutoModelForCausalLM.from_pretrained(folder, torch_dtype="auto").dtype),
        "logits": logits.tolist(),
    }


if __name__ == "__main__":
    found = {folder: read(folder) for folder in sys.argv[2:]}
    with open(sys.argv[1], "w") as file:
        json.dump({"version": transformers.__version__, "models": found}, file)
