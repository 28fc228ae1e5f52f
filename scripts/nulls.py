"""Writes docs/results/statistics.md: how often intervals hold the truth, and what tests find where nothing is.

python scripts/nulls.py        # five minutes of a core; all draws are seeded
"""

import math
from collections.abc import Callable, Iterable, Iterator
from functools import partial

import numpy as np
from scipy import special, stats

from ofmu_pl.metrics import interval
from ofmu_pl.metrics.bootstrap import LEVEL, difference, wilson
from ofmu_pl.metrics.membership import auc_interval, auc_result
from ofmu_pl.metrics.per_example import compared, null
from ofmu_pl.metrics.result import Metric, by_name
from ofmu_pl.metrics.verdicts import verdicts
from ofmu_pl.report.claims import directions

Ends = tuple[float, float]
Draw = Callable[[np.random.Generator], Ends]
NEAR, FAR = (math.sqrt(2) * float(stats.norm.ppf(auc)) for auc in (0.8, 0.96))
"""Distances of two unit normals whose AUC is .80 and .96."""


def rare(rng: np.random.Generator, n: int) -> np.ndarray:
    """Values of n rows of which nine of ten are 0 and the others anything up to 1."""
    return np.where(rng.random(n) < 0.9, 0.0, rng.random(n))


def logit_normal(rng: np.random.Generator, n: int) -> np.ndarray:
    """Probabilities of n rows whose log-odds are normal, with a deviation of 1.2."""
    return np.asarray(special.expit(-4.2 + 1.2 * rng.standard_normal(n)))


def two_normals(far: float, few: int, many: int, rng: np.random.Generator) -> Ends:
    """The interval of the AUC of unit normals whose means are so far apart."""
    return auc_interval(rng.normal(size=few), rng.normal(far, size=many))


KINDS: dict[str, tuple[Draw, float]] = {
    "mean, normal": (lambda rng: interval([rng.normal(size=40)]), 0.0),
    "mean, skewed (beta 0.3, 2)": (lambda rng: interval([rng.beta(0.3, 2, size=40)]), 0.3 / 2.3),
    "share of .02": (lambda rng: interval([rng.random(40) < 0.02]), 0.02),
    "share of .05": (lambda rng: interval([rng.random(40) < 0.05]), 0.05),
    "AUC of .50": (partial(two_normals, 0.0, 40, 40), 0.5),
    "AUC of .96": (partial(two_normals, FAR, 40, 40), 0.96),
}
FEW_ROWS: dict[str, tuple[Draw, float]] = {
    "AUC of .80, 5 rows beside 40": (partial(two_normals, NEAR, 5, 40), 0.8),
    "AUC of .96, 10 rows beside 100": (partial(two_normals, FAR, 10, 100), 0.96),
    "mean, nine of ten rows 0, 20 rows": (lambda rng: interval([rare(rng, 20)], bounded=True), 0.05),
    "mean, nine of ten rows 0, 40 rows": (lambda rng: interval([rare(rng, 40)], bounded=True), 0.05),
    "mean of .03, logit-normal, 5 rows": (lambda rng: interval([logit_normal(rng, 5)], bounded=True), 0.0278),
    "mean of .03, logit-normal, 10 rows": (lambda rng: interval([logit_normal(rng, 10)], bounded=True), 0.0278),
}
"""Intervals that few or equal rows make hard; of so few rows all may be equal, and then no method sees the rest."""
PAIRS: dict[str, tuple[Callable[[np.random.Generator, int], np.ndarray], int, int]] = {
    "shares of .95, 10 rows beside 100": (lambda rng, n: 1.0 * (rng.random(n) < 0.95), 10, 100),
    "shares of .95, 20 rows beside 400": (lambda rng, n: 1.0 * (rng.random(n) < 0.95), 20, 400),
    "nine of ten rows 0, 5 rows beside 40": (rare, 5, 40),
}
AGAINST: dict[str, tuple[Callable[[np.random.Generator, int], np.ndarray], float]] = {
    "lognormal, sigma 1.2": (lambda rng, n: rng.lognormal(0, 1.2, n), math.exp(0.72)),
    "exponential": (lambda rng, n: rng.exponential(size=n), 1.0),
    "shares of .25": (lambda rng, n: 1.0 * (rng.random(n) < 0.25), 0.25),
    "normal": (lambda rng, n: rng.normal(1, 1, n), 1.0),
}
"""Values that are held against a number, which is their mean."""


def markdown(head: str, rows: Iterable[str]) -> str:
    """A table of lines; ``head`` has the columns' names between bars."""
    return "\n".join([head, "|" + "---|" * (head.count("|") - 1), *rows])


def against_a_number(draws: int = 2000) -> Iterator[str]:
    """Shares of means that are told from their own truth, by t and by the verdict, and how often there is a verdict."""
    for kind, (draw, mean) in AGAINST.items():
        for n in (6, 10, 20, 40):
            rng = np.random.default_rng(0)
            values = [draw(rng, n) for _ in range(draws)]
            t = sum(stats.ttest_1samp(x, mean).pvalue < LEVEL for x in values if x.var())
            made = by_name(*(Metric(str(i), True).of_items(x, mean, intervals=False) for i, x in enumerate(values)))
            said = [r.verdict or next(iter(verdicts({name: r}).values())) for name, r in made.items()]
            wrong, few = sum(x.endswith("the goal") for x in said), said.count("too few")
            yield f"| {kind} | {n} | {t / draws:.3f} | {wrong / draws:.3f} | {few / draws:.2f} |"


def wrong_tests(kind: str, draws: int = 2000) -> str:
    """Share of tests at .05 that call two sets of one kind different."""
    (draw, few, many), rng = PAIRS[kind], np.random.default_rng(0)
    return share(sum(difference([draw(rng, few), -draw(rng, many)])[0] < LEVEL for _ in range(draws)), draws)


def share(hits: int, n: int) -> str:
    """A share with its Wilson interval."""
    low, high = wilson(hits / n, n)
    return f"{hits / n:.3f} [{low:.3f}, {high:.3f}]"


def held(kind: str, draws: int, seed: int = 0) -> int:
    """Number of 95 % intervals that hold the truth."""
    (draw, truth), rng = (KINDS | FEW_ROWS)[kind], np.random.default_rng(seed)
    drawn = [draw(rng) for _ in range(draws)]
    return sum(low <= truth <= high for low, high in drawn)


def single_examples(draws: int = 20) -> Iterator[str]:
    """What the attacks on single examples find on models that are alike, and the null's mean ends."""
    for models in (4, 8, 16):
        rng, found, chance = np.random.default_rng(0), [], []
        for _ in range(draws):
            sides = rng.normal(size=(2, models, 40))
            found.append(compared(*sides))
            chance.append(null(*sides))
        for name in found[0]:
            values = np.array([f[name] for f in found])
            ends = np.array([c[name] for c in chance])
            inside = share(int(((ends[:, 0] <= values) & (values <= ends[:, 1])).sum()), draws)
            low, high = ends.mean(0)
            yield f"| {models} | {name} | {values.mean():.3f} | {low:.3f} to {high:.3f} | {inside} |"


def wrong_pages(draws: int) -> int:
    """Number of audit pages with a verdict on rows that are alike: fifteen tests, 40 rows a side."""
    rng, wrong = np.random.default_rng(0), 0
    names = [f"test_{i}" for i in range(15)]
    for _ in range(draws):
        sides = rng.normal(size=(15, 2, 40))
        made = [Metric(n, False).of_items(*x, same_items=False) for n, x in zip(names[:10], sides[:10], strict=True)]
        made += [auc_result(Metric(n, False), tuple(x), 0.5) for n, x in zip(names[10:], sides[10:], strict=True)]
        wrong += any(said != "no difference" for said in verdicts(by_name(*made)).values())
    return wrong


def reports(draws: int = 2000) -> tuple[str, str]:
    """Shares of families of ten comparisons of five seeds with one that is called better, and with one called worse."""
    rng, counts = np.random.default_rng(0), {1: 0, -1: 0}
    for _ in range(draws):
        said = directions(list(rng.normal(size=(10, 5))))
        for sign in counts:
            counts[sign] += sign in said
    return share(counts[1], draws), share(counts[-1], draws)


def main() -> None:
    """Compute all of it and write what stands below the mark."""
    from nulls_over_models import tables  # beside this file, where it is run
    from results import write_below

    better, worse = reports()
    alike = {
        "audit pages with any verdict (fifteen tests, 40 rows a side)": (share(wrong_pages(1000), 1000), ".05"),
        "claims with a comparison called better (ten comparisons of five seeds)": (better, ".025"),
        "claims with a comparison called worse": (worse, ".025"),
    }
    alike |= {f"one test of two sets alike: {kind}": (wrong_tests(kind), ".05") for kind in PAIRS}
    draws = 2000
    held_by_kind = (f"| {kind} | {share(held(kind, draws), draws)} | .95 |" for kind in KINDS | FEW_ROWS)
    wrong = (f"| {what} | {found} | {most} |" for what, (found, most) in alike.items())
    parts = [
        "## Intervals",
        markdown("| of 40 rows, if nothing else is said | holds the truth | should |", held_by_kind),
        "## Verdicts where nothing is",
        markdown("| what | wrong in | should be at most |", wrong),
        markdown(
            "| values against a number | rows | by t | verdicts that are wrong | no verdict |", against_a_number()
        ),
        "## Attacks on single examples, on models that are alike",
        markdown("| models a side | figure | found, mean | null of 95 % | within it |", single_examples()),
        *tables(),
    ]
    write_below("statistics", "\n\n".join(parts) + "\n")


if __name__ == "__main__":
    main()
