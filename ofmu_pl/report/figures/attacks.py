"""One figure an attack: its curves on each method's model, beside the retrained model and the target."""

from itertools import chain

import numpy as np
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.figure import Figure

from ofmu_pl.report.attacks import attacks_of, of_models
from ofmu_pl.report.figures.style import Look, Style, finished, panels_for, plain_numbers
from ofmu_pl.report.runs import Study, number, words
from ofmu_pl.support.grouping import grouped
from ofmu_pl.support.records.models import RETRAINED, TARGET
from ofmu_pl.support.records.results import AttackRecord

Curve = dict[float | str, float]  # values by place
CONTROLS: dict[str, Style] = {
    RETRAINED: {"color": "black", "linestyle": "-", "linewidth": 2.2, "label": "retrained model"},
    TARGET: {"color": "0.45", "linestyle": ":", "linewidth": 2.2, "label": "target"},
}
"""Lines of the two controls."""


def curves(experiment: Study, attack: str) -> dict[str, Curve]:
    """Means over replicates at each place, by method, and of the two controls."""
    means = {name: _mean(theirs) for name, theirs in of_models(experiment, attack, _curve).items()}
    return {name: curve for name, curve in means.items() if curve}


def attack_figure(experiment: Study, attack: str, look: Look) -> Figure | None:
    """Curves of an attack, a panel a group of scenarios; ``None`` where it has none."""
    groups = {name: group for name, group in experiment.groups.items() if attack in attacks_of(group)}
    found = {name: curves(group, attack) for name, group in groups.items()}
    if not any(found.values()):
        return None
    figure, axes = panels_for(len(groups), 0.8, 3.6, sharey=True)
    record = next(r.attacks.attacks[attack] for r in experiment.finished if attack in r.attacks.attacks)
    for axis, (name, drawn) in zip(axes.flat, found.items(), strict=False):
        _draw(axis, drawn, look)
        axis.set_xlabel(record.x_label)
        axis.set_title(name if len(groups) > 1 else "")
    for axis in axes[:, 0]:
        axis.set_ylabel(record.y_label)
    _stretch(axes[0, 0].yaxis, found)
    seeds = ", means over seeds" if experiment.replicated else ""
    return finished(figure, f"Attack {words(attack)}: {record.y_label}{seeds}", look)


def _draw(axis: Axes, found: dict[str, Curve], look: Look) -> None:
    """Lines along numbers; where places have names, points side by side between the levels of the controls."""
    places = list(dict.fromkeys(chain.from_iterable(found.values())))
    numbers = sorted(x for x in places if not isinstance(x, str))
    if len(numbers) < len(places):
        _draw_named(axis, found, look, places)
        return
    for name, curve in found.items():
        own: Style = {"color": look.colour(name), "linewidth": 1.5, "label": name}
        style: Style = {"marker": look.marker(name), "markersize": 5, "zorder": 4 if name in look.ours else 3}
        style |= CONTROLS.get(name, own)
        axis.plot(*zip(*sorted(curve.items()), strict=True), markevery=max(1, len(curve) // 12), **style)
    if by_factors(numbers):
        axis.set_xscale("log", base=2)
        axis.set_xticks(numbers[:: 1 + len(numbers) // 9])
        plain_numbers(axis.xaxis)
    elif all(float(x).is_integer() for x in numbers):  # layers and steps have no halves
        axis.locator_params(axis="x", integer=True)


def _stretch(axis: Axis, found: dict[str, dict[str, Curve]]) -> None:
    """Give small values room where the target would press them to the bottom: logarithmic from a hundredth of it on."""
    drawn = chain.from_iterable(theirs.values() for theirs in found.values())
    values = list(chain.from_iterable(curve.values() for curve in drawn))
    if min(values) >= 0 and max(values) > 10 * np.median(values) > 0:
        smallest = 10.0 ** round(np.log10(max(values) / 100))
        axis.axes.set_yscale("symlog", linthresh=smallest)
        axis.axes.set_ylim(bottom=-smallest / 4)  # no tick below 0, and markers at 0 are seen whole
        plain_numbers(axis)


def _draw_named(axis: Axes, found: dict[str, Curve], look: Look, places: list[float | str]) -> None:
    methods = [name for name in found if name not in CONTROLS]
    for name, curve in found.items():
        at, values = np.array([places.index(x) for x in curve], np.float64), list(curve.values())
        if name in CONTROLS:
            axis.hlines(values, at - 0.45, at + 0.45, **CONTROLS[name])
            continue
        at += (methods.index(name) - (len(methods) - 1) / 2) * 0.75 / len(methods)
        axis.plot(at, values, look.marker(name), color=look.colour(name), markersize=7, label=name, zorder=3)
    names = [words(str(x)) for x in places]
    axis.set_xticks(range(len(names)), names, rotation=20, ha="right", rotation_mode="anchor")
    axis.grid(visible=False, axis="x")
    axis.set_xlim(-0.6, len(places) - 0.4)


def by_factors(places: list[float]) -> bool:
    """Say whether sorted numbers are counts that grow by factors, so that they belong on a logarithmic axis.

    >>> by_factors([1, 2, 4, 8, 16]), by_factors([0, 10, 20, 40]), by_factors([0.05, 0.25, 0.5, 0.75, 0.95])
    (True, False, False)
    """
    x = np.array(places, np.float64)
    return bool(len(x) > 2 and x[0] >= 1 and x[-1] >= 8 * x[0] and np.median(x[1:] / x[:-1]) >= 1.4)


def _curve(record: AttackRecord, model: str) -> Curve:
    """One model's values by place; others may have written the file."""
    values = record.curves.get(model)
    pairs = zip(record.x, values, strict=False) if isinstance(values, list) else ()
    known = {x: number(y) for x, y in pairs if isinstance(x, str) or number(x) is not None}
    return {x: y for x, y in known.items() if y is not None}


def _mean(found: list[Curve]) -> Curve:
    by_place = grouped(chain.from_iterable(curve.items() for curve in found))
    return {x: float(np.mean(values)) for x, values in by_place.items()}
