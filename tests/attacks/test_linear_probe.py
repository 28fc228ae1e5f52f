"""Linear probe: chance on the retrained model, all on the target, and what the last layer hides."""

import numpy as np
import pytest
import torch

from ofmu_pl import LinearProbe
from ofmu_pl.attacks.choices import choices_of, chosen
from ofmu_pl.attacks.linear_probe import _features
from ofmu_pl.losses import IGNORED
from ofmu_pl.support.errors import UserError


def test_the_target_tells_all_and_the_retrained_model_nothing(subjects):
    found = {name: LinearProbe().run(subject, 0) for name, subject in subjects.items()}
    assert found["target"].figures["linear_probe_auc"] > 0.95
    assert 0.2 < np.mean(found["retrained"].y) < 0.75
    assert len(found["retrained"].rows["linear_probe_auc"]) == 8
    assert found["target"].x == [0, 1, 2, 3]


def test_features_are_the_terms_of_the_logits(subjects):
    """With a final norm without weights, features of the last layer sum to the answer's mean logit."""
    subject = subjects["target"]
    model = subject.build()
    with torch.no_grad():
        model.model.norm.weight.fill_(1.0)
    choices = choices_of(subject.data, subject.data.evaluation_sets["forget"][:3], "probe")
    for row, features in zip(choices, _features(subject, model, choices), strict=True):
        assert features.shape == (4, 4, 64)
        for encoded, x in zip(row, features, strict=True):
            with torch.no_grad():
                logits = model(torch.tensor([encoded.input_ids])).logits[0]
            terms = [logits[t - 1, y].item() for t, y in enumerate(encoded.labels) if y != IGNORED]
            assert x[-1].sum() == pytest.approx(np.mean(terms), abs=1e-3)


def test_choices_have_one_form(subjects):
    data = subjects["target"].data
    row = {"question": "Who?", "answer": "He.", "perturbed_answer": ["It is she."]}
    for more, right in (({"paraphrased_answer": "It is he."}, "It is he."), ({}, "He.")):
        ((one, other),) = choices_of(data, [row | more], "probe")
        texts = [data.tokenizer.decode([x for x in e.labels if x != IGNORED]) for e in (one, other)]
        assert right in texts[0]
        assert row["perturbed_answer"][0] in texts[1]


def test_the_choice_is_the_least_loss(subjects):
    subject = subjects["retrained"]
    model = subject.build()
    choices = choices_of(subject.data, subject.data.evaluation_sets["forget"], "probe")
    wanted = []
    for row in choices:
        losses = []
        for encoded in row:
            with torch.no_grad():
                p = model(torch.tensor([encoded.input_ids])).logits[0].double().log_softmax(-1)
            losses.append(-np.mean([p[t - 1, y].item() for t, y in enumerate(encoded.labels) if y != IGNORED]))
        wanted.append(float(np.argmin(losses) == 0))
    assert chosen(subject, model, choices).tolist() == wanted


def test_rows_without_wrong_answers_are_refused(subjects):
    data = subjects["target"].data
    bare = [{k: v for k, v in row.items() if k != "perturbed_answer"} for row in data.evaluation_sets["forget"]]
    with pytest.raises(UserError, match="perturbed_answer"):
        choices_of(data, bare, "linear_probe")
