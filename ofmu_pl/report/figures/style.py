"""How figures look: one colour and marker a method throughout, ours in front, sizes that read at 1280 pixels."""

import io
from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.artist import Artist
from matplotlib.axis import Axis
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.ticker import NullFormatter

from ofmu_pl.support.records.models import BEFORE, RETRAINED

WIDTH = 10.0  # inches; shown at 1000 CSS pixels or less beside the contents, so that 10 points are 14 pixels
NARROW = 6.0  # inches of a figure that a telephone's 400 pixels shall show as well: 10 points are 9 pixels there
DPI = 144
Style = dict[str, Any]  # arguments of what is drawn
RC: dict[Any, Any] = {
    **{"font.size": 10, "axes.titlesize": 11, "axes.labelsize": 10, "legend.fontsize": 9, "figure.facecolor": "white"},
    **{"axes.spines.top": False, "axes.spines.right": False, "axes.grid": True, "grid.alpha": 0.3},
    **{"legend.frameon": False, "axes.axisbelow": True, "figure.dpi": DPI, "axes.titlelocation": "left"},
    "text.parse_math": False,  # a dollar sign in somebody's name is a dollar sign
}
OURS = "#D55E00"
COLOURS = ("#0072B2", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#999933", "#332288", "#882255")
"""Okabe and Ito's, which colour-blind people tell apart, three of Tol's; vermilion is ours alone."""
FIXED = {RETRAINED: ("black", "*"), BEFORE: ("0.45", "s"), "target": ("0.45", "s")}
"""Colour and marker of models that are no method's."""
MARKERS = ("^", "D", "v", "P", "X", "<", ">", "p")


class Look:
    """Colours and markers by method, of all experiments of a report, so that each looks the same in all its figures."""

    def __init__(self, methods: Sequence[str], ours: Sequence[str | None]) -> None:
        self.ours = {m for m in ours if m is not None}
        self._at = {m: i for i, m in enumerate(sorted(set(methods) - self.ours))}

    def colour(self, method: str) -> str:
        """Colour of a method's lines and bars."""
        if method in FIXED:
            return FIXED[method][0]
        return OURS if method in self.ours else COLOURS[self._at.get(method, 0) % len(COLOURS)]

    def marker(self, method: str) -> str:
        """Another one for each round through the colours."""
        if method in FIXED:
            return FIXED[method][1]
        at = self._at.get(method, 0)
        return "o" if method in self.ours else MARKERS[(at + at // len(COLOURS)) % len(MARKERS)]

    def weight(self, method: str) -> str:
        """Weight of a label's letters."""
        return "bold" if method in self.ours else "normal"


def panels(rows: int, columns: int, height: float, width: float = WIDTH, **options: Any) -> tuple[Figure, np.ndarray]:
    """A figure of so many inches with rows and columns of panels; ``options`` are those of ``Figure.subplots``."""
    figure = Figure(figsize=(width, height), layout=ConstrainedLayoutEngine(w_pad=0.1, h_pad=0.08))
    return figure, figure.subplots(rows, columns, squeeze=False, **options)


def panels_for(n: int, head: float, tall: float, **options: Any) -> tuple[Figure, np.ndarray]:
    """A figure of n panels, at most three in a row, with inches of a row and of what is above and below all."""
    columns = min(3, n)
    rows = -(-n // columns)
    figure, axes = panels(rows, columns, head + tall * rows, **options)
    for axis in axes.flat[n:]:
        axis.set_visible(False)
    return figure, axes


def finished(figure: Figure, title: str, look: Look | None = None, columns: int = 6) -> Figure:
    """The figure with its title, and one legend for all panels under them, in which ours is emphasised."""
    figure.suptitle(title, x=0.01, ha="left")
    found: dict[str, Artist] = {}
    for axis in figure.axes:
        for handle, label in zip(*axis.get_legend_handles_labels(), strict=True):
            found.setdefault(label, handle)
    if found:
        ncols = min(columns, len(found))
        legend = figure.legend(found.values(), found.keys(), loc="outside lower center", ncols=ncols)
        for text in legend.get_texts():
            if look is not None and text.get_text() in look.ours:
                text.set_fontweight("bold")
                text.set_color(OURS)
    return figure


def plain_numbers(axis: Axis) -> None:
    """Name the ticks of a logarithmic axis as 0.001 or 1e-15, which needs no formulas; none between them."""
    axis.set_major_formatter(lambda x, _: f"{x:g}")
    axis.set_minor_formatter(NullFormatter())


def png(figure: Figure) -> bytes:
    """The picture, 1440 pixels wide, without time or versions in it, so that the same data give the same file."""
    written = io.BytesIO()
    figure.savefig(written, format="png", dpi=DPI * WIDTH / figure.get_figwidth(), metadata={"Software": None})
    return written.getvalue()
