"""Trains the target and the retrained model from scratch, once, and keeps them by content."""

from __future__ import annotations

import copy
import time
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal

import lightning.pytorch as pl
import torch
from lightning.pytorch.utilities import rank_zero_info
from lightning.pytorch.utilities.seed import isolate_rng

from ofmu_pl.modules.finetune import FineTune
from ofmu_pl.networks.vision import ImageNetwork
from ofmu_pl.support.kept import cache_folder, content_path, damage, sweep, warn_damaged, warn_not_kept
from ofmu_pl.training.export import save_model
from ofmu_pl.training.progress import IterationProgressBar


@dataclass
class Original:
    """Settings for training image classifiers from scratch: SGD with momentum, one cycle of the rate.

    Attributes:
        epochs: Number of passes over the images (published: 182 with a stepwise rate; 30 with one cycle come close).
        lr: Highest learning rate.
        momentum: Momentum of SGD (Nesterov).
        weight_decay: Weight decay of SGD.
        batch_size: Images per step.
        precision: Lightning's name of the precision; bf16-mixed halves the time on a GPU.
    """

    epochs: int = 30
    lr: float = 0.1
    momentum: float = 0.9
    weight_decay: float = 5e-4
    batch_size: int = 128
    precision: Literal["32-true", "bf16-mixed"] = "32-true"


def original(
    how: Original,
    recipe: ImageNetwork,
    data: Any,
    split: str,
    seed: int,
    folder: Path,
    accelerator: Any = "auto",
    progress: bool = True,
) -> Path:
    """Train a model on a split, unless the cache has it already; returns its folder.

    Args:
        how: Settings of the training.
        recipe: Recipe of the network; its path is ignored.
        data: An ``ImageDataModule``, set up here.
        split: ``full`` for the target, ``retain`` for the retrained model.
        seed: Seed of the initialisation (the same for both, as published) and of the order of batches.
        folder: Where to keep the model if there is no cache folder, or it takes no files.
        accelerator: Lightning's accelerator.
        progress: Show a progress bar.
    """
    data = copy.copy(data)
    data.trainer = None
    data.setup()
    data.streams, data.num_batches, data.batch_size, data.seed = (split,), 1, how.batch_size, seed
    recipe = recipe.untrained()
    recipe.bn_mode = "retain"
    kept = ("full", "validation", "test")  # what loading it will ask for
    facts = {
        "how": asdict(how),
        "network": recipe.identity,
        "hashes": {name: data.hashes[name] for name in {split, *kept}},
        "augment": data.augment,
        "seed": seed,
        "torch": torch.__version__.split("+")[0],
    }
    folders = [root / "models" for root in (cache_folder(), folder) if root is not None]
    paths = [content_path(root, split, facts).with_suffix("") for root in folders]
    found = _sound(paths)
    if found is not None:
        return found
    kind = "original" if split == "full" else "retrained"
    rank_zero_info(f"Training the {kind} model, {how.epochs} epochs: {paths[0]}")
    steps = how.epochs * data.iterations_per_epoch
    module = FineTune(
        recipe,
        split=split,  # type: ignore[arg-type]
        optimizer=lambda p: torch.optim.SGD(
            p, lr=how.lr, momentum=how.momentum, weight_decay=how.weight_decay, nesterov=True
        ),
        scheduler=partial(torch.optim.lr_scheduler.OneCycleLR, max_lr=how.lr, total_steps=steps),
        gradient_clip=None,
    )
    trainer = pl.Trainer(
        accelerator=accelerator,
        devices=1,
        precision=how.precision,
        max_steps=steps,
        max_epochs=-1,
        limit_val_batches=0,
        logger=False,
        callbacks=[IterationProgressBar()] if progress else [],
        enable_progress_bar=progress,
        enable_checkpointing=False,
        enable_model_summary=False,
        use_distributed_sampler=False,
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


def _sound(paths: list[Path]) -> Path | None:
    """The first folder that is there and undamaged."""
    for path in filter(Path.is_dir, paths):
        problem = damage(path)
        if problem is None:
            return path
        warn_damaged(path, problem)
    return None
