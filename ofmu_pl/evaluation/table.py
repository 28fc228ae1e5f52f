"""The table at the end of a run, on a terminal."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from rich import box
from rich.table import Table

from ofmu_pl.metrics.nearness import in_words
from ofmu_pl.metrics.result import GROUPS, MetricResult
from ofmu_pl.support.grouping import grouped
from ofmu_pl.support.terminal import console

Metrics = dict[str, MetricResult]


@dataclass(frozen=True)
class FinalTable:
    """What a run ends with: metrics by model, under a title, with a remark; ``caveats`` come first, by group."""

    title: str
    columns: dict[str, Metrics]
    remark: str | None = None
    caveats: dict[str, str] = field(default_factory=dict)

    @property
    def said(self) -> str | None:
        """Caveats and remark."""
        return " ".join(filter(None, (*self.caveats.values(), self.remark))) or None


IN_SHORT = {"forgotten": "Forgotten", "kept": "Kept", "attacks": "Attackers"}
"""Groups with a line below the table, each by its first metric that has a sentence and was measured before the run."""


STARRED = "*: differs from its goal, or what must stay from before, by a test of all such metrics together (Holm)."
"""What the table says of its stars: an interval is that of one metric, as if it were alone."""
MOST = 14
"""Rows of the short table, which a screen of 24 lines holds with what stands around it."""
NEVER = ("unseen", "language")
"""Groups that the short table leaves out: yardsticks, which nothing moves, and looks at the texts' form."""


def shortened(judged: Metrics) -> Metrics:
    """The metrics of the short table: those that reports have as columns, then the first two of each other group."""
    columns = [name for name, r in judged.items() if r.metric.column is not None]
    groups = grouped((r.group, name) for name, r in judged.items() if r.group not in NEVER).values()
    firsts = [names[0] for names in groups]
    seconds = [names[1] for names in groups if len(names) > 1]
    chosen = list(dict.fromkeys([*columns, *firsts, *seconds]))[:MOST]
    return {name: r for name, r in judged.items() if name in chosen}


def print_table(ending: FinalTable, whole: bool = False) -> None:
    """Print metrics side by side, by model: ``before``, the measured one, ``retrained``.

    A group with a caveat has no line below. A table that is not ``whole`` has at most ``MOST`` rows.
    """
    columns, caveats = ending.columns, ending.caveats
    (measured,) = columns.keys() - {"before", "retrained"}
    judged = columns[measured]
    on = console()
    for caveat in caveats.values():
        on.print(caveat, style="bold red", highlight=False, markup=False)
    rows = judged if whole else shortened(judged)
    left = len(judged) - len(rows)
    more = f"{left} more metrics are in results.json (fit --table all shows them)" if left else None
    star = STARRED if any(map(differs, rows.values())) else None
    remark = "\n".join(filter(None, (ending.remark, star, more))) or None
    table = models_table(ending.title, remark, ["metric", "better"], {name: name == measured for name in columns})
    table.add_column("goal", justify="right", no_wrap=True)
    table.add_column("95 % interval", justify="right", style="dim", min_width=9)  # an end of it in a line
    table.add_column("n", justify="right", style="dim", no_wrap=True)
    for group in dict.fromkeys([*GROUPS, *(result.group for result in judged.values())]):
        for metric, result in rows.items():
            if result.group != group or (group == "nearness" and result.unit == "p-value"):  # said in words below
                continue
            values = [figure(metrics[metric].value) if metric in metrics else "" for metrics in columns.values()]
            values[list(columns).index(measured)] += "*" if differs(result) else " "
            # With a goal, nearer is better, and the arrow says on which side of it the value usually lies.
            arrow = "" if group == "unseen" else "↑" if result.higher_is_better else "↓"  # unseen: nothing moves it
            better = arrow if result.target is None else f"{arrow} to goal"
            goal = "" if result.target is None else figure(result.target)
            table.add_row(metric, better, *values, goal, between(result.interval), str(result.n))
        table.add_section()
    on.print(table)
    for line in _in_short(columns.get("before", {}), judged, caveats):
        on.print(line, highlight=False)


def differs(r: MetricResult) -> bool:
    """Whether a test of a run has found a difference from the goal, or a change of what must stay."""
    return r.verdict not in (None, "no difference", "too few") or r.change in ("worse", "better")


def _in_short(before: Metrics, after: Metrics, caveats: dict[str, str]) -> Iterator[str]:
    """What came of a run: a number for what is forgotten, one for what is kept, and one for what attackers tell."""
    for group, head in IN_SHORT.items():
        name = next((x for x, r in after.items() if r.group == group and r.metric.says and x in before), None)
        if name is not None and group not in caveats:
            r = after[name]
            goal = "" if r.target is None else f", goal {figure(r.target)}"
            chance = f" ({between(r.interval)})" if r.interval else ""
            says = r.verdict or (f"{r.change} than before" if r.change in ("worse", "better") else r.change)
            if r.verdict == before[name].verdict == "no difference":
                says = "no difference, as before the run, so that it says nothing"
            told = f": {says}" if says else ""
            yield f"{head}: {name} {figure(before[name].value)} → {figure(r.value)}{chance}{goal}{told}"
    yield from in_words(after, before)


def models_table(title: str, caption: str | None, heads: Sequence[str], models: dict[str, bool]) -> Table:
    """A table with a column a model, which may be bold; its title and caption begin where it begins."""
    padding = (0, 1, 0, 1 if console().width >= 100 else 0)  # less where there is little room
    table = Table(title=title, caption=caption, box=box.SIMPLE_HEAD, title_style="bold", padding=padding)
    table.title_justify = table.caption_justify = "left"
    names, *others = heads
    table.add_column(names, overflow="fold")  # names that are cut may be the same
    for head in others:
        table.add_column(head, justify="center")
    for name, bold in models.items():
        table.add_column(name, justify="right", style="bold" if bold else None, no_wrap=True)
    return table


def between(ends: Sequence[float] | None) -> str:
    """An interval as the table shows it; ``None``: there is none."""
    return "" if ends is None else f"{figure(ends[0])} to {figure(ends[1])}"


def figure(value: float) -> str:
    """A number as the table shows it."""
    return f"{value:.2e}" if value != 0 and abs(value) < 1e-3 else f"{value:.4f}"
