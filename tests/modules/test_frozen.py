"""The frozen model is the network as it was before the first step: fresh, resumed, without a path, under adapters."""

import pytest
import torch
from lightning.pytorch.callbacks import Callback, ModelCheckpoint

from ofmu_pl.data import Authors
from ofmu_pl.modules import UNDIAL, GradDiff
from ofmu_pl.networks import CausalLM
from ofmu_pl.support.errors import UserError
from tests.helpers.training import TINY, train, weights


class Still(GradDiff):
    """The retain term alone: the divergence from the frozen model."""

    def __init__(self, network, lr=0.0, **kwargs):
        super().__init__(
            network, gamma=0.0, retain_loss="kl", optimizer=lambda p: torch.optim.SGD(p, lr=lr), gradient_clip=None
        )


def random_network(**options):
    return CausalLM(config=dict(TINY), **options)


def divergence(module, **options):
    return float(train(module, **options).callback_metrics["kl"])


ADAPTERS = {"r": 2, "target_modules": "all-linear"}
PISSA = ADAPTERS | {"init_lora_weights": "pissa"}  # which rewrites the weights below


@pytest.mark.parametrize("lora", [None, ADAPTERS, PISSA], ids=["whole", "adapters", "pissa"])
def test_nothing_parts_from_itself(lora):
    assert divergence(Still(random_network(lora=lora))) == pytest.approx(0, abs=1e-6 if lora is PISSA else 1e-9)


def test_biases_that_are_trained_beside_adapters_leave_the_frozen_model_alone():
    network = CausalLM(config=dict(TINY) | {"attention_bias": True}, lora=ADAPTERS | {"bias": "all"})
    module = GradDiff(network, gamma=0.0, retain_loss="kl", optimizer=lambda p: torch.optim.SGD(p, lr=1.0))
    train(module, 1)
    with module.frozen() as model:
        before = [b.clone() for name, b in model.named_parameters() if name.endswith("bias")]
    assert before
    with torch.no_grad():
        for p in module.trained.parameters():
            p.add_(1.0)
    with module.frozen() as model:
        after = [b for name, b in model.named_parameters() if name.endswith("bias")]
    assert all(torch.equal(a, b) for a, b in zip(before, after, strict=True))


class Given(Callback):
    """Somebody's weights, put into the network before the run."""

    def on_fit_start(self, trainer, pl_module):
        with torch.no_grad():
            for p in pl_module.network.parameters():
                p.mul_(1.5)


def test_the_first_weights_are_those_that_the_run_starts_from_not_the_recipes():
    assert divergence(Still(random_network()), callbacks=[Given()]) == pytest.approx(0, abs=1e-9)


def test_float64_is_compared_with_float64():
    module = Still(random_network())
    divergence(module, precision="64-true")
    with module.frozen() as model:
        assert next(model.parameters()).dtype == torch.float64


class Draws(Callback):
    """Takes random numbers before the network is made, as a cold cache does."""

    def setup(self, trainer, pl_module, stage):
        torch.rand(7)


def undial(network):
    return UNDIAL(network, optimizer=lambda p: torch.optim.AdamW(p, lr=1e-3))


def run_of_four(tmp_path, network):
    """A run of four iterations with a checkpoint after the second; the module and the checkpoint."""
    module = undial(network)
    train(module, 4, [ModelCheckpoint(tmp_path, every_n_train_steps=2, save_top_k=-1, filename="{step}")])
    return module, tmp_path / "step=2.ckpt"


def test_a_random_network_is_made_again_when_a_run_goes_on(tmp_path):
    whole, checkpoint = run_of_four(tmp_path, random_network())
    resumed = undial(random_network())
    train(resumed, 4, [Draws()], ckpt_path=checkpoint)
    assert torch.equal(weights(resumed), weights(whole))


def test_a_folder_that_changed_meanwhile_is_refused(tmp_path):
    data = Authors(authors=4, forget_authors=1)
    data.setup()
    recipe = random_network()
    for folder in ("model", "other"):
        recipe.save(recipe.build(data, exact=False), tmp_path / folder, data)
    _, checkpoint = run_of_four(tmp_path, CausalLM(path=str(tmp_path / "model")))
    with pytest.raises(UserError, match="model.network"):
        train(undial(CausalLM(path=str(tmp_path / "other"))), 4, ckpt_path=checkpoint)


def test_a_run_that_goes_on_with_another_retain_loss_is_compared_with_its_start(tmp_path):
    """Not with the weights of the checkpoint, which has no copy of the first ones."""
    keep = ModelCheckpoint(tmp_path, every_n_train_steps=2, filename="{step}")
    train(GradDiff(random_network(), optimizer=lambda p: torch.optim.SGD(p, lr=1.0)), 2, [keep])
    assert divergence(Still(random_network()), steps=3, ckpt_path=tmp_path / "step=2.ckpt") > 1e-6
