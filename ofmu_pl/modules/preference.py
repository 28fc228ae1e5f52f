"""Preference optimisation against the forget answers: NPO, SimNPO, CATNIP, DPO."""

from typing import Any

import torch
from torch import Tensor

from ofmu_pl.core.vectors import Vector
from ofmu_pl.data.base import ALTERNATIVE
from ofmu_pl.losses import dpo, margins, npo, sample_mean, simnpo
from ofmu_pl.modules.two_terms import TwoTerms
from ofmu_pl.networks.base import Batch, Network
from ofmu_pl.support.errors import check_range


class _Preference(TwoTerms):
    """The base of preference methods: the temperature and summed losses.

    Args:
        network: Recipe of the network that shall forget.
        beta: Inverse temperature.
        kwargs: See ``TwoTerms``.
    """

    def __init__(self, network: Network, beta: float = 0.1, **kwargs: Any) -> None:
        super().__init__(network, **kwargs)
        check_range(0, above=True, beta=beta)
        self.beta = beta

    def summed_nll(self, part: Batch) -> Tensor:
        """Summed loss of each answer, (b,), nats."""
        return self.recipe.token_losses(self.trained, part)[0].sum(1)

    def reference(self, stream: str, part: Batch) -> Tensor:
        """Summed loss of the same answers under the frozen model, (b,), nats."""
        dtype = torch.promote_types(torch.float32, next(self.trained.parameters()).dtype)
        return self.reference_nll[stream][part["ids"].cpu()].to(part["ids"].device, dtype)


class NPO(_Preference):
    """Negative preference optimisation (Zhang et al. 2024): ascent that fades as an answer becomes less likely.

    Args:
        network: Recipe of the network that shall forget.
        beta: Inverse temperature (authors and open-unlearning: 0.1).
        kwargs: See ``TwoTerms``.

    Example:
        >>> from ofmu_pl import CausalLM
        >>> method = NPO(CausalLM("gpt2"), beta=0.1, alpha=1.0)
        >>> method.streams, method.per_item_reference
        (('forget', 'retain'), ('forget',))
    """

    in_words = (
        "The model was trained to find the forgotten answers less likely than it found them before. The push "
        "fades as an answer becomes unlikely, so that the model is not destroyed."
    )
    modality = "text"
    per_item_reference: tuple[str, ...] = ("forget",)

    def forget_losses(self, part: Batch) -> Tensor:
        """``(2/beta) log(1 + (p/p_ref)^beta)``."""
        return npo(self.summed_nll(part), self.reference("forget", part), self.beta)


class SimNPO(_Preference):
    """SimNPO (Fan et al. 2024): NPO on length-normalised losses, without a frozen model.

    Args:
        network: Recipe of the network that shall forget.
        beta: Inverse temperature (authors, forget10: 4.5).
        delta: Margin in nats (authors: 0).
        kwargs: See ``TwoTerms``.

    Example:
        >>> from ofmu_pl import CausalLM
        >>> SimNPO(CausalLM("gpt2"), delta=0.5).per_item_reference
        ()
    """

    in_words = (
        "The model was trained to find the forgotten answers unlikely for their length. The push fades as an "
        "answer becomes unlikely, so that the model is not destroyed."
    )

    def __init__(self, network: Network, beta: float = 4.5, delta: float = 0.0, **kwargs: Any) -> None:
        super().__init__(network, beta, **kwargs)
        self.delta = delta

    def forget_losses(self, part: Batch) -> Tensor:
        """``-(2/beta) log sigmoid(beta (l - delta))``."""
        return simnpo(self.recipe.sample_losses(self.trained, part), self.beta, self.delta)


class CATNIP(_Preference):
    """NPO that pushes each token in proportion to how sure the model is of it (Yang et al. 2026, arXiv 2602.02824).

    It needs neither retain rows nor a frozen model. Variant: only the abstract could be read (the second version's name
    is CALIBURN); the loss, NPO with 1 - p in the frozen model's place, is ours and does what the abstract says.

    Args:
        network: Recipe of the network that shall forget.
        beta: Inverse temperature; at 1 the push is proportional to the probability, larger ones spare p < 1/2 more.
        alpha: Weight of the retain term.
        kwargs: See ``TwoTerms``.

    Example:
        >>> from ofmu_pl import CausalLM
        >>> CATNIP(CausalLM("gpt2")).streams
        ('forget',)
    """

    in_words = "The model was trained to find words of forgotten answers less likely, the more the surer it was."

    def __init__(self, network: Network, beta: float = 1.0, alpha: float = 0.0, **kwargs: Any) -> None:
        super().__init__(network, beta, alpha=alpha, **kwargs)

    def forget_losses(self, part: Batch) -> Tensor:
        """``mean_t (2/beta) log(1 + (p/(1 - p))^beta)``."""
        said, targets = self.recipe.predict(self.trained, part)
        return sample_mean(simnpo(-said.values(margins, targets), self.beta), targets)


class DPO(_Preference):
    """Direct preference optimisation of another answer over the forget answer.

    The other answer is a refusal (IdkDPO) or a made-up answer (AltPO): the data's stream ``alternative``.

    Example:
        >>> from ofmu_pl import CausalLM
        >>> DPO(CausalLM("gpt2")).streams
        ('forget', 'retain', 'alternative')
    """

    in_words = "The model was trained to prefer another answer, such as a refusal, to each forgotten one."
    modality = "text"
    per_item_reference: tuple[str, ...] = ("forget", ALTERNATIVE)
    forget_gradients = 2  # of the forget answers and of the others
    _alternatives: Batch

    def iterate(self, batch: dict[str, list[Batch]]) -> tuple[Vector, dict[str, float]]:
        """Keep the other answers of the batch beside it."""
        self._alternatives = batch[ALTERNATIVE][0]
        return super().iterate(batch)

    def forget_losses(self, part: Batch) -> Tensor:
        """``-(2/beta) log sigmoid(beta (log-ratio of the other answer - log-ratio of the forget answer))``."""
        places = torch.stack([(self._alternatives["ids"] == i).nonzero()[0, 0] for i in part["ids"]])
        (other,) = self.recipe.split({k: v[places] for k, v in self._alternatives.items()}, None)
        back = torch.stack([(other["ids"] == i).nonzero()[0, 0] for i in part["ids"]])  # split sorts by length
        return dpo(
            self.summed_nll(other)[back],
            self.reference(ALTERNATIVE, other)[back],
            self.summed_nll(part),
            self.reference("forget", part),
            self.beta,
        )
