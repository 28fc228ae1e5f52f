"""Forgetting by teachers, whom the network imitates or is pushed away from: SCRUB, bad teacher, UNDO."""

from typing import Any

import torch
from torch import Tensor, nn

from ofmu_pl.core.derivatives import Loss, trainable
from ofmu_pl.core.finite_difference import FiniteDifference
from ofmu_pl.core.vectors import Vector, copy_
from ofmu_pl.losses import kl, nll_and_kl, sample_mean
from ofmu_pl.modules.two_terms import TwoTerms
from ofmu_pl.networks.base import Batch, Network
from ofmu_pl.support.errors import UserError, check_range
from ofmu_pl.training.parallel import scatter_


class SCRUB(TwoTerms):
    """``-gamma KL(p_0 || p) on forget + alpha (KL(p_0 || p) + ce L_r) on retain`` (Kurmanji et al. 2023).

    The forget term runs during the first ``max_epochs`` passes over the forget set only. Both terms share an
    iteration (in published code whole passes of one alternate with the other's), and the divergence has temperature 1.

    Args:
        ce: Weight of the labels' cross-entropy beside the divergence on retain images.
        max_epochs: Number of passes over the forget set with the forget term.
        gamma: Weight of the forget term.
        alpha: Weight of the retain term.
        kwargs: See ``TwoTerms``; the retain loss is this class's own.

    Example:
        >>> from ofmu_pl import SmallCNN
        >>> SCRUB(SmallCNN(), max_epochs=1).streams
        ('forget', 'retain')
    """

    in_words = (
        "The model was pushed away from what it said of the forgotten rows before, and held to what it said "
        "of rows that must stay."
    )

    def __init__(
        self,
        network: Network,
        ce: float = 1.0,
        max_epochs: int = 2,
        gamma: float = 1.0,
        alpha: float = 0.5,
        **kwargs: Any,
    ) -> None:
        super().__init__(network, gamma, alpha, **kwargs)
        if not alpha or self.retain_loss != "nll":
            raise UserError("SCRUB has a retain loss of its own: set alpha above 0 and leave retain_loss out.")
        self.ce, self.max_epochs = ce, max_epochs

    @property
    def frozen_in_forget_term(self) -> bool:
        """Until ``max_epochs`` are over."""
        return bool(self.run.step <= self.max_epochs * self.run.data.iterations_per_epoch)

    @property
    def frozen_passes(self) -> int:
        """The retain term runs the frozen model always, the forget term as long as it pushes."""
        return 1 + self.frozen_in_forget_term

    @property
    def forget_work(self) -> float:
        """Nothing after ``max_epochs``."""
        return super().forget_work if self.frozen_in_forget_term else 0.0

    def _add_forget(self, gradient: Vector, engine: FiniteDifference, loss: Loss) -> tuple[float, float]:
        """As every method, until ``max_epochs`` are over; then no pass is made."""
        return super()._add_forget(gradient, engine, loss) if self.frozen_in_forget_term else (0.0, 0.0)

    def forget_losses(self, part: Batch) -> Tensor:
        """Minus the divergences, (b,)."""
        said, targets = self.recipe.predict(self.trained, part)
        return -said.mean(kl, targets, self.predict_frozen(part))

    def retain_losses(self, part: Batch) -> Tensor:
        """Divergences plus cross-entropies, (b,), of one pass of the trained model."""
        said, labels = self.recipe.predict(self.trained, part)
        both = said.values(nll_and_kl, labels, self.predict_frozen(part))
        return sample_mean(both[..., 1], labels) + self.ce * sample_mean(both[..., 0], labels)


class BadTeacher(TwoTerms):
    """``gamma KL(p_random || p) on forget + alpha KL(p_0 || p) on retain`` (Chundawat et al. 2023, arXiv 2205.08096).

    The incompetent teacher of forget images is the network untrained, its weights drawn by the data's seed (another
    than the target began as); the competent one of retain images is the frozen model. Labels are not read.

    Simplified: a row's loss is that of the authors' code (vikram2000b/bad-teaching-unlearning f1aa988, temperature 1),
    which divides it by the number of classes. There batches are drawn from forget and retain images together; here a
    step has a batch of both, and ``gamma: 0.1`` with ``alpha: 0.9`` weighs them as there where a tenth of the images is
    forgotten. There BatchNorm is in train mode (here ``bn_mode: both``).

    Args:
        network: Recipe of the network that shall forget.
        kwargs: See ``TwoTerms``; the retain loss is this class's own.

    Example:
        >>> from ofmu_pl import SmallCNN
        >>> BadTeacher(SmallCNN()).streams
        ('forget', 'retain')
    """

    in_words = (
        "The model was trained to say of the forgotten images what a network says that has learned nothing, and of "
        "images that must stay what it said before."
    )
    modality = "images"
    frozen_in_forget_term = True

    def __init__(self, network: Network, **kwargs: Any) -> None:
        super().__init__(network, retain_loss="kl", **kwargs)

    def on_train_start(self) -> None:
        """Make the incompetent teacher, again where a run goes on; refuse a network that only comes with weights."""
        super().on_train_start()
        data = self.run.data
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(data.seed ^ 1)  # the target's own training began with the network of data.seed
            teacher = self.run.convert(self.recipe.at(None).build(data, exact=False))
        self._teacher = [teacher.to(self.device)]  # a list, so that Lightning neither saves nor trains it

    def forget_losses(self, part: Batch) -> Tensor:
        """Divergences from the incompetent teacher."""
        with torch.no_grad():
            goal = self.recipe.predict(self._teacher[0], part)[0]
        said, targets = self.recipe.predict(self.trained, part)
        return said.mean(kl, targets, goal)


class UNDO(TwoTerms):
    """Noise, then ``gamma KL(p_0 || p) on forget + alpha KL(p_0 || p) on retain`` (Lee et al. 2025, arXiv 2506.06278).

    The network is a model that has unlearned already: give the folder that another method's run exported. Before the
    first step its trained weights become ``(1 - noise) theta + noise noise_scale N``, where N is Xavier-uniform for
    matrices and 0 for vectors, drawn by the data's seed. Then the damaged network imitates p_0, itself before the
    noise, to recover what p_0 says, and not what p_0 only hides. Adapters are refused (UserError).

    Simplified: noise and divergence are those of the authors' code (AddieFoote/distillation-robustify-unlearning
    edbf111). That code reads a corpus, and ends within 5 % of the teacher's retain loss. Here a set number of
    iterations sees the answers of the rows at hand, and recovers only what they teach. Harm is counted from the teacher
    on: ``stop_at`` and ``keep`` wait for the recovery, but ``max_harm`` ends a run before it.

    Args:
        network: Recipe of the unlearned network.
        noise: The paper's alpha, from 0, no damage, to 1, where nothing is left (authors: 0.1 to 0.8).
        noise_scale: The paper's beta (authors: 0.1).
        kwargs: See ``TwoTerms``; the retain loss is this class's own.

    Example:
        >>> from ofmu_pl import CausalLM
        >>> UNDO(CausalLM("logs/tofu/npo/latest/hf"), noise=0.4).streams
        ('forget', 'retain')
    """

    in_words = (
        "A model that had been made to forget by another method was damaged by random noise, and then trained to say "
        "what it said before the damage."
    )
    frozen_in_forget_term = True

    def __init__(self, network: Network, noise: float = 0.6, noise_scale: float = 0.1, **kwargs: Any) -> None:
        super().__init__(network, retain_loss="kl", **kwargs)
        check_range(0, 1, noise=noise, noise_scale=noise_scale)
        if network.adds_adapters:
            raise UserError("UNDO damages weights that have learned, and adapters are new: leave out network.lora.")
        self.noise, self.noise_scale = noise, noise_scale

    def on_train_start(self) -> None:
        """Damage the weights, once the teacher is a copy of them; a run that goes on has damaged ones."""
        super().on_train_start()
        self.ending.begin(self)  # here, for harm is counted from the teacher on
        if self._frozen.resumed:
            return
        generator = torch.Generator().manual_seed(self.run.data.seed)
        place = scatter_ if self.run.ranks.sharded else copy_
        for p in trainable(self.trained):
            drawn = torch.zeros(p.shape, dtype=torch.float32)
            if p.dim() > 1:
                nn.init.xavier_uniform_(drawn, generator=generator)
            damage = torch.zeros_like(p)
            place([damage], [drawn.to(p.device, p.dtype)])
            with torch.no_grad():
                p.mul_(1 - self.noise).add_(damage, alpha=self.noise * self.noise_scale)
        self.weights_changed()

    def forget_losses(self, part: Batch) -> Tensor:
        """Divergences from the teacher, as of retain rows."""
        return self.retain_losses(part)
