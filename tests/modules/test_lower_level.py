"""What the ascent raises: other methods' forget terms, noise on questions, a goal as the ceiling; and a price."""

import re
from types import SimpleNamespace

import pytest
import torch
from lightning.pytorch.callbacks import Callback, ModelCheckpoint

from ofmu_pl.core.price import Price
from ofmu_pl.core.shared_adam import SharedAdam
from ofmu_pl.data import Authors
from ofmu_pl.losses import IGNORED
from ofmu_pl.modules import DPO, NPO, OFMU, PDU, RMU, UNDIAL, RandomLabels, WeightedAscent
from ofmu_pl.modules.question_noise import with_noise
from ofmu_pl.networks import CausalLM
from ofmu_pl.support.errors import UserError
from tests.helpers.images import network, train_on_digits
from tests.helpers.training import TINY, train, weights

TERMS = {
    "NPO": lambda network: NPO(network, beta=0.5, alpha=0.0),
    "WGA": lambda network: WeightedAscent(network, alpha=0.0),
    "flat logits": lambda network: PDU(network, alpha=0.0, dual_step=0.0),
    "hidden goal": lambda network: RMU(network, layer="model.layers.0", alpha=0.0, coefficient=2.0),
    "UNDIAL": lambda network: UNDIAL(network, beta=5.0),
}


class Interrupted(Callback):
    """Ends a run after its second iteration, as a signal would."""

    def on_train_batch_end(self, trainer, *_):
        trainer.should_stop = trainer.global_step == 2


def lower(optimizer=torch.optim.SGD, lr=0.5, **options):
    settings = {"engine": "finite_difference", "inner_steps": 1, "inner_lr": 0.5, "inner_clip": None}
    settings |= {"beta": 0.0, "rho_0": 0.0, "gradient_clip": None}
    return OFMU(CausalLM(config=TINY), optimizer=lambda p: optimizer(p, lr=lr), **settings | options)


@pytest.mark.parametrize("name", TERMS)
def test_the_ascent_is_the_other_methods_descent(name):
    """With a plain step and nothing retained, an ascent and that method's own iteration are one and the same."""
    ours = lower(objective=TERMS[name], lr=0.0)
    train(ours, steps=1)
    theirs = TERMS[name](CausalLM(config=TINY))
    theirs.make_optimizer, theirs.gradient_clip = lambda p: torch.optim.SGD(p, lr=0.5), None
    untouched = lower(lr=0.0, inner_lr=0.0)
    train(untouched, steps=1)
    trainer = train(untouched, steps=0)
    theirs.__class__ = type("Drawn", (type(theirs),), {"streams": ("forget", "retain"), "num_batches": 2})
    train(theirs, steps=1)
    assert trainer.datamodule is not None
    moved = weights(theirs) - weights(untouched)
    assert moved.norm() > 1e-4
    torch.testing.assert_close(weights(ours) - weights(untouched), moved, rtol=1e-3, atol=1e-7)


@pytest.mark.parametrize(("objective", "frozen"), [(UNDIAL, 1 / 3), (NPO, 0.0)])
def test_the_passes_of_an_objectives_frozen_model_are_counted(objective, frozen):
    """Two ascents and a descent an iteration; NPO's frozen losses are read once."""
    module = lower(SharedAdam, 1e-3, objective=objective, inner_optimizer="shared", inner_steps=2, micro_batch_size=3)
    train(module, steps=2)
    assert module.gradient_evaluations == pytest.approx(2 * (2 * (1 + frozen) + 1))


def test_the_ascent_can_be_towards_random_labels():
    ours = OFMU(network(), inner_steps=1, inner_lr=0.5, inner_clip=None, beta=0.0, rho_0=0.0, objective=RandomLabels)
    ours.make_optimizer = lambda p: torch.optim.SGD(p, lr=0.0)
    train_on_digits(ours, steps=1)
    theirs = RandomLabels(network(), alpha=0.0, optimizer=lambda p: torch.optim.SGD(p, lr=0.5), gradient_clip=None)
    train_on_digits(theirs, steps=1)
    torch.testing.assert_close(weights(ours), weights(theirs))


def test_what_needs_other_answers_is_refused():
    with pytest.raises(UserError, match=re.escape("DPO forgets by other answers")):
        lower(objective=DPO)
    with pytest.raises(UserError, match=r"leave out --model\.objective"):
        lower(objective=NPO, forget_ceiling="holdout")


def test_the_price_weighs_the_retain_gradient_and_follows_the_loss():
    """A price of 3 triples a plain descent; it then moves by its step times what the loss lacks of the bound."""
    start, plain = lower(inner_lr=0.0, lr=0.0), lower(inner_lr=0.0, lr=0.1)
    dear = lower(inner_lr=0.0, lr=0.1, price=Price(bound=1.0, first=3.0, step=0.5))
    for module in (start, plain):
        train(module, steps=1)
    trainer = train(dear, steps=1)
    torch.testing.assert_close(
        weights(dear) - weights(start), 3 * (weights(plain) - weights(start)), rtol=1e-3, atol=1e-6
    )
    loss = float(trainer.callback_metrics["L_r"])
    assert dear.price.value == pytest.approx(3.0 + 0.5 * (loss - 1.0), rel=1e-5)


def test_a_price_does_not_fall_below_zero():
    price = Price(bound=10.0, first=1.0, step=5.0)
    price.move(0.0)
    assert price.value == 0.0
    with pytest.raises(UserError, match="step"):
        Price(step=-1.0)


def test_noise_falls_on_questions_alone_and_as_often_as_asked():
    tokens = torch.arange(10, 50).repeat(200, 1)
    labels = torch.where(tokens < 30, IGNORED, tokens)
    mask = (tokens < 48).long()
    labels[:, -2:] = IGNORED  # padding
    batch = {"input_ids": tokens, "attention_mask": mask, "labels": labels}
    noisy = with_noise(batch, share=0.2, vocabulary=10_000, spared=[10, 11], key=(0, 7))["input_ids"]
    changed = noisy != tokens
    assert not changed[:, :2].any()
    assert not changed[:, 20:].any()
    assert changed[:, 2:20].float().mean().item() == pytest.approx(0.2, abs=0.02)
    assert torch.equal(with_noise(batch, 0.2, 10_000, [10, 11], (0, 7))["input_ids"], noisy)
    assert not torch.equal(with_noise(batch, 0.2, 10_000, [10, 11], (0, 8))["input_ids"], noisy)
    assert torch.equal(with_noise(batch, 0.0, 10_000, [], (0, 7))["input_ids"], tokens)


def test_noise_changes_the_ascent():
    clear, noisy = lower(), lower(question_noise=0.5)
    for module in (clear, noisy):
        train(module, steps=1)
    assert not torch.equal(weights(clear), weights(noisy))


def test_noise_is_planned_on_rows_that_stand_in():
    data = Authors(authors=4, forget_authors=1, batch_size=4, max_length=16, streams=("forget", "retain"))
    data.blank()
    module = lower(question_noise=1.0)
    module.lower.method = SimpleNamespace(run=SimpleNamespace(data=data), recipe=module.recipe, trained=None)
    module.recipe.uniform_loss = lambda network: 5.0
    (batch,) = data.iteration(0)["forget"]
    (noisy,) = module.lower.noised([batch], step=1)
    assert noisy["input_ids"].shape == batch["input_ids"].shape


def test_never_seen_rows_set_the_ceiling_without_ending_the_run():
    """Random weights find forgotten and never-seen rows alike, so the goal is reached at the first look."""
    module = lower(forget_ceiling="holdout", lr=0.0, inner_lr=0.0)
    trainer = train(module, steps=11, holdout_authors=2)
    assert trainer.global_step == 11
    assert len(module.lower.goal.levels) == 8
    stopping = lower(stop_at="holdout", lr=0.0, inner_lr=0.0)
    assert train(stopping, steps=11, holdout_authors=2).global_step == 10


def test_without_never_seen_rows_there_is_nothing_to_fit_a_guess_to():
    with pytest.raises(
        UserError, match=r"holdout_authors 5 makes some\), and ngram_weight fits its guess to such rows"
    ):
        train(lower(ngram_weight=0.3), steps=1)


@pytest.mark.parametrize(
    "options",
    [{"objective": TERMS["UNDIAL"]}, {"forget_ceiling": "holdout", "ngram_weight": 0.3}],
    ids=["term", "goal"],
)
def test_it_goes_on_from_a_checkpoint_bit_for_bit(tmp_path, options):
    def make():
        more = {"question_noise": 0.3, "price": Price(bound=1.0, first=2.0, step=1.0)}
        return lower(SharedAdam, lr=0.01, inner_optimizer="shared", inner_lr=1.0, **options, **more)

    whole = make()
    train(whole, steps=4, holdout_authors=2)
    save = ModelCheckpoint(tmp_path, filename="{step}", every_n_train_steps=2, save_top_k=-1)
    train(make(), steps=4, callbacks=[save, Interrupted()], holdout_authors=2)
    resumed = make()
    train(resumed, steps=4, ckpt_path=tmp_path / "step=2.ckpt", holdout_authors=2)
    assert torch.equal(weights(whole), weights(resumed))
    assert whole.price.value == resumed.price.value
