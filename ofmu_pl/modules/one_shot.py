"""Methods that compute one displacement of the weights and are done; and the controls that displace nothing."""

from abc import abstractmethod

import torch

from ofmu_pl.core.derivatives import trainable
from ofmu_pl.core.vectors import Vector, combine, copy_, set_gradients, zeros_like
from ofmu_pl.modules.base import UnlearningModule
from ofmu_pl.networks.base import Batch, Network
from ofmu_pl.networks.vision import batch_norms
from ofmu_pl.support.errors import UserError, check_range

BROKEN_MODEL = "give another model.network, since this one's own weights or losses are not finite"


class OneShot(UnlearningModule):
    """A run of one iteration, whatever ``max_steps`` says: a plain step of rate 1 along ``displacement``."""

    streams = ("forget",)  # the batch is not used; the method reads whole splits
    remedy = BROKEN_MODEL
    works_by_data = True

    def __init__(self, network: Network) -> None:
        super().__init__(network, optimizer=lambda p: torch.optim.SGD(p, lr=1.0), gradient_clip=None)

    @abstractmethod
    def displacement(self) -> tuple[Vector, dict[str, float]]:
        """The vector to add to the weights, and scalars to log."""

    def iterate(self, batch: dict[str, list[Batch]]) -> tuple[Vector, dict[str, float]]:
        """Give minus the displacement as the gradient, for a step of rate 1."""
        self.run.stop()
        if self.run.step > 1:  # it goes on from a checkpoint, whose weights are displaced
            return zeros_like(trainable(self.trained)), {}
        found, scalars = self.displacement()
        return [-x for x in found], scalars


class DoNothing(OneShot):
    """The control that leaves the model as it is: it shows what a metric says of no unlearning at all.

    Example:
        >>> from ofmu_pl import SmallCNN
        >>> DoNothing(SmallCNN()).gradient_evaluations
        0.0
    """

    in_words = (
        "Nothing was done to the model. The run is a control, which shows what the tests say of a model that "
        "has not forgotten."
    )

    def displacement(self) -> tuple[Vector, dict[str, float]]:
        """A vector of zeros."""
        return zeros_like(trainable(self.trained)), {}


class Negation(OneShot):
    """Task-vector negation, ``theta - scale (theta_f - theta)``, theta_f from theta by training on the forget rows.

    That training is AdamW's, without decay. Faithful: Ilharco et al. 2023 (arXiv 2212.04089, section 2), with the
    target as the model that is edited.

    Args:
        network: Recipe of the network that shall forget.
        steps: Number of training steps.
        lr: Learning rate of training.
        scale: How far to go the other way (paper: chosen by held-out rows).

    Example:
        >>> from ofmu_pl import CausalLM
        >>> Negation(CausalLM("gpt2"), steps=20).streams
        ('forget',)
    """

    in_words = "The model was trained on the forgotten rows once more, then put back and moved the opposite way."
    moves_parameters = True
    remedy = "lower model.scale, model.lr or model.steps"

    def __init__(self, network: Network, steps: int = 20, lr: float = 1e-5, scale: float = 1.0) -> None:
        super().__init__(network)
        check_range(1, whole=True, steps=steps)
        check_range(0, lr=lr, scale=scale)
        self.steps, self.lr, self.scale = steps, lr, scale

    def displacement(self) -> tuple[Vector, dict[str, float]]:
        """Train, return, and give what training did, turned round."""
        parameters = trainable(self.trained)
        before = [p.detach().clone() for p in parameters]
        optimizer = torch.optim.AdamW(parameters, lr=self.lr, weight_decay=0.0)
        for number in range(self.steps):
            (part,) = self.run.data.iteration(number)["forget"]
            part = {name: x.to(self.device) for name, x in part.items()}
            found = self.gradient_engine().expand(self.loss(part), order=1)
            set_gradients(parameters, found.gradient)
            optimizer.step()
            self.charge(1.0)
        turned = combine([(self.scale, before), (-self.scale, parameters)])
        copy_(parameters, before)
        return turned, {"L_f": found.value}


class BatchNormOnly(UnlearningModule):
    """The control that moves BatchNorm's running statistics alone, by forward passes over forget batches in train mode.

    Class-wise ascent in train mode does this besides ascending: these passes alone took a small CNN's accuracy on a
    class of CIFAR-10 from 76 to 16 %.

    Args:
        network: Recipe of a network with BatchNorm; its ``bn_mode`` must be ``both``.

    Example:
        >>> from ofmu_pl import ResNet18
        >>> BatchNormOnly(ResNet18(bn_mode="both")).streams
        ('forget',)
    """

    in_words = (
        "The running averages of the model's normalisation layers were moved by showing it the forgotten "
        "images; no weight was trained. The run is a control."
    )
    streams = ("forget",)
    remedy = BROKEN_MODEL

    def __init__(self, network: Network) -> None:
        super().__init__(network, optimizer=lambda p: torch.optim.SGD(p, lr=0.0), gradient_clip=None)
        if getattr(network, "bn_mode", "both") != "both":
            raise UserError("BatchNormOnly moves statistics on forget batches: set model.network.bn_mode both.")

    def on_train_start(self) -> None:
        """Refuse a network without statistics."""
        if not batch_norms(self.trained):
            raise UserError("This network has no BatchNorm whose statistics could move: choose another control.")

    def iterate(self, batch: dict[str, list[Batch]]) -> tuple[Vector, dict[str, float]]:
        """Run a forward pass over the batch; the gradient is zero."""
        (part,) = batch["forget"]
        with torch.no_grad(), self.recipe.statistics(self.trained, "forget"):
            loss = self.recipe.sample_losses(self.trained, part).mean().item()
        self.charge(1 / 3)
        return zeros_like(trainable(self.trained)), {"L_f": loss}


def whole_split(module: UnlearningModule, name: str, batch_size: int) -> list[Batch]:
    """All batches of a split, images without augmentation, on the module's device.

    Raises:
        UserError: Ranks hold shards of the network, which the method differentiates as a whole.
    """
    if module.run.ranks.sharded:
        raise UserError(
            f"{type(module).__name__} differentiates a whole network, and FSDP2 cuts it: set trainer.strategy ddp."
        )
    data = module.run.data
    if data.modality == "text":
        numbers = torch.arange(len(data.splits[name])).split(batch_size)
        batches = [data.collate(name, index.tolist(), 0) for index in numbers]
        return [module.transfer_batch_to_device(batch, module.device, 0) for batch in batches]
    images, labels = data.images_of(name)
    parts = zip(images.split(batch_size), labels.split(batch_size), strict=True)
    return [{"images": x.to(module.device).float() / 255, "labels": y.to(module.device)} for x, y in parts]
