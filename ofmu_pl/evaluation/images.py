"""Image classifiers: accuracies, membership attacks and the gap to a retrained model."""

from functools import partial
from typing import Any

import lightning.pytorch as pl
import numpy as np
import torch
import torch.distributed as dist
from torch import nn

from ofmu_pl.data.base import data_of
from ofmu_pl.data.images import ImageDataModule
from ofmu_pl.data.sampler import batch_indices
from ofmu_pl.evaluation.base import Evaluation
from ofmu_pl.evaluation.caveats import read_otherwise
from ofmu_pl.evaluation.reference import LOADED, RETRAIN, Facts, Reference, check_model, read_model_facts
from ofmu_pl.evaluation.table import Metrics
from ofmu_pl.metrics import ImageScores, ImageUnlearning, vision_metrics
from ofmu_pl.metrics.own import OwnMetric
from ofmu_pl.metrics.scores import refuse_broken
from ofmu_pl.metrics.vision import FORGET_ACCURACY, FORGET_TEST_AUC, RA, VA, require_samples
from ofmu_pl.networks.classifier import Classifier
from ofmu_pl.networks.vision import ImageNetwork, predict
from ofmu_pl.support.processes import own_share
from ofmu_pl.support.sets import is_request
from ofmu_pl.training.together import together

ATTACK_SAMPLES = 1000  # by default, images trained on, and as many held-out ones, that an attack learns from


class ImageEvaluation(Evaluation):
    """UA, RA, TA, MIA and the gap to the retrained model before, along and after a run.

    Args:
        reference: Folder of the retrained model, or ``retrain`` for one trained as the configuration's ``original``
            says (once; kept by content); ``null``: no gap, and no goals from a retrained model.
        every_n_steps: Outer iterations between two cheap measurements (accuracies of 1000 forget, retain and validation
            images); ``null``: none.
        attack_samples: Number of members, and of strangers, that each membership attack learns from (published: 10,000;
            9,000 class-wise); ``null``: as many as there are of both, 1,000 at most.
        own_metrics: Metrics of your own, computed from the same scores; ``null``: none.
    """

    modality = "images"
    scores_class = ImageScores
    interim_items = 1000
    """Number of images of each set in a cheap measurement."""

    def __init__(
        self,
        reference: str | None = RETRAIN,
        every_n_steps: int | None = None,
        attack_samples: int | None = ATTACK_SAMPLES,
        own_metrics: list[OwnMetric] | None = None,
    ) -> None:
        super().__init__(reference, every_n_steps, own_metrics)
        self.attack_samples = attack_samples
        self._known: dict[str, Metrics] = {}  # of the models before and retrained: the attacks are slow

    def check(self, data: Any) -> None:
        """Refuse data that hold fewer images than the attacks are to learn from, too."""
        super().check(data)
        if self.attack_samples:
            strangers = ~np.isin(data.images_of("test")[1], data.split.forgotten)
            require_samples(self.attack_samples, len(data.evaluation_sets["retain"]), int(strangers.sum()))

    def score(self, trainer: pl.Trainer, model: nn.Module, cheap: bool = False) -> dict[str, ImageScores]:
        """Score every image of every set; a cheap measurement some images, no test images and no other requests."""
        data = data_of(trainer)
        sets = [name for name in data.evaluation_sets if not (cheap and (name == "test" or is_request(name)))]
        return score_images(model, data, sets, self.interim_items if cheap else None)

    def metrics(self, trainer: pl.Trainer, scores: dict[str, ImageScores], column: str) -> Metrics:
        """The metrics of ``metrics.vision_metrics``."""
        if column in self._known:
            return self._known[column]
        data, r, targets = data_of(trainer), self.reference, None
        forgotten, most = data.split.forgotten, self.attack_samples
        if not most:
            strangers = int(np.count_nonzero(~np.isin(scores["test"].labels, forgotten)))
            most = min(len(scores["retain"].ids), strangers, ATTACK_SAMPLES)
        if r and column != "retrained":
            targets = {name: result.value for name, result in self.metrics(trainer, r.scores, "retrained").items()}
        found = vision_metrics(
            scores,
            r.scores if r else None,
            forgotten=forgotten,
            attack_samples=most,
            seed=data.split_seed,
            intervals=True,
            targets=targets,
        )
        if column in ("before", "retrained"):
            self._known[column] = found
        return found

    def remark(self, trainer: pl.Trainer, metrics: Metrics) -> str | None:
        """What can be said without a retrained model."""
        if self.reference:
            return super().remark(trainer, metrics)
        aimless = [name for name in ("UA", "RA", "TA") if name in metrics and metrics[name].target is None]
        told = f"No retrained model, so nothing says how far {', '.join(aimless)} and MIA should go."
        if FORGET_TEST_AUC.name in metrics:
            told += f" {FORGET_TEST_AUC.name} has a goal, 0.5: no loss tells forgotten images from held-out ones."
        return f"{told} Give one as the reference, or train one on the command line (--evaluation.reference {RETRAIN})."

    def unknown(self, trainer: pl.Trainer, model: nn.Module, scores: dict[str, ImageScores]) -> str | None:
        """Read its images in other usual ways, and hold them against random guesses."""
        blank = torch.zeros(1, *data_of(trainer).images.shape[1:], dtype=torch.uint8)
        with together(model, partial(predict, model, blank)):
            told = read_otherwise(model, data_of(trainer))
        return told or super().unknown(trainer, model, scores)

    def interim_metrics(self, trainer: pl.Trainer, scores: dict[str, ImageScores]) -> Metrics:
        """The accuracies of the sets alone."""
        metrics = {"forget": FORGET_ACCURACY, "retain": RA, "validation": VA}
        seen = {metrics[name]: s for name, s in scores.items() if len(s.ids)}
        return {m.name: m.result(100 * float(s.correct.mean()), len(s.ids)) for m, s in seen.items()}

    def scoring_facts(self, trainer: pl.Trainer, model: nn.Module) -> Facts:
        """Number format, size of the attacks and BatchNorm's policy."""
        recipe = getattr(trainer.lightning_module, "recipe", None)
        return {
            "dtype": str(next(model.parameters()).dtype).removeprefix("torch."),
            "attack_samples": self.attack_samples,
            "bn_mode": getattr(recipe, "bn_mode", None),
        }

    def load_reference(self, trainer: pl.Trainer, pl_module: Any, source: str) -> Reference:
        """Score the retrained model; refuse one that was not trained on this run's retain images alone."""
        data, recipe = data_of(trainer), pl_module.recipe
        loaded = isinstance(source, nn.Module)  # in Python
        facts = None if loaded else read_model_facts(source)
        check_model(source, facts, data)
        retrained: ImageNetwork = Classifier(source) if loaded else recipe.at(source)
        dtype = next(pl_module.network.parameters()).dtype
        model = pl_module.run.build(retrained, exact=False).to(device=pl_module.device, dtype=dtype)
        told = self.scoring_facts(trainer, model)
        return Reference(LOADED if loaded else source, facts, told, self.measured(trainer, model, "retrained"))


def score_images(
    model: nn.Module, data: ImageDataModule, sets: list[str], items: int | None = None
) -> dict[str, ImageScores]:
    """Score evaluation sets, or so many of their images, always the same ones; every rank takes its share."""
    metric = ImageUnlearning(more=tuple(filter(is_request, sets))).to(next(model.parameters()).device)
    shape = data.images_of("forget")[0].shape[1:]
    with together(model, partial(predict, model, torch.zeros(1, *shape, dtype=torch.uint8))):
        for name in sets:
            images, labels = data.images_of(name)
            chosen = np.arange(len(labels))
            if items is not None and len(chosen) > items:
                chosen = np.sort(batch_indices(len(chosen), items, 0, name, 0))
            # A rank without an image of its own takes the first, which counts once: ranks gather states of like shapes.
            mine = chosen[own_share()] if len(chosen[own_share()]) else chosen[:1]
            if len(mine):
                ids = torch.from_numpy(data.evaluation_sets[name][mine])
                metric.update(name, ids, labels[mine], predict(model, images[mine]))
    with metric.sync_context(should_sync=dist.is_initialized()):
        scores = metric.scores()
    broken = {name: int(np.isnan(s.log_probs).any(axis=1).sum()) for name, s in scores.items()}
    refuse_broken("outputs", broken, scores, next(model.parameters()).dtype)
    return scores
