"""Failed iterations are taken back: divergences with smaller steps, a full memory with smaller micro-batches."""

import inspect
import re
from functools import partialmethod

import pytest
import torch
from lightning.pytorch.callbacks import Callback

from ofmu_pl import modules
from ofmu_pl.modules import GRU, NPO, OFMU, PDU, GradDiff
from ofmu_pl.modules.base import UnlearningModule
from ofmu_pl.networks import CausalLM, SmallCNN
from ofmu_pl.support.errors import DivergedError, UserError
from tests.helpers.images import network, train_on_digits
from tests.helpers.training import TINY, train, weights


def sgd(lr=0.1):
    return lambda p: torch.optim.SGD(p, lr=lr, momentum=0.9)


def ofmu(**options):
    return OFMU(CausalLM(config=TINY), **{"inner_steps": 2, "inner_lr": 0.1, "optimizer": sgd()} | options)


class Poison:
    """Makes one call of the sample losses not a number."""

    def __init__(self, monkeypatch, call):
        self.calls, self.call, self.losses = 0, call, CausalLM.sample_losses
        monkeypatch.setattr(CausalLM, "sample_losses", partialmethod(self))

    def __call__(self, recipe, module, batch):
        self.calls += 1
        return self.losses(recipe, module, batch) * (float("nan") if self.calls == self.call else 1.0)


class HalvedFrom(Callback):
    """What the rollback should amount to, done by hand."""

    def __init__(self, step, scale=0.5):
        self.step, self.scale = step, scale

    def on_train_batch_start(self, trainer, pl_module, batch, batch_idx):
        if trainer.global_step == self.step:
            pl_module.recovery.step_scale = self.scale


@pytest.mark.parametrize(
    ("make", "losses"),
    [
        (ofmu, 6),
        pytest.param(lambda **o: ofmu(inner_optimizer="adam", **o), 6, marks=pytest.mark.slow),
        (lambda **o: PDU(CausalLM(config=TINY), optimizer=sgd(), **o), 1),
        (lambda **o: NPO(CausalLM(config=TINY), alpha=0.0, rectify=GRU(), optimizer=sgd(), **o), 1),
    ],
    ids=["OFMU", "OFMU, Adam's ascent", "PDU", "GRU's average"],
)
def test_a_nan_is_taken_back_with_steps_halved_from_there_on(monkeypatch, make, losses):
    by_hand = make()
    train(by_hand, steps=4, callbacks=[HalvedFrom(2)])
    Poison(monkeypatch, 3 * losses)  # in the end of iteration 3: the inner loop has moved the weights
    module = make(rollbacks=1)
    with pytest.warns(UserWarning, match=r"Taken back, steps are 0.5 .* iteration 3"):
        trainer = train(module, steps=4)
    assert trainer.global_step == 4
    assert torch.equal(weights(module), weights(by_hand))
    assert module.gradient_evaluations == by_hand.gradient_evaluations


def test_statistics_of_an_iteration_that_is_taken_back_are_forgotten(monkeypatch):
    """Passes move BatchNorm's running statistics, those of NaNs to NaN, where no later pass would mend them."""

    def make(**options):
        return GradDiff(network(norm="batch", bn_mode="both"), optimizer=sgd(), **options)

    by_hand = make()
    train_on_digits(by_hand, steps=2, callbacks=[HalvedFrom(1)])
    logits, calls = SmallCNN.logits, iter(range(100))

    def poisoned(self, module, batch):
        factor = float("nan") if next(calls) == 3 else 1.0  # in the retain term of iteration 2
        return logits(self, module, batch | {"images": batch["images"] * factor})

    monkeypatch.setattr(SmallCNN, "logits", poisoned)
    module = make(rollbacks=1)
    with pytest.warns(UserWarning, match=r"Taken back, steps are 0.5"):
        train_on_digits(module, steps=2)
    ours, theirs = module.network.state_dict(), by_hand.network.state_dict()
    assert all(torch.equal(ours[name], theirs[name]) for name in theirs)


def test_a_runaway_step_is_not_counted():
    module = ofmu(optimizer=sgd(lr=1e4), gradient_clip=None, rollbacks=20)
    with pytest.warns(UserWarning, match="the norm of the weights went from"):
        trainer = train(module, steps=3)
    assert trainer.global_step == 3
    assert 0 < module.recovery.step_scale < 0.1
    assert torch.isfinite(weights(module)).all()


class Limit:
    """Losses are no numbers once the weights are too far from where they started."""

    def __init__(self, monkeypatch, distance):
        self.distance, self.start, self.losses = distance, None, CausalLM.sample_losses
        monkeypatch.setattr(CausalLM, "sample_losses", partialmethod(self))

    def __call__(self, recipe, module, batch):
        now = torch.cat([p.detach().flatten() for p in module.parameters()])
        self.start = now if self.start is None else self.start
        return self.losses(recipe, module, batch) * (float("nan") if (now - self.start).norm() > self.distance else 1.0)


@pytest.mark.parametrize("ascent", ["sgd", pytest.param("adam", marks=pytest.mark.slow)])
def test_a_bad_step_that_shows_an_iteration_later_is_taken_back(monkeypatch, ascent):
    """The rate rises at the third iteration, and the fourth starts from weights that no step length mends."""
    rising = {
        "scheduler": lambda o: torch.optim.lr_scheduler.LambdaLR(o, lambda k: [1, 1, 30, 30][min(k, 3)]),
        "inner_optimizer": ascent,
        "inner_lr": 1e-3,
        "higher_order_every": 2,  # the third is whole, the fourth is not
    }
    by_hand = ofmu(**rising)
    train(by_hand, steps=4, callbacks=[HalvedFrom(2, scale=0.25)])
    Limit(monkeypatch, distance=1.5)
    module = ofmu(rollbacks=12, **rising)
    with pytest.warns(UserWarning, match=r"Taken back to iteration 3, steps are 0.25 .* iteration 4"):
        trainer = train(module, steps=4)
    assert trainer.global_step == 4
    assert module.recovery.step_scale == 0.25
    assert torch.equal(weights(module), weights(by_hand))
    assert module.gradient_evaluations == by_hand.gradient_evaluations
    assert module.record.curves == by_hand.record.curves, "of the third iteration as it was made in the end"


def test_no_more_rollbacks_than_asked_for(monkeypatch):
    losses = CausalLM.sample_losses
    monkeypatch.setattr(CausalLM, "sample_losses", lambda *words: losses(*words) * float("nan"))
    with pytest.warns(UserWarning, match="Taken back"), pytest.raises(DivergedError, match="outer iteration 1"):
        train(module := ofmu(rollbacks=3, engine="finite_difference"), steps=1)
    assert module.recovery.step_scale == 1 / 8
    with pytest.raises(UserError, match="rollbacks=-1"):
        ofmu(rollbacks=-1)


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


ADAM = pytest.param("finite_difference", "adam", marks=pytest.mark.slow)


@pytest.mark.parametrize(("engine", "ascent"), [("autograd", "sgd"), ADAM])
def test_out_of_memory_halves_the_micro_batch_as_if_from_the_start(monkeypatch, engine, ascent):
    small = ofmu(engine=engine, inner_optimizer=ascent, micro_batch_size=1)
    train(small, steps=2)
    Memory(monkeypatch, rows=1, call=3)  # after the first inner step
    # Without a GPU, rollbacks are what keeps the weights from before the iteration.
    module = ofmu(engine=engine, inner_optimizer=ascent, rollbacks=1)
    with pytest.warns(UserWarning, match="micro-batches of 1 samples instead of 2, same result"):
        train(module, steps=2)
    assert module.micro_batch_size == 1
    assert module.recovery.step_scale == 1.0
    assert torch.equal(weights(module), weights(small))


class Full(torch.optim.SGD):
    """Finds no memory in its first step, as Adam may, which makes its state in it."""

    full = True

    def step(self, closure=None):
        if self.full:
            type(self).full = False
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 7 GiB")
        return super().step(closure)


def test_what_a_method_keeps_beside_the_weights_is_that_of_before_the_memory_was_full(monkeypatch):
    """As on a GPU, where it is kept without rollbacks, too: rho grew twice, and passes were counted twice."""
    small = ofmu(engine="finite_difference", micro_batch_size=2)
    train(small, steps=2)
    monkeypatch.setattr("ofmu_pl.training.recovery._may_run_out", lambda method: True)
    module = ofmu(engine="finite_difference", optimizer=lambda p: Full(p, lr=0.1, momentum=0.9))
    with pytest.warns(UserWarning, match="micro-batches of 2 samples instead of 4, same result"):
        train(module, steps=2)
    assert module.penalty.rho == small.penalty.rho
    assert module.gradient_evaluations == small.gradient_evaluations
    assert torch.equal(weights(module), weights(small))


def test_statistics_of_passes_before_the_memory_was_full_are_forgotten(monkeypatch):
    def make(rows):
        return GradDiff(network(norm="batch", bn_mode="both"), optimizer=sgd(), micro_batch_size=rows)

    train_on_digits(small := make(8), steps=2)
    logits, calls = SmallCNN.logits, iter(range(100))

    def full(self, module, batch):
        if len(batch["labels"]) > 8 and next(calls) == 1:  # the second micro-batch
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 7 GiB")
        return logits(self, module, batch)

    monkeypatch.setattr(SmallCNN, "logits", full)
    monkeypatch.setattr("ofmu_pl.training.recovery._may_run_out", lambda method: True)
    module = make(16)
    with pytest.warns(UserWarning, match="micro-batches of 8 samples instead of 16"):
        train_on_digits(module, steps=2)
    ours, theirs = module.network.state_dict(), small.network.state_dict()
    assert all(torch.equal(ours[name], theirs[name]) for name in theirs)


def test_a_divergence_is_not_forgotten_when_memory_runs_out_next(monkeypatch):
    Poison(monkeypatch, 7)  # the end of the first attempt: a look at the network, then three pairs
    Memory(monkeypatch, rows=2, call=7)  # the second and later ones
    module = ofmu(rollbacks=1)
    with pytest.warns(UserWarning, match="micro-batches of 2 samples"):
        train(module, steps=1)
    assert module.recovery.step_scale == 0.5


def test_not_even_one_sample_fits(monkeypatch):
    Memory(monkeypatch, rows=0)
    with pytest.warns(UserWarning, match="Out of memory"), pytest.raises(UserError, match="Not even one sample fits"):
        train(ofmu(), steps=1)


def options_of(method):
    """Names of its constructor's arguments, also of those that it passes on."""
    names = set()
    for cls in method.__mro__:
        if "__init__" in vars(cls):
            parameters = inspect.signature(cls).parameters
            names |= set(parameters)
            if "kwargs" not in parameters:
                break
    return names


METHODS = [cls for cls in (getattr(modules, name) for name in modules.__all__) if issubclass(cls, UnlearningModule)]


@pytest.mark.parametrize("method", METHODS)
def test_after_a_divergence_options_are_named_that_the_method_has(method):
    remedy = method(CausalLM(config=TINY)).remedy
    named = re.findall(r"`(\w+)[=`]", remedy) + re.findall(r"\((.*)\)", remedy)
    named = {option for words in named for option in words.split(", ")}
    if "rate" in remedy:
        named.add("optimizer")
    assert named
    assert named <= options_of(method)
