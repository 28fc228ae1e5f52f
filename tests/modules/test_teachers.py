"""Imitation of teachers: second steps in float64 against autograd of divergences written out, and runs that go on."""

from functools import partial

import pytest
import torch

from ofmu_pl.modules import UNDO, BadTeacher
from ofmu_pl.networks import CausalLM, Classifier
from ofmu_pl.networks.vision import batch_norms
from ofmu_pl.support.errors import UserError
from tests.helpers.images import network, train_on_digits
from tests.helpers.training import TINY, interrupted, train, weights

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
    with pytest.raises(UserError, match="Classifier"):
        train_on_digits(BadTeacher(made), steps=1)


# UNDO -------------------------------------------------------------------------------------------------------------


def by_name(module):
    return {name: p.detach() for name, p in module.network.named_parameters()}


def damaged(recipe, run, **options):
    """A method's network and teacher after its damage and a step of rate 0."""
    module = UNDO(recipe, optimizer=partial(torch.optim.SGD, lr=0.0), **options)
    run(module, steps=1, **EXACT)
    return by_name(module), dict(module._frozen.network.named_parameters())


@pytest.mark.parametrize("images", [False, True], ids=["text", "images"])
def test_undo_shrinks_all_weights_and_adds_xavier_noise_to_matrices(folder, images):
    recipe, run = (network(), train_on_digits) if images else (CausalLM(path=folder), train)
    found, teacher = damaged(recipe, run, noise=0.25, noise_scale=0.5)
    noise = []
    for name, p in teacher.items():
        rest = found[name] - 0.75 * p
        if p.dim() == 1:
            assert rest.abs().max() < 1e-12
            continue
        outputs, inputs = p.shape[0] * p[0, 0].numel(), p.shape[1] * p[0, 0].numel()
        noise.append(rest.flatten() / (0.25 * 0.5) / (6 / (inputs + outputs)) ** 0.5)
    noise = torch.cat(noise)
    assert 0.99 < noise.abs().max() < 1 + 1e-6
    assert (noise.mean().abs(), noise.square().mean()) == (pytest.approx(0, abs=0.03), pytest.approx(1 / 3, abs=0.02))
    assert len(noise.unique()) > 0.99 * len(noise)
    again, _ = damaged(recipe, run, noise=0.25, noise_scale=0.5)
    assert all(torch.equal(x, again[name]) for name, x in found.items())


@pytest.mark.parametrize("size", [None, 3])
def test_undo_distils_the_network_before_the_damage_on_forget_and_retain_rows(folder, size):
    make = partial(UNDO, CausalLM(path=folder), noise=0.5, gamma=2.0, alpha=3.0, micro_batch_size=size, **SGD)
    teacher = after(make, 0, train)[0].network

    def loss(student, batch):
        total = 0
        for weight, name in ((2, "forget"), (3, "retain")):
            part, rows = batch[name], []
            inputs = {k: part[k] for k in ("input_ids", "attention_mask")}
            logits = [m(**inputs).logits[:, :-1] for m in (teacher, student)]
            for q, p, labels in zip(*logits, part["labels"][:, 1:], strict=True):
                rows.append(divergence(q[labels != -100], p[labels != -100]))
            total += weight * torch.stack(rows).mean()
        return total

    check_second_step(make, loss, train)


def test_a_run_that_goes_on_is_damaged_once(folder, tmp_path):
    def make():
        return UNDO(CausalLM(path=folder), noise=0.3, optimizer=partial(torch.optim.AdamW, lr=1e-3))

    interrupted(make, tmp_path, 4, at=2)


def test_harm_is_counted_from_the_teacher_on(folder):
    """Else the damage would be none, and the run would end before it has recovered."""
    ends = []
    for noise in (0.0, 0.9):
        module = UNDO(CausalLM(path=folder), noise=noise, keep="best", **SGD)
        train(module, steps=1, holdout_authors=2)
        ends.append(module.ending.watch.old)
    assert torch.equal(*ends)


def test_undo_refuses_adapters_and_shares_above_one():
    with pytest.raises(UserError, match="lora"):
        UNDO(CausalLM(config=dict(TINY), lora={"r": 2}))
    for option in ({"noise": 1.1}, {"noise_scale": -0.1}):
        with pytest.raises(UserError, match=next(iter(option))):
            UNDO(CausalLM(config=dict(TINY)), **option)
