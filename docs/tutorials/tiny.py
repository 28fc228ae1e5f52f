"""For the tutorials: rows about invented authors, and a tiny language model."""

import torch
from transformers import LlamaConfig, LlamaForCausalLM
from transformers.utils.logging import disable_progress_bar

from ofmu_pl import Authors

disable_progress_bar()  # of models that load in no time


def authors(people=6, forget=2, strangers=4):
    """Rows about authors to forget, to keep and never met; a tokenizer."""
    data = Authors(authors=people, forget_authors=forget, holdout_authors=strangers)
    splits, others = data.load()
    count = data.rows_per_author
    found = {
        "forget": splits["forget"],
        "retain": splits["retain"][: (people - forget) * count],
        "holdout": others["holdout"],
    }
    rows = {
        side: [{key: row[key] for key in ("question", "answer")} for row in of]
        for side, of in found.items()
    }
    return rows, data.make_tokenizer()


def taught(rows, tokenizer, epochs=25, seed=0):
    """A small Llama that has read rows until it knows them."""
    torch.manual_seed(seed)
    shape = {
        "hidden_size": 96,
        "intermediate_size": 192,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
    }
    model = LlamaForCausalLM(
        LlamaConfig(vocab_size=len(tokenizer), max_position_embeddings=256, **shape)
    )
    turns = [[("user", row["question"]), ("assistant", row["answer"])] for row in rows]
    texts = [
        tokenizer.apply_chat_template(
            [{"role": who, "content": said} for who, said in turn], tokenize=False
        )
        for turn in turns
    ]
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-3, weight_decay=0.0)
    schedule = torch.optim.lr_scheduler.OneCycleLR(
        optimizer, 5e-3, epochs * -(-len(texts) // 8), cycle_momentum=False
    )
    for _ in range(epochs):
        for some in torch.randperm(len(texts)).split(8):
            batch = tokenizer(
                [texts[i] for i in some],
                return_tensors="pt",
                padding=True,
                add_special_tokens=False,
            )
            labels = batch["input_ids"].masked_fill(batch["attention_mask"] == 0, -100)
            model(**batch, labels=labels).loss.backward()
            optimizer.step()
            schedule.step()
            optimizer.zero_grad()
    return model.eval()
