"""Trains the target and the retrained model, from scratch or from a base model, once, and keeps them by content."""

from __future__ import annotations

import copy
import time
from dataclasses import asdict, dataclass, replace
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any, Literal

import lightning.pytorch as pl
import torch
from lightning.pytorch.utilities import rank_zero_info
from lightning.pytorch.utilities.seed import isolate_rng

from ofmu_pl.data.tokenizers import refuse_other_tokens
from ofmu_pl.evaluation.reference import Facts
from ofmu_pl.modules.finetune import FineTune
from ofmu_pl.networks.language import CausalLM
from ofmu_pl.networks.vision import ImageNetwork
from ofmu_pl.support.errors import UserError, check_range
from ofmu_pl.support.files import sweep
from ofmu_pl.support.kept import cache_folder, content_path, damage, warn_damaged, warn_not_kept
from ofmu_pl.training.export import save_model
from ofmu_pl.training.noise import SILENT
from ofmu_pl.training.progress import IterationProgressBar

IMAGES = {"epochs": 30, "lr": 0.1, "weight_decay": 5e-4, "batch_size": 128}
TEXT = {"epochs": 10, "lr": 1e-4, "weight_decay": 0.0, "batch_size": 8}
ADAPTERS_LR = 1e-3  # highest rate where only adapters are trained


@dataclass
class Original:
    """How target and retrained model are trained: image classifiers from scratch, language models from a base model.

    Image classifiers learn by SGD with Nesterov's momentum, language models by AdamW. The rate makes one cycle, and
    momentum (AdamW's first decay) goes from .95 to .85 and back.

    Attributes:
        base: Folder or hub id of the language model that both are fine-tuned from; image classifiers have none.
        epochs: Number of passes over the rows; ``null``: 30 for images (published: 182 with a stepwise rate; 30 with
            one cycle come close), 10 for text.
        lr: Highest learning rate; ``null``: 0.1 for images, 1e-4 for text, 1e-3 for adapters.
        weight_decay: Weight decay; ``null``: 5e-4 for images, 0 for text.
        batch_size: Rows per step; ``null``: 128 images, 8 rows of text.
        precision: Lightning's name of the precision; bf16-mixed halves the time on a GPU.
    """

    base: str | None = None
    epochs: int | None = None
    lr: float | None = None
    weight_decay: float | None = None
    batch_size: int | None = None
    precision: Literal["32-true", "bf16-mixed"] = "32-true"

    def filled(self, recipe: ImageNetwork | CausalLM) -> Original:
        """The settings with all that a network of this kind needs.

        >>> Original("gpt2", epochs=4).filled(CausalLM("gpt2")).lr
        0.0001
        """
        text = isinstance(recipe, CausalLM)
        if text and self.base is None:
            raise UserError("Target and retrained model are fine-tuned from a model: give it as `original.base`.")
        if self.base is not None and not text:
            raise UserError("`original.base` is for text, and the network is for images: leave it out.")
        usual: dict[str, Any] = TEXT | ({"lr": ADAPTERS_LR} if recipe.adds_adapters else {}) if text else IMAGES
        found = replace(self, **{name: x for name, x in usual.items() if getattr(self, name) is None})
        check_range(1, epochs=found.epochs, batch_size=found.batch_size)
        check_range(0, above=True, lr=found.lr)
        check_range(0, weight_decay=found.weight_decay)
        return found


def original(
    how: Original,
    recipe: ImageNetwork | CausalLM,
    data: Any,
    split: Literal["full", "retain"],
    seed: int,
    folder: Path,
    accelerator: Any = "auto",
    progress: bool = True,
) -> Path:
    """Train a model on a split, unless the cache has it already; returns its folder.

    The seed, of the network and of the order of batches, is the same for target (``full``) and retrained model
    (``retain``), as published. ``folder`` keeps the model where there is no cache, or it takes no files.
    """
    how = how.filled(recipe)
    assert how.epochs is not None, "filled has not done its work"
    data.setup()
    data = copy.copy(data)
    vars(data).update(trainer=None, streams=(split,), num_batches=1, batch_size=how.batch_size, seed=seed)
    data.require(data.splits)
    if how.base is not None:
        refuse_other_tokens("base model", how.base, data.encoder, template=False)
    recipe = recipe.at(how.base)  # which images have none of
    if isinstance(recipe, ImageNetwork):
        recipe.bn_mode = "retain"
    facts = _facts(how, recipe, data, split, seed)
    folders = [root / "models" for root in (cache_folder(), folder) if root is not None]
    paths = [content_path(root, split, facts).with_suffix("") for root in folders]
    for path in filter(Path.is_dir, paths):
        problem = damage(path)
        if problem is None:
            return path
        warn_damaged(path, problem)
    kind = "original" if split == "full" else "retrained"
    rank_zero_info(f"Training the {kind} model, {how.epochs} epochs: {paths[0]}")
    steps = how.epochs * data.iterations_per_epoch
    descent: dict[str, Any] = {"lr": how.lr, "weight_decay": how.weight_decay}
    if how.base is None:
        descent |= {"momentum": 0.9, "nesterov": True}  # the scheduler moves it
    module = FineTune(
        recipe,
        split=split,
        optimizer=partial(torch.optim.AdamW if how.base else torch.optim.SGD, **descent),
        scheduler=partial(torch.optim.lr_scheduler.OneCycleLR, max_lr=descent["lr"], total_steps=steps),
        gradient_clip=1.0 if how.base else None,
    )
    trainer = pl.Trainer(
        accelerator=accelerator,
        devices=1,
        precision=how.precision,
        max_steps=steps,
        callbacks=[IterationProgressBar()] if progress else [],
        enable_progress_bar=progress,
        **SILENT,
    )
    started = time.perf_counter()
    with isolate_rng():
        pl.seed_everything(seed, verbose=False)
        trainer.fit(module, datamodule=data)
    cost = {"training_seconds": time.perf_counter() - started, "gradient_evaluations": module.gradient_evaluations}
    save = partial(save_model, trainer=trainer, pl_module=module, how=asdict(how), seed=seed, cost=cost)
    for path in paths[:-1]:  # the cache, which may be full or take nothing
        try:
            save(path)
            sweep(path.parent)
            return path
        except OSError as error:
            warn_not_kept(path.parent, error)
    save(paths[-1])
    return paths[-1]


def _facts(how: Original, recipe: ImageNetwork | CausalLM, data: Any, split: str, seed: int) -> Facts:
    """All that a model follows from."""
    settings = {name: x for name, x in asdict(how).items() if x is not None and name != "base"}  # its weights count
    facts = {"how": settings, "network": recipe.identity, "seed": seed, "torch": torch.__version__.split("+")[0]}
    if isinstance(recipe, CausalLM):
        versions = {name: version(name) for name in ("transformers", "peft")}
        return facts | {"hashes": {split: data.hashes[split]}, "data": data.facts, "versions": versions}
    kept = ("full", "validation", "test")  # what loading it will ask for
    return facts | {"hashes": {name: data.hashes[name] for name in {split, *kept}}, "augment": data.augment}
