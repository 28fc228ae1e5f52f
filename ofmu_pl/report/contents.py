"""The tables of an experiment."""

from __future__ import annotations

import math

from ofmu_pl.report.across import across_table
from ofmu_pl.report.attacks import attack_table, cost_table, found_table
from ofmu_pl.report.derived import COSTS, UNIT_OF_COST, alignment, costs, difficulty, grid, measured_in
from ofmu_pl.report.published import beside
from ofmu_pl.report.requests import requests_tables
from ofmu_pl.report.results import head, results, runs_of
from ofmu_pl.report.runs import BEFORE, RETRAINED, Findings, words
from ofmu_pl.report.statistics import Comparison, compare, least_p, ranks, spread, spread_of
from ofmu_pl.report.tables import Entry, Table, figure, measured, plain

GRIDS = ("sweep", "convergence")
"""Kinds whose scenarios or methods are points of a grid, shown in one table."""


def tables(experiment: Findings) -> list[Table]:
    """All of an experiment, those that most readers want first."""
    if experiment.requests is not None:
        return requests_tables(experiment, experiment.requests)
    found = [_grid(experiment)] if experiment.kind in GRIDS else []
    if experiment.kind not in GRIDS and experiment.columns():
        for name, scenarios in experiment.groups.items():
            comparisons = {m: compare(experiment, scenarios, m) for m in experiment.columns(scenarios)}
            found.append(results(experiment, name, scenarios, comparisons))
            found += filter(None, [_membership(experiment, name, scenarios)])
            found += filter(None, [_ranks(experiment, name, scenarios), _tests(experiment, name, comparisons)])
            found.append(_others(experiment, name, scenarios))
    if experiment.kind == "cost":
        found += [t for name, scenarios in experiment.groups.items() if (t := _costs(experiment, name, scenarios)).rows]
    found += filter(None, [_difficulty(experiment), _alignment(experiment), _apart(experiment)])
    return [t for t in found if t.rows] + beside(experiment, measured_in(experiment))


def attack_tables(experiment: Findings) -> list[Table]:
    """What returns under attack, and what attacks on single rows found, tables of each group of scenarios."""
    groups = experiment.groups.items()
    return [
        table
        for name, group in groups
        for make in (attack_table, found_table, cost_table, across_table)
        if (table := make(experiment, name, group))
    ]


def _tests(experiment: Findings, name: str, comparisons: dict[str, list[Comparison]]) -> Table | None:
    rows = []
    for found in {c[0].metric: c for c in comparisons.values() if c}.values():
        for c in found:
            verdict = {1: f"{experiment.ours} better", -1: f"{experiment.ours} worse", 0: "not shown"}[c.verdict]
            if c.n < 2:
                verdict = "one seed: no test"
            ends = f"[{figure(c.low)}, {figure(c.high)}]" if c.n > 1 else ""
            numbers = {"": c.difference, "low": c.low, "high": c.high}
            rows.append(
                [Entry(words(c.metric)), Entry(c.other), Entry(str(c.n)), Entry(figure(c.difference), ends, numbers)]
                + [plain(p) for p in (c.p_t, c.p_holm, c.p_sign, least_p(c.n))]
                + [Entry(verdict, best=c.verdict != 0)]
            )
    if not rows:
        return None
    return Table(
        f"{experiment.name}-{name}-tests",
        f"{experiment.title}, {name}: {experiment.ours} against each method, paired by seed",
        ["metric", "against", "n", "difference", "p (t)", "p (t, Holm)", "p (sign flips)", "least possible", "verdict"],
        rows,
        [
            "difference: how much nearer to the target (or higher, of metrics where higher is better, or lower) "
            f"{experiment.ours} is, with the 95 % t interval; above 0 it is better.",
            "least possible: what the exact sign-flip test gives at best with n seeds; six are needed for p < 0.05.",
        ],
        folded=True,
    )


def _membership(experiment: Findings, name: str, scenarios: list[str]) -> Table | None:
    """What attackers who guess which rows were trained on find, where the main table leaves it out."""
    known = experiment.columns(scenarios)
    every = dict.fromkeys(m for r in experiment.finished if r.scenario in scenarios for m in r.side("metrics"))
    metrics = [m for m in every if experiment.declared(m).group == "attacks" and m not in known]
    rows = []
    for method in (BEFORE, RETRAINED, *experiment.methods):
        found = [spread(list(experiment.values(scenarios, method, m).values())) for m in metrics]
        if any(s.n for s in found):
            rows.append([Entry(method), *map(measured, found)])
    if not rows:
        return None
    title = f"{experiment.title}, {name}: what attackers can tell who guess which rows the model was trained on"
    heads = ["method", *(head(experiment, m) for m in metrics)]
    return Table(f"{experiment.name}-{name}-membership", title, heads, rows)


def _ranks(experiment: Findings, name: str, scenarios: list[str]) -> Table | None:
    found = ranks(experiment, scenarios, experiment.columns(scenarios))
    if not found.mean:
        return None
    rows, ours, metrics = [], set(), list(next(iter(found.by_metric.values())))
    for i, (method, mean) in enumerate(sorted(found.mean.items(), key=lambda item: item[1])):
        ours |= {i} if method == experiment.ours else set()
        line = [Entry(method), *(plain(found.by_metric[method][m]) for m in metrics), plain(mean)]
        line[-1].best = mean == min(found.mean.values())
        rows.append(line)
    missing = [m for m in experiment.methods if m not in found.mean]
    notes = [f"Mean over {found.replicates} seeds of the rank by merit (1: best); ties share their mean."]
    if not math.isnan(found.friedman):
        notes.append(
            f"Friedman test that all are alike (a seed's mean rank over metrics): p = {figure(found.friedman)}."
        )
    if missing:
        notes.append(f"Without a rank, since runs or metrics are missing: {', '.join(missing)}.")
    title = f"{experiment.title}, {name}: ranks"
    return Table(
        f"{experiment.name}-{name}-ranks",
        title,
        ["method", *map(words, metrics), "mean rank"],
        rows,
        notes,
        ours,
        folded=True,
    )


def _others(experiment: Findings, name: str, scenarios: list[str]) -> Table:
    """Every metric that is no column and no attack's (``_membership``), a line each."""
    runs = [r for r in experiment.finished if r.scenario in scenarios]
    models = [m for m in (BEFORE, RETRAINED, *experiment.methods) if experiment.of(scenarios, m)]
    title = f"{experiment.title}, {name}: all other metrics"
    table = Table(f"{experiment.name}-{name}-others", title, ["metric", *models], [], folded=True)
    for metric in dict.fromkeys(metric for r in runs for metric in r.side("metrics")):
        if metric not in experiment.columns(scenarios) and experiment.declared(metric).group != "attacks":
            cells = [measured(spread_of(experiment.entries(scenarios, m, metric).values())) for m in models]
            table.rows.append([Entry(head(experiment, metric)), *cells])
    return table


def _grid(experiment: Findings) -> Table:
    columns = experiment.columns()
    heads = ["scenario", "method", "T", "ρ", *(head(experiment, m) for m in columns), "runs"]
    over = ": mean ± standard deviation over seeds" if experiment.replicated else ""
    table = Table(f"{experiment.name}-grid", experiment.title + over, heads, [])
    for (scenario, method), (t, rho) in grid(experiment).items():
        if not any(r.scenario == scenario and r.method == method for r in experiment.runs):
            continue
        line = [Entry(scenario), Entry(method), *(Entry("" if x is None else f"{x:g}") for x in (t, rho))]
        line += [measured(spread(list(experiment.values([scenario], method, m).values()))) for m in columns]
        table.rows.append([*line, Entry(runs_of(experiment, [scenario], method))])
    table.notes = [
        "T: inner steps (model.inner_steps); ρ: first penalty parameter (model.rho_0; model.gamma makes it grow)."
    ]
    return table


def _costs(experiment: Findings, name: str, scenarios: list[str]) -> Table:
    table = Table(
        f"{experiment.name}-{name}-costs",
        f"{experiment.title}, {name}: costs as multiples of {UNIT_OF_COST}",
        ["method", *COSTS.values()],
        [],
        ["An iteration of OFMU has T inner steps and an outer one; what the paper calls a step is not said."],
    )
    for method in experiment.methods:
        values = costs(experiment, scenarios, method)
        if any(values.values()):
            table.ours |= {len(table.rows)} if method == experiment.ours else set()
            table.rows.append([Entry(method), *(measured(spread(list(values[k].values()))) for k in COSTS)])
    return table


def _difficulty(experiment: Findings) -> Table | None:
    found = {m: r for m, r in difficulty(experiment)[1].items() if "rho" in r}
    if not found:
        return None
    rows = []
    for method, r in found.items():
        ends = f"[{figure(r.get('low', math.nan))}, {figure(r.get('high', math.nan))}]"
        rows.append([Entry(method), Entry(figure(r["rho"]), ends, r), plain(r.get("p")), plain(r.get("n"))])
    ours = {i for i, m in enumerate(found) if m == experiment.ours}
    title = f"{experiment.title}: Spearman's correlation of UDI with the drop in utility"
    return Table(f"{experiment.name}-udi", title, ["method", "Spearman [95 % bootstrap]", "p", "n"], rows, [], ours)


def _alignment(experiment: Findings) -> Table | None:
    found = alignment(experiment)
    models = list(dict.fromkeys([*found["easiest"], *found["hardest"]]))
    rows = [
        [Entry(m), *(measured(spread(list(found[k].get(m, {}).values()))) for k in ("easiest", "hardest"))]
        for m in models
    ]
    ours = {i for i, m in enumerate(models) if m == experiment.ours}
    title = f"{experiment.title}: cosine with the retrained model's embeddings"
    notes = ["Thirds of the forget samples by UDI; 'target' is the model before, unrelated models are far from 0, too."]
    heads = ["model", "easiest third ↑", "hardest third ↑"]
    return Table(f"{experiment.name}-alignment", title, heads, rows, notes, ours) if rows else None


def _apart(experiment: Findings) -> Table | None:
    if not experiment.apart:
        return None
    rows = [
        [Entry(f"{r.method} [{r.definition}]"), Entry(r.scenario), Entry(str(r.seed))]
        + [plain(r.value(m)) for m in experiment.metrics]
        for r in experiment.apart
    ]
    title = f"{experiment.title}: runs under another definition, compared with nothing"
    heads = ["method", "scenario", "seed", *map(words, experiment.metrics)]
    return Table(f"{experiment.name}-apart", title, heads, rows)
