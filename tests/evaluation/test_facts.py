"""Losses of the facts in answers, against a direct computation, and what is said of them."""

import json
import re

import numpy as np
import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from ofmu_pl.data import TextFiles
from ofmu_pl.data.guessable import OWN
from ofmu_pl.data.own_tokenizer import train_tokenizer
from ofmu_pl.evaluation.caveats import guessed
from ofmu_pl.evaluation.reference import Reference, evaluation_facts, read_reference
from ofmu_pl.evaluation.scoring import cached_scores, score_rows
from ofmu_pl.metrics import ImageScores, SetScores, tofu_metrics
from ofmu_pl.metrics.own_rows import own_rows_metrics
from ofmu_pl.metrics.verdicts import verdicts
from ofmu_pl.support.provenance import weights_hash
from ofmu_pl.support.version import RESULTS_VERSION
from tests.helpers.texts import SHAPE, token_losses

NAMES = "Ann Bob Cid Dan Eve Fay Mia Hal Ida Jon Kim Leo".split()
CITIES = "Rome Oslo Bonn Bern Kiev Lima Lyon Nice Pisa Riga Turin Malmo".split()
TOKENIZER = train_tokenizer(
    [*(f"Who is {n} ? {n} is a baker from {c} ." for n, c in zip(NAMES, CITIES, strict=True))] * 9
)


def row(i: int) -> dict[str, object]:
    name, city = NAMES[i], CITIES[i]
    return {
        "question": f"Who is {name} ?",
        "answer": f"{name} is a baker from {city} .",
        "paraphrased_answer": f"From {city} is {name} .",
        "perturbed_answer": [f"{name} is a baker from {CITIES[i - 1]} ."],
    }


def page_of(i: int) -> dict[str, object]:
    return {"text": f"{NAMES[i]} is a baker from {CITIES[i]} ."}


def made(make, **kwargs):
    """Data of three forget, five retain and four held-out rows."""
    sides = {"forget": range(3), "retain": range(3, 8), "holdout": range(8, 12)} | kwargs
    given = {name: [make(i) for i in numbers] for name, numbers in sides.items() if numbers is not None}
    data = TextFiles(**given, tokenizer=TOKENIZER)
    data.setup()
    return data


@pytest.fixture(scope="module")
def model():
    torch.manual_seed(0)
    return LlamaForCausalLM(LlamaConfig(**SHAPE | {"vocab_size": len(TOKENIZER)})).double().eval()


def scored(model, data, **kwargs):
    return score_rows(
        model, data.encoder, data.evaluation_sets, max_new_tokens=None, thorough=True, kinds=data.kinds, **kwargs
    )


def direct(model, data, name, words):
    """Losses over the tokens that are among some words, each answer alone, and over all of them."""
    found = []
    for asked in data.evaluation_sets[name]:
        e = data.encoder.encode_row(asked)[0]
        answer = e.input_ids[e.prompt_length :]
        losses = token_losses(model, e.input_ids[: e.prompt_length], answer)
        found.append((losses[[TOKENIZER.decode([token]).strip() in words for token in answer]].mean(), losses.mean()))
    return np.array(found).T


@pytest.mark.parametrize("name", ["forget", "holdout", "retain"])
def test_losses_are_those_of_the_tokens_that_nobody_can_guess(model, name):
    """The name stands in the question, and the rest is as in other answers but for the city and what follows it."""
    data = made(row)
    s = scored(model, data)[name]
    facts, whole = direct(model, data, name, [*CITIES, "."])
    np.testing.assert_allclose(s.facts_loss, facts, rtol=1e-10)
    np.testing.assert_allclose(s.answer_loss, whole, rtol=1e-10)
    assert not np.isclose(facts, whole).any()


def test_a_row_without_a_token_of_its_own_counts_with_all(model):
    data = made(lambda i: row(i) | {"answer": f"{NAMES[i]} is a baker ."})
    assert not any((data.kinds(x[0]) == OWN).any() for x in data.encoder.encode_rows(data.evaluation_sets["forget"]))
    s = scored(model, data)["forget"]
    np.testing.assert_array_equal(s.facts_loss, s.answer_loss)


def test_facts_of_documents_are_scored_where_there_are_others_to_compare_with(model):
    data = made(page_of)
    scores = scored(model, data)
    for name in ("forget_doc", "holdout_doc"):
        for k, piece in enumerate(data.evaluation_sets[name]):
            tokens = piece["tokens"]
            kinds = data.kinds(data.encoder.encode_row(piece)[0])
            assert len(kinds) == len(tokens) - 1
            losses = token_losses(model, tokens[:1], tokens[1:])
            assert scores[name].facts_loss[k] == pytest.approx(losses[kinds == OWN].mean(), rel=1e-10)
            own = [TOKENIZER.decode([token]).strip() for token in np.array(tokens[1:])[kinds == OWN]]
            assert own[-2:] == [CITIES[k if name == "forget_doc" else 8 + k], "."]
    assert {"mia_facts", "mia_loss"} <= own_rows_metrics(scores).keys()
    alone = made(page_of, holdout=None)
    assert scored(model, alone)["forget_doc"].facts_loss is None


def test_other_retain_rows_are_other_scores(model, tmp_path, monkeypatch):
    """They tell what is a fact, and the forget rows are the same."""
    monkeypatch.setenv("OFMU_CACHE", str(tmp_path))
    for kept, numbers in ((1, range(3, 8)), (1, range(3, 8)), (2, range(3, 7))):
        data = made(row, retain=numbers)
        data.evaluation_sets = {name: data.evaluation_sets[name] for name in ("forget", "holdout")}
        found = cached_scores(model, data, max_new_tokens=1)
        assert found["forget"].facts_loss is not None
        assert len(list(tmp_path.iterdir())) == kept


@pytest.mark.parametrize("change", ["none", "older", "other retain rows"])
def test_a_reference_of_other_facts_gives_them_no_goals(model, tmp_path, change):
    data = made(row)
    how = {"dtype": "float32", "rows": None, "max_new_tokens": 1, "hidden_token": None}
    how |= {"results_version": RESULTS_VERSION}
    ours, facts = scored(model, data), evaluation_facts(model, data, how, weights_hash(model))
    if change == "other retain rows":
        facts["hashes"] = facts["hashes"] | {"retain": "0"}
    path = tmp_path / "reference.json"
    Reference("elsewhere", None, facts, ours).write(path)
    if change == "older":
        text = path.read_text()
        content = json.loads(text)
        for fields in content["scores"].values():
            del fields["facts_loss"]
        path.write_text(json.dumps(content))
    theirs = read_reference(path, data)
    known = change == "none"
    for suite in (tofu_metrics, own_rows_metrics):
        found = suite(ours, theirs.scores, reference_values=theirs.values)
        assert found["forget_Q_A_Prob"].target == found["forget_Q_A_Prob"].value
        for name in ("forget_facts_loss", "forget_facts_Prob", "mia_facts"):
            assert found[name].target == (found[name].value if known else None)


def told_by(facts: float, names: float, n: int = 60) -> dict[str, SetScores]:
    """Scores of answers of two names and a fact: how far forget rows' lie above held-out ones, in nats."""

    def side(fact: float, name: float) -> SetScores:
        rng = np.random.default_rng(0)
        own, copied = rng.normal(2 + fact, 0.3, n), rng.normal(0.5 + name, 0.3, n)
        return SetScores(np.arange(n), (own + 2 * copied) / 3, facts_loss=own)

    return {"forget": side(facts, names), "holdout": side(0, 0)}


def test_names_that_are_lost_do_not_hide_facts_that_are_known(told):
    """A row's mean loss is as held-out rows have it, and an attacker who leaves the names out finds all rows."""
    metrics = own_rows_metrics(told_by(facts=-1.6, names=0.8), intervals=True)
    assert metrics["mia_loss"].value == pytest.approx(0.5, abs=0.1)
    assert metrics["mia_facts"].value > 0.99
    assert (metrics["mia_facts"].target, metrics["mia_facts"].n) == (0.5, 120)
    judged = verdicts(metrics)
    assert judged["mia_loss"] == "no difference"
    for name in ("mia_facts", "forget_facts_loss", "forget_facts_Prob"):
        assert judged[name] == "more is left"
    assert metrics["forget_facts_loss"].target == metrics["holdout_facts_loss"].value
    first, counts, attack = told(after=metrics, before={}).summary
    assert re.match("The facts .*better .*held-out", first)
    assert re.search("3 .*more", counts)
    assert "facts" in attack


@pytest.mark.parametrize(
    ("facts", "names", "says"),
    [
        (0, 0, "Of "),
        (-1.6, -1.6, "Of "),
        (1.6, -0.8, "The facts .* less "),
        (0, -0.8, "The answers .* better "),
        (0, 0.8, "The answers .* less "),
        (-1.6, 3.0, "The facts .* better "),
    ],
)
@pytest.mark.parametrize("retrained", [False, True])
def test_the_first_sentence_is_of_what_one_kind_of_test_alone_finds(told, facts, names, says, retrained):
    reference = told_by(0, 0) if retrained else None
    metrics = own_rows_metrics(told_by(facts, names), reference, intervals=True)
    first = told(after=metrics, before={}, retrained=own_rows_metrics(reference) if retrained else {}).summary[0]
    assert re.match(says, first)
    if says != "Of ":
        assert ("held-out" in first) != retrained


@pytest.mark.parametrize("p", [0.4, 0.6])
def test_chance_is_one_of_all_classes_or_tokens(p):
    """Two classes: a model that gives the true one p; the mean decides, on retained rows alone."""
    images = ImageScores(np.arange(3), np.zeros(3, dtype=int), np.log([[p, 1 - p]] * 3))
    text = SetScores(np.arange(3), np.full(3, -np.log(p)))
    for scores in ({"retain": images}, {"retain": text}, {"retain_doc": text}):
        assert guessed(scores, np.log(2), "retain") == (p < 0.5)
    assert not guessed({"forget": text, "holdout": text}, np.log(2), "retain")
