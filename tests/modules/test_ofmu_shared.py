"""OFMU in one metric: both loops by one Adam, the ceiling on tokens."""

import pytest
import torch
from lightning.pytorch.callbacks import ModelCheckpoint

from ofmu_pl.core.shared_adam import SharedAdam
from ofmu_pl.losses import IGNORED, ceiling, shifted, token_nll
from ofmu_pl.modules import OFMU
from ofmu_pl.networks import CausalLM
from ofmu_pl.support.errors import UserError
from tests.helpers.training import TINY, train, weights


def decay(optimizer):
    return torch.optim.lr_scheduler.LinearLR(optimizer, start_factor=1.0, end_factor=0.1, total_iters=4)


def shared(lr=0.01, **options):
    settings = {"engine": "finite_difference", "inner_steps": 2, "inner_optimizer": "shared", "inner_lr": 1.0}
    settings |= {"beta": 0.0, "rho_0": 0.0, "ceiling_by": "token", "forget_ceiling": 4.0, "scheduler": decay}
    return OFMU(CausalLM(config=TINY), optimizer=lambda p: SharedAdam(p, lr=lr), **settings | options)


@pytest.mark.parametrize("outer_at", ["end", "start"])
def test_two_iterations_by_independent_arithmetic(outer_at):
    """Torch alone: a mean over rows of means over tokens of bent losses, one second moment, two first ones."""
    module = shared(gradient_clip=None, inner_clip=None, outer_at=outer_at)
    train(module, steps=2)
    plain = shared()
    trainer = train(plain, steps=0)
    network, lr = plain.network, 0.01
    theta = list(network.parameters())
    v = [torch.zeros_like(p) for p in theta]
    m = {sign: [torch.zeros_like(p) for p in theta] for sign in (1, -1)}
    counts = {1: 0, -1: 0}

    def gradients_of(b, sign):
        logits = network(input_ids=b["input_ids"], attention_mask=b["attention_mask"]).logits
        targets = shifted(b["labels"])
        nll = token_nll(logits, targets)
        bent = ceiling(nll, 4.0) if sign > 0 else nll
        mask = targets != IGNORED
        return torch.autograd.grad(((bent * mask).sum(1) / mask.sum(1)).mean(), theta)

    for k in range(2):
        batch = trainer.datamodule.iteration(k)
        before = gradients_of(batch["retain"][2], -1)
        for b, sign in [(batch["forget"][0], 1), (batch["forget"][1], 1), (batch["retain"][2], -1)]:
            gradients = before if sign < 0 and outer_at == "start" else gradients_of(b, sign)
            counts[sign] += 1
            with torch.no_grad():
                for p, g, square, mean in zip(theta, gradients, v, m[sign], strict=True):
                    square.mul_(0.99).add_(g * g, alpha=0.01)
                    mean.mul_(0.9).add_(g, alpha=0.1)
                    size = (square / (1 - 0.99 ** sum(counts.values()))).sqrt() + 1e-8
                    p.add_(mean / size, alpha=sign * lr * (1 - 0.225 * k) / (1 - 0.9 ** counts[sign]))
    # A step is 1e-2 long however small the gradient, whose rounding therefore shows.
    torch.testing.assert_close(weights(module), weights(plain), rtol=1e-3, atol=1e-5)


def test_tokens_above_the_ceiling_are_not_pushed():
    """At a ceiling far below every token's loss nothing ascends, whatever the mean over the sample."""
    module = shared(forget_ceiling=1e-3, lr=0.0)
    trainer = train(module, steps=1)
    assert trainer.callback_metrics["inner/grad_Phi"] < 1e-6


def test_it_goes_on_from_a_checkpoint_bit_for_bit(tmp_path):
    whole = shared()
    train(whole, steps=4)
    save = ModelCheckpoint(tmp_path, filename="{step}", every_n_train_steps=2, save_top_k=-1)
    train(shared(), steps=2, callbacks=[save])
    resumed = shared()
    train(resumed, steps=4, ckpt_path=tmp_path / "step=2.ckpt")
    assert torch.equal(weights(whole), weights(resumed))


def test_it_needs_an_optimizer_with_two_momenta():
    module = OFMU(CausalLM(config=TINY), inner_optimizer="shared", engine="finite_difference")
    with pytest.raises(UserError, match="set --model.optimizer SharedAdam"):
        train(module, steps=1)


def test_only_the_outer_step_is_counted_and_work_is_first_order():
    module = shared()
    trainer = train(module, steps=3)
    assert trainer.global_step == 3
    assert module.gradient_evaluations == 3 * 3  # two ascents and a descent each
