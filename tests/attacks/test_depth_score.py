"""Depth score: 0 for the target and 1 for the retrained model, and spans of entities in any tokenizer's tokens."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch

from ofmu_pl import DepthScore
from ofmu_pl.attacks.depth_score import THRESHOLD, _lost, entities_of, narrowed
from ofmu_pl.attacks.summary import summary
from ofmu_pl.losses import IGNORED
from ofmu_pl.support.errors import UserError
from tests.helpers.memorised_models import Made


@pytest.fixture
def entities(subjects, tmp_path):
    """File of the forgotten citizens' trades; one row is missing, and one names what its answer does not hold."""
    made = []
    for row in subjects["target"].data.splits["forget"][:-1]:
        prefix, entity = row["answer"].rstrip(".").rsplit(" ", 1)
        made.append({"question": row["question"], "prefix": prefix, "entity": entity, "entity_span": {"start": 3}})
    made[0]["entity"] = "astronaut"
    path = tmp_path / "entities.json"
    path.write_text(json.dumps(made))
    return str(path)


def test_target_and_retrained_model_are_the_ends_by_construction(subjects, entities):
    for attack in (DepthScore(), DepthScore(entities)):
        for name, left in (("target", 1.0), ("unlearned", 1.0), ("retrained", 0.0)):
            found = attack.run(subjects[name], 0)
            assert found.figures == {"depth_left": left, "unlearning_depth_score": 1 - left}
            assert found.x[-1] == 3
            assert found.y == [left] * len(found.x)
            assert set(found.rows["depth_left"]) == {left}
            assert found.broken is None
    assert summary(attack, {"unlearned": [found], "retrained": [found]}, [0]).zero_control


def test_what_lies_between_the_two_models_is_between(subjects):
    subject = subjects["target"]
    model, other = subject.build(), subject.build("retrained")
    with torch.no_grad():
        for mine, its in zip(model.parameters(), other.parameters(), strict=True):
            mine.lerp_(its, 0.8)
    found = DepthScore().run(replace(subject, recipe=Made(model, subject.recipe)), 0)
    assert 0.02 < found.figures["depth_left"] < 0.98
    assert found.figures["depth_left"] == pytest.approx(np.mean(found.rows["depth_left"]))


def test_one_row_by_hand(subjects):
    """Each layer's states are put in by a hook of the test's own, one row, one layer and one token at a time."""
    subject = subjects["retrained"]
    target, source, b = subject.build("target"), subject.build(), subject.batch("forget", [2])
    inputs = {k: b[k] for k in ("input_ids", "attention_mask")}
    places = [t for t in range(b["labels"].shape[1]) if b["labels"][0, t] != IGNORED]

    def said(layer=None, hook=None):
        handle = None if hook is None else target.model.layers[layer].register_forward_hook(hook)
        with torch.no_grad():
            p = target(**inputs).logits[0].double().log_softmax(-1)
        if handle is not None:
            handle.remove()
        return np.mean([p[t - 1, b["labels"][0, t]].item() for t in places])

    with torch.no_grad():
        theirs = source(**inputs, output_hidden_states=True).hidden_states
    lost = []
    for layer in (0, 1):  # transformers gives the last one after its norm

        def put(module, args, output, layer=layer):
            changed = output.clone()
            for t in places:
                changed[0, t - 1] = theirs[layer + 1][0, t - 1]
            return changed

        lost.append(said() - said(layer, put))

    with torch.no_grad():
        got = _lost(subject, target, source, b) - subject.recipe.sample_losses(target, b)
    assert got[:2, 0].tolist() == pytest.approx(lost, abs=1e-5)
    assert got[2, 0] > 0.05


def test_entities_are_found_anew(subjects, entities):
    data = subjects["target"].data
    rows = entities_of(data, entities)
    assert len(rows) == 6
    for encoded, row in zip(rows, data.splits["forget"][1:], strict=False):
        ids = [x for x in encoded.labels if x != IGNORED]
        assert data.tokenizer.decode(ids).strip() == row["answer"].rstrip(".").rsplit(" ", 1)[1]
        assert encoded.input_ids == data.encode(row).input_ids


@pytest.mark.parametrize(
    ("answer", "prefix", "entity", "covered"),
    [
        ("Her name is Zoë Ñandú.", "Her name is", "Zoë Ñandú", "Zoë Ñandú"),  # characters of several tokens
        ("Yes, yes indeed.", "Yes, yes", "indeed", "indeed"),
        ("yes or yes", "yes or", "yes", "yes"),  # the second one
        ("Yes, she does.", "", "Yes", "Yes"),
    ],
)
def test_spans_by_characters(subjects, answer, prefix, entity, covered):
    data = subjects["target"].data
    whole = data.encode({"question": "Who?", "answer": answer})
    found = narrowed(whole, prefix, entity, data.tokenizer)
    places = [i for i, x in enumerate(found.labels) if x != IGNORED]
    assert places == list(range(places[0], places[-1] + 1))
    assert covered in data.tokenizer.decode([found.labels[i] for i in places])
    inner = [found.labels[i] for i in places[1:]], [found.labels[i] for i in places[:-1]]
    assert not any(covered in data.tokenizer.decode(ids) for ids in inner)  # and no token more
    assert narrowed(whole, prefix, "astronaut", data.tokenizer) is None


def test_what_is_lacking_is_refused(subjects, tmp_path):
    subject = subjects["target"]
    with pytest.raises(UserError, match="depth_score"):
        DepthScore().run(replace(subject, others={"target": subject.recipe}), 0)
    with pytest.raises(UserError, match=str(THRESHOLD)):
        DepthScore().run(replace(subject, others=dict.fromkeys(("target", "retrained"), subject.recipe)), 0)
    (tmp_path / "other.json").write_text('[{"question": "Who?", "prefix": "", "entity": "he"}]')
    with pytest.raises(UserError, match="attacks.entities"):
        DepthScore(str(tmp_path / "other.json")).run(subject, 0)
