"""Figures of costs, of draws of the forget set, of probes."""

from __future__ import annotations

import numpy as np
from matplotlib.figure import Figure

from ofmu_pl.report import published
from ofmu_pl.report.declared import declaration
from ofmu_pl.report.derived import COSTS, UNIT_OF_COST, costs
from ofmu_pl.report.figures.comparison import SIDES, bars, deviation, label, methods_of
from ofmu_pl.report.figures.style import Look, legend_below, panels, plain_numbers
from ofmu_pl.report.runs import RETRAINED, Findings, words
from ofmu_pl.report.statistics import spread


def cost(experiment: Findings, look: Look) -> Figure | None:
    """Time and memory as multiples of the gradient-ascent run, the paper's ratios as diamonds."""
    scenarios = list(experiment.scenarios)
    found = {m: costs(experiment, scenarios, m) for m in experiment.methods}
    found = {m: c for m, c in found.items() if any(c.values())}
    if not found:
        return None
    figure, axes = panels(1, 2, 1.9 + 0.34 * len(found), sharey=True)
    for axis, name in zip(axes[0], ("time_over_GA_step", "peak_memory_over_GA"), strict=True):
        bars(axis, look, {m: list(c[name].values()) for m, c in found.items()})
        axis.axvline(1.0, color="black", linewidth=1)
        ratios = [v for c in found.values() for v in c[name].values()]
        axis.set_xscale("log", base=2)
        axis.set_xlim(0.5 * min(1.0, *ratios), 1.3 * max(4.0, *ratios))
        plain_numbers(axis.xaxis)
        axis.set_xlabel(f"{COSTS[name]} (multiples of {UNIT_OF_COST})")
        by_setting: dict[str, list[tuple[float, int]]] = {}
        for p in _published_costs(experiment, name):
            ours = published.our_method(experiment, p[1])
            if ours in found:
                by_setting.setdefault(p[0], []).append((p[2], list(found).index(str(ours))))
        for k, ((setting, points), marker) in enumerate(zip(by_setting.items(), "DdPX", strict=False)):
            x = [value for value, _ in points]
            y = [at + 0.18 * (k - (len(by_setting) - 1) / 2) for _, at in points]  # side by side: they lie close
            style = {"color": "white", "markeredgecolor": "black", "markersize": 6, "linestyle": "none"}
            axis.plot(x, y, marker, **style, label=f"paper, {setting}")
    figure.suptitle("Cost: bars are means, dots runs; what the paper calls a step is not said", x=0.01, ha="left")
    legend_below(figure, axes, 4)
    return figure


def _published_costs(experiment: Findings, name: str) -> list[tuple[str, str, float]]:
    """Setting, method and ratio; memory of the paper is over a forward pass, so it is divided by that of ascent."""
    if name == "time_over_GA_step":
        return [(p.setting, p.method, float(p.value)) for p in published.cells(experiment.paper, name)]
    rows = published.cells(experiment.paper, "peak_memory_over_forward")
    unit = {p.setting: float(p.value) for p in rows if p.method == "GradAscent"}
    return [(p.setting, p.method, float(p.value) / unit[p.setting]) for p in rows if p.setting in unit]


def draws(experiment: Findings, look: Look) -> Figure | None:
    """Boxes over draws of the forget set, a dot a draw."""
    scenarios, columns = list(experiment.scenarios), experiment.columns()[:4]
    methods = methods_of(experiment, scenarios)
    if not methods or not columns:
        return None
    figure, axes = panels(1, len(columns), 3.4 + 0.1 * len(methods))
    for axis, metric in zip(axes[0], columns, strict=True):
        values = [list(experiment.values(scenarios, m, metric).values()) for m in methods]
        boxes = axis.boxplot(values, widths=0.6, showfliers=False, patch_artist=True, medianprops={"color": "black"})
        for box, method in zip(boxes["boxes"], methods, strict=True):
            box.set(facecolor=look.colour(method), alpha=0.8 if method in look.ours else 0.35)
        for i, found in enumerate(values, start=1):
            axis.plot(i + np.linspace(-0.15, 0.15, len(found)), found, ".", color="black", markersize=5)
        axis.set_xticks(range(1, len(methods) + 1), methods, rotation=45, ha="right", rotation_mode="anchor")
        look.emphasise(axis.get_xticklabels())
        axis.set_ylabel(label(experiment, metric))
        goal = list(experiment.values(scenarios, RETRAINED, metric).values())
        if goal:
            axis.axhline(float(np.mean(goal)), color="black", linewidth=1.3, label=SIDES[RETRAINED])
        axis.grid(visible=False, axis="x")
    n = len({key for m in methods for key in experiment.of(scenarios, m)})
    figure.suptitle(f"Spread over {n} draws of the forget set: boxes are quartiles, dots draws", x=0.01, ha="left")
    legend_below(figure, axes)
    return figure


def probes(experiment: Findings, look: Look) -> Figure | None:
    """The same facts asked for otherwise: forget side by method and probe."""
    entries = {name: entry for r in experiment.finished for name, entry in r.side("metrics").items()}
    declared = [declaration(name, entry) for name, entry in entries.items()]
    names = sorted({metric.family for metric in declared if metric.family and metric.group == "probes"})
    endings = ("forget_quality", "forget_truth_ratio", "model_utility", "forget_Q_A_Prob")
    shown = [e for e in endings if any(experiment.entry(f"{n}_{e}") for n in names)][:3]
    scenarios = list(experiment.scenarios)
    methods = methods_of(experiment, scenarios)
    if not names or not shown or not methods:
        return None
    rows = ["", *(f"{n}_" for n in names)]
    figure, axes = panels(1, len(shown), 4.4)
    columns = [*methods, RETRAINED]
    for axis, ending in zip(axes[0], shown, strict=True):
        unit = experiment.declared(f"{names[0]}_{ending}").unit
        for i, method in enumerate(columns):
            offset = (i - (len(columns) - 1) / 2) * 0.8 / len(columns)
            for k, row in enumerate(rows):
                s = spread(list(experiment.values(scenarios, method, f"{row}{ending}").values()))
                if not s.n:
                    continue
                style = {"color": look.colour(method), "fmt": look.marker(method), "capsize": 2, "elinewidth": 1}
                size = 9 if method in look.ours or method == RETRAINED else 6
                axis.errorbar(k + offset, s.mean, yerr=deviation(s, unit), markersize=size, **style, label=method)
        lowest = [v for m in methods for r in rows for v in experiment.values(scenarios, m, f"{r}{ending}").values()]
        if unit == "p-value" and lowest and 0 < min(lowest) < 1e-3:
            axis.set_yscale("log")
            plain_numbers(axis.yaxis)
        labels = ["as trained", *(words(n.removeprefix("probe_")) for n in names)]
        axis.set_xticks(range(len(rows)), labels, rotation=20, ha="right", rotation_mode="anchor")
        for k in range(1, len(rows)):
            axis.axvline(k - 0.5, color="0.85", linewidth=1)
        axis.grid(visible=False, axis="x")
        axis.set(ylabel=f"{words(ending)} ({unit})", xlim=(-0.6, len(rows) - 0.4))
    figure.suptitle("Probes: means over seeds, whiskers ± 1 standard deviation", x=0.01, ha="left")
    legend = legend_below(figure, axes)
    if legend is not None:
        look.emphasise(legend.get_texts())
    return figure
