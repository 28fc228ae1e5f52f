"""``fit --dry_run`` on every configuration that is shipped: minutes for all, most of them for models of 7B."""

import json
import re
from pathlib import Path

import pytest
import yaml
from PIL import Image

from ofmu_pl.benchmark.grid import Grid
from ofmu_pl.data import Authors
from ofmu_pl.planning.needs import STEPS
from tests.benchmark.test_configs import parsed
from tests.helpers.citizen_rows import written
from tests.helpers.methods import is_for_images
from tests.helpers.training import TINY

pytestmark = pytest.mark.slow
CONFIGS = Path(__file__).parents[2] / "configs"
FULL = CONFIGS / "benchmarks/paper_full.yaml"
OWN = {  # what their first lines tell a user to add
    "authors": "--model.network.path {model}",
    "images": (
        "--data.forget {images}/forget --data.retain {images}/retain --data.test {images}/test "
        "--model.network.module resnet18 --model.network.path weights.pt"
    ),
    "text": "--model.network.path {model} --data.forget {forget} --data.retain {retain} --data.holdout {holdout}",
    "text_finetune": "--model.network.path {model} --data.forget {forget} --data.retain {retain}",
}
WHOLE = sorted(path.stem for path in CONFIGS.glob("*.yaml") if not path.stem.startswith("attacks"))
WHOLE += ["tiny/target", "tiny/trivia"]
OVERLAYS = [
    path for folder in ("cifar", "hardware", "methods", "tiny") for path in sorted((CONFIGS / folder).iterdir())
]
OVERLAYS = [f"{path.parent.name}/{path.stem}" for path in OVERLAYS]
OVERLAYS = [name for name in OVERLAYS if name not in WHOLE]


@pytest.fixture
def places(tmp_path):
    """What stands for a user's things, by name: a model's folder without weights, rows, images."""
    places = {name: str(tmp_path / name) for name in ("model", "images", "forget", "retain", "holdout")}
    data = Authors(authors=4, forget_authors=1)
    data.setup()
    data.tokenizer.save_pretrained(places["model"])
    shape = TINY | {"vocab_size": len(data.tokenizer), "max_position_embeddings": 512}
    shape["num_hidden_layers"] = 8  # among them the layer that RMU's configuration names
    (tmp_path / "model/config.json").write_text(json.dumps(shape))
    for name in ("forget", "retain", "holdout"):
        places[name] += ".jsonl"
        rows = [{"question": f"{i}. What is {name}?", "answer": f"It is {name}."} for i in range(32)]
        written(Path(places[name]), rows)
    for i in range(192):
        place = tmp_path / "images" / ("forget", "retain", "test")[i % 3] / "ab"[i % 2]
        place.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (32, 32), (i, 0, 0)).save(place / f"{i}.png")
    return places


def added(name):
    """What a configuration needs beside itself: a model, where it names a language model's class alone."""
    network = yaml.safe_load((CONFIGS / f"{name}.yaml").read_text())["model"]["init_args"]["network"]
    alone = network == {"class_path": "CausalLM"}
    return OWN.get(name, "--model.network.path {model}" if alone else "")


def passes(result):
    code, verdicts, said = result
    assert (code, verdicts) == (0, dict.fromkeys(STEPS, "ok")), said


@pytest.mark.parametrize("name", WHOLE)
def test_a_configuration_passes(tried, places, name):
    passes(tried("--config", f"configs/{name}.yaml", *added(name).format(**places).split()))


@pytest.mark.parametrize("name", OVERLAYS)
def test_an_overlay_passes(tried, places, name):
    folder, stem = name.split("/")
    base = "cifar" if folder == "cifar" else "digits" if is_for_images(CONFIGS / f"{name}.yaml") else "authors"
    base = {"rmu_wmdp": "wmdp", "batchnorm_only": "cifar"}.get(stem, stem if folder == "tiny" else base)
    if stem in ("altpo", "idk_dpo"):  # of TOFU's own rows
        base = "tofu"
    more = OWN["authors"].format(**places).split() if base in ("authors", "tofu") else []
    passes(tried("--config", f"configs/{base}.yaml", "-c", f"configs/{name}.yaml", *more))


@pytest.mark.timeout(3600)  # models of 7B, method by method
@pytest.mark.parametrize("experiment", yaml.safe_load(FULL.read_text())["experiments"])
def test_the_cells_of_the_papers_benchmark_pass(tried, monkeypatch, tmp_path, experiment):
    """Those that differ in numbers other than 0 alone take the same way, and one of them is tried."""
    monkeypatch.setenv("OFMU_WMDP", str(tmp_path / "wmdp"))
    monkeypatch.setenv("OFMU_PROBES", str(tmp_path / "probes"))
    (tmp_path / "wmdp").mkdir()
    (tmp_path / "wmdp/bio-forget-corpus.jsonl").write_text('{"text": "Nothing."}\n')
    monkeypatch.chdir(CONFIGS.parent)
    e, grid = parsed(FULL)[experiment], Grid(parsed(FULL))
    tries = {}
    for scenario in e.scenarios:
        for method, m in e.methods.items():
            cell = grid.run(experiment, method, scenario, e.seeds[0], next(iter(m.candidates), {}))
            if cell.folder.startswith(f"{experiment}/"):  # else another experiment's
                words = cell.words(tmp_path)[1:]
                way = " ".join(word for word in words if not word.startswith(("--logs=", "--benchmark=", "--method=")))
                tries.setdefault(re.sub(r"\d*[1-9][\d.e-]*", "N", way), words)
    faults = {way: said for way, words in tries.items() for code, _, said in [tried(*words)] if code}
    assert tries
    assert not faults
