"""An exported folder is one model for transformers 4.45 to 5: by the files' content, and (slow) by those versions."""

import json
import os
import subprocess
import sys
import sysconfig
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from tokenizers import pre_tokenizers
from transformers import AutoConfig, AutoTokenizer, GPT2Tokenizer, Qwen2Tokenizer

from ofmu_pl.data import Authors
from ofmu_pl.networks import CausalLM
from ofmu_pl.networks.saving import add_older_keys
from tests.helpers.older_reader import read

SHAPE = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 2}
SHAPE["max_position_embeddings"] = 512
GROUPED = {**SHAPE, "num_key_value_heads": 1, "head_dim": 16}
LLAMA3 = {"factor": 32.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 128}
LONG = {"short_factor": [1.0 + i for i in range(8)], "long_factor": [2.0 + i for i in range(8)]}
PLAIN = {"rope_theta": 5000.0, "rope_scaling": None}


def rope(kind, theta=5000.0, **more):
    return {"rope_type": kind, "rope_theta": theta, **more}


CASES = {  # configuration, RoPE as version 4 has it, first version that knows the architecture
    "llama-3.2": (
        {"model_type": "llama", **SHAPE, "tie_word_embeddings": True, "rope_parameters": rope("llama3", 5e5, **LLAMA3)},
        {"rope_theta": 5e5, "rope_scaling": {"rope_type": "llama3", **LLAMA3}},
        "4.45.2",
    ),
    "llama-linear": (
        {"model_type": "llama", **SHAPE, "rope_parameters": rope("linear", factor=4.0)},
        {"rope_theta": 5000.0, "rope_scaling": {"rope_type": "linear", "factor": 4.0}},
        "4.45.2",
    ),
    "llama-2": ({"model_type": "llama", **SHAPE}, {"rope_theta": 10000.0, "rope_scaling": None}, "4.45.2"),
    "mistral": ({"model_type": "mistral", **GROUPED, "rope_parameters": rope("default")}, PLAIN, "4.45.2"),
    "qwen2": (
        {"model_type": "qwen2", **SHAPE, "num_key_value_heads": 1, "rope_parameters": rope("default")},
        PLAIN,
        "4.45.2",
    ),
    "qwen3": ({"model_type": "qwen3", **GROUPED, "rope_parameters": rope("default")}, PLAIN, "4.57.6"),
    "gemma2": ({"model_type": "gemma2", **GROUPED, "rope_parameters": rope("default")}, PLAIN, "4.45.2"),
    "gemma3": (
        {
            **{"model_type": "gemma3_text", **GROUPED, "num_hidden_layers": 7, "sliding_window": 16},
            "rope_parameters": {
                "full_attention": rope("linear", 1e6, factor=8.0),
                "sliding_attention": rope("default", 9e3),
            },
        },
        {
            **{"rope_theta": 1e6, "rope_scaling": {"rope_type": "linear", "factor": 8.0}},
            **{"rope_local_base_freq": 9e3, "sliding_window_pattern": 6},
        },
        "4.57.6",
    ),
    "phi": (
        {"model_type": "phi", **SHAPE, "rope_parameters": rope("default", partial_rotary_factor=0.75)},
        {**PLAIN, "partial_rotary_factor": 0.75},
        "4.45.2",
    ),
    "phi3": (
        {
            **{"model_type": "phi3", **SHAPE, "original_max_position_embeddings": 128},
            "rope_parameters": rope("longrope", **LONG),
        },
        {"rope_theta": 5000.0, "partial_rotary_factor": 1.0, "rope_scaling": {"type": "longrope", **LONG}},
        "4.45.2",
    ),
    "gpt_neox": (
        {"model_type": "gpt_neox", **SHAPE, "rope_parameters": rope("default", partial_rotary_factor=0.5)},
        {"rotary_emb_base": 5000.0, "rotary_pct": 0.5, "rope_scaling": None},
        "4.45.2",
    ),
    "gpt2": ({"model_type": "gpt2", "n_embd": 32, "n_layer": 2, "n_head": 2, "n_positions": 512}, {}, "4.45.2"),
}


@pytest.fixture(scope="module")
def data():
    data = Authors(authors=4, forget_authors=1, batch_size=7, streams=("full",))
    data.setup()
    return data


def export(folder, config, tokenizer):
    """What a run leaves of a network, whose weights are large enough that positions matter."""
    folder.mkdir(parents=True)
    recipe, data = CausalLM(config=config), SimpleNamespace(tokenizer=tokenizer, lengths={}, streams=())
    torch.manual_seed(0)
    module = recipe.build(data, exact=True)
    for p in module.parameters():
        torch.nn.init.normal_(p, 0.0 if p.dim() > 1 else 1.0, 0.2)
    recipe.save(module, folder, data)
    return folder


def fields(folder, name):
    return json.loads((folder / name).read_text())


@pytest.mark.parametrize("name", CASES)
def test_config_has_the_keys_of_both_versions(name, data, tmp_path):
    config, older, _ = CASES[name]
    folder = export(tmp_path / "hf", config, data.tokenizer)
    found = fields(folder, "config.json")
    assert found["dtype"] == found["torch_dtype"] == "float32"
    keys = [k for k in found if k.startswith(("rope_", "rotary_", "partial_", "sliding_window_p"))]
    assert {k: found[k] for k in keys if k != "rope_parameters"} == older
    again, first = AutoConfig.from_pretrained(folder).to_dict(), AutoConfig.for_model(**config).to_dict()
    assert again.get("rope_parameters", {}).items() >= first.get("rope_parameters", {}).items()
    assert again.get("layer_types") == first.get("layer_types")
    assert str(again["dtype"]).endswith("float32")


def test_the_text_part_of_a_model_that_also_sees_images_has_them_too(data, tmp_path):
    AutoConfig.for_model("gemma3", text_config=CASES["gemma3"][0], dtype="bfloat16").save_pretrained(tmp_path)
    data.tokenizer.save_pretrained(tmp_path)
    add_older_keys(tmp_path, data.tokenizer)
    found = fields(tmp_path, "config.json")
    assert found["torch_dtype"] == "bfloat16"
    assert found["text_config"].items() >= CASES["gemma3"][1].items()


def small_tokenizers():
    """Classes of architectures, whose names and extra tokens version 4 reads otherwise."""
    pieces = ["<|endoftext|>", *sorted(pre_tokenizers.ByteLevel.alphabet()), "wr", "ot", "ote"]
    both = {"vocab": {piece: i for i, piece in enumerate(pieces)}, "merges": [("w", "r"), ("o", "t"), ("ot", "e")]}
    both["chat_template"] = "{% for m in messages %}{{ m['role'] }}: {{ m['content'] | trim }}\n{% endfor %}"
    qwen2 = Qwen2Tokenizer(**both, extra_special_tokens=["<|extra|>", "<|im_end|>"])
    return {"gpt2": GPT2Tokenizer(**both), "qwen2": qwen2}


@pytest.mark.parametrize("name", ["authors", "gpt2", "qwen2"])
def test_tokenizer_config_is_what_version_4_reads(name, data, tmp_path):
    tokenizer = {"authors": data.tokenizer, **small_tokenizers()}[name]
    folder = export(tmp_path / "hf", CASES["llama-2"][0], tokenizer)
    found = fields(folder, "tokenizer_config.json")
    assert found["tokenizer_class"] == "PreTrainedTokenizerFast"
    assert found["chat_template"] == tokenizer.chat_template
    assert found["model_input_names"] == ["input_ids", "attention_mask"]
    assert found["clean_up_tokenization_spaces"] is False
    assert "extra_special_tokens" not in found
    assert found.get("additional_special_tokens", []) == tokenizer.extra_special_tokens
    again, text = AutoTokenizer.from_pretrained(folder), "Who wrote <|extra|> it?\n in 1984"
    assert again(text)["input_ids"] == tokenizer(text)["input_ids"]
    assert sorted(again.all_special_ids) == sorted(tokenizer.all_special_ids)
    assert again.chat_template == tokenizer.chat_template


PACKAGES = {  # what these versions ask for beside what this environment has
    "4.45.2": ["tokenizers==0.20.3", "huggingface-hub==0.29.1"],
    "4.57.6": ["tokenizers==0.22.1", "huggingface-hub==0.36.0"],
}


@pytest.fixture(scope="module", params=PACKAGES)
def older(request, tmp_path_factory):
    """A function that reads folders with an older transformers, in a virtual environment that sees this one's torch."""
    version = request.param
    place = Path(os.environ.get("OFMU_OLDER_TRANSFORMERS") or tmp_path_factory.mktemp("older")) / version
    python = place / "bin" / "python"
    if not python.is_file():
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(place)], check=True)
        install = [sys.executable, "-m", "pip", "--python", str(python), "install", "--quiet", "--no-deps"]
        subprocess.run([*install, f"transformers=={version}", *PACKAGES[version]], check=True)
        (own,) = place.glob("lib/python*/site-packages")
        (own / "below.pth").write_text(sysconfig.get_path("purelib"))  # after its own packages

    def read_older(*folders):
        output = tmp_path_factory.mktemp("read") / "found.json"
        reader = Path(__file__).parents[1] / "helpers/older_reader.py"
        environment = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"} | {"HF_HUB_OFFLINE": "1"}
        subprocess.run([str(python), str(reader), str(output), *map(str, folders)], check=True, env=environment)
        found = json.loads(output.read_text())
        assert found["version"] == version
        return found["models"]

    return version, read_older


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_older_versions_compute_and_generate_the_same(older, data, tmp_path):
    """All architectures that the version knows, every tokenizer, and the runs' folders that OFMU_EXPORTS names."""
    version, read_older = older
    tokenizers = {"authors": data.tokenizer, **small_tokenizers()}
    known = {name: case[0] for name, case in CASES.items() if case[2] <= version}
    known.pop("qwen2")  # version 5 gives every Qwen 2 its published tokenizer, whatever the files say
    folders = [export(tmp_path / name, config, data.tokenizer) for name, config in known.items()]
    folders += [export(tmp_path / f"with-{n}", CASES["llama-3.2"][0], t) for n, t in tokenizers.items()]
    folders += [Path(folder) for folder in os.environ.get("OFMU_EXPORTS", "").split(os.pathsep) if folder]
    found = read_older(*folders)
    for folder in folders:
        ours, theirs = read(folder), found[str(folder)]
        logits, same = np.array(ours.pop("logits")), np.array(theirs.pop("logits"))
        print(f"{version} {folder.name}: {np.abs(logits - same).max():.1e} of {np.abs(logits).max():.1f}")
        assert np.abs(logits - same).max() <= 1e-5, folder.name
        assert theirs.pop("tokenizer") == "PreTrainedTokenizerFast"
        ours.pop("tokenizer")
        assert theirs == ours, folder.name
