"""Each statement of the paper can come out all three ways."""

import numpy as np
import pytest

from ofmu_pl.report.claims import claims, judged
from ofmu_pl.report.collect import collect
from tests.helpers.folders import (
    IMAGE_BEFORE,
    IMAGE_GOAL,
    METHODS,
    TEXT_BEFORE,
    TEXT_GOAL,
    curve,
    results,
    table,
    write,
)

VARIANTS = {"ofmu": {}, "no_similarity": {"model.beta": 0.0}, "no_penalty": {"model.rho_0": 0}}


def verdicts(bench):
    (e,) = collect(bench.folder).experiments
    return [c.verdict for c in claims(e)]


def ablation(bench, quality, cosine, seeds=3, noise=0.001):
    """``quality``: D, and ``cosine``: hard-third cosine of ours, without similarity, without penalty."""
    rng = np.random.default_rng(0)
    runs = {}
    for method, d in zip(VARIANTS, quality, strict=True):
        for seed in range(seeds):
            values = dict(TEXT_GOAL, forget_quality_D=d + noise * rng.normal())
            runs["a", method, seed] = results(values, TEXT_BEFORE, TEXT_GOAL, seed, method)
    bench.experiment("e", "ablation", runs, methods={m: {"options": o} for m, o in VARIANTS.items()})
    cosines = {m: [c + noise * rng.normal() for _ in range(seeds)] for m, c in zip(VARIANTS, cosine, strict=True)}
    hardest(bench, cosines)


def hardest(bench, cosines):
    """Write an analysis with the hard third's cosines by method, one a seed."""
    found = {}
    for seed in range(len(cosines["ofmu"])):
        found[str(seed)] = {"hardest": {"cosine": {m: {"value": x[seed]} for m, x in cosines.items()}}}
    write(bench.folder / "e/analysis.json", {"seeds": found})


@pytest.mark.parametrize(
    ("quality", "cosine", "expected"),
    [
        ((0.1, 0.2, 0.3), (0.7, 0.6, 0.5), ["reproduced", "reproduced", "reproduced"]),
        ((0.3, 0.2, 0.1), (0.5, 0.6, 0.7), ["contradicted", "contradicted", "contradicted"]),
        ((0.1, 0.1, 0.3), (0.6, 0.6, 0.5), ["not decidable", "reproduced", None]),
    ],
)
def test_ablation(bench, quality, cosine, expected):
    ablation(bench, quality, cosine)
    for found, wanted in zip(verdicts(bench), expected, strict=True):
        assert wanted in (None, found)


def test_one_seed_decides_nothing(bench):
    ablation(bench, (0.1, 0.2, 0.3), (0.7, 0.6, 0.5), seeds=1)
    assert verdicts(bench) == ["not decidable"] * 3


def test_a_missing_variant_decides_nothing(bench):
    ablation(bench, (0.1, 0.2, 0.3), (0.7, 0.6, 0.5))
    bench.experiments["e"]["methods"]["no_similarity"]["options"] = {}
    bench.save()
    assert verdicts(bench) == ["not decidable", "reproduced", "not decidable"]


def sweep(bench, ua, ta=lambda t, rho: 98.0, seeds=3):
    rng, runs, options = np.random.default_rng(0), {}, {}
    for t in (1, 5, 10):
        for rho in (0.1, 1.0):
            name = f"T{t}_rho{rho}"
            options[name] = {"options": {"model.inner_steps": t, "model.rho_0": rho}}
            for seed in range(seeds):
                values = dict(IMAGE_GOAL, UA=ua(t, rho) + 0.1 * rng.normal(), TA=ta(t, rho) + 0.01 * rng.normal())
                runs["a", name, seed] = results(values, IMAGE_BEFORE, IMAGE_GOAL, seed, name)
    bench.experiment("e", "sweep", runs, methods=options, ours=None)


@pytest.mark.parametrize(
    ("ua", "ta", "expected"),
    [
        (lambda t, rho: 50 + t * (2 - rho), lambda t, rho: 98.0, ["reproduced", "reproduced", "reproduced"]),
        (lambda t, rho: 50 - t * (2 - rho), lambda t, rho: 98.0, ["contradicted", "reproduced", "contradicted"]),
        (lambda t, rho: 50 + t * rho, lambda t, rho: 98 - 3 * t, ["reproduced", "contradicted", "contradicted"]),
        (lambda t, rho: 50.0, lambda t, rho: 98.0, ["not decidable", None, "not decidable"]),
    ],
)
def test_sweep(bench, ua, ta, expected):
    sweep(bench, ua, ta)
    for found, wanted in zip(verdicts(bench), expected, strict=True):
        assert wanted in (None, found)


def test_a_sweep_without_options_or_seeds_decides_nothing(bench):
    sweep(bench, lambda t, rho: 50 + t * (2 - rho), seeds=1)
    assert verdicts(bench) == ["not decidable"] * 3
    for method in bench.experiments["e"]["methods"].values():
        method["options"] = {}
    bench.save()
    assert verdicts(bench) == ["not decidable"] * 3


@pytest.mark.parametrize(
    ("norm", "expected"),
    [
        (lambda k, t: 1 / k**0.5 + 1 / t**0.5, "reproduced"),
        (lambda k, t: 1 / k**0.5 + t, "contradicted"),  # falls along the run, grows with T
        (lambda k, t: 0.1 * k / t, "contradicted"),
        (lambda k, t: 1.0 + 0 * k, "not decidable"),
    ],
)
def test_convergence(bench, norm, expected):
    rng, k = np.random.default_rng(0), np.arange(1, 101)
    converging(bench, {(t, s): norm(k, t) * np.exp(0.05 * rng.normal(size=100)) for t in (1, 10) for s in range(3)})
    assert verdicts(bench) == [expected]


def converging(bench, norms):
    """Runs by their inner steps and seed, with norms of gradients."""
    runs = {}
    for (t, seed), values in norms.items():
        curves = {"gradient_norm": curve(values)}
        runs["a", f"T{t}", seed] = results(TEXT_GOAL, TEXT_BEFORE, TEXT_GOAL, seed, f"T{t}", curves=curves)
    methods = {f"T{t}": {"options": {"model.inner_steps": t}} for t in (1, 10)}
    bench.experiment("e", "convergence", runs, methods=methods)


def test_convergence_compares_the_runs_of_one_seed(bench):
    """Seeds differ by factors of 10 and the most inner steps always halve the norm; one run is missing."""
    norms = {}
    for t, seed in ((1, 0), (1, 1), (1, 2), (1, 3), (10, 1), (10, 2), (10, 3)):
        falling = np.arange(1, 101) ** (1 + 0.01 * seed)
        norms[t, seed] = 10.0**seed / falling / (2 if t == 10 else 1) * 1.01 ** (seed * t)
    converging(bench, norms)
    assert verdicts(bench) == ["reproduced"]


@pytest.mark.parametrize(
    ("ours", "theirs", "expected"),
    [
        ((0.2, 0.1, 0.3), (0.7, 0.6, 0.8), ["reproduced", "reproduced"]),
        ((0.7, 0.6, 0.8), (0.2, 0.1, 0.3), ["reproduced", "contradicted"]),
        ((0.2, -0.1, 0.5), (0.7, 0.4, 0.9), ["not decidable", "not decidable"]),
        ((-0.5, -0.7, -0.3), (0.7, 0.6, 0.8), ["contradicted", "reproduced"]),
    ],
)
def test_coupling(bench, ours, theirs, expected):
    bench.experiment("e", "udi", table(scenarios=("a",)))
    rho = {m: dict(zip(("rho", "low", "high"), x, strict=True)) for m, x in (("ofmu", ours), ("npo", theirs))}
    write(bench.folder / "e/analysis.json", {"spearman": {m: x | {"n": 6} for m, x in rho.items()}})
    assert verdicts(bench) == expected
    for undecided in ({}, {"spearman": {m: x | {"n": 5} for m, x in rho.items()}}):  # noise has such intervals, too
        write(bench.folder / "e/analysis.json", undecided)
        assert verdicts(bench) == ["not decidable"] * 2


@pytest.mark.parametrize(
    ("ours", "expected"),
    [((0.8, 0.81, 0.82), "reproduced"), ((0.4, 0.41, 0.42), "contradicted"), ((0.5, 0.6, 0.7), "not decidable")],
)
def test_nearness_is_to_the_best_of_the_other_methods(bench, ours, expected):
    bench.experiment("e", "alignment", table(scenarios=("a",)))
    cosines = {"ofmu": ours, "npo": (0.6, 0.6, 0.6), "rmu": (0.1, 0.9, 0.2), "before": (0.99, 0.99, 0.99)}
    hardest(bench, cosines)
    assert verdicts(bench) == [expected]


@pytest.mark.parametrize(
    ("ours", "seeds", "expected"),
    [(0.0, range(5), "reproduced"), (0.0, (0,), "not decidable"), (0.99, range(3), "contradicted")],
)
def test_significance(bench, ours, seeds, expected):
    runs = table(seeds=seeds, methods=METHODS | {"ofmu": ours})
    bench.experiment("e", "table", runs, paper=["x"], metrics=["forget_truth_ratio"])
    assert verdicts(bench) == [expected]


DRAWS = 150


def compared(rng, better=0.0, others=8, tables=4, seeds=5):
    """Ours less each other method, seed by seed, in each table; all methods vary alike."""
    values = rng.normal(size=(tables, others + 1, seeds))
    values[:, 0] += better
    return [(table[0] - other).tolist() for table in values for other in table[1:]]


def shares(better=0.0, **shape):
    rng = np.random.default_rng(0)
    said = [judged(compared(rng, better, **shape)) for _ in range(DRAWS)]
    return said.count("reproduced") / DRAWS, said.count("contradicted") / DRAWS


@pytest.mark.parametrize("shape", [{"others": 1, "tables": 1}, {"others": 3, "tables": 1}, {}])
def test_methods_that_are_alike_are_called_neither_better_nor_worse(shape):
    reproduced, contradicted = shares(**shape)
    assert reproduced <= 0.06
    assert contradicted <= 0.06


def test_the_rule_can_say_both():
    assert shares(better=12.0, others=2)[0] > 0.9
    assert shares(better=-12.0, others=2)[1] > 0.9
    assert shares(better=4.0, others=1, tables=2)[0] > 0.9, "a statement of few comparisons needs less"


def test_seeds_that_do_not_vary_say_what_signs_say():
    assert judged([[0.5] * 5]) == "not decidable"
    assert judged([[0.5] * 6]) == "reproduced"
    assert judged([[0.0] * 6]) == judged([[1.0]]) == judged([]) == "not decidable"
