"""What tests of the account and of the pages that tell it share."""

import json
from functools import partial

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from ofmu_pl.data.row_encoder import RowEncoder
from ofmu_pl.evaluation.account import Example
from tests.helpers.accounts import account

EXAMPLES = [
    Example("Where does Falbro live?", "In Oslo, near the mill.", "In Oslo, near the mill.", "In Rome.", "In Pisa."),
    Example("Who is Falbro's wife?", "Cleo.", "Cleo.", None),
]


@pytest.fixture
def told(tmp_path):
    """Makes an account, with changes."""
    (tmp_path / "hf").mkdir()
    return partial(account, tmp_path / "hf")


@pytest.fixture(scope="session")
def tiny(shared):
    """The tiny model trained on all of TOFU, its encoder and the evaluation sets."""
    folder = shared / "models/tofu-tiny-full"
    network = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    sets = {}
    for name in ("forget10", "retain", "real_authors", "world_facts"):
        lines = (shared / f"data/tofu/{name}_perturbed.json").read_text().splitlines()
        sets[name.removesuffix("10")] = list(map(json.loads, lines))
    return network, RowEncoder(AutoTokenizer.from_pretrained(folder)), sets
