"""From the command line to the files of a run."""

import json
from functools import partial

import pytest
import torch
import yaml
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.plugins.hparams import plugin_data_pb2
from torch.optim.lr_scheduler import OneCycleLR
from transformers import AutoModelForCausalLM, get_linear_schedule_with_warmup

import ofmu_pl
from ofmu_pl.cli import main
from tests.cli.conftest import ROOT
from tests.helpers.methods import is_for_images


@pytest.fixture(scope="module")
def run(models, tmp_path_factory):
    """One run of OFMU with everything on."""
    folder = tmp_path_factory.mktemp("run")
    config = folder / "c.yaml"
    config.write_text(
        f"""
model:
  class_path: OFMU
  init_args:
    network: {{class_path: CausalLM, init_args: {{path: {models}/target/latest/hf}}}}
    inner_steps: 2
    safeguards: {{aligned_only: false}}
data: {{class_path: Authors, init_args: {{authors: 6, forget_authors: 1, batch_size: 4}}}}
trainer: {{accelerator: cpu, devices: 1, max_steps: 3}}
checkpoint: {{every_n_train_steps: 2}}
evaluation: {{max_new_tokens: 8, every_n_steps: 1, samples: full, reference: {models}/retrained/latest/hf}}
"""
    )
    main(["fit", "--config", str(config), "--logs", str(folder)])
    return folder / "authors/ofmu/version_0"


def test_everything_is_there(run):
    names = {p.name.split(".out")[0] for p in run.iterdir()}
    assert {"config.yaml", "results.json", "reference.json", "samples.jsonl", "checkpoints", "hf", "events"} <= names
    assert (run.parent / "latest").resolve() == run
    assert [p.name for p in (run / "checkpoints").iterdir()] == ["step=2.ckpt"]


def test_results(run):
    results = json.loads((run / "results.json").read_text())
    assert set(results) == set(
        "schema definition metrics before reference history curves data remark provenance cost".split()
    )
    for name in ("forget_Q_A_Prob", "forget_quality", "model_utility", "forget_truth_ratio"):
        for metrics in (results["metrics"], results["before"], results["reference"]["metrics"]):
            assert {"value", "n", "target", "definition", "interval"} < set(metrics[name])
            assert {"higher_is_better", "unit", "group", "column"} < set(metrics[name])
    units = {name: results["metrics"][name]["unit"] for name in ("forget_quality", "model_utility", "forget_quality_D")}
    assert units == {"forget_quality": "p-value", "model_utility": "0 to 1", "forget_quality_D": "KS distance"}
    assert results["reference"]["metrics"]["forget_quality"]["value"] == 1.0
    assert (
        results["metrics"]["forget_Q_A_Prob"]["target"] == results["reference"]["metrics"]["forget_Q_A_Prob"]["value"]
    )
    aligned = [results[side]["gradient_alignment"] for side in ("before", "metrics")]
    assert all(x["target"] == results["reference"]["metrics"]["gradient_alignment"]["value"] for x in aligned)
    assert len({x["value"] for x in aligned} | {aligned[0]["target"]}) == 3
    assert all(x["n"] == 8 and -1 < x["value"] < 1 for x in aligned)
    assert "`gradient_alignment`" in (run / "hf/README.md").read_text()
    assert [h["step"] for h in results["history"]] == [1, 2]
    assert all("gradient_alignment" not in h["metrics"] for h in results["history"]), "it takes a gradient a row"
    assert results["cost"]["gradient_evaluations"] == 3 * (2 * 6 + 22) + 10 * 2 / 4, (
        "and the examination of two rows of four: two gradients, a product with the Hessian and a third derivative"
    )
    assert results["provenance"]["hashes"]["forget"]


def test_samples(run):
    lines = [json.loads(line) for line in (run / "samples.jsonl").read_text().splitlines()]
    results = json.loads((run / "results.json").read_text())["metrics"]
    assert sum(line["set"] == "forget" for line in lines) == results["forget_Q_A_Prob"]["n"] == 8
    assert all(isinstance(line[k], str) for line in lines for k in ("question", "truth", "before", "after"))
    assert all(0 < line[k] < 1 for line in lines for k in ("probability_before", "probability_after"))
    page = (run / "audit.html").read_text()
    assert page.count("<dt>Retrained model, the goal") == page.count("<dt>Model after") > 0


def test_tensorboard_has_scalars_and_compares_runs_by_their_settings(run):
    events = EventAccumulator(str(run))
    events.Reload()
    tags = set(events.Tags()["scalars"])
    wanted = {"L_f", "L_r", "Sim", "grad_Phi", "rho", "penalty", "seconds", "peak_memory_GB"}
    assert wanted | {"metrics/forget_quality", "metrics/forget_Q_A_Prob"} <= tags
    assert [e.step for e in events.Scalars("L_f")] == [1, 2, 3]
    assert [e.value for e in events.Scalars("rho")] == pytest.approx([0.3, 0.45, 0.675])
    held = yaml.safe_load((run / "hparams.yaml").read_text())
    assert held["model.upper.rho_0"] == 0.3
    assert held["model.class_path"] == "OFMU"
    assert not [name for name in held if "forget" in name and name.startswith("data.")], "no rows, and no names"
    said = events.PluginTagToContent("hparams")
    started = plugin_data_pb2.HParamsPluginData.FromString(said["_hparams_/session_start_info"]).session_start_info
    assert started.hparams["model.upper.rho_0"].number_value == 0.3
    names = plugin_data_pb2.HParamsPluginData.FromString(said["_hparams_/experiment"]).experiment.metric_infos
    assert "metrics/forget_quality" in {info.name.tag for info in names}


def test_the_exported_folder_reloads_with_equal_logits(run):
    exported = AutoModelForCausalLM.from_pretrained(run / "hf", attn_implementation="eager").eval()
    before = AutoModelForCausalLM.from_pretrained(run / "hf", attn_implementation="eager").eval()
    checkpoint = torch.load(run / "checkpoints/step=2.ckpt", weights_only=True)["state_dict"]
    before.load_state_dict({k.removeprefix("network."): v for k, v in checkpoint.items()})
    ids = torch.arange(12)[None]
    facts = json.loads((run / "hf/provenance.json").read_text())
    assert facts["streams"] == ["forget", "retain"]
    with torch.no_grad():
        difference = (exported(ids).logits - before(ids).logits).abs().max()
    assert 0 < difference < 1, "one small step lies between the checkpoint and the end"


@pytest.mark.parametrize("stop", [pytest.param("2", marks=pytest.mark.slow), "3"])
def test_stop_and_resume_ends_with_the_same_bits(fit, stop):
    """Over the border of an epoch (2 iterations) and in the middle of one."""
    options = ["--trainer.max_steps", "5", "--model.optimizer", "torch.optim.AdamW", "--model.optimizer.lr", "0.001"]
    options += ["--model.scheduler", "torch.optim.lr_scheduler.LinearLR"]
    options += ["--model.upper.every", "2", "--model.upper.start", "0.3"]
    whole = fit(*options)
    options[1] = stop
    part = fit(*options)
    options[1] = "5"
    resumed = fit(*options, "--ckpt_path", str(part / f"checkpoints/step={stop}.ckpt"))
    a, b = (torch.load(f / "checkpoints/step=5.ckpt", weights_only=True) for f in (whole, resumed))
    assert all(torch.equal(a["state_dict"][k], b["state_dict"][k]) for k in a["state_dict"])
    assert a["ofmu"] == b["ofmu"]
    results = [json.loads((f / "results.json").read_text()) for f in (whole, resumed)]
    assert results[0]["before"] == results[1]["before"]
    assert results[0]["metrics"] == results[1]["metrics"]
    options[1] = stop
    changed = fit(*options, "--seed_everything", "1")
    b, c = (torch.load(f / f"checkpoints/step={stop}.ckpt", weights_only=True) for f in (part, changed))
    assert not all(torch.equal(b["state_dict"][k], c["state_dict"][k]) for k in b["state_dict"]), "the seed matters"


# Benchmarks are parsed by tests/benchmark/test_configs.py, and one of them here.
SHIPPED = [p for p in (ROOT / "configs").rglob("*.yaml") if p.parent.name != "benchmarks" or p.stem == "field"]


@pytest.mark.parametrize("path", sorted(SHIPPED), ids=lambda p: p.name)
def test_every_shipped_config_parses(path, capsys):
    command, base = "fit", []
    if path.parent.name in ("benchmarks", "requests"):
        command = path.parent.name.replace("benchmarks", "benchmark")
    elif path.stem.startswith("attacks"):
        command = "attack"
    elif path.parent.name == "cifar" or path.match("tiny/cifar.yaml"):
        base = ["--config", str(ROOT / "configs/cifar.yaml")]
    elif path.parent.name in ("methods", "hardware") or path.match("tiny/tofu.yaml"):
        base = ["--config", str(ROOT / f"configs/{'digits' if is_for_images(path) else 'tofu'}.yaml")]
    with pytest.raises(SystemExit) as stop:
        main([command, *base, "--config", str(path), "--print_config"])
    assert stop.value.code == 0
    printed = yaml.safe_load(capsys.readouterr().out)
    if command == "fit":
        assert printed["model"]["class_path"].removeprefix("ofmu_pl.") in ofmu_pl.__all__
    elif command == "benchmark":
        assert all(e["methods"] for e in printed["experiments"].values())
    else:
        assert printed["attacks" if command == "attack" else "methods"]


def test_the_recipe_of_open_unlearning_is_theirs(capsys):
    """locuslab/open-unlearning d3d7cf9: trainer/finetune.yaml, experiment/unlearn/tofu/default.yaml and its script."""
    files = ("tofu.yaml", "methods/recipe_open_unlearning.yaml", "methods/npo.yaml")
    with pytest.raises(SystemExit):
        main(["fit", *(f"--config={ROOT / 'configs' / name}" for name in files), "--print_config"])
    found = yaml.safe_load(capsys.readouterr().out)
    optimizer, scheduler = (found["model"]["init_args"][name] for name in ("optimizer", "scheduler"))
    assert optimizer["class_path"] == "torch.optim.AdamW"
    wanted = {"lr": 1e-5, "betas": [0.9, 0.999], "eps": 1e-8, "weight_decay": 0.01, "amsgrad": False}
    assert {key: optimizer["init_args"][key] for key in wanted} == wanted
    assert found["model"]["init_args"]["gradient_clip"] == 1.0  # max_grad_norm of Hugging Face's Trainer
    rows, devices, per_device, accumulated, epochs = 400, 2, 4, 4, 10
    steps = -(-rows // (devices * per_device)) // accumulated * epochs
    assert found["data"]["init_args"]["batch_size"] == devices * per_device * accumulated
    assert found["trainer"]["max_steps"] == steps == 120
    assert found["trainer"]["accumulate_grad_batches"] == 1
    rates = []
    theirs = partial(get_linear_schedule_with_warmup, num_warmup_steps=12, num_training_steps=steps)
    for make in (partial(OneCycleLR, **scheduler["init_args"]), theirs):
        ours = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=optimizer["init_args"]["lr"])
        schedule = make(ours)
        rates.append([])
        for _ in range(steps):
            rates[-1].append(ours.param_groups[0]["lr"])
            ours.step()
            schedule.step()
    assert rates[0] == pytest.approx(rates[1], rel=1e-9, abs=1e-15)
