"""The n-gram guess: its distribution by hand, its weights by their likelihood, and the pull towards it."""

import math
from functools import partial
from itertools import pairwise

import numpy as np
import pytest
import torch

from ofmu_pl.data import Authors
from ofmu_pl.losses import IGNORED, shifted
from ofmu_pl.modules.guess import Guess, answers
from ofmu_pl.modules.lower_level import BoundedLoss, HeldOutLevels
from ofmu_pl.modules.ngram import Nearest, NGram, Reply
from ofmu_pl.modules.steppers import PathSteps
from ofmu_pl.networks.predictions import Predictions
from ofmu_pl.support.errors import UserError
from tests.helpers.parts import plain
from tests.helpers.training import train, weights
from tests.modules.test_lower_level import lower

V = 10
KNOWN = [
    Reply([1, 5, 6, 7], 1, [1, 2, 3]),
    Reply([1, 5, 6, 8], 1, [1, 2, 3]),
    Reply([2, 9, 6, 7], 1, [1, 2, 3]),
]


def predicted_by(model, answer):
    """Probabilities of the next token at each of an answer's places, (n, V)."""
    return model.dense(model.sparse(answer))


def test_without_held_answers_the_parts_are_averaged():
    """Before the last place: contexts (), (6), (5, 6) of all answers, the same of all three, which are alike here.

    The question 1 4 5 has each of its tokens once and nothing after 6.
    """
    predicted = predicted_by(NGram(KNOWN, held=[], vocabulary=V), Reply([1, 4, 5, 5, 6, 9], 3, [5]))
    parts = torch.zeros(8, V)
    parts[0] = 1 / V
    parts[[1, 4], :] = torch.tensor([0, 0, 0, 0, 0, 2, 3, 2, 1, 1]) / 9
    parts[[2, 5], :] = torch.tensor([0, 0, 0, 0, 0, 0, 0, 2, 1, 0]) / 3  # after 6
    parts[[3, 6], :] = torch.tensor([0, 0, 0, 0, 0, 0, 0, 1, 1, 0]) / 2  # after 5 6; nothing is known after 5 5 6
    parts[7, [1, 4, 5]] = 1 / 3
    torch.testing.assert_close(predicted, parts.mean(0, keepdim=True))


def test_what_follows_in_the_question_is_a_part():
    model = NGram(KNOWN, held=[], vocabulary=V)
    copied = predicted_by(model, Reply([4, 3, 4, 4, 0], 3, [4]))[0]
    parts = torch.zeros(5, V)
    parts[0] = 1 / V
    parts[[1, 2], :] = torch.tensor([0, 0, 0, 0, 0, 2, 3, 2, 1, 1]) / 9
    parts[3, [3, 4]] = torch.tensor([1, 2]) / 3
    parts[4, 3] = 1.0  # 4 is followed by 3 in the question
    torch.testing.assert_close(copied, parts.mean(0))


def test_answers_to_like_questions_are_a_part(monkeypatch):
    """Of two wordings, each of which has one answer, the one that is asked for is said."""
    monkeypatch.setattr("ofmu_pl.modules.ngram.LIKE", 2)
    known = [Reply([a, a, 10 + i, 4, 5, a], 5, [5]) for i in range(4) for a in (7, 8)]
    held = [Reply([a, a, 20 + i, 4, 5, a], 5, [5]) for i in range(4) for a in (7, 8)]
    model = NGram(known, held, vocabulary=30)
    assert predicted_by(model, Reply([8, 8, 25, 4, 5, 0], 5, [5]))[0, [7, 8]].tolist() == pytest.approx(
        [0.0, 1.0], abs=0.15
    )


def test_weights_are_those_of_the_largest_likelihood():
    """Held answers are the one known token in two of three cases, and else tokens that only the uniform part has.

    Three parts say the known token: the uniform one with 1 / V, and two others for certain. The uniform part's weight
    has a closed form, and the question's token, which never comes, gets nothing.
    """
    known = [Reply([0, 1], 1, [1])] * 3
    held = [Reply([2, token], 1, [1]) for token in [1] * 600 + [3, 4, 5] * 100]
    model = NGram(known, held, vocabulary=V)
    (found,) = model.weights.values()
    assert found[0] == pytest.approx((1 - 600 / 900) / (1 - 1 / V), abs=0.01)
    assert found[1] + found[2] == pytest.approx(1 - found[0], abs=0.01)
    assert predicted_by(model, Reply([2, 1], 1, [1]))[0, 1].item() == pytest.approx(600 / 900, abs=0.01)


@pytest.mark.parametrize("most", [1, 3, 50])
def test_the_nearest_questions_are_those_of_the_largest_index(most):
    draw = np.random.Generator(np.random.Philox(key=0))
    *questions, asked = draw.integers(4, size=(41, 6)).tolist()
    pairs = [set(pairwise(q)) for q in (*questions, asked)]
    index = np.array([len(p & pairs[-1]) / len(p | pairs[-1]) for p in pairs[:-1]])
    found = Nearest(questions)(asked, most)
    assert found.tolist() == np.argsort(-index, kind="stable")[:most].tolist()


@pytest.fixture(scope="module")
def data():
    data = Authors(authors=8, forget_authors=1, holdout_authors=2, batch_size=4, streams=("forget", "retain"))
    data.setup()
    return data


def nats(model, found):
    losses = [
        -predicted_by(model, a)[range(len(a.places)), [a.tokens[i] for i in a.places]].log().mean() for a in found
    ]
    return torch.stack(losses).mean()


def test_it_guesses_answers_that_it_has_never_seen(data):
    """Two thirds of a blind guess's loss at most, more than of answers that it has seen; and it sums to one."""
    model = Guess(data, len(data.tokenizer)).model
    forget = list(answers(data, "forget", range(8)))
    torch.testing.assert_close(predicted_by(model, forget[0]).sum(1), torch.ones(len(forget[0].places)))
    assert nats(model, answers(data, "retain", range(8))) < nats(model, forget) < math.log(len(data.tokenizer)) * 2 / 3


def test_answers_are_where_the_loss_is(data):
    (answer,) = answers(data, "forget", [3])
    encoded = data.encode(data.splits["forget"][3])
    assert answer.tokens == encoded.input_ids
    assert answer.question == encoded.prompt_length
    assert [answer.tokens[i] for i in answer.places] == [x for x in encoded.labels if x >= 0]


def test_phi_loses_the_divergence_of_every_token_from_the_guess():
    """Bent at 0.01 nats the loss is constant, so that what is left of a row's value is the mean divergence."""
    module = lower(lower=partial(BoundedLoss, 0.01, ngram_weight=0.5), lr=0.0, stepper=plain(0.0))
    data = train(module, steps=1, holdout_authors=2).datamodule
    with torch.no_grad():
        (value,) = module.lower._rows(data.collate("forget", [2], 0))
        (answer,) = answers(data, "forget", [2])
        scores = module.network(input_ids=torch.tensor([answer.tokens])).logits[0]
    p = scores.double().log_softmax(1)[[i - 1 for i in answer.places]]
    q = predicted_by(module.lower.guess.model, answer).double()
    assert value.item() == pytest.approx(0.01 - 0.5 * (q * (q.log() - p)).sum(1).mean().item(), rel=1e-5)


def test_the_goal_asks_the_guess_how_easy_each_token_is():
    module = lower(lower=partial(HeldOutLevels, ngram_weight=0.3), lr=0.0, stepper=plain(0.0))
    data = train(module, steps=1, holdout_authors=1).datamodule
    for stream in ("forget", "holdout"):
        losses = module.lower.goal.levels.expected(stream, range(8))
        for found, answer in zip(losses, answers(data, stream, range(8)), strict=True):
            true = [answer.tokens[i] for i in answer.places]
            predicted = predicted_by(module.lower.guess.model, answer).double()[range(len(true)), true]
            torch.testing.assert_close(torch.from_numpy(found), -predicted.log(), rtol=0, atol=0)


def test_of_more_rows_than_are_read_the_goal_does_not_ask(monkeypatch):
    monkeypatch.setattr("ofmu_pl.modules.guess.READ", 7)
    module = lower(lower=partial(HeldOutLevels, ngram_weight=0.3), lr=0.0, stepper=plain(0.0))
    train(module, steps=1, holdout_authors=1)
    assert module.lower.goal.levels.expected is None


@pytest.mark.parametrize("temperature", [0.3, 0.8, 2.0])
def test_a_guess_is_as_sure_as_the_network(data, temperature):
    """A network that says what the n-gram model says, sharpened; one that is less sure leaves the guess as it is."""
    guess = Guess(data, len(data.tokenizer))

    def network(batch):
        targets = shifted(batch["labels"])
        logits = torch.zeros(*targets.shape, guess.model.vocabulary)
        for row, i, places in zip(logits, batch["ids"].tolist(), targets != IGNORED, strict=True):
            (answer,) = answers(data, "holdout", [i])
            row[places] = predicted_by(guess.model, answer).log() / temperature
        return Predictions(logits), targets

    guess.sharpen(network)
    assert guess.temperature == pytest.approx(min(temperature, 1.0), abs=1e-3)


def test_of_each_row_the_model_is_asked_once(data, monkeypatch):
    """Like questions are sought among all answers known: of held-out rows for the temperature and for the levels."""
    guess, asked = Guess(data, len(data.tokenizer)), []
    sparse = guess.model.sparse
    monkeypatch.setattr(guess.model, "sparse", lambda answer: asked.append(answer) or sparse(answer))
    blank = torch.zeros(1, guess.model.vocabulary)
    guess.sharpen(lambda batch: (Predictions(blank.expand(*batch["labels"].shape, -1)), shifted(batch["labels"])))
    first = guess.losses("holdout", range(4))
    again = guess.losses("holdout", range(4))
    assert all(np.array_equal(a, b) for a, b in zip(again, first, strict=True))
    guess.losses("forget", range(2))
    batch = data.collate("forget", [1, 0], 0)
    guess.predict(batch["ids"], shifted(batch["labels"]))
    assert len(asked) == len(data.splits["holdout"]) + 2


def test_two_micro_batches_are_one_batch():
    ends = []
    for size in (None, 2):
        module = lower(lower=partial(HeldOutLevels, ngram_weight=0.5), micro_batch_size=size)
        train(module, steps=2, holdout_authors=2)
        ends.append(weights(module))
    torch.testing.assert_close(*ends, rtol=1e-4, atol=1e-6)


def test_what_it_lacks_is_said():
    with pytest.raises(UserError, match="model.lower.ngram_weight"):
        train(lower(lower=partial(HeldOutLevels, ngram_weight=0.3)), steps=1)
    with pytest.raises(UserError, match="model.lower.ngram_weight"):
        lower(lower=partial(HeldOutLevels, ngram_weight=0.3), stepper=PathSteps)
    with pytest.raises(UserError, match="ngram_weight"):
        lower(lower=partial(HeldOutLevels, ngram_weight=-1.0))
