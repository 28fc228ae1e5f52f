"""Rectified steps and SAM as modules: in float64 against torch.autograd, what must hold of them, and short runs."""

import copy
from functools import partial

import pytest
import torch
import torch.nn.functional as F
from lightning.pytorch.callbacks import Callback

from ofmu_pl.core.derivatives import trainable
from ofmu_pl.core.vectors import zeros_like
from ofmu_pl.modules import BLUR, DPO, GRU, HAMU, NPO, RMU, SAUL, SCRUB, GradDiff, PCGrad
from ofmu_pl.modules.two_terms import SAM_IN_WORDS
from ofmu_pl.networks import CausalLM
from ofmu_pl.support.errors import UserError
from tests.distributed.worker import DoubleCNN
from tests.helpers.images import network, train_on_digits
from tests.helpers.training import TINY, train, weights


class Directions(Callback):
    """Directions of all iterations, with their scalars."""

    def setup(self, trainer, pl_module, stage):
        self.seen, iterate = [], pl_module.iterate

        def spied(batch):
            gradient, scalars = iterate(batch)
            self.seen.append((flat(gradient), scalars))
            return gradient, scalars

        pl_module.iterate = spied


class Learn(GradDiff):
    """Descends on the forget loss, which in a random network conflicts with retaining: each wants its own classes."""

    def forget_losses(self, part):
        return -super().forget_losses(part)


def flat(x):
    return torch.cat([a.detach().flatten() for a in x])


def directions(method, steps=1, **options):
    """Directions of a method in float64, all from the same weights: the rate is 0."""
    module = method(DoubleCNN(width=8), optimizer=partial(torch.optim.SGD, lr=0.0), **options)
    train_on_digits(module, steps, callbacks=[seen := Directions()])
    return module, seen.seen


def gradients(module, number=0, sign=-1.0):
    """g_f of the loss ``sign L_f`` and g_r of an iteration, by torch.autograd alone."""
    found = []
    for side, factor in (("forget", sign), ("retain", 1.0)):
        (part,) = module.run.data.iteration(number)[side]
        loss = factor * F.cross_entropy(module.network(part["images"].double()), part["labels"])
        found.append(flat(torch.autograd.grad(loss, list(module.network.parameters()))))
    return found


close = partial(torch.testing.assert_close, rtol=1e-11, atol=1e-13)


@pytest.mark.parametrize(("gamma", "alpha"), [(1.0, 1.0), (0.25, 1.0), (1.0, 800.0)])
def test_blur_is_its_formula(gamma, alpha):
    """The last is what the authors' code for RMU does: ``g_f + alpha (g_r - <g_r, g_f> / |g_f|^2 g_f)``."""
    module, [(found, scalars)] = directions(GradDiff, gamma=gamma, alpha=alpha, micro_batch_size=5, rectify=BLUR())
    g_f, g_r = gradients(module)
    close(found, alpha * (g_r + (gamma / alpha - (g_r @ g_f) / (g_f @ g_f)) * g_f))
    close(found @ g_f, gamma * g_f @ g_f)
    assert scalars["cosine"] == pytest.approx(float(F.cosine_similarity(g_f, g_r, dim=0)), rel=1e-11)
    assert abs(scalars["cosine"]) > 0.1


def test_blur_leaves_orthogonal_gradients_and_whatever_stands_beside_a_vanished_one():
    forget, retain = [torch.tensor([1.0, 0.0])], [torch.tensor([0.0, 3.0])]
    assert BLUR().rectify_(forget, retain) == 0.0
    assert (forget[0].tolist(), retain[0].tolist()) == ([1.0, 0.0], [0.0, 3.0])
    _, [(rectified, _)] = directions(SCRUB, max_epochs=0, rectify=BLUR())
    _, [(plain, _)] = directions(SCRUB, max_epochs=0)
    assert torch.equal(rectified, plain)


@pytest.mark.parametrize("alpha", [0.0, 0.5])
def test_gru_takes_conflicts_with_the_average_out_of_the_forget_gradient(alpha):
    module, seen = directions(Learn, steps=4, gamma=2.0, alpha=alpha, rectify=GRU(weight=0.8))
    average = 0.0
    for number, (found, scalars) in enumerate(seen):
        g_f, g_r = gradients(module, number, sign=1.0)
        average = 0.8 * g_r + 0.2 * average
        assert g_f @ average < 0
        close(found, 2.0 * (g_f - (g_f @ average) / (average @ average) * average) + alpha * g_r)
        assert scalars["cosine"] < 0
        left = found - alpha * g_r
        assert left @ average > -1e-12 * left.norm() * average.norm()


def test_gru_leaves_forget_gradients_that_help():
    module, seen = directions(GradDiff, steps=3, alpha=0.0, rectify=GRU())
    plain_module, plain = directions(GradDiff, steps=3, alpha=0.0)
    for (found, scalars), (unrectified, _) in zip(seen, plain, strict=True):
        assert scalars["cosine"] > 0
        assert torch.equal(found, unrectified)
    assert (module.streams, plain_module.streams) == (("forget", "retain"), ("forget",))


@pytest.mark.parametrize(("gamma", "alpha"), [(1.0, 1.0), (2.0, 0.5)])
def test_pcgrad_takes_conflicts_out_of_both_gradients(gamma, alpha):
    options = {"gamma": gamma, "alpha": alpha, "micro_batch_size": 5, "rectify": PCGrad()}
    module, [(found, scalars)] = directions(Learn, **options)
    g_f, g_r = gradients(module, sign=1.0)
    assert scalars["cosine"] == pytest.approx(float(F.cosine_similarity(g_f, g_r, dim=0)), rel=1e-11)
    assert scalars["cosine"] < -0.1
    f, r = g_f - (g_f @ g_r) / (g_r @ g_r) * g_r, g_r - (g_f @ g_r) / (g_f @ g_f) * g_f
    close(found, gamma * f + alpha * r)


def test_pcgrad_leaves_gradients_that_agree():
    _, [(rectified, scalars)] = directions(GradDiff, rectify=PCGrad())
    _, [(plain, _)] = directions(GradDiff)
    assert scalars["cosine"] > 0
    close(rectified, plain)


def least_harm(f, r, gain):
    """HAMU's step by its angle to the forget gradient, for a gain that a step as long as r can have."""
    if r @ f >= gain:
        return r
    beside = r - (r @ f) / (f @ f) * f
    angle = torch.acos(gain / (r.norm() * f.norm()))
    return r.norm() * (torch.cos(angle) * f / f.norm() + torch.sin(angle) * beside / beside.norm())


@pytest.mark.parametrize("per_tensor", [False, True])
@pytest.mark.parametrize(("method", "share"), [(Learn, 0.3), (GradDiff, 1e-3), (GradDiff, 0.9)])
def test_hamu_is_the_step_of_least_harm(method, share, per_tensor):
    """Where the two conflict, where retaining forgets enough by itself, and where it does not."""
    module, _ = directions(method)
    g_f, g_r = gradients(module, sign=1.0 if method is Learn else -1.0)
    sizes = [p.numel() for p in module.network.parameters()] if per_tensor else [len(g_f)]
    products = torch.stack([f.norm() * r.norm() for f, r in zip(g_f.split(sizes), g_r.split(sizes), strict=True)])
    gains = share * products
    gain = float(gains.sum())
    _, [(found, scalars)] = directions(method, micro_batch_size=5, rectify=HAMU(gain, per_tensor))
    assert scalars["cosine"] == pytest.approx(float(F.cosine_similarity(g_f, g_r, dim=0)), rel=1e-11)
    parts = zip(g_f.split(sizes), g_r.split(sizes), gains, strict=True)
    close(found, torch.cat([least_harm(f, r, g) for f, r, g in parts]))
    assert found @ g_f >= gain * (1 - 1e-12)


@pytest.mark.parametrize("gain", [0.0, 0.2, 2.0])
def test_no_step_that_hamu_may_take_keeps_more(gain):
    g = torch.Generator().manual_seed(0)
    f, r = torch.randn(2, 4, generator=g, dtype=torch.float64)
    forget, retain = [f.clone()], [r.clone()]
    HAMU(gain).rectify_(forget, retain)
    found = forget[0] + retain[0]
    others = r.norm() * F.normalize(torch.randn(20000, 4, generator=g, dtype=torch.float64), dim=1)
    allowed = others[others @ f >= gain]
    assert len(allowed) > 1000
    assert (allowed @ r).max() <= found @ r
    assert (allowed @ r).max() > found @ r - 0.05 * r @ r, "some come near"


def test_hamu_where_no_step_gains_enough():
    forget, retain = [torch.tensor([2.0, 0.0])], [torch.tensor([0.0, 1.0])]
    HAMU(gain=4.0).rectify_(forget, retain)
    assert (forget[0].tolist(), retain[0].tolist()) == ([2.0, 0.0], [0.0, 0.0])
    for f, r in (([0.0, 0.0], [0.0, 1.0]), ([2.0, 0.0], [0.0, 0.0]), ([2.0, 0.0], [-0.1, 0.0])):
        for per_tensor in (False, True):
            forget, retain = [torch.tensor(f)], [torch.tensor(r)]
            HAMU(4.0, per_tensor).rectify_(forget, retain)
            assert torch.isfinite(forget[0] + retain[0]).all()


@pytest.mark.parametrize("rho", [0.3, 0.01])
def test_sam_takes_the_forget_gradient_at_the_shifted_weights_and_no_other(rho):
    module, [(found, scalars)] = directions(GradDiff, gamma=2.0, alpha=3.0, micro_batch_size=5, sam_rho=rho)
    g_f, g_r = gradients(module)
    (part,) = module.run.data.iteration(0)["forget"]
    loss = -F.cross_entropy(module.network(part["images"].double()), part["labels"])
    assert scalars["L_f"] == pytest.approx(float(loss.detach()), rel=1e-12), "at the present weights"
    at = 0
    with torch.no_grad():
        for p in module.network.parameters():
            p.add_((rho * g_f / g_f.norm())[at : at + p.numel()].view_as(p))
            at += p.numel()
    shifted, _ = gradients(module)
    close(found, 2.0 * shifted + 3.0 * g_r)
    assert (shifted - g_f).norm() > 0.01 * rho * g_f.norm()


@pytest.mark.parametrize("rho", [None, 0.05])
def test_a_constraint_weighs_the_forget_term_by_how_far_it_is_from_its_level(rho):
    options = {"gamma": 2.0, "alpha": 3.0, "micro_batch_size": 5, "sam_rho": rho}
    _, plain = directions(GradDiff, steps=4, **options | {"alpha": 0.0})
    module, seen = directions(GradDiff, steps=4, constrain=SAUL(level=-2.56, step=0.5), **options)
    multiplier = 0.0
    for number, ((found, scalars), (forget, _)) in enumerate(zip(seen, plain, strict=True)):
        g_f, g_r = gradients(module, number)
        (part,) = module.run.data.iteration(number)["forget"]
        network, at = copy.deepcopy(module.network), 0
        with torch.no_grad():
            for p in network.parameters():
                p.add_(((rho or 0.0) * g_f / g_f.norm())[at : at + p.numel()].view_as(p))
                at += p.numel()
            loss = -float(F.cross_entropy(network(part["images"].double()), part["labels"]))
        multiplier = max(0.0, multiplier + 0.5 * (loss + 2.56))
        assert scalars["multiplier"] == pytest.approx(multiplier, rel=1e-12)
        close(found, multiplier * forget + 3.0 * g_r)
    assert rho or [scalars["multiplier"] > 0 for _, scalars in seen] == [False, True, True, False]


def test_a_part_that_keeps_something_is_each_methods_own():
    constrain, rectify = SAUL(level=-10.0, step=0.5), GRU()
    one, two = (NPO(CausalLM(config=TINY), constrain=constrain, rectify=rectify) for _ in range(2))
    one.constrain.update(5.0)
    assert (one.constrain.multiplier, two.constrain.multiplier) == (7.5, 0.0)
    assert one.rectify is not two.rectify


def test_a_constraint_that_holds_leaves_retaining_alone():
    module, [(found, scalars)] = directions(GradDiff, constrain=SAUL(level=0.0))
    assert scalars["multiplier"] == 0.0
    close(found, gradients(module)[1])


@pytest.mark.parametrize(
    "make",
    [
        NPO,
        pytest.param(partial(DPO, micro_batch_size=2), marks=pytest.mark.slow),
        pytest.param(partial(GradDiff, alpha=0.0), marks=pytest.mark.slow),
        partial(NPO, rectify=GRU(), gamma=0.3),
    ],
    ids=["npo", "dpo", "ascent", "gru"],
)
def test_sam_with_a_radius_of_zero_is_the_method_itself(make):
    ends = {}
    for rho in (None, 0.0, 0.05):
        train(module := make(CausalLM(config=TINY), sam_rho=rho), steps=3)
        ends[rho] = weights(module)
    assert torch.equal(ends[0.0], ends[None])
    assert (ends[0.05] - ends[None]).norm() > 1e-4


def test_sam_shifts_nothing_along_a_gradient_that_has_vanished():
    train(module := GradDiff(CausalLM(config=TINY), sam_rho=0.5), steps=1)
    before, parameters = weights(module), trainable(module.trained)
    gradient = zeros_like(parameters)
    level = [lambda: 0.0 * sum(p.sum() for p in parameters)]
    assert module._add_forget(gradient, module.gradient_engine(), level) == (0.0, 0.0)
    assert not any(g.any() for g in gradient)
    assert torch.equal(weights(module), before)


def test_sam_lets_batchnorm_see_a_batch_once():
    ends = []
    for rho in (None, 0.0):
        module = GradDiff(network(norm="batch", bn_mode="both"), sam_rho=rho)
        train_on_digits(module, steps=2)
        ends.append(module.network.state_dict())
    assert all(torch.equal(x, ends[1][name]) for name, x in ends[0].items())


def test_the_page_says_it_in_words():
    words = NPO(CausalLM(config=TINY), rectify=GRU(), sam_rho=0.01).in_words
    assert words == " ".join([NPO.in_words, GRU.in_words, SAM_IN_WORDS])


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda n: NPO(n, alpha=0.0, rectify=BLUR()), "model.alpha"),
        (lambda n: NPO(n, rectify=GRU(weight=0.0)), "weight"),
        (lambda n: NPO(n, alpha=0.0, rectify=HAMU()), "model.alpha"),
        (lambda n: NPO(n, rectify=HAMU(gain=-1.0)), "gain"),
        (lambda n: NPO(n, constrain=SAUL(level=1.0, step=0.0)), "step"),
        (lambda n: RMU(n, sam_rho=-0.1), "sam_rho"),
    ],
)
def test_bad_arguments(make, words):
    with pytest.raises(UserError, match=words):
        make(CausalLM(config=TINY))
