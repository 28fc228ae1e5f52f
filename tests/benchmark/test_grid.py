"""Which runs follow from experiments, and when two are the same run."""

import re
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from ofmu_pl.benchmark.grid import Cell, Grid
from ofmu_pl.benchmark.specs import Planned, Prepare, SearchedMethod, check
from ofmu_pl.support.errors import UserError

ROOT = Path(__file__).parent.parent.parent
CONFIGS = ROOT / "configs"


TARGET = str(CONFIGS / "authors_finetune.yaml")
TEXT = Planned(
    title="Text",
    base=str(CONFIGS / "authors.yaml"),
    methods={
        "npo": SearchedMethod(str(CONFIGS / "methods/npo.yaml"), search={"model.optimizer.lr": [1e-4, 1e-3]}),
        "ofmu": SearchedMethod(search=[{"model.stepper.lr": 0.01, "model.beta": 0.2}, {"model.stepper.lr": 0.02}]),
    },
    scenarios={"small": {"data.forget_authors": 1}, "large": {"data.forget_authors": 2}},
    options={"data.authors": 9, "export.folder": "hf"},
    seeds=[0, 1],
    search_options={"evaluation.reference": None},
    prepare={
        "target": Prepare(TARGET, "model.network.path", each=["seed"]),
        "retrained": Prepare(TARGET, "evaluation.reference", {"model.split": "retain"}),
    },
)
experiment = partial(replace, TEXT)


def options(words):
    """Of a command line, by key."""
    return dict(word[2:].split("=", 1) for word in words[1:] if not word.endswith("progress_bar=false"))


def test_a_base_of_several_files_is_applied_in_order(tmp_path):
    names = ("first.yaml", "second.yaml")
    for name in names:
        (tmp_path / name).write_text(name)
    both = [str(tmp_path / name) for name in names]
    npo = str(CONFIGS / "methods/npo.yaml")
    grids = [Grid({"text": experiment(base=base, prepare={})}) for base in (both, both[::-1])]
    cells = [grid.run("text", "npo", "small", 0) for grid in grids]
    assert [cell.words(tmp_path)[1:4] for cell in cells] == [
        [f"--config={path}" for path in paths] for paths in ([*both, npo], [*both[::-1], npo])
    ]
    assert cells[0].key != cells[1].key


def test_prepared_models_are_made_once_for_what_they_depend_on():
    grid = Grid({"text": experiment()})
    first = {cell.folder for _, _, cell in grid.first()}
    targets = [f for f in first if "/target/" in f]
    retrained = [f for f in first if "/retrained/" in f]
    assert sorted(targets) == [f"prepared/text/target/seed_{s}" for s in (0, 1, 1000)]
    wanted = [f"prepared/text/retrained/{scenario}/seed_{s}" for scenario in ("large", "small") for s in (0, 1)]
    assert sorted(retrained) == wanted, "the search needs none: its options replace the reference"


def test_no_run_of_a_search_lies_among_reported_ones():
    grid = Grid({"text": experiment(methods={"do_nothing": SearchedMethod(), **TEXT.methods})})
    run = [grid.run("text", "do_nothing", "small", seed).folder for seed in (0, 1000)]
    assert run == ["text/small/do_nothing/seed_0", "search/text/small/do_nothing/seed_1000"]
    assert {cell.folder for _, _, cell in grid.first()} >= {*run}


def test_words_of_runs(tmp_path):
    grid = Grid({"text": experiment()})
    words = options(grid.run("text", "ofmu", "large", 1, {"model.stepper.lr": 0.5}).words(tmp_path / "b"))
    prepared = f"{tmp_path}/b/prepared/text"
    assert words == {
        "config": str(CONFIGS / "authors.yaml"),
        "data.authors": "9",
        "export.folder": "hf",
        "model.network.path": f"{prepared}/target/seed_1/latest/hf",
        "evaluation.reference": f"{prepared}/retrained/large/seed_1/latest/hf",
        "data.forget_authors": "2",
        "model.stepper.lr": "0.5",
        "seed_everything": "1",
        "trainer.max_steps": "320",
        "trainer.callbacks": '[{"class_path": "GradientBudget", "init_args": {"gradients": 320}}]',
        "logs": str(tmp_path),
        "benchmark": "b/text/large/ofmu",
        "method": "seed_1",
    }
    (_, first), (choice, second) = grid.candidates("text", "npo", "small")
    words = options(second.words(tmp_path / "b"))
    assert choice == {"model.optimizer.lr": 1e-3}
    assert first.key != second.key
    assert (words["seed_everything"], words["evaluation.reference"]) == ("1000", "null")
    assert "ValidationRows" in words["trainer.callbacks"]


def test_what_is_asked_for_alike_is_one_run():
    text = experiment()
    scenario = {"other_name": {"data.forget_authors": 2}}
    turned = dict(reversed(text.options.items()))
    grid = Grid({"text": text, "again": replace(text, scenarios=scenario, options=turned, seeds=[1, 5], kind="cost")})
    ours, theirs = (grid.run(name, "npo", s, 1, {}) for name, s in (("text", "large"), ("again", "other_name")))
    assert theirs is ours
    assert theirs.folder == "text/large/npo/seed_1"
    assert grid.run("again", "npo", "other_name", 5, {}).folder == "again/other_name/npo/seed_5"


def test_keys_follow_the_content(tmp_path):
    overlay, target = tmp_path / "overlay.yaml", tmp_path / "target.yaml"
    overlay.write_text("a: 1")
    target.write_text("a: 1")
    prepare = {"target": Prepare(str(target), "model.network.path")}

    def key(**changes):
        asked = experiment(methods={"m": SearchedMethod(str(overlay))}, prepare=prepare, **changes)
        return Grid({"e": asked}).run("e", "m", "small", 0).key

    before = key()
    assert key() == before
    assert key(title="Another", metrics=["forget_quality"], seeds=[0, 7], kind="cost") == before
    assert key(gradients=321) != before
    overlay.write_text("a: 2")
    changed = key()
    assert changed != before
    target.write_text("a: 2")
    assert key() != changed, "another target is another run"


def test_settings_are_searched_where_the_experiment_says():
    first, own = experiment(), experiment(settings_of="own/small")
    experiments = {"own": own, "first": first, "other": experiment(settings_of="first/large")}
    check(experiments, Path("logs/b"))
    grid = Grid(experiments)
    assert grid.searches("own") == [("npo", "small"), ("ofmu", "small")]
    assert len(grid.searches("first")) == 4
    assert grid.searches("other") == []


@pytest.mark.parametrize(
    ("changes", "token"),
    [
        ({"seeds": [0, 0]}, "seeds"),
        ({"seeds": []}, "seeds"),
        ({"seeds": [1000]}, "search_seed"),
        ({"base": []}, "base"),
        ({"base": [str(CONFIGS / "authors.yaml"), "nowhere.yaml"]}, "'nowhere.yaml'"),
        ({"methods": {"m": SearchedMethod("nowhere.yaml")}}, "'nowhere.yaml'"),
        ({"methods": {"../m": SearchedMethod()}}, "leads"),
        ({"methods": {"a/b": SearchedMethod()}}, "'a/b'"),
        ({"scenarios": {"search": {}}}, "'search'"),
        ({"methods": {"report": SearchedMethod()}}, "'report'"),
        ({"options": {"data.data": "${OFMU_NOT_SET}/tofu"}}, "OFMU_NOT_SET"),
        ({"scenarios": {"s": {"data.a": "${OFMU_NOT_SET}"}}}, "OFMU_NOT_SET"),
        ({"scenarios": {"s": {"model.network.path": "x"}}}, "model.network.path"),
        ({"settings_of": "nothing/small"}, "'nothing/small'"),
        ({"settings_of": "first/medium"}, "'first/medium'"),
        ({"settings_of": "first", "methods": {"new": SearchedMethod(search={"data.a": [1]})}}, "new"),
        ({"kind": "alignment"}, "alignment"),
        ({"options": {"seed_everything": 3}}, "seed_everything"),
        ({"methods": {"m": SearchedMethod(options={"logs": "elsewhere"})}}, "logs"),
        ({"options": {"trainer.max_steps": 5}}, "trainer.max_steps"),
        ({"scenarios": {"s": {"trainer.callbacks": []}}}, "trainer.callbacks"),
        ({"methods": {"m": SearchedMethod(search={"seed_everything": [1, 2]})}}, "seed_everything"),
        ({"methods": {"m": SearchedMethod(search={"model.beta": []})}}, "no candidate"),
        ({"options": {"trainer.callbacks+": []}}, "trainer.callbacks"),
        ({"search_options": {"trainer.max_steps": 5}}, "trainer.max_steps"),
        ({"search_options": {"seed_everything": 5}}, "seed_everything"),
        ({"gradients": -5.0}, "gradients"),
        ({"gradients": 0.0}, "gradients"),
        ({"gradients": float("inf")}, "gradients"),
    ],
)
def test_bad_experiments_are_refused(changes, token):
    with pytest.raises(UserError, match=re.escape(token)):
        check({"first": experiment(), "text": experiment(**changes)}, Path("logs/b"))


def test_a_budget_beside_a_method_without_one():
    methods = {"budgeted": SearchedMethod(), "alone": SearchedMethod(budgeted=False)}
    check({"e": experiment(methods=methods, options={"trainer.max_steps": 5}, gradients=0.5)}, Path("logs/b"))


@pytest.mark.parametrize("value", ["{key}", "prepared:other", "prepared:../../x", "x prepared:{key}"])
def test_only_the_handle_of_a_prepared_run_stands_for_its_model(value, tmp_path):
    made = Cell("prepared/e/target", (), {}, {})
    text = value.format(key=made.key)
    (word,) = Cell("e/all/m", (), {"data.data": text}, {made.key: made}).words(tmp_path)[1:2]
    assert word == f"--data.data={text}"
    (word,) = Cell("e/all/m", (), {"data.data": f"prepared:{made.key}"}, {made.key: made}).words(tmp_path)[1:2]
    assert word == f"--data.data={tmp_path}/prepared/e/target/latest/hf"
