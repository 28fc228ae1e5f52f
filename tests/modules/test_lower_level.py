"""What the ascent raises: a loss below a ceiling, which held-out rows may set, or towards a guess."""

from dataclasses import replace
from functools import partial

import pytest
import torch
from lightning.pytorch.callbacks import Callback, ModelCheckpoint

from ofmu_pl.core.safeguards import SAFE
from ofmu_pl.core.shared_adam import SharedAdam
from ofmu_pl.data import Digits
from ofmu_pl.modules import NPO, OFMU
from ofmu_pl.modules.lower_level import HeldOutLevels
from ofmu_pl.modules.npo_level import NPOLevel
from ofmu_pl.modules.steppers import SharedSteps
from ofmu_pl.networks import CausalLM, SmallCNN
from ofmu_pl.support.errors import UserError
from tests.helpers.parts import FIRST_ORDER, plain, printed
from tests.helpers.training import TINY, fit, train, weights


class Interrupted(Callback):
    """Ends a run after its second iteration, as a signal would."""

    def on_train_batch_end(self, trainer, *_):
        trainer.should_stop = trainer.global_step == 2


def lower(optimizer=torch.optim.SGD, lr=0.5, network=None, **options):
    settings = {"engine": "finite_difference", "inner_steps": 1, "stepper": plain(0.5), "gradient_clip": None}
    settings |= FIRST_ORDER | {"safeguards": replace(SAFE, inner_clip=None)}
    return OFMU(network or CausalLM(config=TINY), optimizer=lambda p: optimizer(p, lr=lr), **settings | options)


def test_held_out_rows_set_the_ceiling_without_ending_the_run():
    """Random weights find forgotten and held-out rows alike, so the goal is reached at the first look."""
    module = lower(lower=HeldOutLevels, lr=0.0, stepper=plain(0.0))
    trainer = train(module, steps=11, holdout_authors=2)
    assert trainer.global_step == 11
    assert len(module.lower.goal.levels.ends) == 8 + 1
    stopping = lower(lower=HeldOutLevels, stop_at="holdout", lr=0.0, stepper=plain(0.0))
    assert train(stopping, steps=11, holdout_authors=2).global_step == 10


@pytest.mark.parametrize("start", [0.0, 0.6])
def test_the_shipped_form_goes_on_from_a_checkpoint_bit_for_bit(tmp_path, start):
    """From within a period: of second order are iterations 1 and 4."""
    guided = partial(HeldOutLevels, ngram_weight=0.3)
    first_order = {"lr": 0.01, "stepper": SharedSteps, "lower": guided, "outer_at": "start"}

    def make():
        settings = {"beta": 0.1, "upper": printed(every=3, start=start)}
        return lower(SharedAdam, **first_order | settings)

    whole = make()
    train(whole, steps=4, holdout_authors=2)
    save = ModelCheckpoint(tmp_path, filename="{step}", every_n_train_steps=2, save_top_k=-1)
    train(make(), steps=4, callbacks=[save, Interrupted()], holdout_authors=2)
    resumed = make()
    train(resumed, steps=4, ckpt_path=tmp_path / "step=2.ckpt", holdout_authors=2)
    assert torch.equal(weights(whole), weights(resumed))
    assert whole.gradient_evaluations == resumed.gradient_evaluations
    train(plain := lower(SharedAdam, **first_order), steps=4, holdout_authors=2)
    assert not torch.equal(weights(plain), weights(whole)), "the parts were on"


def test_an_ascent_on_npos_loss_is_npo_without_its_retain_term():
    """One plain step from the same weights on the same batch; scoring all eight rows counts as work."""
    ascent = lower(lower=NPOLevel, lr=0.0)
    train(ascent, steps=1)
    sgd = partial(torch.optim.SGD, lr=0.5)
    train(npo := NPO(CausalLM(config=TINY), beta=0.1, alpha=0.0, optimizer=sgd, gradient_clip=None), steps=1)
    torch.testing.assert_close(weights(ascent), weights(npo))
    train(still := lower(lr=0.0, stepper=plain(0.0)), steps=1)
    assert not torch.allclose(weights(ascent), weights(still))
    assert ascent.gradient_evaluations == pytest.approx(2 + 0.5 + 8 / 4 / 3), "two rows are examined"


def test_npos_ascent_keeps_the_first_scores_in_a_checkpoint(tmp_path):
    def make():
        return lower(SharedAdam, lr=0.01, stepper=SharedSteps, lower=NPOLevel, outer_at="start")

    whole = make()
    train(whole, steps=4)
    save = ModelCheckpoint(tmp_path, filename="{step}", every_n_train_steps=2, save_top_k=-1)
    train(make(), steps=4, callbacks=[save, Interrupted()])
    resumed = make()
    train(resumed, steps=4, ckpt_path=tmp_path / "step=2.ckpt")
    assert torch.equal(weights(whole), weights(resumed))
    assert whole.gradient_evaluations == resumed.gradient_evaluations


def test_npos_ascent_is_for_answers():
    method = lower(network=SmallCNN(), lower=NPOLevel)
    data = Digits(streams=method.streams, num_batches=2, forget_classes=[0], train_items=100, batch_size=16)
    with pytest.raises(UserError, match="images have none"):
        fit(method, data, steps=1)
