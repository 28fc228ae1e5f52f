"""OFMU's shipped form, every part of it on, against nested autograd and Adam written out: nothing of core."""

from functools import partial

import pytest
import torch
import torch.nn.functional as F

from ofmu_pl.core.autograd import Autograd
from ofmu_pl.core.safeguards import Safeguards
from ofmu_pl.core.shared_adam import SharedAdam
from ofmu_pl.core.variants import LOOPS, Setting
from ofmu_pl.modules import OFMU
from ofmu_pl.modules.path import Path
from ofmu_pl.modules.reaching import Reach
from ofmu_pl.modules.reader import RowReader
from ofmu_pl.modules.steppers import SharedSteps
from ofmu_pl.modules.upper_level import Iteration, NoPenalty
from ofmu_pl.networks import CausalLM, SmallCNN
from ofmu_pl.support.errors import UserError
from tests.helpers.images import train_on_digits
from tests.helpers.parts import FIRST_ORDER, printed, shared
from tests.helpers.training import TINY, interrupted, train, weights

BETA, RHO, GAMMA, RHO_MAX, LR, INNER_LR, EVERY, FLOOR, CLIP = 0.5, 0.3, 1.5, 0.4, 0.01, 0.7, 2, 1e-4, 1.0
LIKE = {"forget_classes": None, "forget_fraction": 0.2, "precision": "64-true"}
"""Forget and retain rows of all classes, so that their gradients are alike."""


def decay(optimizer):
    return torch.optim.lr_scheduler.LinearLR(optimizer, start_factor=1.0, end_factor=0.1, total_iters=4)


def shipped(penalty_clip=0.3, every=EVERY, start=0.0, **options):
    settings = {"stepper": shared(INNER_LR), "inner_steps": 1, "outer_at": "start", "scheduler": decay}
    settings |= {"beta": BETA, "upper": printed(rho_0=RHO, gamma=GAMMA, every=every, start=start)}
    settings |= {"safeguards": Safeguards(RHO_MAX, penalty_clip, FLOOR, CLIP), "gradient_clip": CLIP}
    settings["optimizer"] = lambda p: SharedAdam(p, lr=LR)
    return OFMU(SmallCNN(width=8), **settings | options)


class ByHand:
    """Three iterations on a network that is there, by ``torch.autograd.grad`` alone.

    Attributes:
        similarities: s of each iteration that acts.
        shares: |penalty| / |g_r| of each of them before the clip.
    """

    def __init__(self, network, penalty_clip, *, at_start):
        self.network, self.penalty_clip, self.at_start = network, penalty_clip, at_start
        self.theta = list(network.parameters())
        self.square = torch.zeros_like(weights(self))
        self.means = {1: torch.zeros_like(self.square), -1: torch.zeros_like(self.square)}
        self.counts = {1: 0, -1: 0}
        self.similarities, self.shares = [], []

    def losses(self, batch):
        return F.cross_entropy(self.network(batch["images"].double()), batch["labels"], reduction="none")

    def bent(self, batch):
        """A row's loss up to ln 10, the loss of a uniform guess, with a corner of 0.25 nats."""
        level = torch.log(torch.tensor(10.0, dtype=torch.float64))
        return (level - 0.25 * F.softplus((level - self.losses(batch)) / 0.25)).mean()

    def grad(self, value, create_graph=False):
        found = torch.autograd.grad(value, self.theta, create_graph=create_graph)
        return torch.cat([x.flatten() for x in found])

    def phi(self, loss_f, retain):
        """Phi with its graph, g_f, g_r and s; the similarity counts where it is positive."""
        g_f, g_r = self.grad(loss_f, True), self.grad(self.losses(retain).mean(), True)
        s = (g_f @ g_r) / ((g_f @ g_f + FLOOR**2).sqrt() * (g_r @ g_r + FLOOR**2).sqrt())
        return loss_f - BETA * s * (s > 0), g_f.detach(), g_r.detach(), s.item()

    def outer(self, forget, retain, rho, acts):
        """The direction of the descent, of which g_r has norm CLIP at most, and the similarity's part of grad Phi."""
        if not acts:
            return bounded(self.grad(self.losses(retain).mean())), 0.0
        phi, g_f, g_r, s = self.phi(self.losses(forget).mean(), retain)
        slope = self.grad(phi, True)
        penalty = self.grad(EVERY * rho * (slope @ slope))
        self.similarities.append(s)
        self.shares.append((penalty.norm() / g_r.norm()).item())
        if self.clips[-1]:
            penalty *= EVERY * self.penalty_clip / self.shares[-1]
        return (g_r + penalty) * min(1.0, CLIP / g_r.norm().item()), slope.detach() - g_f

    @property
    def clips(self):
        """Whether each penalty was longer than it may be."""
        return [self.penalty_clip is not None and share > EVERY * self.penalty_clip for share in self.shares]

    def move(self, direction, sign, lr):
        """Adam with one second moment for both loops and a first one for each."""
        self.counts[sign] += 1
        self.square = 0.99 * self.square + 0.01 * direction**2
        self.means[sign] = 0.9 * self.means[sign] + 0.1 * direction
        size = (self.square / (1 - 0.99 ** sum(self.counts.values()))).sqrt() + 1e-8
        step = sign * lr * self.means[sign] / size / (1 - 0.9 ** self.counts[sign])
        with torch.no_grad():
            for p, d in zip(self.theta, step.split([p.numel() for p in self.theta]), strict=True):
                p.add_(d.view_as(p))

    def iterate(self, k, batch, acts):
        rho, lr = min(RHO * GAMMA**k, RHO_MAX), LR * (1 - 0.225 * k)
        last = batch["forget"][-1], batch["retain"][-1]
        before = self.outer(*last, rho, acts) if self.at_start else None
        for forget, retain in zip(batch["forget"][:-1], batch["retain"][:-1], strict=True):
            value = self.phi(self.bent(forget), retain)[0] if acts and not self.at_start else self.bent(forget)
            self.move(bounded(self.grad(value) + (before[1] if before else 0.0)), 1, INNER_LR * lr)
        self.move((before or self.outer(*last, rho, acts))[0], -1, lr)


def bounded(direction):
    """A direction of norm CLIP at most."""
    return direction * min(1.0, CLIP / direction.norm().item())


@pytest.mark.parametrize("outer_at", ["start", "end"])
@pytest.mark.parametrize("inner_steps", [1, 5])
@pytest.mark.parametrize(
    ("penalty_clip", "clips", "start"),
    [(0.3, True, 0.0), (0.3, True, 0.5), (1e4, False, 0.0), (None, False, 0.5)],
    ids=["clipped", "clipped, later", "not clipped", "no clip, later"],
)
def test_three_iterations(penalty_clip, clips, start, inner_steps, outer_at):
    module = shipped(penalty_clip, inner_steps=inner_steps, outer_at=outer_at, start=start)
    train_on_digits(module, steps=3, **LIKE)
    plain = shipped(inner_steps=inner_steps)
    trainer = train_on_digits(plain, steps=0, **LIKE)
    ours = ByHand(plain.network, penalty_clip, at_start=outer_at == "start")
    for k in range(3):
        ours.iterate(k, trainer.datamodule.iteration(k), acts=k % EVERY == 0 and k / 3 >= start)
    assert len(ours.similarities) == (1 if start else 2)
    assert min(ours.similarities) > 0.01, "the similarity counts"
    assert ours.clips == [clips] * len(ours.similarities)
    assert (module.upper.clipped, module.upper.acted) == (len(ours.clips) * clips, len(ours.clips))
    assert min(ours.shares) > 0.01, "the penalty counts"
    assert weights(module).dtype == torch.float64
    assert (weights(module) - weights(ours)).norm() < 1e-12 * weights(ours).norm()


class ReachByHand(ByHand):
    """The same without a penalty, whose ascents take their gradients up to ``reach`` back along their running mean."""

    def __init__(self, network, reach, beta, *, at_start):
        super().__init__(network, None, at_start=at_start)
        self.reach, self.beta, self.lengths = reach, beta, []

    def go(self, change):
        with torch.no_grad():
            for p, d in zip(self.theta, change.split([p.numel() for p in self.theta]), strict=True):
                p.add_(d.view_as(p))

    def outer(self, forget, retain, rho, acts):
        g_r = bounded(self.grad(self.losses(retain).mean()))
        if not self.beta:
            return g_r, 0.0
        phi, g_f, _, _ = self.phi(self.losses(forget).mean(), retain)
        return g_r, self.grad(phi) - g_f

    def iterate(self, k, batch):
        lr, last = LR * (1 - 0.225 * k), (batch["forget"][-1], batch["retain"][-1])
        before = self.outer(*last, 0.0, True) if self.at_start else None
        pairs = list(zip(batch["forget"][:-1], batch["retain"][:-1], strict=True))
        for t, (forget, retain) in enumerate(pairs):
            there = weights(self).clone()
            if k:  # in the first iteration nothing has stepped yet
                size = (self.square / (1 - 0.99 ** sum(self.counts.values()))).sqrt() + 1e-8
                u = self.means[1] / size
                part = (0.6180339887498949 * (k * len(pairs) + t) + 0.5) % 1.0
                self.lengths.append(self.reach * part)
                self.go(-self.lengths[-1] * u / u.square().mean().sqrt())
            similar = self.beta and not self.at_start
            direction = self.grad(self.phi(self.bent(forget), retain)[0] if similar else self.bent(forget))
            self.go(there - weights(self))
            self.move(bounded(direction + (before[1] if before else 0.0)), 1, INNER_LR * lr)
        self.move((before or self.outer(*last, 0.0, True))[0], -1, lr)


@pytest.mark.parametrize("engine", ["autograd", "finite_difference"])
@pytest.mark.parametrize("beta", [0.0, BETA])
@pytest.mark.parametrize("outer_at", ["start", "end"])
@pytest.mark.parametrize("inner_steps", [1, 2])
def test_three_iterations_that_reach(engine, beta, outer_at, inner_steps):
    """With the similarity the engine of differences has its own error."""
    options = {"beta": beta, "outer_at": outer_at, "inner_steps": inner_steps, "engine": engine}
    module = shipped(**options, upper=partial(Reach, 0.02, start=0.0))
    train_on_digits(module, steps=3, **LIKE)
    plain = shipped(inner_steps=inner_steps)
    trainer = train_on_digits(plain, steps=0, **LIKE)
    ours = ReachByHand(plain.network, 0.02, beta, at_start=outer_at == "start")
    for k in range(3):
        ours.iterate(k, trainer.datamodule.iteration(k))
    assert len(ours.lengths) == 2 * inner_steps
    exact = not beta or engine == "autograd"
    assert (weights(module) - weights(ours)).norm() < (1e-12 if exact else 1e-6) * weights(ours).norm()
    train_on_digits(without := shipped(**options, upper=NoPenalty), steps=3, **LIKE)
    assert (weights(without) - weights(module)).norm() > 1e-4 * weights(ours).norm(), "it reached"
    if not beta and engine == "finite_difference":
        assert module.gradient_evaluations == without.gradient_evaluations


@pytest.mark.parametrize(("drop", "reaches", "work"), [(0.0, True, 0), (1e-3, True, 3), (1.0, False, 3)])
def test_it_reaches_only_where_the_loss_falls(drop, reaches, work):
    """A look at a length that is given is two gradients and three passes forward, once; there are no held-out rows."""
    upper, digits = partial(Reach, 0.02, drop=drop, start=0.5), {"precision": "64-true"}
    trainer = train_on_digits(module := shipped(beta=0.0, upper=upper, inner_steps=2), steps=4, **digits)
    assert module.upper.open is reaches
    assert (trainer.callback_metrics["reach"] > 0) == reaches
    assert module.upper.acted == (2 if reaches else 0)
    assert ("penalty" in module.what_was_done()) == reaches
    train_on_digits(without := shipped(beta=0.0, upper=NoPenalty, inner_steps=2), steps=4, **digits)
    assert module.gradient_evaluations - without.gradient_evaluations == pytest.approx(work)
    assert torch.equal(weights(module), weights(without)) != reaches


def parabolas(theta, slope=1.0, kept=1.0, sides=None):
    """An iteration on losses of one weight, of which L_f is 0 at slope 1e-3 back, and L_r here."""
    forget, retain = [lambda: (theta + slope * 1e-3).square().sum()], [lambda: kept * (theta**2).sum()]
    setting = Setting(Autograd([theta]), [(forget, retain)] * 2, 1.0, Safeguards())
    parts = {"number": 0, "due": False, "beta": 0.0, "penalised": True, "mean": lambda: [torch.ones_like(theta)]}
    return Iteration(setting, LOOPS["start"], **parts, sides=sides)


@pytest.mark.parametrize(
    ("slope", "kept", "length", "lost"),
    [
        (1.0, 0.0, 3e-3, 1.0),  # forget rows alone have their least loss 1e-3 back
        (1.0, 1.0, 3 * 10 ** (-10 / 3), 0.71),  # retain rows, which get worse on that way, halve it
        (-1.0, 0.0, 0.0, 0.0),  # the loss rises on the way back
    ],
)
def test_the_length_is_three_times_as_far_as_both_losses_are_lowest(slope, kept, length, lost):
    upper = Reach(drop=0.33)
    _, measured = upper.iterate(parabolas(torch.zeros(1, dtype=torch.float64, requires_grad=True), slope, kept))
    assert upper.length == pytest.approx(length)
    assert measured["look/drop"] == pytest.approx(lost, abs=0.005)
    assert upper.open is (length > 0)
    again = Reach(drop=0.33)
    again.load_state_dict(upper.state_dict())
    assert (again.open, again.length) == (upper.open, upper.length)


@pytest.mark.parametrize(("forget", "reaches"), [(0.1, True), (1.0, True), (1.1, False), (4.0, False)])
def test_forget_rows_must_be_known_better_than_held_out_rows_back_there(forget, reaches):
    theta, places = torch.zeros(1, dtype=torch.float64, requires_grad=True), []

    def read():
        places.append(theta.item())
        return forget, 2.0

    _, measured = (upper := Reach(drop=0.5)).iterate(parabolas(theta, sides=read))
    assert measured["look/drop"] == pytest.approx(1 - forget / 2)
    assert upper.open is reaches
    assert places == [pytest.approx(-(10 ** (-10 / 3)))], "they are read once, where both losses are lowest"


def test_a_run_goes_its_whole_path():
    path = Path(10)
    assert Reach().stays(path)
    path.skip()
    assert not Reach().stays(path)
    assert not Reach().stays(None)


@pytest.mark.parametrize(("times", "reaches"), [(1e3, True), (1e-3, False)])
def test_a_look_reads_held_out_images(monkeypatch, times, reaches):
    """Test images of the forgotten images' classes, whose losses are multiplied here, and 64 forget images."""
    read = RowReader.read_held_out
    monkeypatch.setattr(RowReader, "read_held_out", lambda self: [times * row for row in read(self)])
    upper = partial(Reach, 0.02, drop=0.5, start=0.0)
    trainer = train_on_digits(module := shipped(beta=0.0, upper=upper), steps=3, **LIKE)
    assert module.upper.open is reaches
    assert module.watches_held_out
    train_on_digits(without := shipped(beta=0.0, upper=NoPenalty), steps=3, **LIKE)
    assert not without.watches_held_out
    assert torch.equal(weights(module), weights(without)) != reaches
    rows = sum(min(64, len(trainer.datamodule.splits[side])) for side in ("forget", "test"))
    assert module.gradient_evaluations - without.gradient_evaluations == pytest.approx(3 + rows / 16 / 3)


@pytest.mark.parametrize("step", [1, 2])
def test_reach_goes_on_from_a_checkpoint_bit_for_bit(tmp_path, step):
    def make():
        return shipped(beta=0.0, upper=partial(Reach, 0.02, start=0.0))

    whole, resumed = interrupted(make, tmp_path, 3, at=step, run=train_on_digits, **LIKE)
    assert whole.upper.open is resumed.upper.open is True


def test_reach_needs_a_running_mean():
    with pytest.raises(UserError, match=r"model\.stepper"):
        OFMU(CausalLM(config=TINY), upper=Reach)


@pytest.mark.parametrize("step", [2, 3, 4])
def test_it_goes_on_from_a_checkpoint_bit_for_bit(tmp_path, step):
    """Of second order are iterations 1 and 4 of 5, so that 2 and 3 end within a period, before one that acts."""

    def make():
        return shipped(every=3, start=0.1)

    whole, resumed = interrupted(make, tmp_path, 5, at=step, run=train_on_digits, **LIKE)
    assert whole.upper.rho == resumed.upper.rho


def test_it_needs_an_optimizer_with_two_momenta():
    module = OFMU(CausalLM(config=TINY), stepper=SharedSteps, engine="finite_difference")
    with pytest.raises(UserError, match="model.optimizer"):
        train(module, steps=1)


def test_only_the_outer_step_is_counted_and_work_of_first_order_is_a_gradient_a_step():
    module = shipped(engine="finite_difference", **FIRST_ORDER, inner_steps=2)
    trainer = train_on_digits(module, steps=3)
    assert trainer.global_step == 3
    assert module.gradient_evaluations == 3 * 3 + 2 / 16, "and the examination of two images"
