"""Forget terms as modules: directions in float64 against autograd of formulas written out position by position.

The second of two steps is compared, since distances to the frozen model have no gradient in the first.
"""

import copy
import math
from functools import partial

import pytest
import torch
from lightning.pytorch.callbacks import Callback

from ofmu_pl.modules import CATNIP, MASC, JensUn, Negation
from ofmu_pl.networks import CausalLM
from ofmu_pl.support.errors import UserError
from tests.helpers.training import train

SGD = {"optimizer": partial(torch.optim.SGD, lr=0.5), "gradient_clip": None}


class Seen(Callback):
    """Weights before each iteration, its direction and its scalars."""

    def setup(self, trainer, pl_module, stage):
        self.weights, self.directions, self.scalars, iterate = [], [], [], pl_module.iterate

        def spied(batch):
            self.weights.append(copy.deepcopy(pl_module.network.state_dict()))
            gradient, scalars = iterate(batch)
            self.directions.append(torch.cat([g.flatten() for g in gradient]))
            self.scalars.append(scalars)
            return gradient, scalars

        pl_module.iterate = spied


def second_direction(module, loss):
    """The direction of a method's second step, which has to be the gradient of ``loss(network, frozen, batch)``."""
    train(module, steps=2, precision="64-true", callbacks=[seen := Seen()])
    network, frozen = module.network, copy.deepcopy(module.network)
    network.load_state_dict(seen.weights[1])
    frozen.load_state_dict(seen.weights[0])
    batch = {name: batches[0] for name, batches in module.run.data.iteration(1).items()}
    gradient = torch.autograd.grad(loss(network, frozen, batch), list(network.parameters()))
    wanted = torch.cat([g.flatten() for g in gradient])
    assert wanted.norm() > 1e-6
    assert (seen.directions[1] - wanted).norm() < 1e-9 * wanted.norm()
    return seen


def rows(network, batch):
    """Probabilities (n, V) and true tokens (n,) at the answer positions of each row."""
    z = network(input_ids=batch["input_ids"], attention_mask=batch["attention_mask"]).logits[:, :-1]
    for logits, labels in zip(z, batch["labels"][:, 1:], strict=True):
        yield logits[labels != -100].softmax(1), labels[labels != -100]


def mean(values):
    return torch.stack(list(values)).mean()


def divergence(p, q):
    """Jensen-Shannon of (n, V) and (n, V), mean over n; q may hold zeros."""
    m = (p + q) / 2
    return (p * (p / m).log() + torch.xlogy(q, q) - q * m.log()).sum(1).mean() / 2


@pytest.mark.parametrize("size", [None, 3])
def test_jensun_repeats_the_fixed_answer_along_every_true_one(folder, size):
    module = JensUn(CausalLM(path=folder), answer="No idea", gamma=2.0, alpha=3.0, micro_batch_size=size, **SGD)

    def loss(network, frozen, batch):
        answer = module.run.data.tokenizer("No idea", add_special_tokens=False)["input_ids"]
        assert len(answer) > 1
        forget = []
        for p, true in rows(network, batch["forget"]):
            wanted = [answer[t % len(answer)] for t in range(len(true))]
            forget.append(divergence(p, torch.eye(p.shape[1], dtype=p.dtype)[wanted]))
        both = zip(rows(network, batch["retain"]), rows(frozen, batch["retain"]), strict=True)
        return 2 * mean(forget) + 3 * mean(divergence(p, q.detach()) for (p, _), (q, _) in both)

    seen = second_direction(module, loss)
    assert 0 < seen.scalars[1]["L_f"] < math.log(2)
    assert seen.scalars[0]["js"] == 0 < seen.scalars[1]["js"]


def test_jensun_needs_an_answer(folder):
    with pytest.raises(UserError, match="model.answer"):
        train(JensUn(CausalLM(path=folder), answer=""), steps=1)


@pytest.mark.parametrize("beta", [1.0, 0.5])
def test_catnip_pushes_tokens_by_their_odds(folder, beta):
    module = CATNIP(CausalLM(path=folder), beta=beta, gamma=2.0, **SGD)
    assert module.streams == ("forget",)

    def loss(network, frozen, batch):
        sure = (p.gather(1, true[:, None]) for p, true in rows(network, batch["forget"]))
        return 2 * mean((2 / beta * (1 + (p / (1 - p)) ** beta).log()).mean() for p in sure)

    second_direction(module, loss)


def test_masc_lowers_margins_that_are_above_their_bound(folder):
    module = MASC(CausalLM(path=folder), rivals=3, rho=0.3, buffer=0.5, gamma=2.0, **SGD)
    bound = math.log(0.3 / 0.7)

    def loss(network, frozen, batch):
        hinges, kinds = [], set()
        for p, true in rows(network, batch["forget"]):
            others = p.log().scatter(1, true[:, None], -math.inf).sort(1).values[:, -3:]
            margin = p.log().gather(1, true[:, None])[:, 0] - others.exp().sum(1).log()
            kinds |= set((margin > bound - 0.5).tolist())
            hinges.append(((margin - bound + 0.5).clamp(min=0) / 0.5).mean())
        assert kinds == {True, False}
        return 2 * mean(hinges)

    second_direction(module, loss)


def test_negation_is_training_turned_round(folder):
    module = Negation(CausalLM(path=folder), steps=3, lr=1e-2, scale=2.0)
    trainer = train(module, steps=5, precision="64-true", callbacks=[seen := Seen()])
    assert trainer.global_step == 1, "one iteration, whatever max_steps says"
    assert module.gradient_evaluations == 3
    network = copy.deepcopy(module.network)
    network.load_state_dict(seen.weights[0])
    start = torch.nn.utils.parameters_to_vector(network.parameters()).detach()
    optimizer = torch.optim.AdamW(network.parameters(), lr=1e-2, weight_decay=0.0)
    for number in range(3):
        (batch,) = module.run.data.iteration(number)["forget"]
        optimizer.zero_grad()
        mean(-p.gather(1, true[:, None]).log().mean() for p, true in rows(network, batch)).backward()
        optimizer.step()
    trained = torch.nn.utils.parameters_to_vector(network.parameters()).detach()
    found = torch.nn.utils.parameters_to_vector(module.network.parameters()).detach()
    assert (trained - start).norm() > 0.1
    assert (found - (start - 2 * (trained - start))).norm() < 1e-9 * (trained - start).norm()


@pytest.mark.parametrize("options", [{"rho": 1.0}, {"rho": 0.0}, {"rivals": 0}, {"buffer": 0.0}])
def test_bad_arguments(options):
    with pytest.raises(UserError, match=next(iter(options))):
        MASC(CausalLM("gpt2"), **options)
