"""Parts of OFMU that many tests choose."""

from functools import partial

from ofmu_pl.modules.lower_level import HeldOutLevels
from ofmu_pl.modules.steppers import AdamSteps, PathSteps, PlainSteps, SharedSteps
from ofmu_pl.modules.upper_level import FlatteningStep, NoPenalty, PrintedPenalty

FIRST_ORDER = {"beta": 0.0, "upper": NoPenalty}
ALONG_PATH = {"lower": partial(HeldOutLevels, call_back=True), "stepper": PathSteps}
"""Steps of both loops along the path to held-out rows' losses; an upper level goes with them."""


def plain(lr):
    return partial(PlainSteps, lr=lr)


def adam(lr=3e-4):
    return partial(AdamSteps, lr=lr)


def shared(lr=1.0):
    return partial(SharedSteps, lr_ratio=lr)


def printed(**options):
    return partial(PrintedPenalty, **options)


def flattening(share=0.3, **options):
    return partial(FlatteningStep, share=share, **options)
