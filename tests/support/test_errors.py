"""Numbers out of their range are refused where they are taken, in a sentence that names the option."""

import re

import numpy as np
import pytest
import torch

from ofmu_pl.core.safeguards import Safeguards
from ofmu_pl.data import Authors, Digits, Trivia
from ofmu_pl.evaluation.images import ImageEvaluation
from ofmu_pl.evaluation.text import TextEvaluation
from ofmu_pl.modules import OFMU, FineTune
from ofmu_pl.modules.lower_level import BoundedLoss, HeldOutLevels
from ofmu_pl.modules.steppers import PlainSteps, SharedSteps
from ofmu_pl.modules.upper_level import FlatteningStep, PrintedPenalty
from ofmu_pl.networks import CausalLM
from ofmu_pl.support.errors import UserError, check_range


def network():
    return CausalLM(path="nowhere")


@pytest.mark.parametrize(
    ("make", "name", "refused"),
    [
        (lambda **o: FineTune(network(), **o), "micro_batch_size", [-2, 0]),
        (lambda **o: FineTune(network(), **o), "gradient_clip", [-1.0, 0.0, float("nan")]),
        (lambda **o: OFMU(network(), **o), "inner_steps", [0, -1]),
        (PlainSteps, "lr", [-1.0, float("nan")]),
        (SharedSteps, "lr_ratio", [-1.0]),
        (PrintedPenalty, "start", [-0.1, 1.1]),
        (PrintedPenalty, "every", [0]),
        (FlatteningStep, "share", [-0.1, 1.1]),
        (FlatteningStep, "until", [0.9]),
        (Safeguards, "penalty_clip", [-0.1]),
        (Safeguards, "inner_clip", [0.0]),
        (BoundedLoss, "bound", [0.0]),
        (HeldOutLevels, "ngram_weight", [-0.1]),
        (Authors, "batch_size", [0]),
        (Authors, "seed", [-1, 2**32]),
        (Authors, "forget_seed", [-1, 2**32]),
        (Trivia, "forgotten", [0]),
        (Digits, "split_seed", [-1, 2**32]),
        (TextEvaluation, "every_n_steps", [0]),
        (TextEvaluation, "max_new_tokens", [0]),
        (ImageEvaluation, "every_n_steps", [-5]),
    ],
)
def test_numbers_out_of_range(make, name, refused):
    for value in refused:
        with pytest.raises(UserError, match=f"{name}={value} "):
            make(**{name: value})


def test_the_edges_of_a_range():
    check_range(0, 3, a=0, b=3, off=None)
    check_range(0, above=True, a=1e-300)
    with pytest.raises(UserError, match=r"a=0 .* 0\.$"):
        check_range(0, above=True, a=0)
    with pytest.raises(UserError, match=r"b=4 .* 0 .* 3\.$"):
        check_range(0, 3, a=0, b=4)


def test_what_is_no_number_or_no_whole_one():
    for value in ("3", [1], (1, 2), np.ones(2), object):
        with pytest.raises(UserError, match=re.escape(f"a={value!r} ") + ".*number"):
            check_range(1, a=value)
    for value in (2.5, 2.0, np.float32(2)):
        check_range(1, a=value)
        with pytest.raises(UserError, match=re.escape(f"a={value} ") + ".*integer"):
            check_range(1, whole=True, a=value)
    check_range(1, whole=True, a=np.int64(2), b=torch.tensor(3), off=None)
    check_range(0, 1, a=torch.tensor(0.5))
