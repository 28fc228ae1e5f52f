"""Every shipped benchmark, planned without a run."""

from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml
from jsonargparse import auto_cli

from ofmu_pl.benchmark.comparison import Comparisons
from ofmu_pl.benchmark.grid import Grid
from ofmu_pl.benchmark.specs import Planned, check
from ofmu_pl.cli import main
from tests.helpers.printed import blocks

ROOT = Path(__file__).parent.parent.parent
PAPER = (
    "tab:tofu-llama2-results tab:tofu-llama3-results fig:llama_overall tab:cifar-combined tab:cifar100-combined "
    "fig:cifar10_performance tab:wmdp-results tab:hard-inscope tab:udi-corr fig:udi-intro tab:embed-sim fig:easy_hard "
    "tab:ofmu-ablation fig:inner-rho-subplots tab:runtime-comparison tab:memory-usage-single-fwd lem:ofmu-convergence"
).split()


def read(name: str, experiments: dict[str, Planned], workers: int = 2, pieces: Any = None):
    return experiments


@pytest.fixture
def experiments(request, monkeypatch):
    monkeypatch.chdir(ROOT)
    for name in ("OFMU_SHARED", "OFMU_WMDP", "OFMU_PROBES", "OFMU_LANGUAGE"):
        monkeypatch.setenv(name, "/data")
    return parsed(request.param)


@cache
def parsed(path):
    return auto_cli(read, args=["--config", str(path)], as_positional=False)


EACH = pytest.mark.parametrize(
    "experiments", sorted((ROOT / "configs/benchmarks").glob("*.yaml")), indirect=True, ids=lambda p: p.stem
)


@EACH
def test_every_benchmark_plans(experiments, tmp_path):
    folder = tmp_path / "b"
    check(experiments, folder)
    Comparisons(folder, experiments)
    grid = Grid(experiments)
    cells = {cell.key: cell for _, _, cell in grid.first()}
    for name, e in experiments.items():
        assert e.ours in e.methods
        assert e.title
        for method, scenario in grid.searches(name):
            cells |= {cell.key: cell for _, cell in grid.candidates(name, method, scenario)}
        for scenario in e.scenarios:
            for method, m in e.methods.items():
                choice = next(iter(m.candidates), {})
                cells |= {cell.key: cell for cell in (grid.run(name, method, scenario, s, choice) for s in e.seeds)}
    folders = [cell.folder for cell in cells.values()]
    assert len(set(folders)) == len(folders)
    for cell in cells.values():
        assert "${" not in " ".join(cell.words(folder))
        assert set(cell.needs) <= set(cells)
    for e in experiments.values():
        searches = [m.candidates for m in e.methods.values() if m.candidates]
        assert len({len(candidates) for candidates in searches}) <= 1, "the same search for every method"


@pytest.mark.slow
@EACH
def test_the_command_of_every_method_can_be_read(experiments, tmp_path, capsys):
    """An option of all runs that one method lacks would stop the benchmark at that method."""
    grid, refused = Grid(experiments), {}
    for name, e in experiments.items():
        scenario = next(iter(e.scenarios))
        for method, m in e.methods.items():
            cell = grid.run(name, method, scenario, e.seeds[0], next(iter(m.candidates), {}))
            with pytest.raises(SystemExit) as stop:
                main([*cell.words(tmp_path), "--print_config"])
            said = capsys.readouterr().err
            if stop.value.code:
                refused[name, method] = said
    assert not refused


@pytest.mark.parametrize("experiments", [ROOT / "configs/benchmarks/paper_tiny.yaml"], indirect=True)
def test_embeddings_are_taken_of_the_runs_of_the_main_table(experiments):
    grid = Grid(experiments)
    e = experiments["alignment"]
    settings = {m: next(iter(method.candidates)) for m, method in e.methods.items()}
    for m, choice in settings.items():
        grid.run("authors", m, "forget05", 4, choice)
        assert grid.run("alignment", m, "forget05", 4, choice).folder == f"authors/forget05/{m}/seed_4"


@pytest.mark.parametrize(
    ("experiments", "more"),
    [  # random draws of TOFU would need retrained models that nobody published
        (ROOT / "configs/benchmarks/paper_tiny.yaml", ["tab:variance"]),
        (ROOT / "configs/benchmarks/paper_full.yaml", []),
    ],
    indirect=["experiments"],
)
def test_every_table_and_figure_of_the_paper_is_there(experiments, more):
    labels = {label for e in experiments.values() for label in e.paper}
    assert {*PAPER, *more} <= labels


def test_the_benchmark_of_the_page_plans_with_equal_budgets_and_searches(tmp_path):
    (text,) = (text for page, text in blocks("yaml") if page == "docs/benchmarks.md")
    (tmp_path / "mine.yaml").write_text(text)
    experiments = parsed(tmp_path / "mine.yaml")
    check(experiments, tmp_path / "mine")
    (e,) = experiments.values()
    assert e.ours in e.methods
    assert {len(method.candidates) for method in e.methods.values()} == {3}
    grid = Grid(experiments)
    words = {}
    for m, method in e.methods.items():
        given = grid.run("tofu", m, "all", 0, method.candidates[0]).words(tmp_path / "mine")
        words[m] = dict(word.split("=", 1) for word in given[1:])
    assert words[e.ours]["--model"] == "my_methods.LogAscent"
    assert len({given["--trainer.callbacks"] for given in words.values()}) == 1


def test_two_forms_of_ofmu_ship():
    """Each configuration can be read by itself, so all spell it out; only what fits rates and data differs."""

    def model(name):
        return yaml.safe_load((ROOT / f"configs/{name}.yaml").read_text())["model"]["init_args"]

    printed, reach = (model(f"methods/ofmu_{form}") for form in ("printed", "reach"))
    assert model("methods/ofmu_first_order") == {"beta": 0.0, "upper": {"class_path": "NoPenalty"}}
    shipped = {"tofu": reach} | dict.fromkeys(("authors", "wmdp", "cifar", "digits", "tiny/trivia"), printed)
    others = []
    for name, form in shipped.items():
        found = model(name)
        assert found["optimizer"]["class_path"] == "ofmu_pl.core.shared_adam.SharedAdam"
        upper = found["upper"]["init_args"]
        assert upper.get("every", 20) in (10, 20)
        every = {"every": 20} if "every" in upper else {}
        assert found | {"upper": found["upper"] | {"init_args": upper | every}} == found | form
        rates = (*form, "network", "engine", "micro_batch_size", "optimizer", "scheduler", "lower")
        others.append({key: value for key, value in found.items() if key not in rates})
    assert others == [others[0]] * len(others)
    reach["upper"]["init_args"].pop("start_iterations")  # a path says how far the run is
    assert {key: model("text")[key] for key in reach} == reach
