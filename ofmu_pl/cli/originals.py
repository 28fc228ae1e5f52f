"""Trains what a command lacks before it begins: the target, and the retrained model that it is compared with."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from jsonargparse import Namespace

from ofmu_pl.evaluation.base import Evaluation
from ofmu_pl.evaluation.originals import Original
from ofmu_pl.evaluation.reference import RETRAIN, SAYING_HOW
from ofmu_pl.modules.base import UnlearningModule
from ofmu_pl.networks.vision import ImageNetwork
from ofmu_pl.support.errors import UserError


def begin_from_base(config: Namespace) -> None:
    """Name the base model as the network's path where no path is given, so that data and plan know what to expect."""
    base = config.get("original.base")
    if base is None or not config.get("model.class_path"):
        return
    arguments = config["model"]["init_args"]["network"]["init_args"]
    if arguments.get("config") is not None:
        raise UserError(
            "original.base names weights to begin from, model.network.config random ones: leave one of the two out."
        )
    if arguments.get("path") is None:
        arguments["path"] = base


def require_target(module: UnlearningModule) -> None:
    """Refuse a classifier of random weights where a method unlearns and nothing says how to train one."""
    recipe = module.recipe
    if module.unlearns and isinstance(recipe, ImageNetwork) and recipe.path is None:
        raise UserError(
            "There is no model that could forget: give its folder as model.network.path, or say how to train one in "
            f"{SAYING_HOW['images']}."
        )


def train_originals(
    module: UnlearningModule, how: Original | None, evaluation: Evaluation, train: Callable[..., Path]
) -> None:
    """Train target and retrained model where a method that unlearns lacks them, once; they are kept by content.

    The target is trained where the network has no path, or the base model's own. The recipe then names it, and the
    evaluation's reference is the retrained model.
    """
    recipe: Any = module.recipe
    if how is None:
        require_target(module)
    elif module.unlearns:
        if evaluation.source == RETRAIN or (evaluation.source is None and how.base):
            evaluation.source = str(train(split="retain"))
        if recipe.path in (None, how.base):
            recipe.path = str(train(split="full"))
