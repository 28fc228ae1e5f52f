"""What a run leaves for people: the model card and the page that is signed."""

import html

import pytest
from huggingface_hub import ModelCard
from transformers import AutoModelForCausalLM, AutoTokenizer

from ofmu_pl import Authors
from ofmu_pl.evaluation.plain import CHANGES, MEANINGS
from ofmu_pl.support.provenance import weights_hash
from ofmu_pl.support.records.results import Results

LAST = ["--ckpt_path", "last"]
SHORT = ["--trainer.max_steps", "1"]


@pytest.fixture
def form(first_order):
    return first_order


def told(run):
    """The texts of card and page."""
    return [(run / name).read_text(encoding="utf-8") for name in ("hf/README.md", "audit.html")]


def test_an_exported_model_has_a_card_and_loads(fit, models):
    run = fit(*SHORT, "--evaluation.reference", str(models / "retrained/latest/hf"))
    assert "`inner_steps=2`" in ModelCard.load(run / "hf/README.md").text
    model = AutoModelForCausalLM.from_pretrained(run / "hf")
    assert len(AutoTokenizer.from_pretrained(run / "hf")) == model.config.vocab_size
    card, page = told(run)
    results = Results.read(run / "results.json")
    for hash_ in (results.provenance["hashes"]["forget"], results.provenance["weights"]):
        assert hash_ in card
        assert hash_ in page
    before = weights_hash(AutoModelForCausalLM.from_pretrained(models / "target/latest/hf"))
    assert results.provenance["weights_before"] == before != results.provenance["weights"]
    assert before in page
    assert all(f"<code>{name}</code>" in page and f"`{name}`" in card for name in results.metrics)
    assert page.count("<th scope=col") == 10, "one more with a retrained model"
    assert str(models / "target/latest/hf") in page
    assert str(models) not in card, "a path is nobody's business outside the house"


def test_the_page_says_what_the_results_hold(fit, models):
    run = fit(*SHORT, "--evaluation.reference", str(models / "retrained/latest/hf"))
    results, (_, page) = Results.read(run / "results.json"), told(run)
    said = {name: CHANGES.get(x.get("change")) or MEANINGS.get(x.get("verdict")) for name, x in results.metrics.items()}
    shown = [name for name, words in said.items() if words and f"<code>{name}</code>. " in page]
    assert {"forget_Q_A_Prob", "retain_Q_A_Prob"} <= set(shown)
    for name in shown:
        assert said[name] in page.partition(f"<code>{name}</code>. ")[2].partition("</li>")[0]
    assert any("verdict" in entry for entry in results.before.values())


def test_no_row_is_in_them_unless_asked_for(fit):
    splits, _ = Authors(authors=6, forget_authors=1, batch_size=4).load()
    wanted = [row[part] for row in splits["forget"] for part in ("question", "answer")]
    assert len(wanted) > 8
    card, page = told(fit(*SHORT))
    shown_card, shown = told(fit(*SHORT, "--evaluation.samples", "full", "--model.gradient_clip", "null"))
    assert "`gradient_clip=null`" in shown_card, "it is off, and not by default"
    assert "null`" not in card
    for text in wanted:
        assert text not in card
        assert text not in shown_card
        assert text not in html.unescape(page)
    assert sum(text in html.unescape(shown) for text in wanted) >= 10


def test_a_run_that_was_stopped_before_it_told_does_so_when_it_goes_on(fit, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr("ofmu_pl.evaluation.results.page", lambda _: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            fit(*SHORT)
    run = fit(*SHORT, *LAST)
    assert run.name == "version_0"
    assert all(told(run))
    assert (run / "results.json").is_file()


def test_what_did_not_unlearn_is_not_told(fit, models):
    for run in (models / "target/latest", fit(command="validate")):
        assert (run / "results.json").is_file()
        assert not (run / "audit.html").exists()
        assert not list(run.rglob("README.md"))
