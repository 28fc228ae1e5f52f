"""The tables of an experiment."""

from __future__ import annotations

import math

from ofmu_pl.report.derived import COSTS, UNIT_OF_COST, alignment, costs, difficulty, grid, measured_in
from ofmu_pl.report.published import beside
from ofmu_pl.report.runs import BEFORE, RETRAINED, Experiment, Run, number, unit, words
from ofmu_pl.report.statistics import LEVEL, Comparison, compare, distance, merit, overall, ranks, spread, upwards
from ofmu_pl.report.tables import Entry, Table, figure, measured, plain

GRIDS = ("sweep", "convergence")
"""Kinds whose scenarios or methods are points of a grid, shown in one table."""


def tables(experiment: Experiment) -> list[Table]:
    """All of an experiment, those that most readers want first."""
    found = [_grid(experiment)] if experiment.kind in GRIDS else []
    if experiment.kind not in GRIDS and experiment.columns():
        for name, scenarios in experiment.groups.items():
            comparisons = {m: compare(experiment, scenarios, m) for m in experiment.columns(scenarios)}
            found.append(_results(experiment, name, scenarios, comparisons))
            found += filter(None, [_ranks(experiment, name, scenarios), _tests(experiment, name, comparisons)])
    if experiment.kind == "cost":
        found += [t for name, scenarios in experiment.groups.items() if (t := _costs(experiment, name, scenarios)).rows]
    found += filter(None, [_difficulty(experiment), _alignment(experiment), _apart(experiment)])
    return [t for t in found if t.rows] + beside(experiment, measured_in(experiment))


def head(experiment: Experiment, metric: str) -> str:
    """A metric's name with its direction and unit."""
    entry = experiment.entry(metric)
    arrow = "→" if entry.get("target") is not None else "↑" if upwards(entry) else "↓"
    return f"{words(metric)} {arrow}" + (" (%)" if unit(metric) == "%" else "")


def runs_of(experiment: Experiment, scenarios: list[str], method: str) -> str:
    """How many runs finished, and what became of the others."""
    cells = [r for r in experiment.runs if r.method == method and r.scenario in scenarios]
    done = [r for r in cells if r.results is not None]
    if len(done) == len(cells):
        return str(len(cells))
    left = [r for r in cells if r.results is None]
    return f"{len(done)} of {len(cells)}: " + ", ".join(dict.fromkeys(map(_became, left)))


def _became(run: Run) -> str:
    return "diverged" if run.status == "failed" and "diverged" in (run.error or "") else run.status


_LAST = ("gradients", "seconds")


def _results(
    experiment: Experiment, name: str, scenarios: list[str], comparisons: dict[str, list[Comparison]]
) -> Table:
    """Means, deviations and intervals of all methods beside the model before and the retrained one."""
    columns = experiment.columns(scenarios)
    scores = {m: spread(list(v.values())) for m, v in overall(experiment, scenarios).items()}
    placed = ranks(experiment, scenarios, columns).mean
    rows = [m for m in (BEFORE, RETRAINED) if any(experiment.values(scenarios, m, c) for c in columns)]
    rows += [m for m in experiment.methods if any(r.method == m and r.scenario in scenarios for r in experiment.runs)]
    choices = {m: ((experiment.methods[m].get("searched") or {}).get(name) or {}).get("choice") for m in rows[2:]}
    searched = any(c is not None for c in choices.values())
    gaps = {m: spread(list(distance(experiment, scenarios, m, columns).values())) for m in rows}
    over = "draws" if len(scenarios) > 1 else "seeds"
    title = f"{experiment.title}, {name}: mean ± standard deviation [95 % bootstrap interval] over {over}"
    extra = [*(["overall ↑"] if scores else []), *(["distance ↓"] if any(g.n for g in gaps.values()) else [])]
    extra += ["mean rank ↓"] if placed else []
    table = Table(
        f"{experiment.name}-{name}-results",
        title,
        ["method", "runs", *["searched"] * searched, *(head(experiment, m) for m in columns), *extra, *_LAST],
        [],
    )
    best = {m: _best(experiment, scenarios, m) for m in columns}
    least = min((g.mean for m, g in gaps.items() if g.n and m in experiment.methods), default=math.nan)
    for method in rows:
        known = method in experiment.methods
        line = [Entry(method), Entry(runs_of(experiment, scenarios, method) if known else "")]
        if searched:
            line.append(Entry("" if choices.get(method) is None else _setting(choices[method])))
        for metric in columns:
            e = measured(spread(list(experiment.values(scenarios, method, metric).values())))
            e.best = method in best[metric]
            e.mark = next(
                ("*" if c.verdict > 0 else "†" for c in comparisons[metric] if c.other == method and c.verdict), ""
            )
            line.append(e)
        for what in extra:
            if what.startswith("overall"):
                e = measured(scores[method]) if method in scores else Entry("–")
                e.best = method in scores and scores[method].mean == max(s.mean for s in scores.values())
            elif what.startswith("distance"):
                e = measured(gaps[method])
                e.best = method in experiment.methods and gaps[method].mean == least
            else:
                e = plain(placed.get(method))
                e.best = method in placed and placed[method] == min(placed.values()) < max(placed.values())
            line.append(e)
        found = experiment.of(scenarios, method).values() if known else []
        for cost, digits in (("gradient_evaluations", 0), ("training_seconds", 1)):
            mean = spread([c for r in found if (c := r.cost(cost)) is not None]).mean
            line.append(Entry("–") if math.isnan(mean) else Entry(f"{mean:.{digits}f}", numbers={"": mean}))
        table.ours |= {len(table.rows)} if method == experiment.ours else set()
        table.lines |= {len(table.rows)} if method == RETRAINED else set()
        table.rows.append(line)
    table.notes = _notes(experiment, scenarios, columns, extra, comparisons, bool(rows and rows[0] == BEFORE))
    _foreign_rows(experiment, columns, table, len(extra))
    return table


def _setting(choice: object) -> str:
    return f"{choice:g}" if isinstance(choice, int | float) else str(choice)


def _best(experiment: Experiment, scenarios: list[str], metric: str) -> set[str]:
    """Methods of the highest mean merit; none where all are alike."""
    means = {}
    for method in experiment.methods:
        found = merit(experiment, scenarios, method, metric)
        if found:
            means[method] = spread(list(found.values())).mean
    top = {m for m, x in means.items() if x == max(means.values())}
    return top if len(top) < len(means) or len(means) == 1 else set()


def _foreign_rows(experiment: Experiment, columns: list[str], table: Table, extra: int) -> None:
    for name, (definition, values) in experiment.foreign.items():
        table.lines.add(len(table.rows) - 1)
        own = next(iter({r.definition for r in experiment.finished}), "")
        line = [Entry(f"{name} [{definition}]"), Entry("foreign"), *([Entry()] if "searched" in table.head else [])]
        line += [plain(values.get(m)) for m in columns] + [Entry()] * (extra + len(_LAST))
        table.rows.append(line)
        if definition != own:
            note = f"{name}: open-unlearning's totals under its definition, ours are under '{own}'; nothing is tested."
            table.notes.append(note)


def _notes(
    experiment: Experiment,
    scenarios: list[str],
    columns: list[str],
    extra: list[str],
    comparisons: dict[str, list[Comparison]],
    has_before: bool,
) -> list[str]:
    """What one must know to read the table."""
    over = "draws" if len(scenarios) > 1 else "seeds"
    notes = ["→ nearest to the target is best, ↑ highest, ↓ lowest; the best mean is bold."]
    if has_before:
        notes[0] += " 'before' is the model that must forget."
    own = []
    for metric in columns:
        runs = [r for r in experiment.finished if r.scenario in scenarios]
        targets = [(number(r.metric(metric).get("target")), r.value(metric, RETRAINED)) for r in runs]
        differ = [target for target, goal in targets if target is not None and target != goal]
        if differ:
            own.append(f"{words(metric)} {figure(differ[0])}")
    target_is = "The target is the retrained model's value" + (f", but of {', '.join(own)}." if own else ".")
    if any(experiment.entry(m).get("target") is not None for m in columns):
        notes.append(target_is)
    tested = [c for found in comparisons.values() for c in found]
    if tested:
        fewest = min(c.n for c in tested)
        notes.append(
            f"* {experiment.ours} is better than this method at p < {LEVEL} (paired t-test over {over}, Holm's "
            "correction over methods), † worse."
        )
        notes.append(_limits(fewest, over))
    if any(m.endswith("forget_quality") for m in columns):
        notes.append("Forget quality is a p-value: tests, ranks and distances take its Kolmogorov-Smirnov distance D.")
    if any(e.startswith("overall") for e in extra):
        notes.append(
            "overall: the paper's score, the mean of each metric over the best method's; it takes more as better, "
            "beyond the retrained model's value too."
        )
    if any(e.startswith("distance") for e in extra):
        notes.append(
            "distance: mean over metrics of |value - retrained model's|, per cent divided by 100 (0: retrained)."
        )
    return notes


def _limits(n: int, over: str) -> str:
    """What so few replicates cannot show."""
    if n < 2:
        return f"Of {over} there is one: nothing can be tested, and there is no interval."
    exact = f"the exact sign-flip test cannot give less than p = {figure(2.0 ** (1 - n))} with {n} {over}"
    short = ", so no result here can be significant by it" if 2.0 ** (1 - n) >= LEVEL else ""
    return f"The t-test takes differences as normal, which {n} {over} cannot show; {exact}{short}. " + (
        f"Bootstrap intervals of so few {over} are too narrow." if n < 10 else ""
    )


def _tests(experiment: Experiment, name: str, comparisons: dict[str, list[Comparison]]) -> Table | None:
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
                + [plain(p) for p in (c.p_t, c.p_holm, c.p_sign, c.least)]
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


def _ranks(experiment: Experiment, name: str, scenarios: list[str]) -> Table | None:
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


def _grid(experiment: Experiment) -> Table:
    columns = experiment.columns()
    heads = ["scenario", "method", "T", "ρ", *(head(experiment, m) for m in columns), "runs"]
    table = Table(f"{experiment.name}-grid", f"{experiment.title}: mean ± standard deviation over seeds", heads, [])
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


def _costs(experiment: Experiment, name: str, scenarios: list[str]) -> Table:
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


def _difficulty(experiment: Experiment) -> Table | None:
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


def _alignment(experiment: Experiment) -> Table | None:
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


def _apart(experiment: Experiment) -> Table | None:
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
