"""Two ranks that read and write their rows alone have and leave what one rank has and leaves, to the last bit."""

import shutil

import pytest
import torch
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from transformers import AutoModelForCausalLM, GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM

from ofmu_pl.data import Authors
from ofmu_pl.networks import CausalLM
from ofmu_pl.networks.slices import LARGEST_FILE
from ofmu_pl.support.errors import UserError
from ofmu_pl.support.files import file_hash
from ofmu_pl.support.kept import write_sums
from tests.helpers.forked_ranks import on_two_ranks

LORA = {"r": 2, "lora_alpha": 4, "target_modules": "all-linear"}
CASES = {
    "llama": ("llama", None),
    "adapters": ("llama", LORA),
    "tied": ("gpt2", None),
    "tied with adapters": ("gpt2", LORA),
    "tied until merged": ("gpt2", {"r": 2, "target_modules": ["c_attn", "lm_head"]}),
    "fewer rows than ranks": ("narrow", None),
    # These are made whole on every rank.
    "DoRA": ("llama", {"r": 2, "use_dora": True, "target_modules": "all-linear"}),
    "old names": ("old", None),
}
WHOLE = {"DoRA", "old names"}


def data():
    made = Authors(authors=2, forget_authors=1, batch_size=2)
    made.setup()
    return made


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """Models in 16 bits in several files: an untied Llama, a tied GPT-2 and one with the names of old files."""
    root, rows = tmp_path_factory.mktemp("models"), data()
    vocabulary = len(rows.tokenizer)
    shape = {"vocab_size": vocabulary, "hidden_size": 16, "intermediate_size": 22, "num_hidden_layers": 2}
    llama = LlamaForCausalLM(LlamaConfig(**shape, num_attention_heads=2))
    llama.generation_config.max_length = 77
    gpt2 = GPT2LMHeadModel(GPT2Config(vocab_size=vocabulary, n_embd=16, n_layer=2, n_head=2, n_positions=256))
    narrow = LlamaForCausalLM(LlamaConfig(**shape | {"hidden_size": 1}, num_attention_heads=1, head_dim=2))
    for name, model in (("llama", llama), ("gpt2", gpt2), ("narrow", narrow)):
        model.bfloat16().save_pretrained(root / name, max_shard_size="20KB")
        rows.tokenizer.save_pretrained(root / name)
        assert name == "narrow" or len(list((root / name).glob("*.safetensors"))) > 2
    shutil.copytree(root / "gpt2", root / "old")
    for file in (root / "old").glob("*.safetensors*"):
        file.unlink()
    gpt2.transformer.save_pretrained(root / "old")  # names without "transformer."
    return root


def cut(network):
    mesh = init_device_mesh("cpu", (2,))
    for module in network.modules():
        for layer in module if isinstance(module, nn.ModuleList) else ():
            fully_shard(layer, mesh=mesh)
    fully_shard(network, mesh=mesh)


def facts(network, folder, whole=lambda x: x):
    """All that a network holds, and the sums of the files that it is saved as."""
    state = {name: whole(x.detach()) for name, x in network.state_dict().items()}
    return {
        "state": state,
        "buffers": dict(network.named_buffers()),
        "trained": [name for name, p in network.named_parameters() if p.requires_grad],
        "files": {path.name: file_hash(path) for path in folder.iterdir()},
        "random": torch.get_rng_state(),
    }


def changed(network):
    """Let every adapter do something."""
    with torch.no_grad():
        for name, p in network.named_parameters():
            if "lora_B" in name:
                p.fill_(0.25)
    return network


def alone(recipe, folder):
    torch.manual_seed(0)
    network = changed(recipe.build(data(), exact=False))
    folder.mkdir()
    recipe.save(network, folder, data())
    return facts(network, folder)


def together(recipe, folder):
    torch.manual_seed(0)
    network = changed(recipe.build_in_shards(data(), exact=False, cut=cut))
    folder.mkdir(exist_ok=True)
    recipe.save(network, folder, data())
    torch.distributed.barrier()
    return facts(network, folder, lambda x: x.full_tensor()) | {"in_shards": recipe.in_shards}


@pytest.fixture(scope="module")
def pairs(folders, tmp_path_factory):
    """By case, what one rank found, and what each of two did."""
    root = tmp_path_factory.mktemp("saved")
    recipes = {case: CausalLM(str(folders / name), lora=lora) for case, (name, lora) in CASES.items()}
    one = {case: alone(recipe, root / f"{case} alone") for case, recipe in recipes.items()}

    def on_rank(_):
        return {case: together(recipe, root / case) for case, recipe in recipes.items()}

    two = on_two_ranks(on_rank, root)
    return {case: (one[case], [ranks[case] for ranks in two]) for case in CASES}, root


@pytest.mark.parametrize("case", CASES)
def test_two_ranks_have_what_one_has(pairs, case):
    whole, ranks = pairs[0][case]
    for found in ranks:
        assert found["in_shards"] == (case not in WHOLE)
        assert found["trained"] == whole["trained"]
        assert torch.equal(found["random"], whole["random"])
        for kind in ("state", "buffers"):
            assert found[kind].keys() == whole[kind].keys()
            assert all(torch.equal(x, whole[kind][name]) for name, x in found[kind].items())


@pytest.mark.parametrize("case", [case for case in CASES if case not in WHOLE])
def test_two_ranks_leave_the_files_that_one_leaves(pairs, case):
    (whole, ranks), root = pairs[0][case], pairs[1]
    assert "model.safetensors" in whole["files"]
    assert all(found["files"] == whole["files"] for found in ranks)
    AutoModelForCausalLM.from_pretrained(root / case)
