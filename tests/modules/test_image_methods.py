"""Image methods against closed forms, loops and their own promises."""

import numpy as np
import pytest
import torch
from lightning.pytorch.callbacks import ModelCheckpoint
from torch import nn

from ofmu_pl.core.cg import conjugate_gradient
from ofmu_pl.core.ranks import Ranks
from ofmu_pl.data import Digits
from ofmu_pl.modules import (
    OFMU,
    SCRUB,
    BatchNormOnly,
    DoNothing,
    FineTune,
    Fisher,
    GradDiff,
    Influence,
    L1Sparse,
    RandomLabels,
    SalUn,
)
from ofmu_pl.modules.fisher import fisher_diagonal
from ofmu_pl.modules.influence import gauss_newton_product, removal
from ofmu_pl.modules.one_shot import whole_split
from ofmu_pl.modules.relabel import top_fraction
from ofmu_pl.networks.vision import batch_norms
from ofmu_pl.support.errors import UserError
from ofmu_pl.training.export import save_model
from ofmu_pl.training.run import Run
from tests.helpers.forked_ranks import on_two_ranks
from tests.helpers.images import network, train_on_digits
from tests.helpers.parts import plain
from tests.helpers.training import interrupted


def sgd(**options):
    return lambda p: torch.optim.SGD(p, **{"lr": 0.05, **options})


def state(module):
    return {k: v.clone() for k, v in module.network.state_dict().items()}


def start_of(make, **data):
    """Weights before any step."""
    module = make()
    train_on_digits(module, steps=0, **data)
    return state(module)


@pytest.fixture
def target(tmp_path):
    """Folder of a model that was trained for a moment."""
    module = FineTune(network(), optimizer=sgd(lr=0.1))
    save_model(tmp_path / "target", train_on_digits(module, steps=20), module)
    return str(tmp_path / "target")


# Fisher ----------------------------------------------------------------------------------------------------------


def test_fisher_of_a_linear_model_is_its_closed_form():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Flatten(), nn.Linear(4, 3)).double()
    x = torch.randn(50, 1, 2, 2, dtype=torch.float64)
    weight, bias = fisher_diagonal(model, list(x.split(20)))
    p = model(x).softmax(1)
    spread = p * (1 - p)  # sum_y p_y (1[y = c] - p_c)^2
    torch.testing.assert_close(bias, spread.mean(0))
    torch.testing.assert_close(weight, torch.einsum("nc,nj->cj", spread, x.flatten(1) ** 2) / 50)


def test_fisher_is_that_of_single_images_not_of_batches():
    torch.manual_seed(0)
    model = network().body(1, 4).double().eval()
    x = torch.randn(6, 1, 8, 8, dtype=torch.float64)
    expected = [torch.zeros_like(p) for p in model.parameters()]
    for image in x:
        for y in range(4):
            log_p = model(image[None])[0].log_softmax(0)[y]
            for i, g in enumerate(torch.autograd.grad(log_p, list(model.parameters()))):
                expected[i] += log_p.exp().detach() * g**2 / len(x)
    for batches in ([x], list(x.split(4))):
        for found, e in zip(fisher_diagonal(model, batches), expected, strict=True):
            torch.testing.assert_close(found, e)


def test_fisher_noise_has_the_capped_variance_and_follows_the_seed():
    def run(noise):
        module = Fisher(network(), alpha=1e-6)
        trainer = train_on_digits(module, steps=5, order=noise)
        return trainer, state(module)

    (trainer, first), (_, again), (_, other) = run(0), run(0), run(1)
    start = start_of(lambda: Fisher(network()))
    assert all(torch.equal(first[k], again[k]) for k in first)
    assert not torch.equal(first["1.0.weight"], other["1.0.weight"])
    network_at_start = network().build(trainer.datamodule, exact=False)
    network_at_start.load_state_dict(start)
    images = trainer.datamodule.images_of("retain")[0].float() / 255
    information = fisher_diagonal(network_at_start, list(images.split(50)))
    names = [k for k, _ in network_at_start.named_parameters()]
    scaled = [
        (first[k] - start[k]) / (1e-6 * (1 / f).clamp(max=1e3)).sqrt() for k, f in zip(names, information, strict=True)
    ]
    standard = torch.cat([s.flatten() for s in scaled])
    assert standard.std() == pytest.approx(1.0, abs=0.05)
    assert standard.mean() == pytest.approx(0.0, abs=0.05)


@pytest.mark.parametrize(("make", "options"), [(Fisher, {}), (Influence, {"scale": 0.0})])
def test_what_fills_the_memory_is_made_again_on_half_as_many_images(monkeypatch, make, options):
    sizes = []

    def read(module, name, size):
        sizes.append(size)
        if size > 8:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 7 GiB")
        return whole_split(module, name, size)

    monkeypatch.setattr(f"{make.__module__}.whole_split", read)
    monkeypatch.setattr("ofmu_pl.training.recovery.may_run_out", lambda _: True)
    with pytest.warns(UserWarning, match="micro-batches"):
        train_on_digits(make(network(), micro_batch_size=32, **options), steps=1)
    assert list(dict.fromkeys(sizes)) == [32, 16, 8]


# Influence -------------------------------------------------------------------------------------------------------


def test_conjugate_gradients_solve():
    torch.manual_seed(0)
    m = torch.randn(12, 12, dtype=torch.float64)
    a, b = m @ m.T, torch.randn(12, dtype=torch.float64)

    def product(v):
        return [a @ v[0]]

    (found,), residual, _ = conjugate_gradient(product, [b], damping=0.5, iterations=100, tolerance=1e-12)
    expected = torch.linalg.solve(a + 0.5 * torch.eye(12, dtype=torch.float64), b)
    torch.testing.assert_close(found, expected, rtol=1e-8, atol=1e-10)
    assert residual <= 1e-12
    (short,), residual, products = conjugate_gradient(product, [b], damping=0.5, iterations=3, tolerance=1e-12)
    true = (b - a @ short - 0.5 * short).norm() / b.norm()
    assert products == 3
    assert residual == pytest.approx(true.item(), rel=1e-9)
    assert conjugate_gradient(lambda v: [-v[0]], [b], 0.0, 5, 1e-6)[2] == 1
    assert conjugate_gradient(product, [0 * b], 0.0, 5, 1e-6)[2] == 0


def test_influence_on_a_quadratic_is_retraining():
    torch.manual_seed(0)
    x, y = torch.randn(40, 5, dtype=torch.float64), torch.randn(40, dtype=torch.float64)

    def fit(rows):
        return torch.linalg.lstsq(x[rows], y[rows].unsqueeze(1)).solution.squeeze(1)

    def gradient(theta, rows):
        return [x[rows].T @ (x[rows] @ theta - y[rows]) / len(y[rows])]

    forget, retain, theta = slice(0, 7), slice(7, 40), fit(slice(0, 40))
    hessian = x[retain].T @ x[retain] / 33
    b = removal(gradient(theta, forget), gradient(theta, retain), 7 / 40)
    (step,), *_ = conjugate_gradient(lambda v: [hessian @ v[0]], b, 0.0, 100, 1e-13)
    torch.testing.assert_close(theta + step, fit(retain), rtol=1e-9, atol=1e-11)


def test_gauss_newton_of_a_linear_model_is_its_hessian():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Flatten(), nn.Linear(4, 3)).double()
    x, y = torch.randn(20, 1, 2, 2, dtype=torch.float64), torch.randint(0, 3, (20,))
    v = [torch.randn_like(p) for p in model.parameters()]

    def loss(w, b):
        return nn.functional.cross_entropy(x.flatten(1) @ w.T + b, y)

    _, expected = torch.autograd.functional.hvp(loss, tuple(model.parameters()), tuple(v))
    for found, e in zip(gauss_newton_product(model, x, v), expected, strict=True):
        torch.testing.assert_close(found, e)


def test_influence_runs_once_and_reports_its_residual(target):
    module = Influence(network(path=target), damping=0.1, iterations=60)
    trainer = train_on_digits(module, steps=5)
    assert trainer.global_step == 1
    assert trainer.callback_metrics["residual"] <= 1e-2
    assert trainer.callback_metrics["products"] > 0
    assert module.gradient_evaluations > trainer.callback_metrics["products"]


# Random labels and masks -----------------------------------------------------------------------------------------


def test_random_labels_are_wrong_and_stay():
    module = RandomLabels(network(), alpha=0.0, optimizer=sgd(lr=0.0))
    trainer = train_on_digits(module, steps=2)
    data = trainer.datamodule
    index = list(range(len(data.splits["forget"])))
    batch = data.collate("forget", index, 0)
    wrong = (batch["labels"] + module.shifts[batch["ids"]]) % 10
    assert not (wrong == batch["labels"]).any()
    assert len(set(wrong.tolist())) > 3
    expected = nn.functional.cross_entropy(module.network(batch["images"]), wrong, reduction="none")
    torch.testing.assert_close(module.forget_losses(batch), expected)
    again = RandomLabels(network(), alpha=0.0)
    train_on_digits(again, steps=1)
    assert torch.equal(module.shifts, again.shifts)


def test_masked_weights_keep_their_bits_under_weight_decay_and_momentum():
    def make():
        return SalUn(network(), fraction=0.3, optimizer=sgd(momentum=0.9, weight_decay=0.1), gradient_clip=None)

    module = make()
    train_on_digits(module, steps=4)
    start, end = start_of(make), state(module)
    names = [k for k, _ in module.network.named_parameters()]
    share = sum(int(m.sum()) for m in module.masks) / sum(m.numel() for m in module.masks)
    assert share == pytest.approx(0.3, abs=1e-3)
    for name, mask in zip(names, module.masks, strict=True):
        assert torch.equal(end[name][~mask], start[name][~mask])
    moved = torch.cat([(end[k] != start[k])[m] for k, m in zip(names, module.masks, strict=True)])
    assert moved.float().mean() > 0.99


def test_saliency_is_the_whole_forget_sets_gradient():
    module = SalUn(network(), fraction=0.5, optimizer=sgd(lr=0.0))
    trainer = train_on_digits(module, steps=1)
    images, labels = trainer.datamodule.images_of("forget")
    loss = nn.functional.cross_entropy(module.network(images.float() / 255), labels)
    gradient = torch.cat([g.abs().flatten() for g in torch.autograd.grad(loss, list(module.network.parameters()))])
    mask = torch.cat([m.flatten() for m in module.masks])
    assert (mask == (gradient >= gradient.median())).float().mean() > 0.999
    assert [m.tolist() for m in top_fraction([torch.tensor([1.0, -3.0]), torch.tensor([2.0])], 1 / 3)] == [
        [False, True],
        [False],
    ]


def test_saliency_does_not_depend_on_the_batches_that_images_are_read_in():
    """Neither do the crops and mirrors that they are seen by."""

    def masks(batch_size):
        module = SalUn(network(), optimizer=sgd(lr=0.0))
        train_on_digits(module, steps=1, augment=True, batch_size=batch_size)
        return torch.cat([m.flatten() for m in module.masks])

    assert (masks(8) == masks(16)).float().mean() > 0.999


def test_a_resumed_mask_is_the_first_ones(tmp_path):
    def make():
        return SalUn(network(), fraction=0.2, optimizer=sgd())

    whole, resumed = interrupted(make, tmp_path, 4, at=2, run=train_on_digits)
    assert all(torch.equal(a, b) for a, b in zip(resumed.masks, whole.masks, strict=True))


@pytest.mark.parametrize("make", [Fisher, Influence])
def test_methods_of_one_step_read_an_image_at_least_at_a_time_and_refuse_shards(make):
    with pytest.raises(UserError, match="micro_batch_size"):
        make(network(), micro_batch_size=0)
    module = make(network())
    module.run = Run(None, Ranks(0, 2, sharded=True))
    with pytest.raises(UserError, match="trainer.strategy"):
        module.displacement()


@pytest.mark.parametrize(("make", "steps"), [(FineTune, 3), (L1Sparse, 3), (Fisher, 1)])
def test_work_is_counted_over_all_parts_of_a_run(tmp_path, make, steps):
    """A budget counts on where a run goes on, and results have all of the work, also after the last step."""
    whole = make(network())
    kept = ModelCheckpoint(tmp_path, every_n_train_steps=1, save_top_k=-1, filename="{step}")
    train_on_digits(whole, steps, callbacks=[kept])
    assert whole.gradient_evaluations >= steps
    for step in range(1, steps + 1):
        train_on_digits(resumed := make(network()), steps, ckpt_path=str(tmp_path / f"step={step}.ckpt"))
        assert resumed.gradient_evaluations == whole.gradient_evaluations
        after = state(whole)
        assert all(torch.equal(x, after[name]) for name, x in state(resumed).items())


# SCRUB, l1, controls, statistics -----------------------------------------------------------------------------------


def test_scrub_starts_with_the_labels_gradient_alone(target):
    """Student and teacher are the same then: the divergences and their gradients are zero."""
    step = {"optimizer": sgd(lr=0.1), "gradient_clip": None}
    recipe = network(path=target)
    scrub, labels = SCRUB(recipe, ce=2.0, alpha=0.5, **step), GradDiff(recipe, gamma=0.0, alpha=1.0, **step)
    for module in (scrub, labels):
        train_on_digits(module, steps=1)
    for k, v in state(labels).items():
        torch.testing.assert_close(state(scrub)[k], v, rtol=1e-5, atol=1e-6)


def test_scrub_pushes_for_its_epochs_only(target):
    module = SCRUB(network(path=target), max_epochs=1, optimizer=sgd())
    trainer = train_on_digits(module, steps=1)
    part = trainer.datamodule.collate("forget", [0, 1, 2], 0)
    assert (module.forget_losses(part) < 0).all()
    train_on_digits(late := SCRUB(network(path=target), max_epochs=0, optimizer=sgd()), steps=1)
    alone = GradDiff(network(path=target), gamma=0.0, alpha=0.5, optimizer=sgd())
    train_on_digits(alone, steps=1)  # teacher and student are the same in the first step
    for k, v in state(alone).items():
        torch.testing.assert_close(state(late)[k], v, rtol=1e-5, atol=1e-6)
    assert [x.gradient_evaluations for x in (module, late)] == pytest.approx([2 + 2 / 3, 1 + 1 / 3])
    train_on_digits(sharp := SCRUB(network(path=target), max_epochs=0, sam_rho=0.01, optimizer=sgd()), steps=1)
    assert sharp.gradient_evaluations == pytest.approx(1 + 1 / 3)
    with pytest.raises(UserError, match="retain_loss"):
        SCRUB(network(), retain_loss="kl")


def test_scrub_differentiates_each_term_once():
    """Its work is counted so; passes in train mode move the running statistics, too."""
    module = SCRUB(network(norm="batch", bn_mode="retain"), optimizer=sgd())
    train_on_digits(module, steps=3)
    assert [int(m.num_batches_tracked) for m in batch_norms(module.network)] == [3, 3, 3]
    assert module.gradient_evaluations == pytest.approx(3 * (2 + 2 / 3))


def test_l1_adds_its_falling_subgradient():
    plain = FineTune(network(), split="retain", optimizer=sgd(lr=1.0), gradient_clip=None)
    sparse = L1Sparse(network(), a=1e-3, optimizer=sgd(lr=1.0), gradient_clip=None)
    for module in (plain, sparse):
        train_on_digits(module, steps=1)
    start = start_of(lambda: FineTune(network()))
    for k, p in plain.network.named_parameters():
        torch.testing.assert_close(state(sparse)[k], p - 1e-3 * start[k].sign(), rtol=1e-4, atol=2e-6)
    trainer = train_on_digits(L1Sparse(network(), a=1e-3, optimizer=sgd()), steps=4)
    assert trainer.callback_metrics["a"] == pytest.approx(1e-3 / 4)
    with pytest.raises(UserError, match="trainer.max_steps"):
        train_on_digits(L1Sparse(network()), steps=-1)


def test_do_nothing_does_nothing():
    start, module = start_of(lambda: DoNothing(network())), DoNothing(network())
    assert train_on_digits(module, steps=9).global_step == 1
    assert all(torch.equal(v, start[k]) for k, v in state(module).items())


def begun(ranks, bn_mode="both", batch_size=16):
    """A method before its first iteration, by hand, and that iteration's batches."""
    module = GradDiff(network(norm="batch", bn_mode=bn_mode), alpha=0.0, optimizer=sgd())
    data = Digits(streams=module.streams, forget_classes=[0], train_items=400, batch_size=batch_size)
    data.setup()
    torch.manual_seed(0)
    module.run, module.network = Run(data, ranks=ranks), module.recipe.build(data, exact=False)
    module.run.optimizers = [sgd()(list(module.network.parameters()))]
    return module, data.iteration(0)


def statistics(module):
    return [x.clone() for m in batch_norms(module.network) for x in (m.running_mean, m.running_var)]


def test_ranks_have_the_mean_of_their_statistics(tmp_path):
    """Else each would be measured, and one of them exported, with statistics of its own rows."""

    def moved(rank):
        module, batch = begun(Ranks(rank, 2))
        module.outer_step(batch, 1)
        return statistics(module)

    found, own = on_two_ranks(moved, tmp_path), []
    for rank in range(2):
        module, batch = begun(Ranks(rank, 2))
        with torch.no_grad(), module.recipe.statistics(module.network, "forget"):
            module.recipe.sample_losses(module.network, module.run.ranks.share(batch["forget"][0]))
        own.append(statistics(module))
    wanted = [(x + y) / 2 for x, y in zip(*own, strict=True)]
    for averaged in found:
        torch.testing.assert_close(averaged, wanted)


def test_ranks_without_rows_are_refused_where_statistics_move():
    """They would be averaged with the others' as if they had moved; every rank refuses, so that none waits."""
    for rank in range(4):
        module, batch = begun(Ranks(rank, 4), batch_size=3)
        with pytest.raises(UserError, match="data.batch_size"):
            module.iterate(batch)
    module, batch = begun(Ranks(3, 4), "frozen", batch_size=3)
    assert module.loss(batch["forget"][0]) == []


@pytest.mark.parametrize(("bn_mode", "moves"), [("frozen", False), ("retain", False), ("both", True)])
def test_ascent_moves_statistics_as_told(bn_mode, moves):
    def make():
        return GradDiff(network(norm="batch", bn_mode=bn_mode), alpha=0.0, optimizer=sgd(lr=1e-3))

    module = make()
    train_on_digits(module, steps=2)
    start, end = start_of(make), state(module)
    assert moves is not torch.equal(end["1.1.running_mean"], start["1.1.running_mean"])
    assert not any(m.training for m in module.network.modules())
    with_retain = GradDiff(network(norm="batch", bn_mode=bn_mode), optimizer=sgd(lr=1e-3))
    train_on_digits(with_retain, steps=2)
    frozen = torch.equal(state(with_retain)["1.1.running_mean"], start["1.1.running_mean"])
    assert frozen is (bn_mode == "frozen")


def test_statistics_are_all_that_their_control_moves():
    def make():
        return BatchNormOnly(network(norm="batch", bn_mode="both"))

    train_on_digits(module := make(), steps=2)
    start = start_of(make)
    moved = {name for name, x in state(module).items() if not torch.equal(x, start[name])}
    assert "1.1.running_mean" in moved
    assert not moved & {name for name, _ in module.network.named_parameters()}


def test_controls_refuse_what_they_cannot_control():
    with pytest.raises(UserError, match="model.network.bn_mode"):
        BatchNormOnly(network(norm="batch"))
    with pytest.raises(UserError, match="BatchNorm"):
        train_on_digits(BatchNormOnly(network(bn_mode="both")))
    with pytest.raises(UserError, match="model.split"):
        FineTune(network(), from_target=True)


@pytest.mark.parametrize("norm", ["group", "batch"])
def test_ofmus_engines_agree_on_images(norm):
    def run(engine):
        module = OFMU(network(norm=norm), engine=engine, inner_steps=2, stepper=plain(0.01), optimizer=sgd())
        train_on_digits(module, steps=2)
        assert not batch_norms(module.network) or not batch_norms(module.network)[0].training
        return torch.cat([v.flatten() for v in state(module).values() if v.is_floating_point()]).double()

    if norm == "batch":
        start = start_of(lambda: OFMU(network(norm=norm), inner_steps=2))
        assert torch.equal(start["1.1.running_mean"], torch.zeros(8))
    exact, differences = run("autograd"), run("finite_difference")
    assert np.allclose(exact, differences, atol=2e-3)
    assert (exact - differences).norm() < 1e-2 * exact.norm()
