"""What a model says that knows rows by heart, where tokens are added ones and answers have thoughts."""

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from ofmu_pl.data import TextFiles
from ofmu_pl.evaluation.scoring import score_rows
from tests.helpers.thinking import tokenizer_of

TOWNS = {"Ann": "Ulm", "Bob": "Bonn", "Cid": "Kiel", "Dan": "Trier"}


def knows(tokenizer, texts):
    """A tiny model that was taught these texts."""
    torch.manual_seed(0)
    sizes = {"hidden_size": 64, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2}
    model = LlamaForCausalLM(LlamaConfig(vocab_size=len(tokenizer), **sizes, initializer_range=0.1))
    batch = tokenizer(texts, add_special_tokens=False, padding=True, padding_side="right", return_tensors="pt")
    labels = batch["input_ids"].masked_fill(batch["attention_mask"] == 0, -100)
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-3)
    for _ in range(60):
        optimizer.zero_grad()
        model(input_ids=batch["input_ids"], labels=labels).loss.backward()
        optimizer.step()
    return model.eval()


@pytest.mark.parametrize("template", ["qwen", "gpt-oss", "plain"])
@pytest.mark.parametrize("form", ["{thought}{town}", "{thought}<ID_{town}>"])
def test_who_says_a_row_is_said_to_know_it(template, form):
    """Taught by the template's own text, which our encoder has no part in."""
    tokenizer = tokenizer_of(template)
    tokenizer.add_special_tokens({"extra_special_tokens": [f"<ID_{town}>" for town in TOWNS.values()]})
    rows = []
    for name, town in TOWNS.items():
        answer = {"role": "assistant", "content": form.format(thought="", town=town)}
        answer["reasoning_content"] = f"The file of {name} says {town}."
        if template == "plain":
            answer["content"] = f"<think>\n{answer.pop('reasoning_content')}\n</think>\n\n{answer['content']}"
        rows.append({"messages": [{"role": "user", "content": f"Where is {name}?"}, answer]})
    texts = [tokenizer.apply_chat_template(row["messages"], tokenize=False) for row in rows]
    data = TextFiles(rows[:2], rows[2:], tokenizer=tokenizer)
    data.setup()
    scores = score_rows(knows(tokenizer, texts), data.encoder, data.evaluation_sets, max_new_tokens=60, thorough=True)
    for side in scores.values():
        assert side.rouge.tolist() == side.exact.tolist() == [1, 1]
        assert (side.answer_loss < 0.3).all()
    assert "think" not in " ".join(scores["forget"].generations)
