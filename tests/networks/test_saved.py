"""Language models come out in the type that they had, and adapters as adapters; what is measured is what was saved."""

import json
import shutil

import pytest
import torch
from peft import LoraConfig, PeftModel, PromptTuningConfig, get_peft_model
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM, AutoTokenizer, LlamaConfig, LlamaForCausalLM, pipeline

from ofmu_pl.data import Authors
from ofmu_pl.networks import CausalLM
from ofmu_pl.networks.rounding import keep_differentiable
from ofmu_pl.support.errors import UserError
from ofmu_pl.support.kept import write_sums
from ofmu_pl.training.export import ModelExport

IDS = torch.arange(5, 30)[None]
LORA = {"r": 2, "lora_alpha": 8}
SHAPE = {"hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 2, "num_attention_heads": 2}
TYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}


@pytest.fixture(scope="module")
def data():
    data = Authors(authors=2, forget_authors=1, batch_size=2)
    data.setup()
    return data


@pytest.fixture(scope="module")
def folders(data, tmp_path_factory):
    """A model in each type, and adapters of peft's own on the one in bfloat16."""
    root = tmp_path_factory.mktemp("models")
    torch.manual_seed(0)
    for name, dtype in TYPES.items():
        LlamaForCausalLM(LlamaConfig(vocab_size=len(data.tokenizer), **SHAPE)).to(dtype).save_pretrained(root / name)
        data.tokenizer.save_pretrained(root / name)
    config = LoraConfig(**LORA, target_modules=["q_proj", "down_proj"], init_lora_weights=False, task_type="CAUSAL_LM")
    base = AutoModelForCausalLM.from_pretrained(root / "bfloat16", dtype=torch.float32)
    get_peft_model(base, config).save_pretrained(root / "adapters")
    return root


def trained(recipe, data):
    """A network that has been moved a little, by what no 16 bits hold."""
    model = recipe.build(data, exact=False)
    torch.manual_seed(1)
    with torch.no_grad():
        for p in model.parameters():
            if p.requires_grad:
                p.add_(torch.randn_like(p), alpha=0.01)
    return model


@torch.no_grad()
def logits(model):
    return model(input_ids=IDS, use_cache=False).logits


def saved(recipe, model, folder, data, **form):
    """Where a network was saved; its own weights are as they were."""
    before = {name: x.clone() for name, x in model.state_dict().items()}
    folder.mkdir()
    recipe.save(model, folder, data, **form)
    assert all(torch.equal(x, before[name]) for name, x in model.state_dict().items())
    assert {p.dtype for p in model.parameters() if p.requires_grad} == {torch.float32}
    return folder


@pytest.mark.parametrize(
    "options", [{}, {"lora": LORA}, {"lora": LORA, "base_dtype": "bfloat16"}, {"trainable": "mlp"}]
)
@pytest.mark.parametrize(("own", "asked"), [("bfloat16", None), ("float16", None), ("bfloat16", "float16")])
def test_the_type_is_the_models_own_or_the_one_asked_for(own, asked, options, folders, data, tmp_path):
    recipe = CausalLM(str(folders / own), **options)
    model = trained(recipe, data)
    folder, wanted = saved(recipe, model, tmp_path / "hf", data, dtype=asked), asked or own
    assert {x.dtype for x in load_file(folder / "model.safetensors").values()} == {TYPES[wanted]}
    assert json.loads((folder / "config.json").read_text())["dtype"] == wanted
    assert AutoModelForCausalLM.from_pretrained(folder, dtype="auto").dtype == TYPES[wanted]
    written = logits(CausalLM(str(folder)).build(data, exact=False))
    assert not torch.equal(logits(model), written)
    recipe.become_saved(model, dtype=asked)
    assert torch.equal(logits(model), written)


@pytest.mark.parametrize("options", [{}, {"lora": LORA}])
def test_a_model_in_float32_stays_as_it_is(options, folders, data, tmp_path):
    recipe = CausalLM(str(folders / "float32"), **options)
    model = trained(recipe, data)
    before = logits(model)
    folder = saved(recipe, model, tmp_path / "hf", data)
    assert {x.dtype for x in load_file(folder / "model.safetensors").values()} == {torch.float32}
    recipe.become_saved(model)
    assert torch.equal(logits(model), before)


def test_tied_embeddings_stay_one_matrix_in_another_type(data, tmp_path):
    recipe = CausalLM(config={"model_type": "llama", **SHAPE, "tie_word_embeddings": True})
    model = trained(recipe, data)
    folder = saved(recipe, model, tmp_path / "hf", data, dtype="bfloat16")
    assert "lm_head.weight" not in load_file(folder / "model.safetensors")
    recipe.become_saved(model, dtype="bfloat16")
    assert torch.equal(logits(model), logits(CausalLM(str(folder)).build(data, exact=False)))


def test_a_base_in_4_bits_is_measured_with_its_adapters_merged_into_4_bits(folders, data, tmp_path):
    pytest.importorskip("bitsandbytes")
    recipe = CausalLM(str(folders / "bfloat16"), lora=LORA, load_in_4bit=True)
    model = trained(recipe, data)
    before = logits(model)
    recipe.save(model, tmp_path, data)
    recipe.become_saved(model)
    exported = AutoModelForCausalLM.from_pretrained(tmp_path)
    keep_differentiable(exported)
    written = logits(exported)
    assert (logits(model) - written).abs().max() < 0.1 * (before - written).abs().max()


@pytest.mark.parametrize("options", [{}, {"base_dtype": "bfloat16"}])
def test_the_adapters_in_a_folder_are_trained_and_written_alone(options, folders, data, tmp_path):
    recipe = CausalLM(str(folders / "adapters"), **options)
    model = recipe.build(data, exact=False)
    base = AutoModelForCausalLM.from_pretrained(folders / "bfloat16", dtype=torch.float32)
    torch.testing.assert_close(logits(model), logits(PeftModel.from_pretrained(base, folders / "adapters")))
    assert {("lora_" in name) == p.requires_grad for name, p in model.named_parameters()} == {True}
    model = trained(recipe, data)
    folder = saved(recipe, model, tmp_path / "alone", data, alone=True)
    assert not (folder / "config.json").exists()
    base = AutoModelForCausalLM.from_pretrained(folders / "bfloat16", dtype=torch.float32)
    assert PeftModel.from_pretrained(base, folder).peft_config["default"].base_model_name_or_path == str(
        folders / "bfloat16"
    )
    torch.testing.assert_close(logits(base), logits(model))
    recipe.become_saved(model, alone=True)
    torch.testing.assert_close(logits(base), logits(model))
    torch.testing.assert_close(logits(CausalLM(str(folder), **options).build(data, exact=False)), logits(model))
    tokenizer = AutoTokenizer.from_pretrained(folder)
    assert pipeline("text-generation", model=str(folder), tokenizer=tokenizer)("Who", max_new_tokens=2)


def test_new_adapters_stand_on_the_old_ones_merged(folders, data, tmp_path):
    old = CausalLM(str(folders / "adapters"))
    recipe = CausalLM(str(folders / "adapters"), lora=LORA)
    model = recipe.build(data, exact=False)
    torch.testing.assert_close(logits(model), logits(old.build(data, exact=False)))
    model = trained(recipe, data)
    folder = saved(recipe, model, tmp_path / "hf", data)
    recipe.become_saved(model)
    assert torch.equal(logits(model), logits(CausalLM(str(folder)).build(data, exact=False)))


def test_adapters_are_merged_where_a_model_is_measured_or_attacked(folders, data):
    plain = CausalLM.plain(str(folders / "adapters")).build(data, exact=False)
    assert not hasattr(plain, "disable_adapter")
    assert all(p.requires_grad for p in plain.parameters())
    torch.testing.assert_close(logits(plain), logits(CausalLM(str(folders / "adapters")).build(data, exact=False)))


def test_a_plan_has_the_parameters_of_the_run(folders, data):
    recipe = CausalLM(str(folders / "adapters"))
    facts = [
        {name: (p.shape, p.requires_grad) for name, p in model.named_parameters()}
        for model in (recipe.build(data, exact=False), recipe.skeleton(data, exact=False))
    ]
    assert facts[0] == facts[1]


def test_a_copy_that_is_not_trained_is_frozen(folders, data):
    recipe = CausalLM(str(folders / "adapters")).never_trained()
    assert not any(p.requires_grad for p in recipe.build(data, exact=False).parameters())


def test_the_tokenizer_is_the_bases_where_adapters_have_none(folders, data, tmp_path):
    assert CausalLM(str(folders / "adapters")).tokenizer_source == str(folders / "bfloat16")
    shutil.copytree(folders / "adapters", tmp_path / "own")
    data.tokenizer.save_pretrained(tmp_path / "own")
    assert CausalLM(str(tmp_path / "own")).tokenizer_source == str(tmp_path / "own")
    assert CausalLM(str(tmp_path / "own"), tokenizer="other").tokenizer_source == "other"


def lose_a_tensor(folder):
    tensors = load_file(folder / "adapter_model.safetensors")
    tensors.pop(next(iter(tensors)))
    save_file(tensors, folder / "adapter_model.safetensors")


def edit(folder, **fields):
    path = folder / "adapter_config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | fields))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lose_a_tensor, "missing"),
        (lambda folder: (folder / "adapter_model.safetensors").unlink(), "adapter_model.safetensors"),
        (lambda folder: edit(folder, r=3), "adapter"),
        (lambda folder: edit(folder, target_modules=["q_proj"]), "unexpected"),
        (lambda folder: edit(folder, megatron_config={"a": 1}, megatron_core="antigravity"), "low-rank"),
        (lambda folder: edit(folder, peft_type="IA3"), "low-rank"),
        (lambda folder: edit(folder, base_model_name_or_path=None), "base_model_name_or_path"),
        (lambda folder: edit(folder, base_model_name_or_path="/nowhere"), "/nowhere"),
        (lambda folder: edit(folder, base_model_name_or_path=str(folder)), "base_model_name_or_path"),
        (lambda folder: (folder / "adapter_config.json").write_text("["), "base_model_name_or_path"),
        (lambda folder: (write_sums(folder), edit(folder, lora_alpha=1)), "checksum"),
    ],
)
@pytest.mark.filterwarnings("ignore:Found missing adapter keys")
def test_adapters_that_are_not_whole_are_refused(change, words, folders, data, tmp_path):
    shutil.copytree(folders / "adapters", tmp_path / "adapters")
    change(tmp_path / "adapters")
    with pytest.raises(UserError, match=words):
        CausalLM(str(tmp_path / "adapters"), tokenizer="any").build(data, exact=False)


def test_tokens_before_each_row_are_refused(folders, data, tmp_path):
    base = AutoModelForCausalLM.from_pretrained(folders / "bfloat16")
    get_peft_model(base, PromptTuningConfig(task_type="CAUSAL_LM", num_virtual_tokens=2)).save_pretrained(tmp_path)
    with pytest.raises(UserError, match="adapters"):
        CausalLM(str(tmp_path)).build(data, exact=False)


@pytest.mark.parametrize(
    ("name", "options", "form"),
    [
        ("float32", {}, {"alone": True}),
        ("float32", {"lora": {**LORA, "init_lora_weights": "pissa"}}, {"alone": True}),
        ("adapters", {"lora": LORA}, {"alone": True}),
        ("float32", {"lora": LORA, "load_in_4bit": True}, {"dtype": "bfloat16"}),
    ],
)
def test_forms_that_no_reader_could_use_are_refused_before_any_work(name, options, form, folders):
    with pytest.raises(UserError, match=r"export\."):
        CausalLM(str(folders / name), **options).check_form(**form)


def test_adapters_beside_no_model_are_refused():
    with pytest.raises(UserError, match="export.adapters"):
        ModelExport(None, adapters="beside")
    with pytest.raises(UserError, match="adapters besides"):
        ModelExport("hf", adapters="besides")
