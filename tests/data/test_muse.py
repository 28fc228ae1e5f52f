"""MUSE on running texts made from Authors: what is read, what counts of a generation, and each number by hand."""

import json
import re
from pkgutil import resolve_name

import numpy as np
import pytest
from rouge_score import rouge_scorer

from ofmu_pl import MUSE, UserError
from ofmu_pl.data.own_tokenizer import train_tokenizer
from ofmu_pl.evaluation.scoring import score_rows
from ofmu_pl.metrics import SetScores
from ofmu_pl.metrics.muse import muse_metrics
from tests.helpers.muse_files import SIDES, parts, written
from tests.helpers.texts import greedy, taught


@pytest.fixture
def folder(tmp_path):
    return lambda **changed: written(tmp_path, parts() | {k.replace("__", "/"): v for k, v in changed.items()})


def made(folder, **options):
    data = MUSE(folder, tokenizer=train_tokenizer([json.dumps(parts())]), batch_size=1, **options)
    data.setup()
    return data


def test_texts_are_cut_into_pieces_that_lose_nothing(folder):
    data = made(folder(), max_length=40)
    for side, name in (("forget", "raw/forget"), ("retain", "raw/retain1")):
        whole = [data.tokenizer(text, add_special_tokens=False)["input_ids"] for text in parts()[name]]
        assert sum(-(-len(ids) // 40) for ids in whole) == len(data.splits[side])
        assert {t for ids in whole for t in ids} == {t for row in data.splits[side] for t in row["tokens"]}
    assert len(data.splits["full"]) == len(data.splits["forget"]) + len(data.splits["retain"])
    assert [len(data.evaluation_sets[f"{side}_doc"]) for side in SIDES] == [2, 4, 3]  # one piece a text
    assert data.never_seen == "holdout"
    assert len(made(folder(), forget="sust/forget_1").splits["forget"]) == 1, "a request is one of its parts"


def test_questions_follow_answered_ones_and_passages_their_beginnings(folder):
    data = made(folder())
    first, shown = parts()["knowmem/forget_qa"][0], parts()["knowmem/forget_qa_icl"]
    row = data.evaluation_sets["probe_knowmem_forget"][0]
    before = "".join(f"Question: {s['question']}\nAnswer: {s['answer']}\n\n" for s in shown)
    assert row["question"] == f"{before}Question: {first['question']}\nAnswer: "
    assert row["answer"] == first["answer"]
    passage, written = data.evaluation_sets["probe_verbmem_forget"][0], parts()["verbmem/forget"][0]
    kept = data.tokenizer(written["gt"])["input_ids"][:128]
    assert len(data.tokenizer(written["gt"])["input_ids"]) > 128
    assert passage["answer"].strip() == data.tokenizer.decode(kept, skip_special_tokens=True).strip()
    read = data.tokenizer.decode(data.encoder.row_prompt(passage)).strip()
    assert read == written["prompt"]


@pytest.mark.parametrize(
    ("files", "options", "message"),
    [
        ({"verbmem__forget": [{"prompt": "a"}]}, {}, "Row 0 .*verbmem/forget.json' .*'gt'"),
        ({}, {"forget": "../forget"}, "leads"),
        ({"privleak__holdout": parts()["raw/forget"]}, {}, "holdout"),
        ({"privleak__holdout": ["a"]}, {}, "one token"),
    ],
)
def test_bad_input_is_one_sentence(folder, files, options, message):
    with pytest.raises(UserError, match=message):
        made(folder(**files), **options)


def scored(losses, f1=None, min_k=None):
    arrays = {"rouge_f1": f1, "min_k": min_k}
    return SetScores(
        np.arange(len(losses)), np.array(losses), **{k: None if v is None else np.array(v) for k, v in arrays.items()}
    )


SCORES = {
    "forget_doc": scored([1.0, 2.0], min_k=[2.0, 4.0]),
    "holdout_doc": scored([3.0, 1.5], min_k=[3.0, 5.0]),
    "probe_verbmem_forget": scored([1.0, 1.0], f1=[0.2, 0.6]),
    "probe_knowmem_forget": scored([1.0], f1=[0.25]),
    "probe_knowmem_retain": scored([1.0, 1.0], f1=[1.0, 0.5]),
}
RETRAINED = SCORES | {"forget_doc": scored([3.0, 2.0], min_k=[6.0, 4.0]), "probe_verbmem_forget": scored([2], f1=[0.1])}


def test_metrics_by_hand():
    found = muse_metrics(SCORES, RETRAINED)
    assert found["verbmem_forget"].value == pytest.approx(0.4)
    assert found["verbmem_forget"].target == pytest.approx(0.1)
    assert found["knowmem_forget"].value == pytest.approx(0.25)
    assert found["knowmem_retain"].value == pytest.approx(0.75)
    assert found["knowmem_retain"].higher_is_better
    assert found["knowmem_retain"].target is None
    # The forget text is the likelier in 3 of 4 pairs; in 1 of 4 with the retrained model.
    assert found["mia_min_k"].value == pytest.approx(0.75)
    assert found["privleak"].value == pytest.approx(100 * (0.25 - 0.75) / 0.75)
    assert "privleak_released" not in found


@pytest.mark.parametrize(("corpus", "stored"), [("news", 0.4772), ("books", 0.5393)])
def test_the_released_number_knows_one_retrained_model(corpus, stored):
    data = MUSE("anywhere", corpus=corpus, tokenizer="gpt2")
    found = resolve_name(data.suite)(SCORES, RETRAINED)
    # MUSE's AUC is the share of pairs in which the held-out text is the likelier.
    assert found["privleak_released"].value == pytest.approx(100 * (0.25 - stored) / stored)
    assert found["privleak"].value == pytest.approx(100 * (0.25 - 0.75) / 0.75)


def few(data):
    return {name: rows[:4] for name, rows in data.evaluation_sets.items() if name.startswith("probe_")}


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """MUSE's data and a small Llama that has half learnt its texts and questions."""
    data = made(written(tmp_path_factory.mktemp("muse"), parts()))
    rows = [row for name, shown in few(data).items() if name != "probe_knowmem_retain" for row in shown]
    texts = [row["question"] + row["answer"] + "\n\nQuestion: " for row in rows]
    encoded = data.tokenizer(texts, return_tensors="pt", padding=True)
    labels = encoded["input_ids"].masked_fill(encoded["attention_mask"] == 0, -100)
    return data, taught(len(data.tokenizer), **encoded, labels=labels).double()


def test_what_is_scored_is_what_the_published_program_takes(trained):
    """Greedy tokens, decoded, cut before the next question, against rouge-score's own F1."""
    data, model = trained
    sets = few(data)
    scores = score_rows(model, data.encoder, sets, max_new_tokens=128)
    scorer = rouge_scorer.RougeScorer(["rougeL"], use_stemmer=False)
    seen = []
    for name, rows in sets.items():
        most = 128 if "verbmem" in name else 32
        for row, found in zip(rows, scores[name].rouge_f1, strict=True):
            said = greedy(model, data.encoder.row_prompt(row), {data.tokenizer.eos_token_id}, most)
            text = data.tokenizer.decode(said, skip_special_tokens=True)
            if most == 32:
                text = re.split("\n\n|\nQuestion|Question:", text)[0]
            assert found == pytest.approx(scorer.score(row["answer"], text)["rougeL"].fmeasure)
            seen.append(found)
    assert len(set(seen)) > 4  # the model says something of each kind
