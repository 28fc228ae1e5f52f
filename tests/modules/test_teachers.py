"""Imitation of teachers: second steps in float64 against autograd of divergences written out, and runs that go on."""

from functools import partial

import pytest
import torch

from ofmu_pl.modules import BadTeacher
from ofmu_pl.networks import Classifier
from ofmu_pl.networks.vision import batch_norms
from ofmu_pl.support.errors import UserError
from tests.helpers.images import network, train_on_digits
from tests.helpers.training import interrupted, weights

RATE = 0.5
SGD = {"optimizer": partial(torch.optim.SGD, lr=RATE), "gradient_clip": None}
EXACT = {"precision": "64-true"}


def after(make, steps, run):
    """A method after so many iterations, and its trainer."""
    trainer = run(module := make(), steps=steps, **EXACT)
    return module, trainer


def check_second_step(make, loss, run):
    """It has to be the gradient of ``loss(network, batch)``; distances to a network's start have none in the first."""
    (one, trainer), (two, _) = after(make, 1, run), after(make, 2, run)
    batch = {name: batches[0] for name, batches in trainer.datamodule.iteration(1).items()}
    found = torch.autograd.grad(loss(one.network, batch), list(one.network.parameters()))
    wanted = torch.cat([g.flatten() for g in found])
    assert wanted.norm() > 1e-6
    assert ((weights(one) - weights(two)) / RATE - wanted).norm() < 1e-9 * wanted.norm()


def divergence(teacher, student):
    """``mean_rows sum_c q_c ln(q_c / p_c)`` of logits (b, C), q the teacher's."""
    q, p = teacher.detach().softmax(1), student.softmax(1)
    return (q * (q / p).log()).sum(1).mean()


# Bad teacher ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [None, 5])
def test_bad_teacher_imitates_an_untrained_network_and_the_frozen_model(size):
    make = partial(BadTeacher, network(), gamma=2.0, alpha=3.0, micro_batch_size=size, **SGD)
    start, trainer = after(make, 0, train_on_digits)
    torch.manual_seed(1)  # the data's is 0, as that of the network to train
    untrained = network().build(trainer.datamodule, exact=False).double()

    def loss(student, batch):
        terms = []
        for weight, teacher, name in ((2, untrained, "forget"), (3, start.network, "retain")):
            images = batch[name]["images"]
            terms.append(weight * divergence(teacher(images), student(images)))
        return sum(terms)

    check_second_step(make, loss, train_on_digits)


def test_a_run_that_goes_on_has_the_same_teachers(tmp_path):
    def make():
        return BadTeacher(network(norm="batch", bn_mode="both"), optimizer=partial(torch.optim.Adam, lr=1e-3))

    whole, resumed = interrupted(make, tmp_path, 4, at=2, run=train_on_digits)
    teachers = [m._teacher[0].state_dict() for m in (whole, resumed)]
    assert all(torch.equal(x, teachers[1][k]) for k, x in teachers[0].items())
    assert not any(m.running_mean.any() for m in batch_norms(whole._teacher[0])), "no image has moved it"


def test_it_needs_a_network_that_can_be_made_untrained():
    made = Classifier(network().body(1, 10))
    with pytest.raises(UserError, match="give Classifier its class"):
        train_on_digits(BadTeacher(made), steps=1)
