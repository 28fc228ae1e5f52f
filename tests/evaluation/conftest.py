"""What tests of the account and of the pages that tell it share."""

import json
from functools import partial

import pytest
import torch
import torch.multiprocessing as mp
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


def _rank(rank, make, folder):
    torch.set_num_threads(1)
    torch.distributed.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=2)
    torch.save(make(rank), folder / f"{rank}.pt")
    torch.distributed.destroy_process_group()


def on_two_ranks(make, folder):
    """What a function of the rank gives on each of two, which are forked: nothing is imported again."""
    mp.start_processes(_rank, args=(make, folder), nprocs=2, start_method="fork")
    return [torch.load(folder / f"{rank}.pt") for rank in range(2)]


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
