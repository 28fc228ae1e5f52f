"""The frozen copy: the network as it was before the first step, which some methods compare the network with."""

from typing import Any

import torch
from torch import Tensor, nn

from ofmu_pl.networks.base import Network
from ofmu_pl.support.errors import UserError
from ofmu_pl.support.provenance import weights_hash
from ofmu_pl.training.run import Run


class Frozen:
    """A copy of the network's first weights, in shards as the network is, in eval mode and without gradients.

    Under bf16-mixed the copy's matrices are kept in bfloat16 (``Network.never_trained``).

    A run copies its network before the first step. When it goes on from a checkpoint, those weights are gone: the
    recipe makes them again, a random network from the random numbers of the first time, and their hash is compared.
    """

    def __init__(self) -> None:
        self.network: nn.Module | None = None
        self.random_state: Tensor = torch.get_rng_state()  # from which the recipe makes the network that is trained
        self.weights: str | None = None  # the hash of the copy's, once a checkpoint needed it
        self.resumed = False

    def take(self, run: Run, recipe: Network, network: nn.Module, device: torch.device) -> None:
        """Make the copy of a run's network on a device before the first step, once (takes all ranks).

        Where the run goes on from a checkpoint, the network is not read.

        Raises:
            UserError: The recipe no longer makes the weights that the run started from.
        """
        if self.network is not None:
            return
        with torch.random.fork_rng(devices=[]):
            torch.set_rng_state(self.random_state)
            recipe = recipe.never_trained() if run.precision == "bf16-mixed" else recipe
            copy = run.convert(run.build(recipe, exact=False)).to(device)
        if not self.resumed:
            first = network.state_dict()
            with torch.no_grad():
                for name, x in copy.state_dict().items():
                    x.copy_(first[name])
        elif self.weights not in (None, weights_hash(copy)):
            raise UserError(
                "What model.network describes now is not the model that the run started from, which its method "
                "compares with: put the original files back at model.network.path, or start without --ckpt_path."
            )
        self.network = copy.eval().requires_grad_(False)

    def state_dict(self) -> dict[str, Any]:
        """The state from which the copy can be made again."""
        if self.network is not None and self.weights is None:
            self.weights = weights_hash(self.network)
        return {"random_state": self.random_state, "weights": self.weights}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore what ``state_dict`` gave, before ``take``."""
        self.random_state, self.weights, self.resumed = state["random_state"], state["weights"], True
