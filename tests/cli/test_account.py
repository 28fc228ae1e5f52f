"""What a run leaves for people: the model card and the page that is signed."""

import html
import json

import pytest
from huggingface_hub import ModelCard
from transformers import AutoModelForCausalLM, AutoTokenizer

from ofmu_pl import Authors
from ofmu_pl.evaluation.audit import MARKS
from ofmu_pl.support.records import Results

LAST = ["--ckpt_path", "last"]
SHORT = ["--trainer.max_steps", "1"]
HOSTILE = "<script>alert('Falbro')</script>"


def told(run):
    """The texts of card and page."""
    return [(run / name).read_text(encoding="utf-8") for name in ("hf/README.md", "audit.html")]


@pytest.fixture
def own(tmp_path):
    """Options of rows of one's own; the first forget row is hostile."""
    for i, name in enumerate(("forget", "retain", "holdout")):
        rows = [{"question": f"Where is house {name} {k}?", "answer": f"By the {k + i}th hill."} for k in range(4)]
        if name == "forget":
            rows[0]["question"] = HOSTILE
        (tmp_path / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))

    def options(*names):
        given = [word for name in names for word in (f"--data.{name}", str(tmp_path / f"{name}.jsonl"))]
        return ["--data", "TextFiles", *given, "--benchmark", "authors", *SHORT]

    return options


def test_an_exported_model_has_a_card_and_loads(fit, models):
    run = fit(*SHORT, "--evaluation.reference", str(models / "retrained/latest/hf"))
    read = ModelCard.load(run / "hf/README.md")
    assert (read.data.library_name, read.data.pipeline_tag) == ("transformers", "text-generation")
    assert "OFMU" in read.text
    assert "`inner_steps=2`" in read.text
    model = AutoModelForCausalLM.from_pretrained(run / "hf")
    assert model.num_parameters() > 0
    assert len(AutoTokenizer.from_pretrained(run / "hf")) == model.config.vocab_size
    card, page = told(run)
    results = Results.read(run / "results.json")
    for hash_ in (results.provenance["hashes"]["forget"], results.provenance["weights"]):
        assert hash_ in card
        assert hash_ in page
    assert all(f"<code>{name}</code>" in page and f"`{name}`" in card for name in results.metrics)
    assert "retrained model</th>" in page
    assert "there was no retrained model" not in page
    assert str(models / "target/latest/hf") in page
    assert str(models) not in card, "a path is nobody's business outside the house"


def test_no_row_is_in_them_unless_asked_for(fit):
    splits, _ = Authors(authors=6, forget_authors=1, batch_size=4).load()
    wanted = [row[part] for row in splits["forget"] for part in ("question", "answer")]
    assert len(wanted) > 8
    card, page = told(fit(*SHORT))
    shown_card, shown = told(fit(*SHORT, "--evaluation.samples", "full"))
    for text in wanted:
        assert text not in card
        assert text not in shown_card
        assert text not in html.unescape(page)
    assert sum(text in html.unescape(shown) for text in wanted) >= 10
    assert "there was no retrained model" in page


def test_what_can_be_said_follows_from_the_rows(fit, own):
    card, page = told(fit(*own("forget", "retain"), "--evaluation.samples", "full"))
    assert "There is nothing to compare with" in page
    assert "no longer produced" in page
    assert "no longer produced" in card
    assert "is chance" not in page
    assert HOSTILE not in page
    assert "&lt;script&gt;alert(&#39;Falbro&#39;)&lt;/script&gt;" in page
    assert "Falbro" not in card
    card, page = told(fit(*own("forget", "retain", "holdout")))
    assert "50\N{NO-BREAK SPACE}% is chance" in page
    assert "There is nothing to compare with" not in page
    assert "given as never seen by the model" in card
    assert MARKS[0] not in page
    assert "the run did not look at" not in page


def test_a_run_that_was_stopped_before_it_told_does_so_when_it_goes_on(fit, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr("ofmu_pl.evaluation.results.write_audit", lambda *_: 1 / 0)
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
