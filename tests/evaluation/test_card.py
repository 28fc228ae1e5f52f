"""The model card, checked as the hub checks it, but without asking the hub."""

import re

import pytest
import yaml
from huggingface_hub import ModelCard
from markdown_it import MarkdownIt
from transformers.pipelines import PIPELINE_REGISTRY

from ofmu_pl.evaluation.account import Part
from ofmu_pl.evaluation.results import card, write_card
from ofmu_pl.support.pages import CARD

HOSTILE = "x|`y` <script>alert(1)</script> [a](javascript:b) # c\n---\nlicense: mit\n# d\n- *e* {{ f }} ~~g~~ \\"


def rendered(made):
    return MarkdownIt("gfm-like", {"linkify": False}).render(made.text)


@pytest.mark.parametrize(("modality", "task"), [("text", "text-generation"), ("images", "image-classification")])
def test_the_hub_can_read_its_head(told, modality, task):
    account = told(modality=modality)
    write_card(account)
    assert [p.name for p in account.model.iterdir()] == [CARD]
    read = ModelCard.load(account.model / CARD)
    assert read.data.pipeline_tag == task
    assert task in PIPELINE_REGISTRY.get_supported_tasks()
    assert read.data.library_name == {"text": "transformers", "images": "ofmu_pl"}[modality]
    assert read.data.base_model == "owner/base"
    assert {"machine-unlearning", "ofmu"} <= set(read.data.tags)
    assert len(set(read.data.tags)) == len(read.data.tags)
    assert read.data.license is None, "it is the base model's, which nobody has told us"


@pytest.mark.parametrize("retrained", [True, False])
def test_its_tables_are_tables(told, retrained):
    account = told()
    html = rendered(card(told(retrained={"forget_loss": account.before["forget_loss"]} if retrained else {})))
    assert html.count("<table>") == 2
    assert "<td><code>mia_loss</code></td>" in html
    assert "<td>{:.4f} to {:.4f}</td>".format(*account.after["mia_loss"].interval) in html
    assert ">1060</td>" in html
    head, body = html.split("<thead>")[2].split("<tbody>")
    cells = {row.count("<td") for row in body.split("</tr>")[:-1]}
    assert cells == {len(re.findall("<th[ >]", head))} == {7 + retrained}
    for said in (*account.untested, "no proof", "<code>license</code>"):
        assert said in html


def test_what_is_not_known_is_not_named(told, tmp_path):
    assert "base_model" not in card(told(base_model=None)).data.to_dict()
    write_card(told(model=None))
    assert list((tmp_path / "hf").iterdir()) == [], "without an exported model there is no card"


def test_texts_of_others_stay_texts(told):
    texts = dict.fromkeys(("data", "method", "in_words", "base_model"), HOSTILE)
    texts |= {"options": {HOSTILE: HOSTILE}, "untested": [HOSTILE], "parts": [Part(HOSTILE, 1, HOSTILE)]}
    hostile = told(**texts, after={HOSTILE: told().after["mia_loss"]}, before={})
    made = card(hostile)
    head = yaml.safe_load(str(made).split("\n---\n")[0].removeprefix("---\n"))
    assert set(head) == {"library_name", "pipeline_tag", "base_model", "tags"}
    html = rendered(made)
    for forbidden in ("<script", "<a ", "<em>", "<s>", "<h1>d", "license: mit\n"):
        assert forbidden not in html
    assert html.count("<table>") == 2
    assert html.count("<h1>") == 1
    assert html.count("<h2>") == 6
