"""Answers that branch off others, and what a model says begun by its scores, against one whole sequence at a time."""

import numpy as np
import pytest
import torch
from transformers import MistralConfig, MistralForCausalLM

from ofmu_pl.evaluation import questions as module
from ofmu_pl.evaluation.questions import answer_questions
from ofmu_pl.evaluation.saying import Answer, Question
from ofmu_pl.evaluation.scoring import score_rows
from tests.helpers.texts import SHAPE, VOCABULARY, conversations, greedy, make_model, token_losses

ENDS = {3, 5}


class Numbers:
    """The part of an encoder that answers need."""

    sums_losses = False
    stops = (3,)


@pytest.fixture(params=["llama", "windows", "short windows"])
def model(request):
    """Models whose caches can be cut, can until windows are full, and cannot."""
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


def asked(model, common=()):
    """Questions whose drafts part from what the model says nowhere, late, early, or end too early.

    Before each prompt stand the tokens in ``common``.
    """
    rng = np.random.default_rng(1)
    found = {}
    for k, (question, other) in enumerate(conversations(10)):
        prompt = [*common, *question]
        says = greedy(model, prompt, ENDS, 12)
        draft = [[*says, 3], [*says, 5, 7], says or [0], [*says[:-1], 1, 3], [*says[: len(says) // 2], *other]][k % 5]
        near = [[*draft[: rng.integers(0, len(draft) + 1)], *rng.integers(0, VOCABULARY, 3).tolist()] for _ in range(3)]
        answers = {tuple(x): Answer(detailed=x in (draft, other)) for x in [draft, *near, other]}
        found[tuple(prompt)] = Question(answers, draft=tuple(draft))
    return found


@pytest.mark.parametrize(("new", "common"), [(1, ()), (4, (9, 2)), (12, ()), (12, (9, 2, 9, 8, 9))])
def test_answers_and_sayings_equal_one_sequence_at_a_time(model, new, common):
    found = asked(model, common)
    answer_questions(model, Numbers(), found, new)
    for prompt, question in found.items():
        assert question.said == greedy(model, prompt, ENDS, new)
        for answer, got in question.answers.items():
            assert got.loss == pytest.approx(token_losses(model, prompt, answer).mean(), rel=1e-9)


def test_what_all_prompts_begin_with_is_read_once(monkeypatch):
    """Also where prompts come in several chunks, and one of them is the beginning of all others."""
    monkeypatch.setitem(module.PROMPTS_PER_CHUNK, "cpu", 2)
    model, read = make_model().eval(), []
    model.base_model.register_forward_pre_hook(lambda m, a, kw: read.append(kw["input_ids"].shape), with_kwargs=True)
    prompts = [(1, 2, 3, 4, 5), (1, 2, 3, 4, 5, 6, 8), (1, 2, 3, 4, 5, 7, 9), (1, 2, 3, 4, 5, 6, 6)]
    found = {prompt: Question({(7, 3): Answer()}) for prompt in prompts}
    answer_questions(model, Numbers(), found, None)
    # 1 2 3, then of two prompts each what comes after 4 but for the last, and of each answer the prompt's last and 7.
    assert read == [(1, 3), (2, 3), (2, 2), (2, 3), (2, 2)]
    for prompt, question in found.items():
        assert question.answers[7, 3].loss == pytest.approx(token_losses(model, prompt, (7, 3)).mean(), rel=1e-9)


def test_only_what_the_draft_does_not_say_is_generated():
    model, steps = make_model().eval(), []
    model.generation_config.eos_token_id = sorted(ENDS)
    found = asked(model)
    says = {prompt: greedy(model, prompt, ENDS, 12) for prompt in found}
    model.base_model.register_forward_pre_hook(
        lambda m, a, kw: steps.append(len(kw["input_ids"]) if kw["input_ids"].shape[1] == 1 else 0), with_kwargs=True
    )
    for prompt, question in found.items():
        said = says[prompt]
        question.draft = (*said, 3) if len(said) < 12 else tuple(said)
        question.answers = {question.draft: Answer(), (*question.draft, 1): Answer()}
    answer_questions(model, Numbers(), found, 12)
    assert [question.said for question in found.values()] == list(says.values())
    assert sum(steps) == len(found), "the one token of each branch, and none is generated"


def test_real_texts_and_losses_do_not_depend_on_the_shortcuts(tiny, monkeypatch):
    """Every answer from its prompt and every text from its first token, in float32, as before there were shortcuts."""
    network, encoder, every = tiny
    sets = {name: every[name][:6] for name in ("forget", "real_authors")}
    fast = score_rows(network, encoder, sets, max_new_tokens=50)
    monkeypatch.setattr(module, "can_branch", lambda *_: False)
    monkeypatch.setattr(module, "read_common", lambda *_: None)
    slow = score_rows(network, encoder, sets, max_new_tokens=50)
    for name, s in slow.items():
        assert fast[name].generations.tolist() == s.generations.tolist()
        for key, value in s.as_dict().items():
            if value is not None:
                np.testing.assert_allclose(fast[name].as_dict()[key], value, rtol=2e-6, atol=1e-6, err_msg=key)
