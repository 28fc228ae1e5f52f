r"""How far along its way to the goal a run is: equal steps, which wait while what must stay is harmed.

of a ceiling, after a share t of the way,  z_path = z_goal + (1 - t) (z_start - z_goal)     in log-odds
of a two-sided goal                        far_path = (1 - t) far_start                     of rows (``levels.py``)
harm <- harm + 0.2 (rise - harm)                                                of retain batches' losses
"""

import math

HARM_NATS = 0.3
"""Rise of retain losses that is too much: a path waits, and no such weights are kept as the best."""
KEPT_NATS = 0.03
"""Mean rise of retain losses at which they count as kept: 97 % of the probability."""
LAG = 0.2
"""Weight of a batch in the running mean of harm."""


class Path:
    """The position on the way, and what retain rows have lost; nobody else moves it.

    Args:
        length_iterations: Outer iterations that the path takes if it never waits.

    Attributes:
        way: Iterations that the path has gone.
        harm: Running mean of the rise of retain losses, in nats.
    """

    def __init__(self, length_iterations: float) -> None:
        self.length = length_iterations
        self.way, self.harm = 0, 0.0

    @property
    def share(self) -> float:
        """How many lengths of the path are gone; the path may stay at its end for longer than it is."""
        return self.way / self.length

    @property
    def kept(self) -> bool:
        """Whether retain rows are as good as they were before the first step."""
        return self.harm <= KEPT_NATS

    def left(self, more: float = 0.0) -> float:
        """The share of the path that is left now, or so many iterations later."""
        return 1 - min(1.0, (self.way + more) / self.length)

    def advance(self, rise: float) -> None:
        """Go on by an iteration in which a retain batch's loss was above its old one by ``rise`` nats, or wait."""
        self.harm += LAG * (rise - self.harm)
        self.way += rise < HARM_NATS

    def skip(self) -> None:
        """Stand at the end with nothing harmed, for a rehearsal of what comes late."""
        self.way, self.harm = math.ceil(self.length), 0.0
