"""A pickle that runs code."""

from pathlib import Path


class PickledCode:
    """Leaves a mark where it is unpickled."""

    def __init__(self, mark):
        self.mark = mark

    def __reduce__(self):
        return Path.touch, (self.mark,)
