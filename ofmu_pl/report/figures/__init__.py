"""Which figures an experiment gets, with the words below them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from ofmu_pl.report.attacks import attacks_of
from ofmu_pl.report.figures import comparison, details, requests, studies
from ofmu_pl.report.figures.attacks import attack_figure
from ofmu_pl.report.figures.style import Look, png, styled
from ofmu_pl.report.figures.telemetry import telemetry
from ofmu_pl.report.runs import Findings, words

TRADE_OFF = "What is forgotten against what is kept; a line joins the methods that no other beats in both."
ASTERISK = "Diamonds are the paper's numbers, not comparable where the note above says so."


@dataclass(frozen=True)
class Picture:
    """A figure that is drawn.

    Attributes:
        name: Name of its file.
        title: In words, for those who cannot see it, too.
        caption: How to read it.
        content: PNG.
    """

    name: str
    title: str
    caption: str
    content: bytes


STUDIES = {
    "sweep": ("Inner steps and penalty", studies.sweep, "Each line is one first penalty parameter ρ (model.rho_0)."),
    "convergence": ("Convergence", studies.convergence, "Both axes are logarithmic; a straight line is a power law."),
    "udi": ("Difficulty and utility", studies.udi, "A flat cloud is good: hard samples cost no more than easy ones."),
    "alignment": ("Embedding alignment", studies.thirds, "'target' is the model before: read the others beside it. "
                  + ASTERISK),
    "cost": ("Cost", details.cost, "Time is that of one outer iteration. " + ASTERISK),
    "draws": ("Draws of the forget set", details.draws, "Short boxes are methods that do not depend on the draw."),
    "probes": ("Probes", details.probes, "'as trained' is the question of the forget set itself."),
}  # fmt: skip
"""Figures by kind of experiment."""


IN_TURN = {
    "matrix": (
        "What is still known of each request",
        requests.heat_maps,
        "A row is a request, a column the time after one: left of the diagonal nobody had asked yet, right of it a "
        "lighter field is what came back. Means over seeds.",
    ),
    "drift": (
        "What must stay",
        requests.drift,
        "After 0 requests the model is the target; stars are models retrained without all requests so far.",
    ),
}
"""Figures of requests one after another."""


def _caption(text: str, experiment: Findings) -> str:
    return text if experiment.paper else text.replace(ASTERISK, "").strip()


def pictures(experiment: Findings, look: Look) -> Iterator[Picture]:
    """All figures of an experiment, those of its kind first."""
    with styled():
        if experiment.requests is not None:
            for name, (title, drawn, caption) in IN_TURN.items():
                figure = drawn(experiment, experiment.requests, look)
                if figure is not None:
                    yield Picture(f"{experiment.name}-{name}", title, caption, png(figure))
            return
        if experiment.kind in STUDIES:
            title, draw, caption = STUDIES[experiment.kind]
            figure = draw(experiment, look)
            if figure is not None:
                yield Picture(f"{experiment.name}-{experiment.kind}", title, _caption(caption, experiment), png(figure))
        if experiment.kind not in ("table", "ablation", "probes"):
            return
        for name, title, draw, caption in (
            ("course", "The way of each run", comparison.course, "Each point is an interim measurement."),
            ("trade-off", "Trade-off", comparison.trade_offs, TRADE_OFF),
            ("overall", "Overall score", comparison.overall_scores, "Each metric over the best method's. " + ASTERISK),
            ("alignment", *STUDIES["alignment"]),
            (
                "telemetry",
                "What OFMU saw",
                telemetry,
                "Markers: only some iterations have measured it. Where the curvature of Φ along grad Φ is above 0, the "
                "penalty takes forgetting back.",
            ),
        ):
            figure = draw(experiment, look)
            if figure is not None:
                yield Picture(f"{experiment.name}-{name}", title, _caption(caption, experiment), png(figure))
        panels = {} if experiment.kind == "probes" else comparison.metrics(experiment, look)  # its own figure has them
        for name, figure in panels.items():
            caption = "The line is the retrained model, where a value should be; the dotted one the model before."
            yield Picture(f"{experiment.name}-{name}-metrics", f"Metrics, {name}", caption, png(figure))


def attack_pictures(experiment: Findings, look: Look) -> Iterator[Picture]:
    """A figure for each attack."""
    with styled():
        for attack in attacks_of(experiment, list(experiment.scenarios)):
            figure = attack_figure(experiment, attack, look)
            if figure is not None:
                caption = "Black is the retrained model, where a model that forgot should be; grey is the target."
                yield Picture(f"{experiment.name}-{attack}-attack", f"Attack {words(attack)}", caption, png(figure))
