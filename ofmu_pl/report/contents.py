"""The tables of an experiment."""

import math
from itertools import chain, product

from ofmu_pl.report.attacks import across_table, attack_table, cost_table, found_table
from ofmu_pl.report.derived import COSTS, UNIT_OF_COST, alignment, costs, difficulty, grid
from ofmu_pl.report.equal import equal_forgetting
from ofmu_pl.report.published import beside
from ofmu_pl.report.requests import requests_tables
from ofmu_pl.report.results import head, results, runs_of
from ofmu_pl.report.runs import Study, words
from ofmu_pl.report.statistics import Comparison, compare, least_p, spread, spread_in, spread_of
from ofmu_pl.report.tables import Entry, Table, between, figure, measured, plain
from ofmu_pl.support.records.models import BEFORE, RETRAINED

GRIDS = ("sweep", "convergence")
"""Kinds whose scenarios or methods are points of a grid, shown in one table."""


def tables(experiment: Study) -> list[Table]:
    """All of an experiment that have rows, those that most readers want first."""
    if experiment.requests is not None:
        return requests_tables(experiment, experiment.requests)
    found = [_grid(experiment)] if experiment.kind in GRIDS else []
    if experiment.kind not in GRIDS and experiment.columns:
        for group in experiment.groups.values():
            comparisons = {m: compare(group, m) for m in group.columns}
            found += [results(group, comparisons), equal_forgetting(group), _membership(group)]
            found += [_tests(group, comparisons), _others(group)]
    if experiment.kind == "cost":
        found += map(_costs, experiment.groups.values())
    found += [_difficulty(experiment), _alignment(experiment)]
    return [t for t in found if t.rows] + beside(experiment)


def attack_tables(experiment: Study) -> list[Table]:
    """What is recovered under attack, and what attacks on single rows found, tables of each group of scenarios."""
    kinds = (attack_table, found_table, cost_table, across_table)
    made = [make(group) for group, make in product(experiment.groups.values(), kinds)]
    return [table for table in made if table.rows]


def _tests(experiment: Study, comparisons: dict[str, list[Comparison]]) -> Table:
    table = Table(
        f"{experiment.name}-tests",
        f"{experiment.title}: {experiment.ours} against each method, paired by seed",
        ["metric", "against", "n", "difference", "p (t)", "p (t, Holm)", "p (sign flips)", "least possible", "verdict"],
        notes=[
            "difference: how much nearer to the goal (or higher, of metrics where higher is better, or lower) "
            f"{experiment.ours} is, with the 95 % t interval; above 0 it is better.",
            "least possible: what the exact sign-flip test gives at best with n seeds; six are needed for p < 0.05.",
        ],
        folded=True,
    )
    tested: dict[str, list[Comparison]] = {}
    for found in comparisons.values():
        if any(c.n > 1 for c in found):
            tested[found[0].metric] = found
    for c in chain.from_iterable(tested.values()):
        verdict = {1: f"{experiment.ours} better", -1: f"{experiment.ours} worse", 0: "not shown"}[c.verdict]
        small = between(c.low, c.high) if c.n > 1 else ""
        difference = Entry(figure(c.difference), small, {"": c.difference, "low": c.low, "high": c.high})
        row = [Entry(words(c.metric)), Entry(c.other), Entry(str(c.n)), difference]
        row += [plain(p) for p in (c.p_t, c.p_holm, c.p_sign, least_p(c.n))]
        table.add([*row, Entry(verdict if c.n > 1 else "one seed: no test", best=c.verdict != 0)])
    return table


def _metrics(experiment: Study, attacks: bool) -> list[str]:
    """All metrics that are no column, those of attackers or the others."""
    every = dict.fromkeys(chain.from_iterable(r.side("metrics") for r in experiment.finished))
    left = [m for m in every if m not in experiment.columns]
    return [m for m in left if (experiment.declared(m).group == "attacks") == attacks]


def _membership(experiment: Study) -> Table:
    """What attackers who guess which rows were trained on find, where the main table leaves it out."""
    metrics = _metrics(experiment, attacks=True)
    title = f"{experiment.title}: what attackers can tell who guess which rows the model was trained on"
    table = Table(f"{experiment.name}-membership", title, ["method", *(head(experiment, m) for m in metrics)])
    for method in (BEFORE, RETRAINED, *experiment.methods):
        found = [spread_in(experiment, method, m) for m in metrics]
        if any(s.n for s in found):
            table.add([Entry(method), *map(measured, found)])
    return table


def _others(experiment: Study) -> Table:
    """Every metric that is no column and no attack's (``_membership``), a line each."""
    models = [m for m in (BEFORE, RETRAINED, *experiment.methods) if experiment.of(m)]
    title = f"{experiment.title}: all other metrics"
    table = Table(f"{experiment.name}-others", title, ["metric", *models], folded=True)
    for metric in _metrics(experiment, attacks=False):
        cells = [measured(spread_of(experiment.entries(m, metric).values())) for m in models]
        table.add([Entry(head(experiment, metric)), *cells])
    return table


def _grid(experiment: Study) -> Table:
    columns = experiment.columns
    heads = ["scenario", "method", "T", "ρ", *(head(experiment, m) for m in columns), "runs"]
    over = ": mean ± standard deviation over seeds" if experiment.replicated else ""
    note = "T: inner steps (model.inner_steps); ρ: first penalty parameter (upper.rho_0; upper.gamma makes it grow)."
    table = Table(f"{experiment.name}-grid", experiment.title + over, heads, notes=[note])
    ran = {(r.scenario, r.method) for r in experiment.runs}
    for (scenario, method), point in grid(experiment).items():
        if (scenario, method) in ran:
            line = [Entry(scenario), Entry(method), *(Entry("" if x is None else f"{x:g}") for x in point)]
            part = experiment.part(scenario)
            line += [measured(spread_in(part, method, m)) for m in columns]
            table.add([*line, Entry(runs_of(part, method))])
    return table


def _costs(experiment: Study) -> Table:
    title = f"{experiment.title}: costs as multiples of {UNIT_OF_COST}"
    note = "An iteration of OFMU has T inner steps and an outer one; what the paper calls a step is not said."
    table = Table(
        f"{experiment.name}-costs", title, ["method", *(called for called, _, _ in COSTS.values())], notes=[note]
    )
    for method in experiment.methods:
        values = costs(experiment, method)
        if any(values.values()):
            found = [measured(spread(values[k].values())) for k in COSTS]
            table.add([Entry(method), *found], method == experiment.ours)
    return table


def _difficulty(experiment: Study) -> Table:
    title = f"{experiment.title}: Spearman's correlation of UDI with the drop in utility"
    table = Table(f"{experiment.name}-udi", title, ["method", "Spearman [95 % bootstrap]", "p", "n"])
    for method, r in difficulty(experiment)[1].items():
        ends = between(r.get("low", math.nan), r.get("high", math.nan))
        line = [Entry(method), Entry(figure(r["rho"]), ends, r), plain(r.get("p")), plain(r.get("n"))]
        table.add(line, method == experiment.ours)
    return table


def _alignment(experiment: Study) -> Table:
    thirds = alignment(experiment)
    title = f"{experiment.title}: cosine with the retrained model's embeddings"
    note = "Thirds of the forget samples by UDI; 'target' is the model before, unrelated models are far from 0, too."
    table = Table(f"{experiment.name}-alignment", title, ["model", "easiest third ↑", "hardest third ↑"], notes=[note])
    for model in dict.fromkeys([*thirds["easiest"], *thirds["hardest"]]):
        cosines = [measured(spread(found.get(model, {}).values())) for found in thirds.values()]
        table.add([Entry(model), *cosines], model == experiment.ours)
    return table
