"""The figure beside a table of methods: each a point, forgetting to the left and keeping upwards."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
from matplotlib.textpath import TextPath

Point = Sequence[float]
MARKERS = "*", "s"
"""Of the model that was retrained, where one wants to be, and of the target, where forgetting starts."""
SIZE, GAP = 8, 3
"""Of names, and between two of one line, which would read as one, in points."""


def draw(
    path: Path, names: Sequence[str], methods: Mapping[str, Point], front: list[str], ends: Mapping[str, Point]
) -> None:
    """Draw a figure: the upper left corner is where one wants to be, and a line joins the methods of the front.

    Args:
        path: Image file to be written.
        names: Metric of forgetting, the lower the better, and metric of keeping, the higher the better.
        methods: Each method's values of the two.
        front: Methods that no other is better than on both sides.
        ends: The retrained model's values and the target's, by the names that they are to have; either may be missing.
    """
    sheet, axis = plt.subplots(figsize=(7, 4.5), layout="constrained")
    axis.plot(*zip(*sorted(methods[m] for m in front), strict=True), color="0.7", zorder=1)
    for m, point in methods.items():
        color, marker = ("C3", "D") if m.startswith("ofmu") else ("C0", "o")
        axis.scatter(*point, s=36, color=color, marker=marker, zorder=2)
    for name, point in ends.items():
        axis.scatter(*point, s=70, color="black", marker=MARKERS[name == "target"], zorder=2)
    axis.margins(0.16)
    axis.set_xlabel(f"{names[0]} (lower: more is forgotten)")
    axis.set_ylabel(f"{names[1]} (higher: more is kept)")
    _label(sheet, axis, {**methods, **ends})
    sheet.savefig(path, dpi=130)
    plt.close(sheet)


def _label(sheet: Any, axis: Any, points: Mapping[str, Point]) -> None:
    """Write names to the right of points, to the left where something or the edge is in the way, or below that.

    A thin line leads from a name that stands further down to its point.
    """
    sheet.canvas.draw()  # constrained layout has placed the axes then
    places = {text: axis.transData.transform(point) * 72 / sheet.dpi for text, point in points.items()}
    taken = [(x - 5, x + 5, y) for x, y in places.values()]
    first, last = axis.bbox.x0 * 72 / sheet.dpi, axis.bbox.x1 * 72 / sheet.dpi
    for text, point in sorted(points.items(), key=lambda item: (-item[1][1], item[1][0])):
        (x, y), width = places[text], TextPath((0, 0), text, size=SIZE).get_extents().width
        for down in range(40):
            free = [
                (side, left)
                for side, left in (("left", x + 6), ("right", x - 6 - width))
                if first < left < last - width
                and not any(left < b and a < left + width and abs(y - down - c) < 8 for a, b, c in taken)
            ]
            if free:
                break
        side, left = free[0] if free else ("left", x + 6)
        taken.append((left - GAP, left + width + GAP, y - down))
        offset = 6 if side == "left" else -6
        line = {"arrowstyle": "-", "color": "0.6", "linewidth": 0.6, "shrinkA": 0, "shrinkB": 3} if down > 8 else None
        written = {"xytext": (offset, -down - 3), "textcoords": "offset points", "fontsize": SIZE, "ha": side}
        axis.annotate(text, point, arrowprops=line, **written)
