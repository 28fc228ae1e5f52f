"""OFMU's shipped forms, iteration by iteration, against the formulas of its docs (``tests.helpers.ofmu_by_hand``)."""

import copy
import math
from functools import partial

import pytest
import torch
from lightning.pytorch.callbacks import Callback
from lightning.pytorch.plugins import DoublePrecision
from torch.optim.lr_scheduler import LinearLR

from ofmu_pl.core.safeguards import AS_PRINTED, Safeguards
from ofmu_pl.core.shared_adam import SharedAdam
from ofmu_pl.data import Authors, Digits
from ofmu_pl.modules import OFMU, FineTune
from ofmu_pl.modules.lower_level import BoundedLoss, HeldOutLevels
from ofmu_pl.modules.reaching import Reach
from ofmu_pl.modules.steppers import PathSteps
from ofmu_pl.modules.upper_level import FlatteningStep, PrintedPenalty
from ofmu_pl.networks import SmallCNN
from tests.helpers import parts as made
from tests.helpers.ofmu_by_hand import (
    KEPT,
    AdamByHand,
    AutoByHand,
    FixedByHand,
    Form,
    Model,
    PlainByHand,
    Pull,
    SharedAdamByHand,
    Way,
)
from tests.helpers.training import fit, weights
from tests.helpers.window_lm import WindowLM

# What is run ---------------------------------------------------------------------------------------------------------


def make(network, form):
    """The method: every run of this file is one of these."""
    lower = partial(BoundedLoss, bound=form.forget_ceiling, ngram_weight=form.ngram_weight)
    if form.rates or form.forget_ceiling == "holdout":
        lower = partial(HeldOutLevels, call_back=bool(form.rates), ngram_weight=form.ngram_weight)
    rate = form.inner_lr
    steps = {"sgd": made.plain(rate), "adam": made.adam(rate), "shared": made.shared(rate)}[form.inner_optimizer]
    when = {"every": form.higher_order_every, "start": form.higher_order_from}
    upper = partial(PrintedPenalty, rho_0=form.rho_0, gamma=form.gamma, **when)
    if form.rates:
        upper = partial(FlatteningStep, share=form.rho_0, until=form.higher_order_until, **when)
    if form.reach:
        upper = partial(Reach, form.reach, start=form.higher_order_from)
    parts = {"lower": lower, "stepper": PathSteps if form.rates else steps, "upper": upper}
    same = ("stop_at", "beta", "outer_at", "inner_steps", "safeguards", "gradient_clip", "micro_batch_size")
    others = {name: getattr(form, name) for name in (*same, "optimizer", "scheduler")}
    return OFMU(network, engine="autograd", **parts, **others)


class World:
    """A network and rows that it knows.

    Attributes:
        recipe: Makes the network's recipe.
        data: Data after ``setup``, which runs share.
        precision: The trainer's.
    """

    def __init__(self, recipe, data, precision="64-true"):
        data.setup()
        self.recipe, self.data, self.precision = recipe, data, precision

    def fit(self, method, length, callbacks=()):
        """Run at most so many iterations."""
        fit(method, self.batches(method.num_batches), length, callbacks, precision=self.precision)

    def batches(self, number):
        """The data, with so many batches of each stream in an iteration."""
        data = copy.copy(self.data)
        data.num_batches = number
        return data

    def before(self):
        """The network before the first step, as Lightning makes it in float64."""
        with DoublePrecision().module_init_context():
            return self.recipe().build(self.data, exact=True).double()


def taught(recipe, data, steps):
    """The network after it was trained on all rows."""
    adam = partial(torch.optim.AdamW, lr=2e-2, weight_decay=0.0)
    method = FineTune(recipe, split="full", optimizer=adam)
    fit(method, data, steps)
    return method.network


def save_classifier(network, file):
    """Write the weights of what comes after normalisation, which a recipe reads."""
    torch.save(network[1].state_dict(), file)


def authors(**options):
    return Authors(**{"authors": 4, "forget_authors": 1, "holdout_authors": 2, "batch_size": 4} | options)


def digits(**options):
    return Digits(**{"train_items": 300, "forget_fraction": 0.2, "batch_size": 16} | options)


@pytest.fixture(scope="module")
def language():
    """Weights of a language model that knows forget and retain rows."""
    return taught(WindowLM(), authors(batch_size=32, streams=("full",)), 120).state_dict()


@pytest.fixture(scope="module")
def classifier(tmp_path_factory):
    """A file of weights of a classifier that knows forget and retain images."""
    file = tmp_path_factory.mktemp("digits") / "weights.pt"
    save_classifier(taught(SmallCNN(width=8), digits(batch_size=32, streams=("full",)), 40), file)
    return str(file)


@pytest.fixture(scope="module")
def text(language):
    """Answers of three kinds of tokens, with held-out rows."""
    return World(lambda: WindowLM(state=language), authors())


@pytest.fixture(scope="module")
def alone(language):
    """Answers without held-out rows."""
    return World(lambda: WindowLM(state=language), authors(holdout_authors=0))


def blank(seed):
    """Texts, and a network that knows none of them."""
    world = World(WindowLM, authors())
    torch.manual_seed(seed)
    state = world.before().state_dict()
    return World(lambda: WindowLM(state=state), world.data)


@pytest.fixture(scope="module")
def blank_images(tmp_path_factory):
    """Images, and a classifier that knows none of them, to which those to forget look slightly better known."""
    torch.manual_seed(5)
    data, file = digits(), tmp_path_factory.mktemp("blank") / "weights.pt"
    save_classifier(World(lambda: SmallCNN(width=8), data).before(), file)
    return World(lambda: SmallCNN(width=8, path=str(file)), data)


@pytest.fixture(scope="module")
def images(classifier):
    """Images of all classes, a fifth of which is to be forgotten; test images are held out."""
    return World(lambda: SmallCNN(width=8, path=classifier), digits())


@pytest.fixture(scope="module")
def whole_class(classifier):
    """Images of which a class is to be forgotten, so that no image is held out."""
    return World(lambda: SmallCNN(width=8, path=classifier), digits(forget_fraction=None, forget_classes=[0]))


@pytest.fixture(scope="module", params=["text", "alone", "images", "whole_class"])
def world(request):
    return request.getfixturevalue(request.param)


class Taken(Callback):
    """Weights and logged numbers after each iteration; ends the run after so many."""

    def __init__(self, most):
        self.most, self.weights, self.logged = most, [], []

    def on_train_start(self, trainer, module):
        self.rounding = 1e-9 if trainer.precision == "64-true" else 1e-6

    def on_train_batch_end(self, trainer, module, *_):
        self.weights.append(weights(module))
        self.logged.append({name: float(value) for name, value in trainer.callback_metrics.items()})
        trainer.should_stop |= len(self.weights) == self.most


def taken(world, form, length, most):
    """What a run of ``length`` iterations does in the first ``most`` of them."""
    run = Taken(most)
    world.fit(make(world.recipe(), form), length, [run])
    return run


def compare(run, ours, data, tolerance):
    """Every iteration of the run beside ours, which ends where it ended; logged numbers may be float32's."""
    first = ours.model.weights()
    for k, (found, logged) in enumerate(zip(run.weights, run.logged, strict=True)):
        assert not ours.stopped
        ours.iterate(k, data.iteration(k))
        wanted = ours.model.weights()
        assert found.dtype == torch.float64
        apart = (found - wanted).norm()
        assert apart < tolerance * wanted.norm(), f"iteration {k}"
        assert apart < 10 * tolerance * (wanted - first).norm(), f"iteration {k}, beside what has moved"
        seen = {name: logged[name] for name in ours.logged[k]}
        assert seen == pytest.approx(ours.logged[k], rel=run.rounding, abs=run.rounding)


def way(model, length, data, *, ceiling, pull=None):
    """The goal; a run measures the retain rows that it descends by before its first step."""
    drawn = set()
    for k in range(length):
        drawn.update(data.iteration(k)["retain"][-1]["ids"].tolist())
    return Way(model, length, sorted(drawn), ceiling=ceiling, vocabulary=vocabulary_of(data), guess=pull)


def vocabulary_of(data):
    """Number of tokens, or of classes."""
    return len(data.tokenizer) if data.modality == "text" else len(data.class_names)


# A: rates: auto ------------------------------------------------------------------------------------------------------


def auto(world, length, most, tolerance=1e-12, **settings):
    """The first iterations of a run that finds its rates, and ours, which is returned."""
    form = Form(rates="auto", stop_at="holdout", **settings)
    data = world.batches(form.inner_steps + 1)
    model = Model(world.before(), data)
    ours = AutoByHand(model, form, way(model, length, data, ceiling=False))
    run = taken(world, form, length, most)
    compare(run, ours, data, tolerance)
    assert ours.stopped == (len(run.weights) < most)
    return ours


@pytest.mark.parametrize(("length", "most"), [(1, 1), (3, 3), (200, 3)], ids=["one", "three", "three of many"])
def test_iterations_at_automatic_rates(world, length, most):
    """With similarity and penalty, on a path of one iteration, of 60 % of the run, and of a hundred iterations."""
    ours = auto(world, length, most)
    assert ours.acted[0]
    assert ours.logged[0]["penalty"] > 0.1
    assert len(ours.logged) == most


FORMS = {
    "two ascents": {"inner_steps": 2},
    "micro-batches": {"micro_batch_size": 3, "inner_steps": 2},
    "the descent from the start": {"outer_at": "start"},
    "the similarity where it is below 0": {"safeguards": Safeguards(aligned_only=False), "beta": 1.0},
    "no penalty": {"rho_0": 0.0},
    "no similarity": {"beta": 0.0, "higher_order_every": 2},
}


@pytest.mark.parametrize("form", FORMS)
def test_forms_at_automatic_rates(text, form):
    assert auto(text, 60, 3, **FORMS[form]).acted[0]


@pytest.mark.parametrize("form", [{}, {"inner_steps": 2, "outer_at": "start"}], ids=["one ascent", "two"])
def test_ascents_that_reach_at_automatic_rates(text, form):
    """Steps are as long as the distance there asks for, at first order's gradients."""
    options = {"beta": 0.0, "rho_0": 0.0, **form}
    ours, plain = auto(text, 60, 4, **options, reach=0.02), auto(text, 60, 4, **options)
    assert [x["gradient_evaluations"] for x in ours.logged] == [x["gradient_evaluations"] for x in plain.logged]
    assert (ours.model.weights() - plain.model.weights()).norm() > 1e-3 * plain.model.weights().norm()


def test_ascents_reach_after_a_share_of_the_path(text):
    ours = auto(text, 60, 5, beta=0.0, rho_0=0.0, reach=0.02, higher_order_from=0.04)
    assert [x > 0 for x in ours.lengths] == [False, False, True, True, True]


def test_the_path_waits_while_retain_rows_are_harmed_and_so_do_the_parts(text):
    ours = auto(text, 3, 3)
    assert ours.way.refused == [True] * 3
    assert ours.way.gone == 0
    assert ours.acted == [True, False, False]
    assert ours.paused == [False, True, True]


def test_the_parts_begin_after_a_share_of_the_path(text):
    ours = auto(text, 60, 5, higher_order_from=0.04)
    assert ours.acted == [False, False, True, True, True]
    assert not any(ours.paused)


def test_the_parts_pause_until_retain_rows_are_back(alone):
    ours = auto(alone, 20, 11, 1e-10, higher_order_every=2, higher_order_from=0.5)
    assert [k for k, acts in enumerate(ours.acted) if acts] == [6, 8]
    assert [k for k, waits in enumerate(ours.paused) if waits] == [10]
    assert KEPT < ours.logged[9]["goal/harm"] < KEPT + 0.01


def test_the_tenth_iteration_sets_levels_anew(text):
    """Before it the path goes on and waits, and the parts are held back until half of it is gone, and then pause."""
    ours = auto(text, 12, 12, 1e-10, higher_order_every=2, higher_order_from=0.5)
    first, anew = ours.way.sets
    assert not torch.equal(first.nan_to_num(), anew.nan_to_num())
    assert ours.way.refused[:5] == [False, False, False, True, False]
    assert ours.way.refused[10:] == [True, True], "so that the path is not at its end"
    assert ours.acted == [False] * 12
    assert ours.paused == [False] * 6 + [True, False] * 3
    assert ours.logged[9]["goal/harm"] > KEPT


@pytest.mark.parametrize(("until", "ends"), [(10 / (0.6 * 12), 10), (1.4, 12)])
def test_the_tenth_iteration_ends_the_run_where_forget_rows_are_like_held_out_ones(until, ends):
    """The network knows neither; with a penalty the run stays until the path's length is gone so many times."""
    parts = {"higher_order_every": 2, "higher_order_from": 0.5, "higher_order_until": until}
    ours = auto(blank(0), 12, 12, 1e-10, **parts)
    assert ours.acted[4:9] == [True, False, True, False, True]
    assert 0.5 < ours.logged[9]["goal/facts_auc"] < 0.62
    assert len(ours.logged) == ends


def test_the_tenth_iteration_ends_no_run_whose_facts_are_not_like_held_out_ones():
    """Whole rows are; facts are the tokens that are neither usual nor copied."""
    ours = auto(blank(52), 12, 11, 1e-10, higher_order_every=2, higher_order_from=0.5)
    assert len(ours.logged) == 11
    assert abs(ours.logged[9]["goal/auc"] - 0.5) < 0.12
    assert abs(ours.logged[9]["goal/facts_auc"] - 0.5) > 0.13
    assert ours.logged[9]["goal/harm"] < KEPT
    assert ours.gone > 1


def test_the_tenth_iteration_ends_the_run_where_images_are_nearly_like_held_out_ones(blank_images):
    ours = auto(blank_images, 12, 12, 1e-10, higher_order_every=2, higher_order_from=0.5)
    assert len(ours.logged) == 10
    assert 0.06 < ours.logged[9]["goal/auc"] - 0.5 < 0.1


def test_the_tenth_iteration_ends_no_run_whose_retain_rows_are_harmed(alone):
    ours = auto(alone, 12, 11, 1e-10, higher_order_every=2, higher_order_from=0.5)
    assert len(ours.logged) == 11
    assert abs(ours.logged[9]["goal/left"]) < 0.2
    assert ours.logged[9]["goal/harm"] > KEPT
    assert ours.gone > 1


def test_the_tenth_iteration_ends_the_run_where_a_class_is_at_its_level(whole_class):
    """Without held-out rows, beyond the level, too."""
    ours = auto(whole_class, 12, 12, 1e-10, higher_order_every=2, higher_order_from=0.5)
    assert len(ours.logged) == 10
    assert ours.logged[9]["goal/left"] < 0


# B: fixed rates ------------------------------------------------------------------------------------------------------

LR, INNER_LR = 0.01, 0.4
SHARED = {"inner_optimizer": "shared", "inner_lr": INNER_LR, "outer_at": "start", "higher_order_every": 2}
SHARED |= {"optimizer": partial(SharedAdam, lr=LR), "safeguards": Safeguards(rho_max=0.5, inner_clip=0.5)}
SHARED |= {"gradient_clip": 0.1, "scheduler": partial(LinearLR, start_factor=1.0, end_factor=0.1, total_iters=4)}
SHARED |= {"beta": 0.5}


def shared_rates(k):
    """The ascent's and the descent's, which fall by 22.5 % of the first one an iteration, four times."""
    rate = LR * (1 - 0.225 * min(k, 4))
    return INNER_LR * rate, rate


def fixed(world, length, most, steps, rates, tolerance=1e-12, **settings):
    """The first iterations of a run at fixed rates, and ours, which is returned."""
    form = Form(**settings)
    data = world.batches(form.inner_steps + 1)
    model = Model(world.before(), data)
    vocabulary = vocabulary_of(data)
    pull = Pull(model, vocabulary) if form.ngram_weight else None
    level = math.log(vocabulary) if form.forget_ceiling == "uniform" else None
    goal = way(model, length, data, ceiling=True, pull=pull) if form.forget_ceiling == "holdout" else None
    ours = FixedByHand(model, form, length, steps, rates, level, goal, pull)
    run = taken(world, form, length, most)
    compare(run, ours, data, tolerance)
    assert len(run.weights) == most
    return ours


def shared(world, length, most, tolerance=1e-12, **settings):
    """The form that ships at fixed rates."""
    return fixed(world, length, most, SharedAdamByHand(), shared_rates, tolerance, **SHARED | settings)


@pytest.mark.parametrize(("length", "most"), [(1, 1), (3, 3), (40, 3)], ids=["one", "three", "three of many"])
def test_iterations_of_the_shared_adam(world, length, most):
    """Penalty and both directions are longer than they may be."""
    ours = shared(world, length, most, forget_ceiling="holdout")
    assert ours.acted == [True, False, True][:most]
    assert min(ours.shares) > 2 * 0.3
    assert ours.logged[0]["gradient_norm"] > 0.1


@pytest.mark.parametrize("length", [1, 3])
def test_iterations_below_a_blind_guess(length):
    """As where there are no held-out rows; the network does no better, so that losses are at the bend."""
    ours = shared(blank(0), length, length, forget_ceiling="uniform")
    assert ours.acted == [True, False, True][:length]
    assert math.log(1000) - 0.5 < ours.logged[0]["L_f"] < math.log(1000) + 0.5


@pytest.mark.parametrize("length", [1, 3])
def test_iterations_with_a_pull_to_a_guess(text, length):
    """Levels are by how easy each token is to guess, too."""
    ours = shared(text, length, length, forget_ceiling="holdout", ngram_weight=0.3)
    assert ours.acted == [True, False, True][:length]
    assert len(ours.way.groups) > 3
    assert 0.05 < ours.pull.temperature < 1


SHARED_FORMS = {
    "no bound": {"safeguards": Safeguards(None, None, None, None, aligned_only=False), "gradient_clip": None},
    "bounds that bound nothing": {"safeguards": Safeguards(1.0, 1e3, 1e-4, 1e3), "gradient_clip": 1e3},
    "two ascents in micro-batches": {"inner_steps": 2, "micro_batch_size": 3},
    "the outer gradient after two ascents": {"inner_steps": 2, "outer_at": "end"},
    "first order": {"beta": 0.0, "rho_0": 0.0},
}


@pytest.mark.parametrize("form", SHARED_FORMS)
def test_forms_of_the_shared_adam(text, form):
    ours = shared(text, 3, 3, forget_ceiling="holdout", **SHARED_FORMS[form])
    assert ours.acted == ([True, False, True] if ours.form.beta else [False] * 3)


@pytest.mark.parametrize(("start", "acted"), [(0.5, [False, False, True, False]), (0.6, [False] * 4)])
def test_the_parts_begin_after_a_share_of_the_run(text, start, acted):
    """The first iteration of two only measures then."""
    ours = shared(text, 4, 4, forget_ceiling="holdout", higher_order_from=start)
    assert ours.acted == acted
    assert ours.logged[0]["penalty"] == 0


def test_the_tenth_iteration_sets_a_ceilings_levels_anew(text):
    ours = shared(text, 12, 12, 1e-10, forget_ceiling="holdout", ngram_weight=0.3, higher_order_every=5)
    first, anew = ours.way.sets
    assert not torch.equal(first.nan_to_num(), anew.nan_to_num())
    assert [k for k, acts in enumerate(ours.acted) if acts] == [0, 5, 10]


# The paper's forms ---------------------------------------------------------------------------------------------------

PAPER = {"inner_steps": 5, "inner_lr": 0.02, "beta": 0.5}


@pytest.mark.parametrize("length", [1, 3])
def test_iterations_of_the_papers_form_within_bounds(text, length):
    """``configs/methods/ofmu_paper.yaml``."""
    adam = partial(torch.optim.AdamW, lr=1e-3, weight_decay=0.0)
    bounds = Safeguards(aligned_only=False)
    form = PAPER | {"forget_ceiling": "uniform", "safeguards": bounds, "optimizer": adam}
    ours = fixed(text, length, length, AdamByHand(), lambda k: (0.02, 1e-3), **form)
    assert min(ours.shares) > 0.3
    assert min(ours.similarities) < 0


@pytest.mark.parametrize("length", [1, 3])
def test_iterations_as_printed(text, length):
    """``configs/methods/ofmu_literal.yaml``, at rates that move something."""
    sgd = partial(torch.optim.SGD, lr=0.01)
    form = PAPER | {"gamma": 2.0, "safeguards": AS_PRINTED, "gradient_clip": None, "optimizer": sgd}
    ours = fixed(text, length, length, PlainByHand(), lambda k: (0.02, 0.01), **form)
    assert ours.logged[-1]["rho"] == 0.3 * 2.0 ** (length - 1)
