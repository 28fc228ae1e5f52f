"""SSD's weights in float64 against squared gradients written out group by group, and what it refuses."""

import pytest
import torch
import torch.nn.functional as F

from ofmu_pl.modules import SSD
from ofmu_pl.networks import CausalLM
from ofmu_pl.support.errors import UserError
from tests.helpers.images import network, train_on_digits
from tests.helpers.training import TINY, train, weights

EXACT = {"precision": "64-true"}


def dampened(start, parts, alpha, dampening):
    """Weights (n,) by the gradients, (groups, n), of forget and retain groups; and which of them are chosen."""
    forget, every = parts["forget"].square().mean(0), torch.cat(list(parts.values())).square().mean(0)
    sizes = torch.minimum(dampening * every / forget * start.abs(), start.abs())
    chosen = forget > alpha * every
    return torch.where(chosen, start.sign() * sizes, start), chosen


def gradients(module, losses):
    """Gradients, (groups, n), of losses."""
    parameters = list(module.network.parameters())
    return torch.stack([torch.cat([g.flatten() for g in torch.autograd.grad(x, parameters)]) for x in losses])


@pytest.mark.parametrize(("alpha", "dampening", "group_size"), [(3.0, 1.0, 32), (2.0, 0.1, 7), (4.0, 1.0, 1)])
def test_weights_are_those_of_the_formula(alpha, dampening, group_size):
    options = {"alpha": alpha, "dampening": dampening, "group_size": group_size}
    trainer = train_on_digits(module := SSD(network(), **options), steps=9, **EXACT)
    train_on_digits(first := SSD(network()), steps=0, **EXACT)
    parts = {}
    for name in ("forget", "retain"):
        images, labels = trainer.datamodule.images_of(name)
        groups = zip((images.float() / 255).split(group_size), labels.split(group_size), strict=True)
        parts[name] = gradients(first, [F.cross_entropy(first.network(x), y) for x, y in groups])
    start = weights(first)
    wanted, chosen = dampened(start, parts, alpha, dampening)
    assert trainer.global_step == 1
    assert trainer.callback_metrics["chosen"] == pytest.approx(float(chosen.double().mean()), rel=1e-6)
    assert 0.01 < chosen.double().mean() < 0.9
    assert (weights(module) - wanted).norm() < 1e-9 * (wanted - start).norm()
    assert torch.equal(weights(module)[~chosen], start[~chosen])


def test_texts_rows_have_the_mean_loss_of_their_answers(folder):
    options = {"alpha": 1.2, "group_size": 3}
    data = train(module := SSD(CausalLM(path=folder), **options), steps=1, **EXACT).datamodule
    train(first := SSD(CausalLM(path=folder)), steps=0, **EXACT)
    parts = {}
    for name in ("forget", "retain"):
        losses = []
        for index in torch.arange(len(data.splits[name])).split(3):
            batch = data.collate(name, index.tolist(), 0)
            logits = first.network(input_ids=batch["input_ids"], attention_mask=batch["attention_mask"]).logits
            rows = zip(logits[:, :-1], batch["labels"][:, 1:], strict=True)
            losses.append(torch.stack([F.cross_entropy(z, y) for z, y in rows]).mean())
        parts[name] = gradients(first, losses)
    start = weights(first)
    wanted, chosen = dampened(start, parts, alpha=1.2, dampening=1.0)
    assert 0.01 < chosen.double().mean() < 0.9
    assert (weights(module) - wanted).norm() < 1e-9 * (wanted - start).norm()


def test_it_refuses_what_would_choose_nothing():
    with pytest.raises(UserError, match=r"model\.alpha .*\b10\b"):
        train_on_digits(SSD(network(), alpha=10.0, group_size=4), steps=1, forget_classes=None, forget_fraction=0.1)
    with pytest.raises(UserError, match="lora"):
        SSD(CausalLM(config=dict(TINY), lora={"r": 2}))
    for option in ({"alpha": -1.0}, {"dampening": -1.0}, {"group_size": 0}):
        with pytest.raises(UserError, match=next(iter(option))):
            SSD(network(), **option)
