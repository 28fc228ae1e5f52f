"""Which checkpoints a run goes on from."""

from __future__ import annotations

import pytest
import torch

from ofmu_pl.support.errors import UserError
from ofmu_pl.training.checkpoints import SETTINGS, resumed_from, settings


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


def test_a_link_from_the_method_that_has_another_name_now_is_no_setting(tmp_path):
    path, now = tmp_path / "old.ckpt", resolved("ofmu_pl.OFMU")
    torch.save({SETTINGS: settings(now) | {"data.init_args.pairs": "1"}}, path)
    now["data"] = {"init_args": {"num_batches": 1}}
    assert resumed_from(str(path), tmp_path, settings(now)) == path
