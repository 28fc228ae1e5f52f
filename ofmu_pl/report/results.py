"""The main table of an experiment: all methods beside the model before and the retrained one."""

from __future__ import annotations

import math
from typing import Any

from ofmu_pl.metrics.bootstrap import LEVEL
from ofmu_pl.report.attacks import HEAD, worst
from ofmu_pl.report.runs import BEFORE, RETRAINED, Findings, Run, number, words
from ofmu_pl.report.statistics import (
    Comparison,
    distance,
    front,
    least_p,
    merit,
    overall,
    ranks,
    spread,
    spread_of,
    trade_off,
)
from ofmu_pl.report.tables import Entry, Table, figure, measured, plain


def head(experiment: Findings, metric: str) -> str:
    """A metric's name with its direction and unit."""
    declared, target = experiment.declared(metric), experiment.entry(metric).get("target")
    arrow = "→" if target is not None or declared.group == "unseen" else "↑" if declared.higher_is_better else "↓"
    return f"{words(metric)} {arrow}" + (" (%)" if declared.unit == "%" else "")


def runs_of(experiment: Findings, scenarios: list[str], method: str) -> str:
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


def results(experiment: Findings, name: str, scenarios: list[str], comparisons: dict[str, list[Comparison]]) -> Table:
    """Means, deviations and intervals of all methods beside the model before and the retrained one."""
    columns = experiment.columns(scenarios)
    scores = {m: spread(list(v.values())) for m, v in overall(experiment, scenarios).items()}
    placed = ranks(experiment, scenarios, columns).mean
    rows = [m for m in (BEFORE, RETRAINED) if any(experiment.values(scenarios, m, c) for c in columns)]
    rows += [m for m in experiment.methods if any(r.method == m and r.scenario in scenarios for r in experiment.runs)]
    choices = {m: _setting(experiment.methods[m].searched.get(name, {})) for m in rows if m in experiment.methods}
    searched = any(choices.values())
    gaps = {m: spread(list(distance(experiment, scenarios, m, columns).values())) for m in rows}
    over = "draws" if len(scenarios) > 1 else "seeds"
    title = f"{experiment.title}, {name}"
    title += f": mean ± standard deviation [95 % interval] over {over}" if experiment.replicated else ""
    extra = [*(["overall ↑"] if len(scores) > 1 else []), *(["distance ↓"] if any(g.n for g in gaps.values()) else [])]
    extra += ["mean rank ↓"] if placed else []
    back = {m: most[1] for m in experiment.methods if (most := worst(experiment, scenarios, m))}
    extra += [HEAD] if back else []
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
            line.append(Entry(choices.get(method, "")))
        for metric in columns:
            e = measured(spread_of(experiment.entries(scenarios, method, metric).values()))
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
            elif what == HEAD:
                e = measured(back[method]) if method in back else Entry("–")
                e.best = method in back and abs(back[method].mean) == min(abs(s.mean) for s in back.values())
            else:
                e = plain(placed.get(method))
                e.best = method in placed and placed[method] == min(placed.values()) < max(placed.values())
            line.append(e)
        for e in line if len(experiment.methods) == 1 else []:
            e.best = False  # of one method
        found = experiment.of(scenarios, method).values() if known else []
        for cost, digits in (("gradient_evaluations", 0), ("training_seconds", 1)):
            mean = spread([c for r in found if (c := r.cost(cost)) is not None]).mean
            line.append(Entry("–") if math.isnan(mean) else Entry(f"{mean:.{digits}f}", numbers={"": mean}))
        table.ours |= {len(table.rows)} if method == experiment.ours else set()
        table.lines |= {len(table.rows)} if method == RETRAINED else set()
        table.rows.append(line)
    has_before, rivals = bool(rows and rows[0] == BEFORE), len(experiment.methods) > 1
    table.notes = _notes(experiment, scenarios, columns, extra, comparisons, has_before, rivals)
    _foreign_rows(experiment, columns, table, len(extra))
    return table


def _setting(search: dict[str, Any]) -> str:
    """What a search chose, and of how many candidates."""
    choice, candidates = search.get("choice"), len(search.get("scores") or ())
    text = f"{choice:g}" if isinstance(choice, int | float) else str(choice or "")
    return f"{text} (of {candidates})" if text and candidates else text


def _best(experiment: Findings, scenarios: list[str], metric: str) -> set[str]:
    """Methods of the highest mean merit; none where all are alike."""
    means = {}
    for method in experiment.methods:
        found = merit(experiment, scenarios, method, metric)
        if found:
            means[method] = spread(list(found.values())).mean
    top = {m for m, x in means.items() if x == max(means.values())}
    return top if len(top) < len(means) or len(means) == 1 else set()


def _foreign_rows(experiment: Findings, columns: list[str], table: Table, extra: int) -> None:
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
    experiment: Findings,
    scenarios: list[str],
    columns: list[str],
    extra: list[str],
    comparisons: dict[str, list[Comparison]],
    has_before: bool,
    rivals: bool,
) -> list[str]:
    """What one must know to read the table."""
    over = "draws" if len(scenarios) > 1 else "seeds"
    notes = ["→ nearest to the goal is best, ↑ highest, ↓ lowest" + ("; the best mean is bold." if rivals else ".")]
    if has_before:
        notes[0] += " 'before' is the model that must forget."
    own = []
    for metric in columns:
        runs = [r for r in experiment.finished if r.scenario in scenarios]
        targets = [(number(r.metric(metric).get("target")), r.value(metric, RETRAINED)) for r in runs]
        differ = [target for target, goal in targets if target is not None and target != goal]
        if differ:
            own.append(f"{words(metric)} {figure(differ[0])}")
    pair = trade_off(experiment, scenarios)
    if rivals and pair:
        best = ", ".join(front(experiment, scenarios, pair))
        notes.append(f"No method is better in both {words(pair[0])} and {words(pair[1])} than {best}.")
    goal_is = "The goal is the retrained model's value" + (f", but of {', '.join(own)}." if own else ".")
    if any(experiment.entry(m).get("target") is not None for m in columns):
        notes.append(goal_is)
    tested = [c for found in comparisons.values() for c in found]
    if tested:
        fewest = min(c.n for c in tested)
        notes.append(
            f"* {experiment.ours} is better than this method at p < {LEVEL} (paired t-test over {over}, Holm's "
            "correction over methods), † worse."
        )
        notes.append(_limits(fewest, over))
    if any(experiment.declared(m).unit == "p-value" for m in columns):
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
    if HEAD in extra:
        notes.append(
            "returns: what the worst of its attacks brings back, 0 % as the retrained model, 100 % as the target."
        )
    return notes


def _limits(n: int, over: str) -> str:
    """What so few replicates cannot show."""
    if n < 2:
        return f"Of {over} there is one: nothing can be tested, and there is no interval."
    exact = f"the exact sign-flip test cannot give less than p = {figure(least_p(n))} with {n} {over}"
    short = ", so no result here can be significant by it" if least_p(n) >= LEVEL else ""
    return f"The t-test takes differences as normal, which {n} {over} cannot show; {exact}{short}. " + (
        f"Bootstrap intervals of so few {over} are too narrow." if n < 10 else ""
    )
