"""The plan against real runs: memory by torch's profiler, work by the methods' own counters; the command."""

import json
from functools import partial
from pathlib import Path

import pytest
import torch
from torch import nn

from ofmu_pl.cli import main
from ofmu_pl.core.ranks import Ranks
from ofmu_pl.core.safeguards import AS_PRINTED, Safeguards
from ofmu_pl.data import CIFAR10, Authors, Digits
from ofmu_pl.modules import GRU, NPO, OFMU, FineTune, GradDiff
from ofmu_pl.modules.reaching import Reach
from ofmu_pl.modules.upper_level import NoPenalty
from ofmu_pl.networks import CausalLM, SmallCNN
from ofmu_pl.networks.pretrained import SHAPES
from ofmu_pl.planning.needs import host
from ofmu_pl.planning.processes import ranks_in
from ofmu_pl.support.errors import UserError
from tests.helpers.images import network, train_on_digits
from tests.helpers.methods import IMAGES, TEXTS, chosen
from tests.helpers.parts import ALONG_PATH, adam, flattening, printed
from tests.helpers.peak_memory import blank, fsdp2, needs, peak
from tests.helpers.training import TINY, Unchecked, train

ROOT = Path(__file__).parent.parent.parent
LLAMA = {**TINY, "hidden_size": 128, "intermediate_size": 344, "num_attention_heads": 4, "vocab_size": 2000}
EVERYWHERE = Safeguards(aligned_only=False)
"""A plan foresees the similarity in every step, and a run may leave it out of some."""
SHORT = {"inner_steps": 1, "safeguards": EVERYWHERE}
DIFFERENCES = {**SHORT, "engine": "finite_difference"}


def llama(layers=2, **options):
    return CausalLM(config=LLAMA | {"num_hidden_layers": layers}, **options)


# Measured errors of 2026-11-21 lie between -4 and 0 %, and at -14 % for the CNN: what kernels work in is not seen.
MEMORY = {
    "exact": (lambda: OFMU(llama(1), **SHORT), {"rows": 2}),
    "frozen copy": (lambda: GradDiff(llama(1), retain_loss="kl"), {}),
    "cnn": (lambda: OFMU(SmallCNN(width=16), **DIFFERENCES), {"images": True, "rows": 64}),
}
MORE_MEMORY = {
    "differences": (lambda: OFMU(llama(), stepper=adam(), **DIFFERENCES), {}),
    "checkpointing": (lambda: OFMU(llama(activation_checkpointing=True), **DIFFERENCES), {}),
    "bf16-mixed": (lambda: OFMU(llama(), upper=NoPenalty, **DIFFERENCES), {"tokens": 128}),
    "64-true": (lambda: GradDiff(llama(), retain_loss="kl"), {}),
    "frozen copy, bf16-mixed": (lambda: GradDiff(llama(), retain_loss="kl"), {}),
    "micro-batches": (lambda: OFMU(llama(), micro_batch_size=2, **SHORT), {"rows": 4}),
    "npo": (lambda: NPO(llama(4), micro_batch_size=4), {"rows": 12}),
    "rectified": (lambda: NPO(llama(4), micro_batch_size=4, rectify=GRU(), sam_rho=0.01), {"rows": 12}),
    "adapters": (lambda: NPO(llama(lora={"r": 4})), {}),
    "bfloat16 base": (lambda: OFMU(llama(lora={"r": 4}, base_dtype="bfloat16"), **DIFFERENCES), {}),
}


def slowly(names):
    return [pytest.param(name, marks=pytest.mark.slow) for name in names]


@pytest.mark.parametrize("name", [*MEMORY, *slowly(MORE_MEMORY)])
def test_memory_is_what_a_run_takes(name, tmp_path):
    make, options = (MEMORY | MORE_MEMORY)[name]
    last = name.split(", ")[-1]
    precision = last if last in ("bf16-mixed", "64-true") else "32-true"
    module = make()
    measured = peak(module, blank(module, **options), tmp_path, precision)
    module = make()
    planned = needs(module, blank(module, **options), precision=precision)
    print(
        f"measured {measured / 1e6:.1f} MB, planned {planned.total / 1e6:.1f} MB, {planned.total / measured - 1:+.1%}"
    )
    assert planned.total == pytest.approx(measured, rel=0.25 if name == "cnn" else 0.1)


def memory(module, **trainer):
    return needs(module, blank(module), **trainer)


def test_memory_by_parts():
    """Weights W (float32): what is known without measuring."""
    alone = memory(OFMU(llama(1), **DIFFERENCES))
    whole = 4 * alone.parameters
    buffers = 1000
    assert alone.memory["parameters"] == pytest.approx(whole, abs=buffers)
    assert alone.memory["optimizer"] == pytest.approx(2 * whole, rel=1e-3)
    assert alone.memory["vectors"] == pytest.approx(7 * whole, rel=0.02)
    shards = memory(OFMU(llama(1), **DIFFERENCES), **fsdp2(2))
    for kind in ("parameters", "vectors", "optimizer"):
        assert shards.memory[kind] == pytest.approx(alone.memory[kind] / 2, rel=0.02)
    assert shards.memory["activations"] < 0.6 * alone.memory["activations"]
    assert 0 < shards.memory["gathered"] <= 2 * whole  # one layer only
    largest = 4 * LLAMA["vocab_size"] * LLAMA["hidden_size"]
    assert alone.host == whole
    assert shards.host == whole, "every rank makes all of a random network"
    network = nn.Sequential(nn.Embedding(LLAMA["vocab_size"], LLAMA["hidden_size"]), nn.Linear(3, 2))
    assert host(CausalLM("from-files"), network, 1000.0, sharded=True) == 1000.0 + largest
    network.append(nn.ParameterList([torch.ones(2, 3, 2)]))
    every = 4 * sum(p.numel() for p in network.parameters())
    assert host(CausalLM("from-files"), network, 1000.0, sharded=True) == every, "experts are read whole"
    adapted = memory(NPO(llama(1, lora={"r": 4, "target_modules": "all-linear"})))
    assert adapted.trained < 0.1 * adapted.parameters
    assert adapted.memory["optimizer"] < 0.1 * whole
    assert adapted.host == pytest.approx(2 * 4 * adapted.parameters, abs=buffers), "the model and its merged copy"


def test_a_frozen_copy_takes_half_of_its_matrices_where_they_are_multiplied_in_bfloat16():
    whole, mixed = (
        memory(GradDiff(llama(1), retain_loss="kl"), precision=x).memory["copies"] for x in ("32-true", "bf16-mixed")
    )
    width, inner = LLAMA["hidden_size"], LLAMA["intermediate_size"]
    assert whole - mixed == 2 * (4 * width * width + 3 * width * inner)


def test_a_plan_foresees_what_begins_later():
    """Similarity and penalty, which a run's first iterations leave out."""
    later, always = (
        needs(m := OFMU(llama(1), upper=printed(start=x), **DIFFERENCES), blank(m), max_steps=7) for x in (0.8, 0.0)
    )
    assert later.memory == always.memory


@pytest.mark.parametrize("engine", ["autograd", "finite_difference"])
def test_a_plan_foresees_what_begins_late_on_a_path(engine):
    """Of a step that flattens the path decides when similarity and penalty begin, not the iteration."""
    options = {"inner_steps": 1, "engine": engine, "beta": 0.1} | ALONG_PATH
    later, always = (
        needs(m := OFMU(llama(1), upper=flattening(start=x), **options), blank(m), max_steps=400) for x in (0.8, 0.0)
    )
    assert later.gradients == pytest.approx(always.gradients)  # to rounding: one has counted a first light iteration
    assert later.gradients > 2 * 2
    assert later.memory == always.memory


def test_a_plan_has_a_tenth_of_a_look_in_each_iteration_whatever_the_runs_length():
    planned = [needs(m := NPO(llama(1), max_harm=0.3), blank(m), max_steps=steps) for steps in (99, 100)]
    plain = needs(m := NPO(llama(1)), blank(m), max_steps=100)
    assert len({plan.gradients for plan in planned}) == 1
    assert 0 < planned[0].gradients - plain.gradients < 0.1
    assert planned[0].memory == planned[1].memory


def test_devices_that_only_a_machine_knows_are_said_to_be_one():
    automatic, given = (
        needs(m := FineTune(llama(1)), blank(m), strategy="ddp", devices=n).assumption for n in ("auto", 1)
    )
    assert automatic.startswith(given)
    assert "--trainer.devices" in automatic.removeprefix(given)


def test_a_precision_counts_by_whatever_name():
    single, double = (needs(m := FineTune(llama(1)), blank(m), precision=p).memory for p in (None, 64))
    for kind in ("parameters", "vectors", "optimizer"):
        assert double[kind] == pytest.approx(2 * single[kind], rel=0.01)


# Work --------------------------------------------------------------------------------------------------------------

DEEP = {**TINY, "num_hidden_layers": 2}
FORMS = {}
OPTIONS = [
    {"inner_steps": 3, "engine": "finite_difference", "micro_batch_size": 2},
    {"inner_steps": 2, "engine": "finite_difference", "upper": printed(every=3)},
    {"inner_steps": 2, "outer_at": "start"},
    {"inner_steps": 2, "stepper": adam(), "beta": 0.0, "upper": partial(Reach, start=0.0)},
]
MORE_OPTIONS = [
    {"inner_steps": 3},
    {"inner_steps": 3, "micro_batch_size": 1},
    {"inner_steps": 3, "engine": "finite_difference", "safeguards": AS_PRINTED},
    {"inner_steps": 2, "engine": "finite_difference", "beta": 0.0},
    {"inner_steps": 2, "engine": "finite_difference", "upper": NoPenalty},
    {"inner_steps": 3, "upper": printed(every=2)},
]
for o in (*OPTIONS, *MORE_OPTIONS):
    FORMS[f"ofmu {o}"] = {"safeguards": EVERYWHERE} | o
OF_OFMU = [f"ofmu {o}" for o in OPTIONS] + slowly(f"ofmu {o}" for o in MORE_OPTIONS)


def of_text(name):
    """A method of the list, or a form of OFMU."""
    if name in FORMS:
        return OFMU(CausalLM(config=dict(TINY)), **FORMS[name])
    setting = TEXTS[name]
    return setting(CausalLM(config=dict(DEEP if "layer" in setting.options else TINY)))


@pytest.mark.parametrize("name", [*chosen(TEXTS, "plan", lambda setting: not setting.unforeseen), *OF_OFMU])
def test_work_is_what_a_run_counts(name):
    module = of_text(name)
    train(module, steps=module.period, callbacks=[Unchecked()])  # a check takes a few samples only, and is not planned
    planned = of_text(name)
    planned.reached = lambda: (False, {})  # no look is due in the first iterations; a plan has a tenth of one
    data = Authors(batch_size=4, max_length=16, streams=planned.streams, num_batches=planned.num_batches)
    references = getattr(module, "reference_nll", {}).values()
    once = sum(len(x) for x in references) / 4 / 3  # which is read before the first iteration, and is not planned
    spent = module.gradient_evaluations - once
    assert needs(planned, data).gradients == pytest.approx(spent / module.period)


def of_images(name):
    """A method of the list."""
    setting = IMAGES[name]
    return setting(network(**setting.network))


@pytest.mark.parametrize("name", chosen(IMAGES, "plan", lambda setting: not setting.unforeseen))
def test_work_of_image_methods_is_what_a_run_counts(name):
    module = of_images(name)
    train_on_digits(module, steps=module.period, callbacks=[Unchecked()])
    planned = of_images(name)
    data = Digits(forget_classes=[0], streams=planned.streams, num_batches=planned.num_batches)
    spent = module.gradient_evaluations / module.period
    assert needs(planned, data, max_steps=1).gradients == pytest.approx(spent)


def is_unforeseen(setting):
    return setting.unforeseen


@pytest.mark.parametrize("name", [*chosen(TEXTS, "plan", is_unforeseen), *chosen(IMAGES, "plan", is_unforeseen)])
def test_what_depends_on_the_data_or_comes_before_the_first_iteration(name):
    if name in TEXTS:
        module, data = of_text(name), Authors(batch_size=4, max_length=16, streams=("forget", "retain"))
    else:
        module, data = of_images(name), Digits(forget_classes=[0], streams=("forget", "retain"))
    assert needs(module, data).gradients == (TEXTS | IMAGES)[name].planned


@pytest.mark.parametrize("data", [Digits(), CIFAR10()])
def test_blank_images_are_as_large_as_real_ones(data):
    data.blank()
    assert data.collate("forget", [0, 1], 0)["images"].shape == (2, *data.shape)
    if isinstance(data, Digits):
        real = Digits(forget_classes=[0])
        real.setup()
        assert (real.images.shape[1:], len(real.class_names)) == (data.shape, data.classes)


# The command -------------------------------------------------------------------------------------------------------

FSDP2 = ["-c", "configs/hardware/fsdp2_4xh100.yaml"]
CHECKPOINTING = ["--model.network.activation_checkpointing", "true"]
PLAIN = ["--model.stepper", "PlainSteps"]


@pytest.fixture
def run(monkeypatch, capsys):
    """The command's output in one line, words that wrap included."""
    monkeypatch.chdir(ROOT)
    monkeypatch.setenv("COLUMNS", "120")

    def run(*words):
        main(["plan", *words])
        return " ".join(capsys.readouterr().out.split())

    return run


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        pytest.param(
            ["--config", "configs/tofu.yaml", *FSDP2, "--model.network.path", "llama-2-7b", *CHECKPOINTING, *PLAIN],
            ["4 processes by FSDP2", "6.74 B / 6.74 B", "parameters │ 6.7 GB", "no / no / no / yes"],
            marks=pytest.mark.slow,
        ),
        pytest.param(
            ["--config", "configs/tofu.yaml", "--model.network.path", "llama-3.2-1b"],
            ["one process", "1.24 B / 1.24 B", "gradients an iteration │ 2", "no / no / yes / yes"],
            marks=pytest.mark.slow,
        ),
        (
            ["--config", "configs/tofu.yaml", "--model.network.path", "llama-3.2-1b of one layer"],
            ["one process", "323.49 M / 323.49 M", "gradients an iteration │ 2", "yes / yes / yes / yes"],
        ),
        (["--config", "configs/digits.yaml"], ["0.01 M / 0.01 M", "batches of 64 images", "yes / yes / yes / yes"]),
    ],
)
def test_the_papers_settings_are_planned_from_a_configuration_alone(run, tmp_path, words, expected):
    config = json.loads((SHAPES / "llama-3.2-1b/config.json").read_text()) | {"num_hidden_layers": 1}
    (tmp_path / "config.json").write_text(json.dumps(config))
    folders = {path.name: str(path) for path in SHAPES.iterdir()} | {"llama-3.2-1b of one layer": str(tmp_path)}
    output = run(*[folders.get(word, word) for word in words])
    for text in expected:
        assert text in output


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (["--model.network.path", "{odd}"], 1, "config.json"),
        (["--data.max_length", "null"], 1, "max_length"),
        (["--data.batch_size", "30", *FSDP2], 1, "30 forget "),
        (["--trainer.strategy", "fsdp", "--trainer.devices", "2"], 1, "fsdp"),
    ],
)
def test_bad_input_is_one_sentence(run, capsys, tmp_path, words, code, message):
    (tmp_path / "config.json").write_text('{"model_type": "unheard_of"}')
    words = [w.format(odd=tmp_path) for w in words]
    small = ["--model.network.path", str(SHAPES / "llama-3.2-1b")]
    with pytest.raises(SystemExit) as stop:
        run("--config", "configs/tofu.yaml", *small, *words)
    lines = [line for line in capsys.readouterr().err.splitlines() if line.startswith("ofmu_pl: error: ")]
    assert stop.value.code == code
    assert len(lines) == 1
    assert message in lines[0]


def shards(**options):
    return {"class_path": "x.ModelParallelStrategy", "init_args": {"tensor_parallel_size": 1} | options}


@pytest.mark.parametrize(
    ("trainer", "expected"),
    [
        ({}, Ranks()),
        ({"devices": 4}, Ranks(0, 4)),
        ({"devices": "0,1", "num_nodes": 2, "strategy": "ddp_find_unused_parameters_true"}, Ranks(0, 4)),
        ({"devices": "auto", "strategy": "ddp"}, Ranks()),
        ({"devices": 8, "num_nodes": 2, "strategy": shards(data_parallel_size=16)}, Ranks(0, 16, sharded=True)),
        ({"devices": 1, "num_nodes": 2, "strategy": shards()}, Ranks(0, 2, sharded=True)),
    ],
)
def test_ranks(trainer, expected):
    assert ranks_in(trainer) == expected


@pytest.mark.parametrize(
    ("trainer", "match"),
    [
        ({"devices": 2, "strategy": "ModelParallelStrategy"}, "data_parallel_size"),
        *(({"devices": n}, "--trainer.devices") for n in ("some", 0, -2, [])),
        ({"num_nodes": 0}, "--trainer.num_nodes"),
        ({"devices": 2, "strategy": shards()}, "data_parallel_size is 1"),  # Lightning takes the number of nodes
        ({"devices": 1, "strategy": shards(), "precision": "64"}, "float64"),
    ],
)
def test_ranks_that_no_run_has(trainer, match):
    with pytest.raises(UserError, match=match):
        ranks_in(trainer)
