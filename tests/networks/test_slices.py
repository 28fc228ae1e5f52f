"""Two ranks that read and write their rows alone have and leave what one rank has and leaves, to the last bit."""

import errno
import resource
import shutil
from pathlib import Path
from unittest import mock

import pytest
import torch
from lightning.pytorch.strategies import ModelParallelStrategy
from peft import LoraConfig, get_peft_model
from torch import Tensor
from torch.distributed.device_mesh import init_device_mesh
from transformers import AutoModelForCausalLM, GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM

from ofmu_pl.data import Authors
from ofmu_pl.networks import CausalLM, language, slices
from ofmu_pl.support.errors import UserError
from ofmu_pl.support.files import file_hash
from ofmu_pl.support.kept import write_sums
from ofmu_pl.training.export import write_model
from ofmu_pl.training.parallel import shard
from tests.helpers.forked_ranks import on_two_ranks

LORA = {"r": 2, "lora_alpha": 4, "target_modules": "all-linear"}
CASES = {
    "llama": ("llama", {}),
    "adapters": ("llama", {"lora": LORA}),
    "base in bfloat16": ("llama", {"lora": LORA, "base_dtype": "bfloat16"}),
    "adapters on the embedding": ("llama", {"lora": {"r": 2, "target_modules": ["embed_tokens", "q_proj", "lm_head"]}}),
    "tied": ("gpt2", {}),
    "tied until merged": ("gpt2", {"lora": {"r": 2, "target_modules": ["c_attn", "lm_head"]}}),
    "fewer rows than ranks": ("narrow", {}),
    # These are made whole on every rank.
    "DoRA": ("llama", {"lora": {"r": 2, "use_dora": True, "target_modules": "all-linear"}}),
    "old names": ("old", {}),
    "beside adapters": ("adapted", {}),
    "unseen by a rank": ("unseen", {}),
}
UNMERGED = {"tied until merged", "DoRA", "beside adapters"}  # in shards, and so not rounded as they are written
WHOLE = {"DoRA", "old names", "beside adapters", "unseen by a rank"}


DATA = Authors(authors=2, forget_authors=1, batch_size=2)


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """Models in 16 bits in several files: an untied Llama, a tied GPT-2 and one with the names of old files."""
    root = tmp_path_factory.mktemp("models")
    DATA.setup()
    vocabulary = len(DATA.tokenizer)
    shape = {"vocab_size": vocabulary, "hidden_size": 16, "intermediate_size": 22, "num_hidden_layers": 2}
    llama = LlamaForCausalLM(LlamaConfig(**shape, num_attention_heads=2))
    llama.generation_config.max_length = 77
    gpt2 = GPT2LMHeadModel(GPT2Config(vocab_size=vocabulary, n_embd=16, n_layer=2, n_head=2, n_positions=256))
    narrow = LlamaForCausalLM(LlamaConfig(**shape | {"hidden_size": 1}, num_attention_heads=1, head_dim=2))
    for name, model in (("llama", llama), ("gpt2", gpt2), ("narrow", narrow)):
        model.bfloat16().save_pretrained(root / name, max_shard_size="20KB")
        DATA.tokenizer.save_pretrained(root / name)
        assert name == "narrow" or len(list((root / name).glob("*.safetensors"))) > 2
    shutil.copytree(root / "gpt2", root / "old")
    for file in (root / "old").glob("*.safetensors*"):
        file.unlink()
    gpt2.transformer.save_pretrained(root / "old")  # names without "transformer."
    for name in ("adapted", "unseen"):
        shutil.copytree(root / "llama", root / name)
    base = AutoModelForCausalLM.from_pretrained(root / "llama")
    get_peft_model(base, LoraConfig(init_lora_weights=False)).save_pretrained(root / "adapted")
    return root


def cut(network):
    strategy = mock.create_autospec(ModelParallelStrategy, instance=True)
    strategy.device_mesh = {"data_parallel": init_device_mesh("cpu", (2,))}
    shard(network, strategy)


def facts(recipe, network, folder, whole=Tensor.clone):
    """All that a network holds, the sums of the files that it is saved as, and what it then computes."""
    state = {name: whole(x.detach()) for name, x in network.state_dict().items()}
    trained = [name for name, p in network.named_parameters() if p.requires_grad]
    beside = folder.with_name(f"{folder.name} alone")
    if "lora" in "".join(trained):
        beside.mkdir(exist_ok=True)
        recipe.save(network, beside, DATA, alone=True)
    recipe.become_saved(network)
    with torch.no_grad():
        said = network(input_ids=torch.arange(5, 12)[None], use_cache=False).logits
    return {
        "state": state,
        "said": said,
        "buffers": dict(network.named_buffers()),
        "trained": trained,
        "files": {path.name: file_hash(path) for path in folder.iterdir()},
        "beside": str(beside),
        "random": torch.get_rng_state(),
    }


def changed(network):
    """Let every adapter do something."""
    with torch.no_grad():
        for name, p in network.named_parameters():
            if "lora_B" in name or "lora_embedding_" in name:
                p.fill_(0.25)
    return network


def alone(recipe, folder):
    torch.manual_seed(0)
    network = changed(recipe.build(DATA, exact=False))
    folder.mkdir()
    recipe.save(network, folder, DATA)
    return facts(recipe, network, folder)


def together(recipe, folder):
    torch.manual_seed(0)
    outlined = language.outlined
    sees = "unseen" not in recipe.path or torch.distributed.get_rank() == 0
    with mock.patch.object(
        language, "outlined", lambda *given: found if (found := outlined(*given)) and sees else None
    ):
        network = changed(recipe.build_in_shards(DATA, exact=False, cut=cut))
    folder.mkdir(exist_ok=True)
    recipe.save(network, folder, DATA)
    torch.distributed.barrier()
    return facts(recipe, network, folder, lambda x: x.full_tensor()) | {"in_shards": recipe.in_shards}


def refused(recipe):
    with pytest.raises(UserError, match="checksum"):
        recipe.build_in_shards(DATA, exact=False, cut=cut)
    return True


def without_room(recipe, path, rank):
    """What the ranks raise where the second one cannot write."""
    network = recipe.build_in_shards(DATA, exact=False, cut=cut)
    limit = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000 if rank else limit[0], limit[1]))
    try:
        if rank == 0:
            write_model(path, network, recipe, DATA, {})
        else:
            recipe.save(network, path, DATA)
    except OSError as error:
        return error.errno
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limit)
    return None


@pytest.fixture(scope="module")
def pairs(folders, tmp_path_factory):
    """By case, what one rank found, and what each of two did; and the folder of all that was saved."""
    root = tmp_path_factory.mktemp("saved")
    recipes = {case: CausalLM(str(folders / name), **options) for case, (name, options) in CASES.items()}
    one = {case: alone(recipe, root / f"{case} alone") for case, recipe in recipes.items()}
    shutil.copytree(folders / "llama", root / "damaged")
    write_sums(root / "damaged")
    (root / "damaged" / "generation_config.json").write_text("{}")

    def on_rank(rank):
        found = {case: together(recipe, root / case) for case, recipe in recipes.items()}
        found["damaged"] = refused(CausalLM(str(root / "damaged")))
        found["no room"] = without_room(recipes["llama"], root / "no room", rank)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(slices, "LARGEST_FILE", "20KB")
            together(recipes["tied"], root / "several")
        return found

    two = on_two_ranks(on_rank, root)
    return one, two, root


@pytest.mark.parametrize("case", CASES)
def test_two_ranks_have_what_one_has(pairs, case):
    one, two, _ = pairs
    for found in (ranks[case] for ranks in two):
        assert found["in_shards"] == (case not in WHOLE)
        assert found["trained"] == one[case]["trained"]
        assert torch.equal(found["random"], one[case]["random"])
        difference = (found["said"] - one[case]["said"]).abs().max()
        assert difference == 0 or (case in UNMERGED and difference < 0.01)
        for kind in ("state", "buffers"):
            assert found[kind].keys() == one[case][kind].keys()
            assert all(torch.equal(x, one[case][kind][name]) for name, x in found[kind].items())


@pytest.mark.parametrize("case", [case for case in CASES if case not in WHOLE])
def test_two_ranks_leave_the_files_that_one_leaves(pairs, case):
    one, two, root = pairs
    assert "model.safetensors" in one[case]["files"]
    assert all(ranks[case]["files"] == one[case]["files"] for ranks in two)
    AutoModelForCausalLM.from_pretrained(root / case)


@pytest.mark.parametrize("case", ["adapters", "adapters on the embedding", "DoRA", "beside adapters"])
def test_two_ranks_write_the_adapters_that_one_writes(pairs, case):
    one, two, _ = pairs
    single, common = Path(one[case]["beside"]), Path(two[0][case]["beside"])
    assert single != common
    for file in ("adapter_model.safetensors", "adapter_config.json", "tokenizer_config.json"):
        assert file_hash(single / file) == file_hash(common / file)


def test_large_weights_are_several_files_with_an_index(pairs):
    root = pairs[2]
    assert len(list((root / "several").glob("*.safetensors"))) > 2
    model, found = AutoModelForCausalLM.from_pretrained(root / "several", output_loading_info=True)
    assert not any(found.values())
    whole = AutoModelForCausalLM.from_pretrained(root / "tied").state_dict()
    assert all(torch.equal(x, whole[name]) for name, x in model.state_dict().items())


def test_damaged_files_are_refused_on_every_rank(pairs):
    assert [ranks["damaged"] for ranks in pairs[1]] == [True, True]


def test_where_one_rank_cannot_write_all_fail_and_nothing_is_left(pairs):
    _, two, root = pairs
    assert [ranks["no room"] for ranks in two] == [errno.EFBIG, errno.EFBIG]
    assert not [path for path in root.iterdir() if "no room" in path.name]
