"""Which checkpoints a run goes on from."""

from __future__ import annotations

import json

import pytest
import torch
from lightning.pytorch.callbacks import ModelCheckpoint

from ofmu_pl.modules import FineTune
from ofmu_pl.networks import CausalLM
from ofmu_pl.support.errors import UserError
from ofmu_pl.support.records import Results
from ofmu_pl.training.checkpoints import ENDED, SETTINGS, progress, resumed_from
from ofmu_pl.training.run_folders import choose
from ofmu_pl.training.settings import length, settings
from tests.helpers.training import TINY, train


def resolved(method):
    return {"model": {"class_path": method, "init_args": {"beta": 0.5}}, "trainer": {"max_steps": 4}}


def test_a_class_that_moved_within_the_package_is_the_same_setting(tmp_path):
    path = tmp_path / "old.ckpt"
    old = {"model.class_path": '"ofmu_pl.modules.ofmu.OFMU"', "model.init_args.beta": "0.5"}
    torch.save({SETTINGS: old}, path)
    assert resumed_from(str(path), tmp_path, settings(resolved("ofmu_pl.OFMU"))) == path
    for other in ("ofmu_pl.NPO", "theirs.OFMU"):
        with pytest.raises(UserError, match=r"other settings \(model.class_path was"):
            resumed_from(str(path), tmp_path, settings(resolved(other)))


def test_options_of_older_versions_are_no_settings(tmp_path):
    path, now = tmp_path / "old.ckpt", resolved("ofmu_pl.OFMU")
    torch.save({SETTINGS: settings(now) | {"data.init_args.pairs": "1", "model.init_args.rollbacks": "3"}}, path)
    now["data"] = {"init_args": {"num_batches": 1}}
    assert resumed_from(str(path), tmp_path, settings(now)) == path


def test_what_older_versions_kept_for_steps_that_they_halved_is_no_hindrance(tmp_path):
    train(FineTune(CausalLM(config=TINY)), steps=1, callbacks=[ModelCheckpoint(tmp_path, "old")])
    path = tmp_path / "old.ckpt"
    torch.save(torch.load(path, weights_only=True) | {"step_scale": 1.0}, path)
    assert train(FineTune(CausalLM(config=TINY)), steps=2, ckpt_path=path).global_step == 2


def test_the_precision_is_a_setting_and_its_older_name_the_same(tmp_path):
    path = tmp_path / "old.ckpt"
    now = {name: resolved("ofmu_pl.OFMU") for name in ("bf16", "bf16-mixed", "32-true", None)}
    for name, config in now.items():
        config["trainer"]["precision"] = name
    for then, same, other in (("bf16", "bf16-mixed", None), (None, "32-true", "bf16")):
        torch.save({SETTINGS: settings(now[then])}, path)
        assert resumed_from(str(path), tmp_path, settings(now[same])) == path
        with pytest.raises(UserError, match=r'other settings \(trainer.precision was ".*-.*", is ".*-.*"\): give'):
            resumed_from(str(path), tmp_path, settings(now[other]))
    before = {k: v for k, v in settings(now["bf16"]).items() if k != "trainer.precision"}  # of older versions
    torch.save({SETTINGS: before}, path)
    assert resumed_from(str(path), tmp_path, settings(now["bf16"])) == path


def test_a_finished_run_of_another_precision_is_another_run(tmp_path):
    """It has kept no checkpoint, so that its configuration is what is compared."""
    config = resolved("ofmu_pl.OFMU") | {"export": {"folder": None}}
    folder = tmp_path / "version_0"
    folder.mkdir()
    (folder / "config.yaml").write_text(json.dumps(config))
    Results({}, provenance={"steps": 4}).write(folder / "results.json")
    (tmp_path / "latest").symlink_to("version_0")
    assert choose(tmp_path, "fit", "last", config).done
    config["trainer"]["precision"] = "bf16-mixed"
    assert not choose(tmp_path, "fit", "last", config).done


def stopped_by(class_path, gradients=8.0):
    callbacks = [{"class_path": class_path, "init_args": {"gradients": gradients}}]
    return {"trainer": {"max_steps": 40, "callbacks": callbacks}}


def test_a_run_that_a_callback_stopped_has_ended_wherever_the_callbacks_class_lies_now(tmp_path):
    path, old = tmp_path / "old.ckpt", stopped_by("ofmu_pl.callbacks.budget.GradientBudget")
    names = ("max_steps", "max_epochs", "min_steps", "min_epochs", "max_time", "callbacks")
    then = json.dumps({name: old["trainer"].get(name) for name in names}, sort_keys=True)  # as 0.1.0 wrote it
    for written in (then, length(stopped_by("ofmu_pl.GradientBudget"))):
        torch.save({"global_step": 4, ENDED: written}, path)
        assert progress(path, stopped_by("ofmu_pl.training.budget.GradientBudget")) == (4, True)
        assert progress(path, stopped_by("ofmu_pl.training.budget.GradientBudget", 16.0)) == (4, False)
        assert progress(path, stopped_by("theirs.GradientBudget")) == (4, False)
    torch.save({"global_step": 4}, path)
    assert progress(path, stopped_by("ofmu_pl.GradientBudget")) == (4, False)
