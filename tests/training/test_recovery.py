"""An iteration that fills the memory is taken back, and made again on smaller micro-batches."""

from functools import partialmethod

import pytest
import torch
from lightning.pytorch.callbacks import Callback

from ofmu_pl.core.shared_adam import SharedAdam
from ofmu_pl.modules import GRU, NPO, OFMU, PDU, GradDiff
from ofmu_pl.modules.reader import RowReader
from ofmu_pl.networks import CausalLM, SmallCNN
from ofmu_pl.support.errors import UserError
from ofmu_pl.training.recovery import state_of
from tests.helpers.images import network, train_on_digits
from tests.helpers.parts import FIRST_ORDER, adam, plain, printed, shared
from tests.helpers.training import TINY, train, weights


def sgd(p):
    return torch.optim.SGD(p, lr=0.1, momentum=0.9)


def ofmu(**options):
    return OFMU(CausalLM(config=TINY), **{"inner_steps": 2, "stepper": plain(0.1), "optimizer": sgd} | options)


@pytest.fixture
def gpu(monkeypatch):
    """What is kept on a GPU, where alone torch tells of a full memory."""
    monkeypatch.setattr("ofmu_pl.training.recovery.may_run_out", lambda method: True)


class Memory:
    """Fits ``rows`` samples, from one call of the sample losses on."""

    def __init__(self, monkeypatch, rows, call=0):
        self.rows, self.call, self.calls, self.losses = rows, call, 0, CausalLM.sample_losses
        monkeypatch.setattr(CausalLM, "sample_losses", partialmethod(self))

    def __call__(self, recipe, module, batch):
        self.calls += 1
        if self.calls > self.call and len(batch["labels"]) > self.rows:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 7 GiB")
        return self.losses(recipe, module, batch)


ADAM = pytest.param("finite_difference", adam(0.1), marks=pytest.mark.slow)


@pytest.mark.usefixtures("gpu")
@pytest.mark.parametrize(("engine", "ascent"), [("autograd", plain(0.1)), ADAM])
def test_out_of_memory_halves_the_micro_batch_as_if_from_the_start(monkeypatch, engine, ascent):
    small = ofmu(engine=engine, stepper=ascent, micro_batch_size=1)
    train(small, steps=2)
    Memory(monkeypatch, rows=1, call=3)  # after the first inner step
    module = ofmu(engine=engine, stepper=ascent)
    with pytest.warns(UserWarning, match="micro-batches .* 1 .* 2[,.]"):
        train(module, steps=2)
    assert module.micro_batch_size == 1
    assert torch.equal(weights(module), weights(small))


@pytest.mark.usefixtures("gpu")
def test_the_shipped_form_keeps_nothing_on_the_host_once_its_optimizer_has_a_state(monkeypatch):
    form = {"inner_steps": 1, "outer_at": "start", "stepper": shared(), "upper": printed(rho_0=0.3)}
    form |= {"engine": "finite_difference", "optimizer": SharedAdam}
    train(small := ofmu(**form, micro_batch_size=1), steps=3)
    kept = []

    def counting(method):
        start = state_of(method)
        kept.append(len(start["moved"]) + len(start["optimizers"]))
        return start

    monkeypatch.setattr("ofmu_pl.training.recovery.state_of", counting)
    train(module := ofmu(**form, micro_batch_size=1), steps=2)
    assert kept[0] > 0
    assert kept[1] == 0
    Memory(monkeypatch, rows=1, call=3)
    module = ofmu(**form, micro_batch_size=2)
    with pytest.warns(UserWarning, match="micro-batches .* 1 .* 2[,.]"):
        train(module, steps=3)
    assert torch.equal(weights(module), weights(small))


class FullInTheFirstAscent(SharedAdam):
    """Finds no memory for the second parameter's state, once."""

    calls = 0

    def _move(self, *arguments):
        self.calls += 1
        if self.calls == 2:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 7 GiB")
        super()._move(*arguments)


@pytest.mark.usefixtures("gpu")
def test_an_ascent_that_was_cut_while_it_made_its_state_is_taken_back():
    form = {"inner_steps": 1, "outer_at": "start", "stepper": shared(), "engine": "finite_difference"} | FIRST_ORDER
    train(small := ofmu(**form, optimizer=SharedAdam, micro_batch_size=1), steps=1)
    module = ofmu(**form, optimizer=FullInTheFirstAscent, micro_batch_size=2)
    with pytest.warns(UserWarning, match="micro-batches .* 1 .* 2[,.]"):
        train(module, steps=1)
    assert torch.equal(weights(module), weights(small))


class FullAt(torch.optim.SGD):
    """Finds no memory in one of its steps, as Adam may in the first, which makes its state in it."""

    def __init__(self, params, at):
        super().__init__(params, lr=0.1, momentum=0.9)
        self.at, self.steps = at, 0

    def step(self, closure=None):
        self.steps += 1
        if self.steps == self.at:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 7 GiB")
        return super().step(closure)


class HalvedAt(Callback):
    """What should come of it, done by hand before the iteration."""

    def __init__(self, number):
        self.number = number

    def on_train_batch_start(self, trainer, pl_module, batch, batch_idx):
        if trainer.global_step + 1 == self.number:
            pl_module.micro_batch_size = 2


@pytest.mark.usefixtures("gpu")
@pytest.mark.parametrize("number", [1, 3])
@pytest.mark.parametrize(
    "make",
    [
        lambda **o: ofmu(engine="finite_difference", **o),
        pytest.param(lambda **o: ofmu(stepper=adam(0.1), **o), marks=pytest.mark.slow),
        lambda **o: PDU(CausalLM(config=TINY), **o),
        lambda **o: NPO(CausalLM(config=TINY), alpha=0.0, rectify=GRU(), **o),
    ],
    ids=["OFMU", "OFMU, Adam's ascent", "PDU", "GRU's average"],
)
def test_all_that_an_iteration_has_changed_before_the_memory_was_full_is_taken_back(make, number):
    """Weights, and what a method keeps beside them: rho grew twice, and passes were counted twice."""
    by_hand = make(optimizer=sgd)
    train(by_hand, steps=4, callbacks=[HalvedAt(number)])
    module = make(optimizer=lambda p: FullAt(p, number))
    with pytest.warns(UserWarning, match="micro-batches .* 2 .* 4[,.]"):
        trainer = train(module, steps=4)
    assert trainer.global_step == 4
    assert torch.equal(weights(module), weights(by_hand))
    assert module.gradient_evaluations == by_hand.gradient_evaluations
    assert module.record.curves == by_hand.record.curves


@pytest.mark.usefixtures("gpu")
def test_statistics_of_passes_before_the_memory_was_full_are_forgotten(monkeypatch):
    def make(rows):
        return GradDiff(network(norm="batch", bn_mode="both"), optimizer=sgd, micro_batch_size=rows)

    train_on_digits(small := make(8), steps=2)
    logits, calls = SmallCNN.logits, iter(range(100))

    def full(self, module, batch):
        if len(batch["labels"]) > 8 and next(calls) == 1:  # the second micro-batch
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 7 GiB")
        return logits(self, module, batch)

    monkeypatch.setattr(SmallCNN, "logits", full)
    module = make(16)
    with pytest.warns(UserWarning, match="micro-batches .* 8 .* 16[,.]"):
        train_on_digits(module, steps=2)
    ours, theirs = module.network.state_dict(), small.network.state_dict()
    assert all(torch.equal(ours[name], theirs[name]) for name in theirs)


@pytest.mark.usefixtures("gpu")
def test_a_look_that_fills_the_memory_is_made_again_alone(monkeypatch):
    """Its iteration's step is taken."""

    def make():
        return NPO(CausalLM(config=TINY), optimizer=sgd, max_harm=50.0, micro_batch_size=4)

    trainer, score, calls = train(whole := make(), steps=11), RowReader.losses, []

    def full(goal, stream, rows):
        calls.append(stream)
        if len(calls) == 2:  # the first is before the first step
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 7 GiB")
        return score(goal, stream, rows)

    monkeypatch.setattr(RowReader, "losses", full)
    module = make()
    with pytest.warns(UserWarning, match="micro-batches .* 2 .* 4[,.]"):
        assert train(module, steps=11).global_step == trainer.global_step
    assert module.record.curves["L_r"]["step"] == list(range(1, 12))
    torch.testing.assert_close(weights(module), weights(whole))


def test_not_even_one_sample_fits(monkeypatch):
    Memory(monkeypatch, rows=0)
    with pytest.warns(UserWarning, match="micro-batches"), pytest.raises(UserError, match="activation_checkpointing"):
        train(ofmu(), steps=1)
