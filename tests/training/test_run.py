"""Runs without a trainer: a network, data and an optimizer are enough for a method, and give what a trainer gives."""

import pytest
import torch

from ofmu_pl.data import Authors
from ofmu_pl.modules import OFMU, PDU, GradDiff
from ofmu_pl.networks import CausalLM
from ofmu_pl.support.errors import UserError
from ofmu_pl.training.run import Run
from tests.helpers.parts import adam, printed
from tests.helpers.training import TINY, quiet_trainer, train, weights

ADAM = {"optimizer": lambda p: torch.optim.AdamW(p, lr=1e-2)}
HALVED = {"scheduler": lambda o: torch.optim.lr_scheduler.StepLR(o, 1, 0.5)}


def begun(module):
    """A method on a run made by hand, before its first iteration."""
    torch.manual_seed(0)
    data = Authors(authors=4, forget_authors=1, batch_size=4, streams=module.streams, num_batches=module.num_batches)
    data.setup()
    module.run = Run(data, steps=3)
    module.configure_model()
    module.configure_optimizers()
    module.on_train_start()
    return module


@pytest.mark.parametrize(
    "make",
    [
        lambda n: OFMU(n, inner_steps=2, engine="finite_difference", stepper=adam(1e-3), **ADAM),
        lambda n: PDU(n, **ADAM, **HALVED),
        lambda n: GradDiff(n, retain_loss="kl", **ADAM),
    ],
    ids=["OFMU", "PDU, a scheduler", "a frozen copy"],
)
def test_iterations_by_hand_are_those_of_a_trainer(make):
    train(by_trainer := make(CausalLM(config=TINY)), steps=3)
    module = begun(make(CausalLM(config=TINY)))
    start = weights(module)
    for number in (1, 2, 3):
        module.outer_step(module.run.data.iteration(number - 1), number)
    assert not torch.equal(weights(module), start)
    assert torch.equal(weights(module), weights(by_trainer))
    assert module.gradient_evaluations == by_trainer.gradient_evaluations


def test_a_network_is_made_on_the_host_wherever_lightning_asks_for_it():
    usual, module = begun(GradDiff(CausalLM(config=TINY), **ADAM)), GradDiff(CausalLM(config=TINY), **ADAM)
    module.run = Run(usual.run.data, steps=3)
    torch.manual_seed(0)
    with torch.device("meta"):
        module.configure_model()
    assert torch.equal(weights(module), weights(usual))


def test_a_run_of_epochs_is_as_long_as_one_of_its_iterations():
    def penalised(steps, epochs):
        module = OFMU(CausalLM(config=TINY), inner_steps=1, engine="finite_difference", upper=printed(start=0.5))
        streams = {"streams": module.streams, "num_batches": module.num_batches}
        data = Authors(authors=4, forget_authors=1, batch_size=2, **streams)
        trainer = quiet_trainer(steps, max_epochs=epochs)
        torch.manual_seed(0)
        trainer.fit(module, datamodule=data)
        return trainer.global_step, module.record.curves["penalty"]

    iterations, by_epochs = penalised(-1, 1)
    assert penalised(iterations, -1) == (iterations, by_epochs)
    assert by_epochs["value"][0] == 0 < by_epochs["value"][-1]


def test_a_scheduler_at_its_end_is_named():
    cycle = {"scheduler": lambda o: torch.optim.lr_scheduler.OneCycleLR(o, max_lr=1e-3, total_steps=2)}
    with pytest.raises(UserError, match=r"^OneCycleLR .* iteration 3 \("):
        train(PDU(CausalLM(config=TINY), **ADAM, **cycle), steps=3)


def test_a_method_may_end_its_run():
    module = begun(OFMU(CausalLM(config=TINY), inner_steps=1, engine="finite_difference", stationarity_tol=1e9))
    assert not module.run.stopped
    module.outer_step(module.run.data.iteration(0), 1)
    assert module.run.stopped
    assert "small" in module.run.why
    module.run.stop("another reason")
    assert "small" in module.run.why, "the first reason counts"
