"""From folders of models to difficulty and alignment: a tiny Llama, and small classifiers of digits."""

import json

import numpy as np
import pytest
import torch

from ofmu_pl.analysis import analyse, cosine, embed
from ofmu_pl.benchmark.comparison import compare_models
from ofmu_pl.data import Authors, Digits
from ofmu_pl.networks import CausalLM, SmallCNN
from ofmu_pl.support.errors import UserError
from ofmu_pl.support.files import write_json
from ofmu_pl.support.provenance import provenance


@pytest.fixture(scope="module")
def folders(models):
    return {name: models / name / "latest/hf" for name in ("target", "retrained")}


def authors(folders, **options):
    return Authors(**{"authors": 6, "forget_authors": 1, "tokenizer": str(folders["target"])} | options)


@pytest.fixture(scope="module")
def found(folders):
    data = authors(folders)
    return data, analyse(data, folders["target"], folders["retrained"], {"perfect": folders["retrained"]})


def test_entries_are_what_torch_says_of_a_row_alone(found, folders):
    data, result = found
    assert result["n"] == len(result["samples"]) == 8
    recipe = CausalLM(path=str(folders["target"]))
    model = recipe.build(data, exact=False)
    assert result["threshold"] == pytest.approx(np.log(model.config.vocab_size))

    def gradient(split, rows):
        losses = [recipe.sample_losses(model, data.collate(split, [i], 0))[0] for i in rows]
        mean = torch.stack(losses).mean()
        return mean.item(), torch.cat([g.flatten() for g in torch.autograd.grad(mean, list(model.parameters()))])

    _, retain = gradient("retain", range(len(data.splits["retain"])))
    for sample in (result["samples"][0], result["samples"][5]):
        loss, own = gradient("forget", [sample["id"]])
        assert sample["loss"] == pytest.approx(loss, rel=1e-5)
        assert sample["gradient_norm"] == pytest.approx(own.norm().item(), rel=1e-4)
        assert sample["similarity"] == pytest.approx(torch.cosine_similarity(own, retain, dim=0).item(), abs=1e-4)
        terms = (sample["gradient_norm"], 1 - sample["similarity"], result["threshold"] - sample["loss"])
        assert sample["udi"] == pytest.approx(sum(terms), rel=1e-12)


def test_the_retrained_model_is_like_itself_and_the_target_is_not(found):
    _, result = found
    for group in ("all", "easiest", "hardest"):
        cosines = result[group]["cosine"]
        assert cosines["perfect"]["value"] == pytest.approx(1, abs=1e-12)
        low, high = cosines["target"]["interval"]
        assert -1 <= low <= cosines["target"]["value"] <= high < 0.9999


def test_groups_are_thirds_by_the_index(found):
    _, result = found
    order = sorted(result["samples"], key=lambda s: s["udi"])
    for group, members in (("easiest", order[:2]), ("hardest", order[-2:]), ("all", order)):
        assert result[group]["n"] == len(members)
        assert result[group]["udi"] == pytest.approx(np.mean([s["udi"] for s in members]))
        assert result[group]["loss"] == pytest.approx(np.mean([s["loss"] for s in members]))
        mean = np.mean([s["cosine"]["target"] for s in members])
        assert result[group]["cosine"]["target"]["value"] == pytest.approx(mean)


def test_the_result_is_json_and_options_are_heard(found, folders):
    data, result = found
    assert json.loads(json.dumps(result, allow_nan=False)) == result
    with pytest.raises(UserError, match="retain_items"):
        analyse(data, folders["target"], folders["retrained"], {}, retain_items=0)
    other = analyse(data, folders["target"], folders["retrained"], {}, threshold=0.1, retain_items=9)
    assert (other["threshold"], other["retain_items"]) == (0.1, 9)
    assert {s["margin"] for s in other["samples"]} == {0.0}
    assert list(other["samples"][0]["cosine"]) == ["target"]
    similarities = [[s["similarity"] for s in r["samples"]] for r in (result, other)]
    assert similarities[0] != similarities[1], "another retain gradient"


def test_models_of_other_data_are_refused(folders, tmp_path):
    target, retrained = folders["target"], folders["retrained"]
    for token, options, other, unlearned in (
        ("another forget", {"forget_authors": 2}, retrained, {}),
        ("another template", {"system_prompt": "Hello."}, retrained, {}),
        ("nowhere", {}, tmp_path / "nowhere", {}),
        ("'target'", {}, retrained, {"target": target}),
    ):
        with pytest.raises(UserError, match=token):
            analyse(authors(folders, **options), target, str(other), unlearned)


def classifier(data, folder, seed):
    """A random one, saved as a run saves it."""
    torch.manual_seed(seed)
    folder.mkdir()
    recipe = SmallCNN(width=8)
    recipe.save(recipe.build(data, exact=False), folder, data)
    write_json(folder / "provenance.json", provenance(data, streams=["full"]))
    return folder


def test_images(tmp_path):
    data = Digits(forget_classes=[0], train_items=200, augment=True)
    data.setup()
    a, b = (classifier(data, tmp_path / name, seed) for seed, name in enumerate("ab"))
    result = analyse(data, a, b, {"same": a}, retain_items=50)
    assert result["n"] == len(data.splits["forget"])
    assert result["threshold"] == pytest.approx(np.log(10))
    assert result == analyse(data, a, b, {"same": a}, retain_items=50), "nothing is drawn: no augmentation"
    recipe = SmallCNN(width=8, path=str(a))
    images, labels = data.images_of("forget")
    batch = {"images": images.float() / 255, "labels": labels}
    first, second = (embed(r, r.build(data, exact=False), [batch]) for r in (recipe, SmallCNN(8, path=str(b))))
    wanted = cosine(first, second)
    np.testing.assert_allclose([s["cosine"]["target"] for s in result["samples"]], wanted, atol=1e-5)
    np.testing.assert_allclose([s["cosine"]["same"] for s in result["samples"]], wanted, atol=1e-5)
    with pytest.raises(UserError, match="config.json"):
        analyse(data, a, tmp_path, {})
    config = tmp_path / "config.yaml"
    options = "{forget_classes: [0], train_items: 200, augment: true}"
    config.write_text(f"data: {{class_path: Digits, init_args: {options}}}\n")
    compare_models(str(a), str(b), {"same": str(a)}, str(config), str(tmp_path))
    assert json.loads((tmp_path / "analysis.json").read_text()) == analyse(data, a, b, {"same": a})
