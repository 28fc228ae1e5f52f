"""Tables of what verdicts say of models that hold nothing, and of others, from docs/results/null-models.json."""

from collections.abc import Callable, Iterator, Sequence
from functools import cache
from itertools import permutations, product
from typing import Any

import numpy as np
from null_models import ATTACKS, NOISE, STORED, TRAINED, UNLEARNED
from nulls import markdown

from ofmu_pl.attacks.base import Finding
from ofmu_pl.attacks.summary import summary
from ofmu_pl.metrics import SetScores
from ofmu_pl.metrics.bootstrap import LEVEL
from ofmu_pl.metrics.nearness import is_nearer, nearness
from ofmu_pl.metrics.own_rows import own_rows_metrics
from ofmu_pl.metrics.result import MetricResult
from ofmu_pl.metrics.verdicts import with_verdicts
from ofmu_pl.support.files import read_json
from ofmu_pl.support.records.models import RETRAINED, SECOND, TARGET
from ofmu_pl.support.records.models import UNLEARNED as UNDER_ATTACK

MOST = 120
"""Cases of a kind with a second retrained model, drawn from all."""
STEPS = tuple(TRAINED["retrained"][1])
Case = tuple[str, ...]
"""Names of the model that is judged, of a retrained one, of the target, and perhaps of a second retrained one."""


@cache
def stored() -> dict[str, Any]:
    """What scripts/null_models.py kept, by model."""
    return dict(read_json(STORED))


@cache
def scores(model: str) -> dict[str, SetScores]:
    """A model's scores by evaluation set."""
    return {name: SetScores.from_dict(fields) for name, fields in stored()[model]["scores"].items()}


def of(kind: str, steps: int) -> list[str]:
    """Models of a kind that were trained for so many steps."""
    return [f"{kind}, {steps} steps, seed {seed}" for seed in TRAINED[kind][1][steps]]


def unlearned() -> list[str]:
    """The models that forgot."""
    return [f"{kind}, {steps} iterations" for kind, (_, _, lengths) in UNLEARNED.items() for steps in lengths]


def way(ours: str, retrained: str, target: str, second: str | None = None) -> MetricResult:
    """The share of the way from the target to a retrained model that ours has gone."""
    u, r, t = (scores(x)["forget"].answer_loss for x in (ours, retrained, target))
    s = None if second is None else scores(second)["forget"].answer_loss
    return nearness(u, r, t, s)["forget_nearer"]


def nearer() -> Iterator[str]:
    """How often models are called nearer that are no nearer, and others."""
    last, targets = of("retrained", STEPS[0]), of("target", STEPS[0])
    kinds: dict[str, list[Case]] = {"the target itself": [(t, r, t) for t, r in product(targets, last)]}
    for share in NOISE:
        name = f"the target with noise of {100 * share:g} % on its weights"
        kinds[name] = [(f"{t}, noise {share}", r, t) for t, r in product(targets, last)]
    for steps in STEPS:
        others = product(permutations(of("target", steps), 2), of("retrained", steps))
        kinds[f"a target of another seed, {steps} steps"] = [(u, r, t) for (u, t), r in others]
    for steps in STEPS:
        kinds[f"all three retrained, {steps} steps"] = list(permutations(of("retrained", steps), 3))
    for u in unlearned():
        kinds[f"power: {u}"] = [(u, r, targets[0]) for r in last]
    kinds["power: another retrained model"] = [(u, r, targets[0]) for u, r in permutations(last, 2)]
    for kind, cases in kinds.items():
        found = [way(*case) for case in cases]
        one = np.mean([bool(is_nearer(x)) for x in found])
        two = np.mean([bool(is_nearer(way(*case))) for case in some(with_second(cases))])
        shares = ", ".join(f"{x:.3f}" for x in np.percentile([x.value for x in found], [0, 50, 100]))
        yield f"| {kind} | {len(cases)} | {one:.3f} | {two:.3f} | {shares} |"


def with_second(cases: Sequence[Case]) -> list[Case]:
    """The same cases with each second retrained model that is as long trained and not yet in them."""
    found = []
    for case in cases:
        steps = next(n for n in STEPS if f"retrained, {n} steps" in case[1])
        found += [(*case, s) for s in of("retrained", steps) if s not in case]
    return found


def some(cases: Sequence[Case]) -> list[Case]:
    """At most ``MOST`` of the cases, drawn."""
    drawn = np.random.default_rng(0).permutation(len(cases))[:MOST]
    return [cases[i] for i in sorted(drawn)]


@cache
def metrics(ours: str, retrained: str) -> dict[str, MetricResult]:
    """The audit page's metrics of rows of one's own."""
    return own_rows_metrics(scores(ours), scores(retrained))


def page(ours: str, retrained: str, _: str, second: str | None = None) -> list[str]:
    """What the tests of a page say of what is forgotten."""
    found = metrics(ours, retrained)
    if second is not None:
        others = metrics(second, retrained)
        found = {name: r.beside(others.get(name)) for name, r in found.items()}
    judged = with_verdicts(found, {}).values()
    return [r.verdict for r in judged if r.verdict and r.group in ("forgotten", "attacks")]


@cache
def finding(model: str, attack: str) -> Finding:
    """What an attack found on a model."""
    return Finding(**stored()[model]["attacks"][attack])


def verdict(attack: Any, ours: str, retrained: str, target: str, second: str | None = None) -> str:
    """What an attack says."""
    models = {UNDER_ATTACK: ours, RETRAINED: retrained, TARGET: target} | ({SECOND: second} if second else {})
    return summary(attack, {name: [finding(model, attack.name)] for name, model in models.items()}, [0]).verdict


def judges() -> Iterator[tuple[str, Callable[[Case], tuple[bool, bool]]]]:
    """Who says more or less: the page, where any of its tests does, and each attack."""
    yield "page, any of its tests", lambda case: ("more is left" in page(*case), "less is left" in page(*case))
    for a in ATTACKS:
        yield a.name, lambda case, a=a: (verdict(a, *case) == "more", verdict(a, *case) == "less")


def counted(judge: Callable[[Case], tuple[bool, bool]], cases: Sequence[Case]) -> str:
    """Shares of cases that are called more and less."""
    more, less = np.mean([judge(case) for case in cases], axis=0)
    return f"{more:.3f}, {less:.3f}"


def verdicts() -> Iterator[str]:
    """How often a retrained model is told from another one."""
    for name, judge in judges():
        cells = []
        for steps in STEPS:
            cases: list[Case] = [(u, r, of("target", steps)[0]) for u, r in permutations(of("retrained", steps), 2)]
            cells += [counted(judge, cases), counted(judge, some(with_second(cases)))]
        yield f"| {name} | {' | '.join(cells)} |"


def apart() -> Iterator[str]:
    """How often retrained models are said to differ as wholes, and pages that are wrong without saying so."""
    for steps in STEPS:
        pairs: list[Case] = [(u, r, "") for u, r in permutations(of("retrained", steps), 2)]
        said, wrong = [], []
        for case in with_second(pairs):
            r, s = (scores(case[i])["forget"].answer_loss for i in (1, 3))
            said.append(nearness(r, r, second=s)["forget_apart"].value < LEVEL)
            wrong.append({"more is left", "less is left"} & {*page(*case)} != set())
        silent = np.mean(np.array(wrong) & ~np.array(said))
        yield f"| {steps} steps | {np.mean(said):.3f} | {np.mean(wrong):.3f} | {silent:.3f} |"


def power() -> Iterator[str]:
    """How often more is found in models that forgot a part, with a second retrained model."""
    target = of("target", STEPS[0])[0]
    for u in unlearned():
        cases = with_second([(u, r, target) for r in of("retrained", STEPS[0])])
        cells = [f"{np.mean([judge(case)[0] for case in cases]):.2f}" for _, judge in judges()]
        tests = [page(*case).count("more is left") for case in cases]
        p = float(np.exp(-scores(u)["forget"].answer_loss).mean())
        yield f"| {u} | {p:.3f} | {' | '.join(cells)} | {min(tests)} to {max(tests)} of {len(page(*cases[0]))} |"


def tables() -> list[str]:
    """All of it, as parts of a page."""
    both = " | ".join(f"{n} steps, one | a second" for n in STEPS)
    names = " | ".join(name for name, _ in judges())
    return [
        "## Nulls over models",
        "Llamas of 0.3 M parameters on Authors (20 authors, 4 forgotten: 32 rows), trained to the end (380 steps) or "
        f"not, by `scripts/null_models.py`. Cases share models; of those with a second model at most {MOST} are drawn.",
        "**Who is called nearer** (`forget_nearer`). It should be at most .05 of models that did not come nearer:",
        markdown(
            "| model that is judged | cases | called nearer | with a second retrained model | "
            "share of the way: least, median, most |",
            nearer(),
        ),
        "**Verdicts on a retrained model beside another one**: shares of *more*, *less*. Each should be at most .025:",
        markdown(f"| who judges | {both} |", verdicts()),
        "**Whether two retrained models are said to differ as wholes** (`forget_apart`):",
        markdown("| trained for | said of | pages with a second that are wrong | and do not say so |", apart()),
        "**Power**: share of choices of two retrained models in which *more* is found:",
        markdown(f"| model | p forget | {names} | tests of the page |", power()),
    ]
