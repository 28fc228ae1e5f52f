"""What a setting is chosen by."""

import json
from types import SimpleNamespace
from unittest.mock import ANY

import pytest

from ofmu_pl.benchmark.search import chosen, validation_score
from ofmu_pl.data import Authors, Digits
from ofmu_pl.evaluation import validation
from ofmu_pl.evaluation.scoring import score_rows
from ofmu_pl.metrics import probability
from ofmu_pl.networks import CausalLM
from ofmu_pl.support.errors import UserError
from tests.helpers.training import TINY


def write(folder, name, content):
    folder.mkdir(exist_ok=True, parents=True)
    (folder / name).write_text(json.dumps(content))
    return folder


def images(folder, forget, retain, validation, classwise=False):
    def side(*values):
        names = ("forget_accuracy", "RA", "VA")
        return {name: {"value": value} for name, value in zip(names, values, strict=True)}

    after = side(forget, retain, validation) | ({"TA_all": {"value": 0}} if classwise else {})
    return write(folder, "results.json", {"metrics": after, "before": side(99.0, 98.0, 90.0)})


def test_scores(tmp_path):
    text = write(tmp_path / "text", "validation.json", {"forget": 0.2, "retain": 0.4})
    assert validation_score(text) == pytest.approx(2 / (1 / 0.8 + 1 / 0.4))
    assert validation_score(write(tmp_path / "nan", "validation.json", {"forget": None, "retain": 0.4})) == 0
    assert validation_score(images(tmp_path / "random", 93.0, 98.0, 88.0)) == pytest.approx(-(3 + 0 + 2) / 3)
    assert validation_score(images(tmp_path / "class", 6.0, 95.0, 90.0, classwise=True)) == pytest.approx(-3)


def test_the_best_that_did_not_fail(tmp_path):
    def run(name, retain):
        return write(tmp_path / name, "validation.json", {"forget": 0.1, "retain": retain})

    candidates = [({"lr": 1}, None), ({"lr": 2}, run("a", 0.5)), ({"lr": 3}, run("b", 0.8)), ({"lr": 4}, run("c", 0.8))]
    options, record = chosen(candidates)
    assert options == {"lr": 3}
    assert record["choice"] == 3
    assert list(record["scores"]) == ["1", "2", "3", "4"]
    assert record["scores"]["1"] is None
    assert chosen(candidates[:1]) == (None, {"choice": None, "scores": {"1": None}})
    both = {"lr": 1, "beta": 2}
    assert chosen([(both, run("d", 0.3))])[1]["choice"] == both
    differing = chosen([({"lr": 0}, run("e", 0.3)), ({"beta": 0}, run("f", 0.4))])[1]
    assert differing["choice"] == {"beta": 0}
    assert list(differing["scores"]) == ['{"lr": 0}', '{"beta": 0}']
    default = chosen([({}, run("g", 0.6)), ({"beta": 0}, run("h", 0.4))])
    assert default == ({}, {"choice": {}, "scores": {"{}": ANY, '{"beta": 0}': ANY}})


@pytest.fixture
def authors():
    data = Authors(authors=12, forget_authors=2, batch_size=7)
    data.setup()
    recipe = CausalLM(config={**TINY, "num_hidden_layers": 1})
    network = recipe.build(data, exact=False).eval()
    ending = SimpleNamespace(settle=lambda module: setattr(module, "settled", True))
    return data, SimpleNamespace(recipe=recipe, device="cpu", network=network, ending=ending), network


def test_validation_rows_are_in_no_evaluation_set(authors, tmp_path, monkeypatch):
    monkeypatch.setattr(validation, "ITEMS", 1000)
    data, module, network = authors
    trainer = SimpleNamespace(datamodule=data, log_dir=str(tmp_path), is_global_zero=True)
    validation.ValidationRows().on_train_end(trainer, module)
    assert module.settled, "the weights that are kept are measured"
    found = json.loads((tmp_path / "validation.json").read_text())
    reported = {row["question"] for rows in data.evaluation_sets.values() for row in rows}
    rows = {"forget": data.splits["forget"]}
    rows["retain"] = [row for row in data.splits["retain"] if row["question"] not in reported]
    assert 40 < len(rows["retain"]) < len(data.splits["retain"])
    for name, scores in score_rows(network, data.encoder, rows, max_new_tokens=None).items():
        assert found[name] == pytest.approx(float(probability(scores.answer_loss).mean()), rel=1e-4)


def test_what_settings_are_chosen_by_must_exist_before_the_run(authors):
    texts, _, _ = authors
    texts.evaluation_sets = {"retain": texts.splits["retain"]}
    images = Digits(forget_classes=[3], validation_fraction=0)
    images.setup()
    for data, match in ((texts, " retain "), (images, "data.validation_fraction")):
        with pytest.raises(UserError, match=match):
            validation.ValidationRows().setup(SimpleNamespace(datamodule=data), None, "fit")
