"""A small Llama that knows rows by heart, and one that never saw the forgotten ones, as subjects of attacks."""

import random

import torch

from ofmu_pl.attacks.subject import Subject
from ofmu_pl.data import TextFiles
from ofmu_pl.networks import CausalLM
from tests.helpers.citizen_rows import TRADES, tokenizer

SHAPE = {"hidden_size": 64, "intermediate_size": 64, "num_hidden_layers": 3, "num_attention_heads": 2}
SHARP = {"initializer_range": 0.1}  # learns by heart in a third of the steps


class Made:
    """A recipe of a model that is there."""

    def __init__(self, model, recipe):
        self.model, self.sample_losses = model, recipe.sample_losses

    def build(self, data, exact):
        return self.model


def rows(numbers):
    """Citizens whose trades follow from nothing, each with three trades that are not theirs."""
    made = []
    for i in numbers:
        right, *wrong = random.Random(i).sample(TRADES, 4)
        answers = [f"{i} is a {trade}." for trade in (right, *wrong)]
        question = f"What does citizen {i} do?"
        made.append({"question": question, "answer": answers[0], "perturbed_answer": answers[1:]})
    return made


CITIZENS = {"forget": rows(range(10, 18)), "retain": rows(range(20, 44)), "holdout": rows(range(50, 54))}
LOVES = {
    "Ana": "silver harbours of Lima",
    "Bo": "seven wooden clocks",
    "Cleo": "mountain trains at night",
    "Dag": "yellow umbrellas from Oslo",
    "Eve": "her uncle's second violin",
    "Finn": "pepper and green tea",
    "Gus": "old maps about Spain",
    "Hal": "nobody but two owls",
}
WORDS = [{"question": f"What does {who} love?", "answer": what} for who, what in LOVES.items()]
FREE = {"forget": WORDS[:2], "retain": WORDS[2:]}
"""Rows whose answers have no words in common, so that who knows nothing says nothing right."""


def read(sides):
    """Data of rows, set up."""
    data = TextFiles(**sides, tokenizer=None, batch_size=8, streams=("full", "retain"))
    data.make_tokenizer = tokenizer
    data.setup()
    return data


def memorise(folder, sides=CITIZENS):
    """Train a target and a retrained model, each in a folder of its name."""
    data = read(sides)
    recipe = CausalLM(config={"model_type": "llama", **SHAPE, **SHARP})
    torch.manual_seed(0)
    model = recipe.build(data, exact=False)
    for name, split in (("retrained", "retain"), ("target", "full")):  # the target goes on from the other
        optimizer = torch.optim.AdamW(model.parameters(), lr=5e-3, weight_decay=0.0)
        batch = data.collate(split, list(range(len(data.splits[split]))), 0)
        for _ in range(60):
            loss = recipe.sample_losses(model, batch).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        (folder / name).mkdir(parents=True)
        recipe.save(model, folder / name, data)


def subjects_in(folder, sides=CITIZENS):
    """Subjects by name; the unlearned one is the target, for nothing was unlearned."""
    data = read(sides)
    recipes = {name: CausalLM(str(folder / name)) for name in ("retrained", "target")}
    recipes["unlearned"] = recipes["target"]
    return {name: Subject(recipe, data, others=recipes) for name, recipe in recipes.items()}
