"""Steps of differences where only some weights are trained, against the exact engine; what is noise is told."""

from functools import cache

import pytest
import torch

from ofmu_pl.core.autograd import Autograd
from ofmu_pl.core.finite_difference import FiniteDifference
from ofmu_pl.core.steps import AGREED, Agreement, settle
from scripts.engine_audit import compare, parts
from tests.helpers.cases import BETA, FLOOR, Case, mlp, tiny_llama


@cache
def known_by_heart():
    case = tiny_llama()
    case.network.float()
    optimizer = torch.optim.Adam(case.parameters, lr=1e-2)
    for _ in range(60):
        optimizer.zero_grad()
        (case.loss("forget")[0]() + case.loss("retain")[0]()).backward()
        optimizer.step()
    assert case.loss("forget")[0]() < 0.1
    return case.network.state_dict()


def memorised(trained):
    """A tiny Llama that knows its batches by heart, of which parameters with ``trained`` in their name are trained."""
    case = tiny_llama()
    case.network.float().load_state_dict(known_by_heart())
    for name, p in case.network.named_parameters():
        p.requires_grad_(trained in name)
    case.parameters = [p for p in case.parameters if p.requires_grad]
    return case


def errors(engine, case):
    losses = case.loss("forget"), case.loss("retain"), BETA, FLOOR
    return compare(parts(engine, *losses), parts(Autograd(case.parameters), *losses))


@pytest.mark.parametrize(
    "trained",
    [*(pytest.param(name, marks=pytest.mark.slow) for name in ("0.self_attn.k_proj", "norm")), "1.mlp.down_proj"],
)
def test_steps_are_found_where_few_weights_are_trained(trained):
    case = memorised(trained)
    engine = FiniteDifference(case.parameters)
    before = errors(engine, case)
    found = settle(engine, case.loss("forget"), case.loss("retain"), BETA, FLOOR)
    after = errors(engine, case)
    assert before["penalty_error"] > 0.2, "or there is nothing to mend"  # how much is rounding differs by CPU
    assert after["penalty_error"] < 0.2
    assert after["penalty_cosine"] > 0.98
    assert after["decorrelation_error"] < 0.01
    assert found.order == 3
    assert engine.field_step > engine.default_steps[1]


def test_steps_that_agree_are_kept():
    case = memorised("")
    engine = FiniteDifference(case.parameters)
    found = settle(engine, case.loss("forget"), case.loss("retain"), BETA, FLOOR)
    assert (engine.step, engine.field_step) == engine.default_steps
    assert max(found.decorrelation, found.penalty) < AGREED
    assert engine.gradient_evaluations == 18
    assert settle(engine, case.loss("forget"), case.loss("retain"), BETA, FLOOR, penalised=False).penalty == 0.0
    assert engine.gradient_evaluations == 18 + 6


def test_a_part_that_is_off_by_more_than_a_fifth_is_left_out():
    found = [Agreement(0.01, 0.19), Agreement(0.01, 0.21), Agreement(0.21, 0.0)]
    assert [x.order for x in found] == [3, 2, 1]


def test_what_is_found_once_is_kept_when_it_still_agrees():
    case = memorised("0.self_attn.k_proj")
    engine = FiniteDifference(case.parameters)
    settle(engine, case.loss("forget"), case.loss("retain"), BETA, FLOOR)
    found, work = (engine.step, engine.field_step), engine.gradient_evaluations
    settle(engine, case.loss("forget"), case.loss("retain"), BETA, FLOOR)
    assert (engine.step, engine.field_step) == found
    assert engine.gradient_evaluations == work + 18


def noisy(case, size):
    """The same network with an error in each layer's output that any displacement changes altogether."""

    def losses(net, x, y):
        for layer in net:
            x = layer(x)
            x = x + size * torch.sin(1e13 * x.detach())
        return torch.nn.functional.cross_entropy(x, y, reduction="none")

    return Case(case.network, losses, case.batches["forget"], case.batches["retain"])


@pytest.mark.parametrize(("size", "order"), [(1e-12, 3), (1e-6, 2), (1e-3, 1)])
def test_what_is_noise_at_every_step_is_told(size, order):
    case = noisy(mlp(), size)
    engine = FiniteDifference(case.parameters)
    assert settle(engine, case.loss("forget"), case.loss("retain"), BETA, FLOOR).order == order
    truth = mlp()
    exact = parts(Autograd(truth.parameters), truth.loss("forget"), truth.loss("retain"), BETA, FLOOR)
    ours = compare(parts(engine, case.loss("forget"), case.loss("retain"), BETA, FLOOR), exact)
    assert (ours["decorrelation_error"] < 0.5) == (order > 1)
    assert (ours["penalty_error"] < 0.5) == (order > 2)
