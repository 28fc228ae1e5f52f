"""Which figures an experiment gets, with the words below them."""

from collections.abc import Iterator
from dataclasses import dataclass

import matplotlib as mpl

from ofmu_pl.report.attacks import attacks_of
from ofmu_pl.report.figures import studies
from ofmu_pl.report.figures.attacks import attack_figure
from ofmu_pl.report.figures.style import RC, Look, png
from ofmu_pl.report.figures.telemetry import telemetry
from ofmu_pl.report.runs import Study, words


@dataclass(frozen=True)
class Picture:
    """A figure that is drawn: its file's name, what it is, how to read it, the PNG, and whether a click shows it."""

    name: str
    title: str
    caption: str
    content: bytes
    folded: bool = False


COMPARED = {
    "trade-off": (
        "Trade-off",
        studies.trade_offs,
        "What is forgotten against what is kept; methods with thick edges are those that no other beats in both.",
    ),
    "telemetry": (
        "OFMU, iteration by iteration",
        telemetry,
        "For a run that goes wrong: losses of the forget batch, which ascents raise, and of the retain batch; how "
        "far forget rows are from their goal; the gradients' lengths and the cosine between them (similarity); and "
        "what the penalty adds. Markers: only some iterations have measured it. Where the curvature of Φ along grad Φ "
        "is above 0, the penalty takes forgetting back.",
    ),
}
"""Figures of methods side by side."""
RHO = "Each line is one first penalty parameter ρ (model.upper.rho_0)."
FIGURES = {
    **dict.fromkeys(("table", "ablation", "probes", "draws"), COMPARED),
    "sweep": {"sweep": ("Inner steps and penalty", studies.sweep, RHO)},
    "udi": {"udi": ("Difficulty and utility", studies.udi, "A flat cloud is good: hard samples cost no more.")},
    "requests": {
        "matrix": (
            "What is still known of each request",
            studies.heat_maps,
            "A row is a request, a column the time after one: left of the diagonal nobody had asked yet, right of it a "
            "lighter field is what came back. Means over seeds.",
        ),
        "drift": (
            "What must stay",
            studies.drift,
            "After 0 requests the model is the target; stars are models retrained without all requests so far.",
        ),
    },
}
"""Title, drawing function and caption by kind of experiment and name."""


def pictures(experiment: Study, look: Look) -> Iterator[Picture]:
    """All figures of an experiment."""
    with mpl.rc_context(RC):
        for name, (title, draw, caption) in FIGURES.get(experiment.kind, {}).items():
            figure = draw(experiment, look)
            if figure is not None:
                yield Picture(f"{experiment.name}-{name}", title, caption, png(figure), folded=draw is telemetry)


def attack_pictures(experiment: Study, look: Look) -> Iterator[Picture]:
    """A figure for each attack that has curves."""
    with mpl.rc_context(RC):
        for attack in attacks_of(experiment):
            figure = attack_figure(experiment, attack, look)
            caption = "Grey is the target. Black is a retrained model, if there is one: a model that forgot is near it."
            if figure is not None:
                yield Picture(f"{experiment.name}-{attack}-attack", f"Attack {words(attack)}", caption, png(figure))
