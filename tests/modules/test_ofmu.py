"""The module's own logic, without a command line."""

import inspect
import re
from dataclasses import asdict, replace
from functools import partial
from itertools import accumulate
from pathlib import Path

import pytest
import torch
import yaml
from lightning.pytorch import Callback
from lightning.pytorch.callbacks import ModelCheckpoint

from ofmu_pl.core.algorithm import ascend, outer_iteration
from ofmu_pl.core.autograd import Autograd
from ofmu_pl.core.finite_difference import STEPS
from ofmu_pl.core.ranks import Ranks
from ofmu_pl.core.safeguards import SAFE
from ofmu_pl.core.shared_adam import SharedAdam
from ofmu_pl.core.steps import Agreement
from ofmu_pl.losses import ceiling, sample_mean, shifted, token_nll
from ofmu_pl.modules import OFMU, FineTune, GradDiff
from ofmu_pl.modules.base import UnlearningModule
from ofmu_pl.modules.lower_level import BoundedLoss, HeldOutLevels
from ofmu_pl.modules.moved import MOVED
from ofmu_pl.modules.ofmu import RHO_IN_WORDS
from ofmu_pl.modules.reaching import Reach
from ofmu_pl.modules.scrutiny import _first
from ofmu_pl.modules.steppers import PathSteps
from ofmu_pl.modules.upper_level import NoPenalty
from ofmu_pl.networks import CausalLM
from ofmu_pl.support.errors import UserError
from ofmu_pl.training.budget import GradientBudget
from ofmu_pl.unlearning.unlearn import arguments
from scripts.engine_audit import compare, parts
from tests.helpers.parts import ALONG_PATH, FIRST_ORDER, adam, flattening, plain, printed, shared
from tests.helpers.training import TINY, Unchecked, fit, four_authors, interrupted, train, weights, within_a_budget

EVERYWHERE = replace(SAFE, aligned_only=False)
"""With the similarity wherever it is, as the paper has it, so that work does not depend on the losses."""
PLAIN = plain(0.1)


def test_the_papers_form_is_that_of_the_class():
    """The overlay names every part of the form, so that it undoes whatever another configuration chose."""
    overlay = Path(__file__).parents[2] / "configs/methods/ofmu_paper.yaml"
    stated = yaml.safe_load(overlay.read_text())["model"]["init_args"]
    options = dict(inspect.signature(UnlearningModule).parameters) | dict(inspect.signature(OFMU).parameters)
    of_class = {name: p.default for name, p in options.items() if name in stated}
    of_class["safeguards"] = asdict(EVERYWHERE)
    rates = {name: stated.pop(name) for name in ("optimizer", "scheduler")}
    parts, said = ("lower", "stepper", "upper"), arguments({"init_args": stated, "class_path": "OFMU"})
    for part in parts:
        stated[part], of_class[part] = (vars(made[part]()) for made in (said, of_class))
    schedules = [vars(form["upper"].pop("schedule")) for form in (stated, of_class)]
    assert schedules[0] == schedules[1]
    assert stated == {name: of_class[name] for name in stated}
    assert rates["optimizer"]["class_path"] == "torch.optim.AdamW"
    chosen = yaml.safe_load((overlay.parents[1] / "authors.yaml").read_text())["model"]["init_args"]
    unsaid = {"network", "engine"}
    assert set(chosen) <= {*stated, *rates, *unsaid}


def test_signatures_stay_short():
    counts = [len(inspect.signature(f).parameters) for f in (OFMU, outer_iteration)]
    assert counts[0] <= 12
    assert counts[1] <= 5, "as printed"


@pytest.mark.parametrize("engine", ["autograd", "finite_difference"])
def test_rho_zero_and_beta_zero_is_the_bare_two_loop_scheme(engine):
    """Independent arithmetic: T clipped SGD ascents on L_f, one SGD descent on L_r."""
    settings = {"inner_steps": 2, "stepper": PLAIN, "lower": partial(BoundedLoss, bound=None)} | FIRST_ORDER
    sgd = {"optimizer": lambda p: torch.optim.SGD(p, lr=0.2), "gradient_clip": None}
    module = OFMU(CausalLM(config=TINY), engine=engine, **settings, **sgd)
    train(module, steps=1)
    plain = OFMU(CausalLM(config=TINY), **settings)
    trainer = train(plain, steps=0)
    network, batch = plain.network, trainer.datamodule.iteration(0)
    for b, sign in [(batch["forget"][0], 1), (batch["forget"][1], 1), (batch["retain"][2], -1)]:
        logits = network(input_ids=b["input_ids"], attention_mask=b["attention_mask"]).logits
        targets = shifted(b["labels"])
        loss = sample_mean(token_nll(logits, targets), targets).mean()
        gradient = torch.autograd.grad(loss, list(network.parameters()))
        size = torch.cat([g.flatten() for g in gradient]).norm()
        factor = 0.1 * min(1.0, 1 / float(size)) if sign > 0 else -0.2
        with torch.no_grad():
            for p, g in zip(network.parameters(), gradient, strict=True):
                p.add_(g, alpha=factor)
    torch.testing.assert_close(weights(module), weights(plain), rtol=1e-4, atol=1e-6)


def test_adams_ascent_is_not_counted_and_goes_on_from_a_checkpoint(tmp_path):
    def make():
        return OFMU(CausalLM(config=TINY), inner_steps=2, stepper=adam(0.01))

    whole, _ = interrupted(make, tmp_path, 4, at=2)
    assert whole.trainer.global_step == 4
    assert [next(iter(o.state.values()))["step"] for o in whole.run.optimizers] == [4, 8]
    train(other := OFMU(CausalLM(config=TINY), inner_steps=2, stepper=plain(0.01)), steps=4)
    assert not torch.equal(weights(other), weights(whole))


@pytest.mark.parametrize(("budget", "iterations"), [(60, 7), (59, 6)])
def test_between_whole_iterations_are_those_of_first_order(budget, iterations):
    """T = 2: 16 gradients and 3; and a budget is never overdrawn, whatever the next iteration costs."""
    spent = []

    class Watch(Callback):
        def on_train_batch_end(self, trainer, module, *_):
            spent.append(module.gradient_evaluations)

    options = {"inner_steps": 2, "engine": "finite_difference", "safeguards": EVERYWHERE}
    module = OFMU(CausalLM(config=TINY), upper=printed(every=3), **options)
    train(module, steps=50, callbacks=[Unchecked(), Watch(), GradientBudget(budget)])
    assert spent == list(accumulate([16, 3, 3, 16, 3, 3, 16]))[:iterations]


@pytest.mark.parametrize(("start", "acts"), [(0.0, [1, 0, 1, 0]), (0.5, [0, 0, 1, 0]), (1.0, [0, 0, 0, 0])])
def test_before_a_share_of_the_run_whole_iterations_only_measure(start, acts):
    """At one gradient more, g_f of the plain loss; weights are those of a run of first order until then."""
    runs = []

    class Watch(Callback):
        def on_train_batch_end(self, trainer, module, *_):
            logged = {k: float(v) for k, v in trainer.callback_metrics.items()}
            runs[-1].append((weights(module), module.gradient_evaluations, logged))

    options = {"inner_steps": 1, "engine": "finite_difference", "stepper": plain(0.1), "safeguards": EVERYWHERE}
    for form in ({"upper": printed(every=2, start=start)}, FIRST_ORDER):
        runs.append([])
        train(OFMU(CausalLM(config=TINY), **form, **options), steps=4, callbacks=[Unchecked(), Watch()])
    alike = [torch.equal(ours, plain) for (ours, *_), (plain, *_) in zip(*runs, strict=True)]
    first = acts.index(1) if 1 in acts else 4
    assert alike == [i < first for i in range(4)]
    cost = {(0, 1): 3, (1, 1): 12, (0, 0): 2}
    assert [n for _, n, _ in runs[0]] == list(accumulate(cost[a, w] for a, w in zip(acts, [1, 0, 1, 0], strict=True)))
    _, _, logged = runs[0][2]
    assert {"L_f", "Sim", "grad_L_f", "grad_L_r"} < set(logged)
    assert (logged["penalty"] > 0) == bool(acts[2])


@pytest.mark.parametrize(
    ("every", "rho_0", "beta", "idle"), [(4, 0.3, 0.5, True), (3, 0.3, 0.5, False), (4, 0.0, 0.0, False)]
)
def test_a_run_too_short_for_its_parts_says_so(recwarn, every, rho_0, beta, idle):
    """Of four iterations every third is whole after the first, which is before ``start``; no fourth is."""
    module = OFMU(CausalLM(config=TINY), inner_steps=1, beta=beta, upper=printed(rho_0=rho_0, every=every, start=0.2))
    train(module, steps=4)
    assert any("model.upper.every" in str(w.message) for w in recwarn) == idle
    assert (module.what_was_done() == OFMU.in_words) == (idle or not beta), "the audit page says what was used"


@pytest.mark.parametrize(
    ("period", "costs", "budget", "iterations"),
    [
        (5, [30, 6, 6, 6, 6] * 3, 60, 5),  # a whole iteration that does not fit again leaves room for four others
        (1, [90, 20, 20, 20, 20, 20], 185, 5),  # the first one sought its steps
        (1, [20, 22, 20, 20, 20, 20], 103, 4),  # a later one's check counts
        (1, [20, 20, 25, 20], 60, 3),  # an unforeseen check does not lose the run
    ],
)
def test_a_budget_foresees_an_iteration_by_its_kind(period, costs, budget, iterations):
    assert within_a_budget(costs, period, budget) == iterations


@pytest.mark.parametrize(
    ("options", "cast"),
    [
        ({}, [{True}, {True}, {True}]),
        ({"engine": "finite_difference"}, [{False}, {True}, {False}]),
        ({"engine": "finite_difference", "upper": printed(every=2, start=0.5)}, [{True}, {True}, {False}]),
        ({"engine": "finite_difference"} | FIRST_ORDER, [{True}, {True}, {True}]),
    ],
    ids=["exact", "differences", "differences, later", "first order"],
)
def test_bf16_casts_forward_passes_alone_and_none_whose_differences_are_taken(monkeypatch, options, cast):
    """Of the whole iterations 0 and 2 of three those that act; iteration 1 is of first order."""
    seen, outside = [set(), set(), set()], set()
    losses = CausalLM.sample_losses

    def forward(*words):
        seen[module.run.step - 1].add(torch.is_autocast_enabled("cpu"))
        return losses(*words)

    def ascends(*words, **more):
        outside.add(torch.is_autocast_enabled("cpu"))
        return ascend(*words, **more)

    monkeypatch.setattr(CausalLM, "sample_losses", forward)
    monkeypatch.setattr("ofmu_pl.core.variants.ascend", ascends)
    module = OFMU(CausalLM(config=TINY), **{"inner_steps": 2, "upper": printed(every=2)} | options)
    train(module, steps=3, precision="bf16-mixed")
    assert seen == cast
    assert outside == {False}
    assert {p.dtype for p in module.network.parameters()} == {torch.float32}


def test_the_ceiling_is_smooth_and_stops_the_pull():
    losses = torch.tensor([0.5, 2.0, 4.0, 9.0], dtype=torch.float64, requires_grad=True)
    bent = ceiling(losses, 4.0)
    (slope,) = torch.autograd.grad(bent.sum(), losses)
    assert torch.all(bent <= 4.0)
    assert slope[0] == pytest.approx(1.0, abs=1e-5)
    assert slope[2] == pytest.approx(0.5)
    assert slope[3] < 1e-8
    assert torch.equal(ceiling(losses, None), losses)


def test_finetune_learns():
    ends = {}
    for steps in (1, 40):
        module = FineTune(CausalLM(config=TINY), split="retain", optimizer=lambda p: torch.optim.AdamW(p, lr=0.01))
        ends[steps] = float(train(module, steps).callback_metrics["L"])
    assert ends[40] < ends[1] - 1.0
    assert module.gradient_evaluations == 40


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (CausalLM, "model.network.path"),
        (lambda: CausalLM(path="x", config=TINY), "`config`"),
        (lambda: OFMU(CausalLM(config=TINY), inner_steps=0), "inner_steps"),
        (lambda: OFMU(CausalLM(config=TINY), upper=printed(gamma=0.5)), "gamma"),
    ],
)
def test_bad_arguments(make, words):
    with pytest.raises(UserError, match=words):
        make()


LORA = {"r": 2, "lora_alpha": 4, "target_modules": "all-linear"}


def audited(module, batch, scheme="forward"):
    """How far the run's differences are from the exact derivatives, on four samples at its present weights."""
    few = [module.loss({name: x[:4] for name, x in batch[side][-1].items()}) for side in ("forget", "retain")]
    engine, exact = module.engine, Autograd(module.engine.parameters)
    engine.scheme = scheme
    module.network.set_attn_implementation("eager")
    return compare(parts(engine, *few, module.beta, 1e-4), parts(exact, *few, module.beta, 1e-4))


def test_differences_of_adapters_are_derivatives():
    """Error 2 and more with steps that follow the adapters' norm."""
    module = OFMU(CausalLM(config=TINY, lora=LORA), inner_steps=1, stepper=plain(0.0), engine="finite_difference")
    module.make_optimizer = lambda p: torch.optim.SGD(p, lr=0.0)
    trainer = train(module, steps=1)
    found = audited(module, trainer.datamodule.iteration(0))
    assert found["decorrelation_error"] < 0.05
    assert found["penalty_error"] < 0.3
    assert trainer.callback_metrics["disagreement/penalty"] < 0.3


def test_differences_are_checked_on_the_batch_that_is_used(monkeypatch):
    """On its first four rows alone the error of Hess(Phi) grad Phi was a fifth of the batch's (.047 for .226)."""
    seen = []

    def settled(engine, *losses, **_):
        seen.append([sum(float(term()) for term in loss) for loss in losses[:2]])
        return Agreement(0.0, 0.0)

    monkeypatch.setattr("ofmu_pl.modules.scrutiny.settle", settled)
    options = {"inner_steps": 1, "engine": "finite_difference", "stepper": plain(0.0)}
    module = OFMU(CausalLM(config=TINY), **options)
    data = four_authors(tuple(module.streams), module.num_batches)
    data.batch_size = 8
    last = fit(module, data, 1).callback_metrics
    batch = data.iteration(0)
    assert [len(batch[side][-1]["ids"]) for side in ("forget", "retain")] == [8, 8]
    assert seen == [pytest.approx([float(last["L_f"]), float(last["L_r"])], rel=1e-5)]


@pytest.mark.parametrize(
    ("found", "same_as", "words"),
    [
        (Agreement(0.01, 0.9), {"upper": NoPenalty}, "90%.*model.upper NoPenalty"),
        pytest.param(
            Agreement(2.0, 3.0),
            FIRST_ORDER,
            "200%.*model.beta",
            marks=pytest.mark.slow,
        ),
    ],
)
def test_what_is_noise_is_left_out_with_one_warning_also_after_a_resume(
    found, same_as, words, tmp_path, monkeypatch, recwarn
):
    options = {"inner_steps": 1, "engine": "finite_difference", "stepper": plain(0.1)}
    looks = []
    monkeypatch.setattr("ofmu_pl.modules.scrutiny.settle", lambda *_, **__: looks.append(1) or found)
    keep = ModelCheckpoint(tmp_path, every_n_train_steps=3, save_top_k=-1, filename="{step}")
    train(whole := OFMU(CausalLM(config=TINY), **options), steps=5, callbacks=[keep])
    assert len(looks) == 3, "in iterations 0, 1 and 4"
    assert len([w for w in recwarn if re.search(words, str(w.message))]) == 1
    train(resumed := OFMU(CausalLM(config=TINY), **options), steps=5, ckpt_path=tmp_path / "step=3.ckpt")
    assert torch.equal(weights(resumed), weights(whole))
    monkeypatch.setattr("ofmu_pl.modules.scrutiny.settle", lambda *_, **__: Agreement(0.0, 0.0))
    train(without := OFMU(CausalLM(config=TINY), **options | same_as), steps=5)
    assert torch.equal(weights(without), weights(whole))
    train(usual := OFMU(CausalLM(config=TINY), **options), steps=5)
    assert not torch.equal(weights(usual), weights(whole))


def test_the_audit_page_speaks_of_a_part_that_acted_before_it_became_noise(monkeypatch):
    found = iter([Agreement(0.0, 0.0), Agreement(2.0, 3.0)])
    monkeypatch.setattr("ofmu_pl.modules.scrutiny.settle", lambda *_, **__: next(found))
    train(module := OFMU(CausalLM(config=TINY), inner_steps=1, engine="finite_difference"), steps=2)
    assert module.scrutiny.order == 1
    assert RHO_IN_WORDS in module.what_was_done()


def test_all_ranks_decide_alike_where_a_batch_has_fewer_rows_than_ranks():
    train(module := OFMU(CausalLM(config=TINY), inner_steps=1, engine="finite_difference"), steps=1)
    module.run.ranks = Ranks(1, 4)
    few = _first(module, {"ids": torch.tensor([7, 8])}, 2)
    assert few["ids"].tolist() == [7, 8, 7, 8]
    assert _first(module, {"ids": torch.arange(8)}, 2)["ids"].tolist() == [0, 1, 2, 3]


def test_found_steps_go_on_from_a_checkpoint(tmp_path):
    """A resumed run does not look again between iterations 1 and 4, and takes the same steps."""

    def make():
        return OFMU(CausalLM(config=TINY, lora=LORA), inner_steps=1, stepper=plain(0.1), engine="finite_difference")

    whole, resumed = interrupted(make, tmp_path, 3, at=2)
    assert whole.engine.field_step > whole.engine.default_steps[1]
    assert (resumed.engine.step, resumed.engine.field_step) == (whole.engine.step, whole.engine.field_step)


def test_a_called_layer_norm_is_refused_by_the_exact_engine():
    """OLMo's own norm is a class of transformers' around ``F.layer_norm``."""
    olmo = {**TINY, "model_type": "olmo"}
    with pytest.raises(UserError, match="^OlmoLayerNorm "):
        train(OFMU(CausalLM(config=olmo)), steps=1)
    train(OFMU(CausalLM(config=olmo), inner_steps=1, engine="finite_difference", upper=NoPenalty), steps=1)
    train(OFMU(CausalLM(config=olmo), inner_steps=1, **FIRST_ORDER), steps=1)  # gradients alone are right


def test_weights_are_kept_for_a_second_try_where_they_are_flattened_before_the_last_pass():
    """With the outer gradient at the start and one ascent nothing else moves them."""
    options = {"network": CausalLM(config=TINY), "inner_steps": 1, "outer_at": "start"} | ALONG_PATH
    for rho, kept in ((0.3, True), (0.0, False)):
        train(module := OFMU(**options, beta=0.0, upper=flattening(rho)), steps=1)
        assert module.moves_parameters is kept


def test_steps_in_float64_are_those_of_the_float32_inside():
    """Transformers' Llama computes norms and softmax in float32, whatever its weights are."""
    module = OFMU(CausalLM(config=TINY), inner_steps=1, engine="finite_difference")
    train(module, steps=1, precision="64-true")
    assert next(module.network.parameters()).dtype == torch.float64
    assert module.engine.default_steps == STEPS[torch.float32, "forward"]


@pytest.mark.parametrize("make", [FineTune, GradDiff])
def test_every_adapter_moves_under_activation_checkpointing(make):
    """Reentrant checkpointing would cut the gradients of all that lies behind the frozen embedding."""
    recipe = CausalLM(config={**TINY, "num_hidden_layers": 3}, lora=LORA, activation_checkpointing=True)
    module = make(recipe, optimizer=lambda p: torch.optim.SGD(p, lr=1.0))
    train(module, steps=1)
    moved = {name: bool(p.abs().max() > 0) for name, p in module.network.named_parameters() if "lora_B" in name}
    assert len(moved) == 3 * 7
    assert all(moved.values()), "they start at 0"


def test_preflight_runs_before_the_first_step():
    with pytest.raises(UserError, match="'sdpa'"):
        train(OFMU(CausalLM(config=TINY, attention="sdpa")))


@pytest.mark.parametrize("options", [{}, {"activation_checkpointing": True}], ids=["plain", "checkpointing"])
def test_dropout_is_off_and_so_not_refused(options):
    network = CausalLM(config={**TINY, "attention_dropout": 0.5}, **options)
    trainer = train(OFMU(network, engine="finite_difference"), steps=1)
    assert trainer.global_step == 1


def test_after_a_divergence_no_option_is_named_that_auto_rates_ignore():
    off = replace(SAFE, inner_clip=None, rho_max=None)
    plain = OFMU(CausalLM(config=TINY), safeguards=off, gradient_clip=None)
    assert "(model.safeguards.rho_max, model.safeguards.inner_clip, model.gradient_clip)" in plain.remedy
    assert "model.stepper" in OFMU(CausalLM(config=TINY), upper=flattening(), **ALONG_PATH).remedy


# Parts ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", MOVED)
def test_an_option_that_is_elsewhere_now_is_refused_by_its_name(name):
    with pytest.raises(UserError, match=re.escape(MOVED[name])):
        OFMU(CausalLM(config=TINY), **{name: 1})


def test_a_checkpoint_from_before_the_parts_is_refused():
    with pytest.raises(UserError, match=r"0\.3"):
        OFMU(CausalLM(config=TINY)).go_on_from({"ofmu": {"rho": 0.3, "lower": {}, "differences": {}}})


@pytest.mark.parametrize(
    ("parts", "option"),
    [
        ({"stepper": PathSteps, "upper": NoPenalty, "beta": 0.0}, "model.lower"),
        ({"upper": flattening()}, "model.lower"),
        (ALONG_PATH, "model.upper"),
        (ALONG_PATH | {"upper": NoPenalty}, "model.beta"),
        (ALONG_PATH | {"upper": Reach}, "model.beta"),
        ({"upper": Reach}, "model.stepper"),
        (ALONG_PATH | {"upper": printed(rho_0=0.0)}, "model.beta"),
    ],
)
def test_parts_that_do_not_go_together_are_refused(parts, option):
    with pytest.raises(UserError, match=option):
        OFMU(CausalLM(config=TINY), **parts)


LOWER = {"bounded": BoundedLoss, "held-out": HeldOutLevels, "called back": ALONG_PATH["lower"]}
STEPPER = {"plain": PLAIN, "adam": adam(1e-3), "shared": shared(), "path": PathSteps}
UPPER = {
    "printed": printed(every=2),
    "flatten": flattening(every=2),
    "none": NoPenalty,
    "reach": partial(Reach, 0.02, start=0.5),
}


TOGETHER = [
    (lower, stepper, upper)
    for lower in LOWER
    for stepper in STEPPER
    for upper in UPPER
    if (lower != "bounded" or (stepper != "path" and upper != "flatten"))
    and (upper != "printed" or stepper != "path")
    and (upper != "reach" or stepper != "plain")
]


def test_all_other_parts_go_together():
    """No two combinations take the same steps, so every part acts whatever the two others are."""
    given = {"optimizer": partial(SharedAdam, lr=1e-3), "beta": 0.0, "engine": "finite_difference", "inner_steps": 1}
    ends = []
    for lower, stepper, upper in TOGETHER:
        parts = {"lower": LOWER[lower], "stepper": STEPPER[stepper], "upper": UPPER[upper]}
        module = OFMU(CausalLM(config=TINY), outer_at="start", **given, **parts)
        train(module, steps=2, holdout_authors=1, callbacks=[Unchecked()])
        ends.append(weights(module))
    assert all(end.isfinite().all() for end in ends)
    assert len({tuple(end.tolist()) for end in ends}) == len(TOGETHER)


def test_a_run_goes_on_where_relearning_would_bring_nothing_back(monkeypatch):
    """Reach then has no length, and the rho that the bar shows becomes 0 within an epoch."""
    monkeypatch.setattr("ofmu_pl.modules.reaching.PLACES", [])
    given = {"optimizer": partial(SharedAdam, lr=1e-3), "beta": 0.0, "inner_steps": 1}
    module = OFMU(CausalLM(config=TINY), stepper=shared(), upper=partial(Reach, start=0.0), **given)
    train(module, steps=3)
    assert module.upper.rho == 0.0


@pytest.mark.parametrize(("first", "acted"), [(0, 3), (2, 2), (4, 0)])
def test_no_ascent_reaches_in_the_first_iterations(first, acted):
    """The second ascent is the first that has a running mean; a run that is no longer is one of first order."""
    given = {"optimizer": partial(SharedAdam, lr=1e-3), "beta": 0.0, "inner_steps": 1, "engine": "finite_difference"}
    ends = []
    for upper in (partial(Reach, 0.02, start=0.0, start_iterations=first), NoPenalty):
        module = OFMU(CausalLM(config=TINY), stepper=shared(), upper=upper, **given)
        train(module, steps=4)
        ends.append((weights(module), module.upper.acted))
    assert ends[0][1] == acted
    assert torch.equal(ends[0][0], ends[1][0]) == (acted == 0)


def test_reach_goes_back_along_adapters_alone():
    """The base stays as it was, bit for bit, and adapters end elsewhere than without a penalty."""
    found = []
    for upper in (partial(Reach, 0.02, start=0.0), NoPenalty):
        given = {
            "optimizer": partial(SharedAdam, lr=1e-3),
            "beta": 0.0,
            "engine": "finite_difference",
            "inner_steps": 1,
        }
        module = OFMU(CausalLM(config=TINY, lora={"r": 2}), stepper=shared(), upper=upper, **given)
        train(module, steps=3)
        found.append({name: p.detach().clone() for name, p in module.network.named_parameters()})
    moved = {name for name, p in found[0].items() if not torch.equal(p, found[1][name])}
    assert moved
    assert all("lora_" in name for name in moved)
