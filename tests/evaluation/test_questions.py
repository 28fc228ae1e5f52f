"""Many answers and what a model says by itself, against one whole sequence at a time."""

import numpy as np
import pytest
import torch
from transformers import MistralConfig, MistralForCausalLM

from ofmu_pl.evaluation.questions import Answer, Question, answer_questions
from tests.helpers.texts import SHAPE, VOCABULARY, conversations, greedy, make_model, token_losses

ENDS = {3, 5}


class Numbers:
    """The part of an encoder that answers need."""

    sums_losses = False
    stops = (3,)


@pytest.fixture(params=["llama", "windows", "short windows"])
def model(request):
    """Models whose caches keep every column, do until windows are full, and do not."""
    if request.param == "llama":
        found = make_model()
    else:
        torch.manual_seed(0)
        window = 5 if request.param == "short windows" else 40
        found = MistralForCausalLM(MistralConfig(**SHAPE, sliding_window=window, head_dim=8)).double()
    found.generation_config.eos_token_id = sorted(ENDS)
    return found.eval()


@pytest.fixture(autouse=True)
def _inference():
    with torch.inference_mode():
        yield


def asked(model):
    """Questions with what the model says among their answers, or something near it, and other answers."""
    rng = np.random.default_rng(1)
    found = {}
    for k, (prompt, other) in enumerate(conversations(10)):
        says = greedy(model, prompt, ENDS, 12)
        true = [[*says, 3], [*says, 5, 7], says or [0], [*says[:-1], 1, 3], [*says[: len(says) // 2], *other]][k % 5]
        near = [[*true[: rng.integers(0, len(true) + 1)], *rng.integers(0, VOCABULARY, 3).tolist()] for _ in range(3)]
        answers = {tuple(x): Answer(detailed=x in (true, other)) for x in [true, *near, other]}
        found[tuple(prompt)] = Question(answers, generates=k != 4)
    return found


@pytest.mark.parametrize("new", [1, 4, 12])
def test_answers_and_sayings_equal_one_sequence_at_a_time(model, new):
    found = asked(model)
    answer_questions(model, Numbers(), found, new)
    for prompt, question in found.items():
        assert question.said == (greedy(model, prompt, ENDS, new) if question.generates else [])
        for answer, got in question.answers.items():
            assert got.loss == pytest.approx(token_losses(model, prompt, answer).mean(), rel=1e-9)
