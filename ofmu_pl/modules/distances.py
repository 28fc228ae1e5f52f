"""How far forget rows are from their levels, in log-odds, smooth as Phi has derivatives (``modules.goal``)."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from ofmu_pl.losses import IGNORED, log_odds

WIDTH = 0.25
"""Distance in log-odds below which a token's pull fades."""
CORNER = 0.05
"""The same of a ceiling. At it half of the push is left, so that tokens go on: by a nat and more, were it as wide."""
GUARD = 0.1
"""Weight of the pull on a token that held-out rows get right and that has become wrong."""


def distances(nll: Tensor, start: Tensor, level: Tensor, targets: Tensor, left: float, *, one_sided: bool) -> Tensor:
    """Distances of rows, (b,), with tokens ``targets``, (b, S); if two-sided, rows that went too far return.

    ``nll`` are the tokens' losses, (b, S), ``start`` the same before the first step, and ``level`` those that they are
    to end at, NaN where a token is not pushed. ``left`` is the share of the path that is left, along which a ceiling,
    which is one-sided, rises.
    """
    mask = targets != IGNORED
    pushed = mask & ~level.isnan()
    count = pushed.sum(1).clamp(min=1)
    level = level.nan_to_num(0.0)
    z, first, goal = (log_odds((x * pushed).sum(1) / count) for x in (nll, start, level))
    below = torch.sigmoid((level - nll) / WIDTH).detach()
    # Each token moves on its own side of its level alone, whatever the others do.
    moved = below if one_sided else below.where((z < goal)[:, None], 1 - below)
    z = log_odds(((moved * nll + (1 - moved) * nll.detach()) * pushed).sum(1) / count)
    if one_sided:
        goal = goal + left * (first - goal)
        far = CORNER * F.softplus((goal - z) / CORNER)
    else:
        far = ((z - goal) ** 2 + WIDTH**2).sqrt() - WIDTH
    wrong = CORNER * F.softplus((log_odds(nll) - log_odds(start).clamp(min=0.0)) / CORNER)
    return far * pushed.any(1) + GUARD * (wrong * (mask & ~pushed)).sum(1) / count
