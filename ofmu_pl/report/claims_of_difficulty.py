"""What the paper says of rows that are hard to forget, held against our numbers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np
from scipy.stats import norm

from ofmu_pl.metrics.bootstrap import LEVEL, holm
from ofmu_pl.report.derived import alignment, difficulty
from ofmu_pl.report.runs import Findings
from ofmu_pl.report.tables import figure
from ofmu_pl.report.verdicts import Found, Verdict, described, direction, directions


def coupling(experiment: Findings) -> Iterator[Found]:
    """Whether utility falls with the difficulty of what is forgotten, and least so with ours (tab:udi-corr)."""
    rises = "The harder the forget samples, the more utility falls (Spearman correlation with the UDI above 0)."
    weakest = "OFMU shows the weakest coupling of difficulty and utility loss."
    missing = "No correlation has an interval: the analysis needs draws of the forget set."
    rho = {m: x for m, x in difficulty(experiment)[1].items() if {"low", "high"} <= x.keys()}
    if not rho:
        yield rises, "not decidable", missing
        yield weakest, "not decidable", missing
        return
    numbers = [f"{m} {figure(x['rho'])} [{figure(x['low'])}, {figure(x['high'])}]" for m, x in rho.items()]
    why = f"Over the draws of the forget set: {', '.join(numbers)}."
    rising, below = all(x["low"] > 0 for x in rho.values()), [_p_below(x) for x in rho.values()]
    falling = min(holm(below)) < LEVEL
    verdict: Verdict = "reproduced" if rising else "contradicted" if falling else "not decidable"
    yield rises, verdict, why
    ours = rho.get(experiment.ours or "")
    others = [x for m, x in rho.items() if m != experiment.ours]
    if ours is None or not others:
        yield weakest, "not decidable", "There is no interval of ours, or none of another method."
    elif any(x["high"] < ours["low"] for x in others):  # two such intervals part with p < .006
        yield weakest, "contradicted", why
    else:
        yield weakest, "reproduced" if all(x["low"] > ours["high"] for x in others) else "not decidable", why


def _p_below(x: Mapping[str, float]) -> float:
    """Two-sided p of a correlation below 0, as its 95 % interval tells it."""
    above = max(x["high"] - x["rho"], 1e-12)
    return float(2 * norm.sf(norm.ppf(0.975) * -x["rho"] / above)) if x["rho"] < 0 else 1.0


def nearness(experiment: Findings) -> Iterator[Found]:
    """Whether ours leaves the hard samples' embeddings nearest to the retrained model's (tab:embed-sim)."""
    text = "On hard samples OFMU's embeddings are nearest to the retrained model's."
    hard = {m: x for m, x in alignment(experiment)["hardest"].items() if m in experiment.methods}
    ours = hard.pop(experiment.ours or "", {})
    if not ours or not hard:
        yield text, "not decidable", "There is no cosine of ours, or none of another method."
        return
    best = max(hard, key=lambda m: float(np.mean(list(hard[m].values()))))
    d = [value - hard[best][seed] for seed, value in ours.items() if seed in hard[best]]
    all_others = [[value - theirs[seed] for seed, value in ours.items() if seed in theirs] for theirs in hard.values()]
    # The best is chosen by the same numbers, so that chance alone may put it above ours: all count for "contradicted".
    verdict: Verdict = "reproduced" if direction(d) > 0 else "not decidable"
    verdict = "contradicted" if min(directions(all_others)) < 0 else verdict
    yield text, verdict, f"{described(f'{experiment.ours} minus {best}, the best of the others, cosine,', d)}."
