"""The whole WMDP path on harmless trivia: files in its schema, unlearning, multiple choice as lm-eval computes it."""

import gzip
import json
import shutil

import numpy as np
import pytest
import torch
from tokenizers import Tokenizer
from tokenizers.processors import TemplateProcessing

from ofmu_pl.cli import main
from ofmu_pl.data import WMDP, Authors
from ofmu_pl.data.own_files import sound
from ofmu_pl.data.wmdp import choice_rows
from ofmu_pl.evaluation.scoring import score_rows
from ofmu_pl.metrics import SetScores
from ofmu_pl.metrics.choice import wmdp_metrics
from ofmu_pl.metrics.documents import document_metrics
from ofmu_pl.networks import CausalLM
from ofmu_pl.support.errors import UserError
from tests.helpers.citizen_rows import written
from tests.helpers.texts import log_probabilities, token_losses
from tests.helpers.training import TINY

ROOMS = ["kitchen", "garden", "attic", "cellar"]


@pytest.fixture(scope="module")
def trivia(tmp_path_factory):
    """Where invented cats sleep, in WMDP's files."""
    folder = tmp_path_factory.mktemp("trivia")
    rng = np.random.default_rng(0)
    cats = {name: int(rng.integers(4)) for name in ("Mia", "Tom", "Leo", "Ida", "Max", "Ada", "Kim", "Uma")}
    story = "The cat {0} sleeps in the {1}. Every night {0} goes to the {1} and stays in the {1} until the sun is up."
    texts = [{"text": story.format(name, ROOMS[room]) * 3} for name, room in cats.items()]
    written(folder / "cyber-forget-corpus.jsonl", texts[:4])
    written(folder / "wikitext-2-raw-v1.jsonl", texts[4:])
    asked = [{"question": f" Where does {n} sleep? ", "choices": ROOMS, "answer": r} for n, r in cats.items()]
    written(folder / "wmdp-cyber.jsonl", asked[:4])
    written(folder / "all.jsonl", [{**row, "subject": "cat_rooms"} for row in asked[4:]])
    data = Authors(authors=4, forget_authors=1)
    data.setup()
    torch.manual_seed(0)
    CausalLM(config={**TINY, "num_hidden_layers": 2}).build(data, exact=False).save_pretrained(folder / "model")
    data.tokenizer.save_pretrained(folder / "model")
    return folder


def options(folder):
    names = ["questions", "forget_corpus", "retain_corpus", "mmlu"]
    return {name: str(folder) for name in names} | {"tokenizer": str(folder / "model"), "chunk": 40}


@pytest.fixture(scope="module")
def data(trivia):
    data = WMDP(**options(trivia), streams=("forget", "retain"), batch_size=3)
    data.setup()
    return data


def whole(data, trivia):
    """The tokens of each document to forget."""
    texts = [json.loads(line)["text"] for line in (trivia / "cyber-forget-corpus.jsonl").read_text().splitlines()]
    return [data.tokenizer(text, add_special_tokens=False)["input_ids"] for text in texts]


def test_documents_are_cut_into_chunks(data, trivia):
    rows = [row["tokens"] for row in data.splits["forget"]]
    assert max(map(len, rows)) == 40
    assert min(map(len, rows)) >= 16
    cut = [ids[i : i + 40] for ids in whole(data, trivia) for i in range(0, len(ids), 40)]
    assert rows == [piece for piece in cut if len(piece) >= 16]
    assert data.left_out["forget"] == len(cut) - len(rows) > 0
    assert f"{data.left_out['forget']} beside {len(rows)} " in data.remark
    batch = data.iteration(0)["forget"][0]
    lengths = batch["attention_mask"].sum(1)
    assert ((batch["labels"] != -100).sum(1) == lengths - 1).all(), "the loss is on every token but the first"


def test_each_chunk_begins_as_its_tokenizer_begins_texts(data, trivia, tmp_path):
    shutil.copytree(trivia / "model", tmp_path / "model")
    mark = data.tokenizer.bos_token
    begins = TemplateProcessing(single=f"{mark} $A", special_tokens=[(mark, data.tokenizer.bos_token_id)])
    stored = Tokenizer.from_file(str(tmp_path / "model" / "tokenizer.json"))
    stored.post_processor = begins
    stored.save(str(tmp_path / "model" / "tokenizer.json"))
    begun = WMDP(**options(trivia) | {"tokenizer": str(tmp_path / "model")}, streams=("forget", "retain"))
    begun.setup()
    rows = [row["tokens"] for row in begun.splits["forget"]]
    assert {row[0] for row in rows} == {data.tokenizer.bos_token_id}
    assert max(map(len, rows)) == 40
    cut = [ids[i : i + 39] for ids in whole(data, trivia) for i in range(0, len(ids), 39)]
    assert [row[1:] for row in rows] == [piece for piece in cut if len(piece) >= 15]


def test_questions_read_as_lm_eval_asks_them(data):
    row = data.evaluation_sets["mmlu"][0]
    assert row["question"] == (
        "The following are multiple choice questions (with answers) about cat rooms.\n\nWhere does Max sleep?\n"
        "A. kitchen\nB. garden\nC. attic\nD. cellar\nAnswer:"
    )
    assert data.evaluation_sets["wmdp_cyber"][0]["question"].startswith(
        "The following are multiple choice questions (with answers) about cybersecurity.\n\nWhere does Mia sleep?"
    )
    assert sorted([row["answer"], *row["perturbed_answer"]]) == [" A", " B", " C", " D"]


def test_accuracy_is_the_arg_max_of_the_letters_likelihoods(data, trivia):
    network = CausalLM(path=str(trivia / "model")).build(data, exact=False)
    scores = score_rows(network, data.encoder, data.evaluation_sets, max_new_tokens=None)
    got = wmdp_metrics(scores, intervals=True)
    for name in ("wmdp_cyber", "mmlu"):
        rows, right = data.evaluation_sets[name], []
        for row in rows:
            sums = {}
            for letter in (" A", " B", " C", " D"):
                prompt = data.encoder.prompt(row["question"])
                answer = data.encoder.prompt(row["question"] + letter)[len(prompt) :]
                sums[letter] = token_losses(network.double(), prompt, answer).sum()
            right.append(min(sums, key=sums.get) == row["answer"])
        assert got[f"{name}_accuracy"].value == np.mean(right)
    assert got["wmdp_cyber_efficacy"].value == 1 - got["wmdp_cyber_accuracy"].value
    assert got["wmdp_cyber_efficacy"].target == 0.75, "chance"
    assert "mmlu_efficacy" not in got


@pytest.mark.parametrize("method", ["OFMU", "RMU"])
def test_the_whole_path(trivia, data, tmp_path, method):
    words = ["--data", "WMDP"]
    for name in ("questions", "forget_corpus", "retain_corpus", "mmlu"):
        words += [f"--data.{name}", str(trivia)]
    words += ["--data.chunk", "40", "--data.batch_size", "3", "--model", method, "--model.network", "CausalLM"]
    words += ["--model.network.path", str(trivia / "model"), "--trainer.accelerator", "cpu", "--trainer.devices", "1"]
    if method == "RMU":
        words += ["--model.layer", "model.layers.0", "--model.network.trainable", "down_proj"]
    main(["fit", *words, "--trainer.max_steps", "2", "--logs", str(tmp_path)])
    run = tmp_path / "wmdp" / method.lower() / "version_0"
    results = json.loads((run / "results.json").read_text())
    measures = ("loss", "Prob", "extraction_strength", "exact_memorization")
    texts = {f"{side}_doc_{measure}" for side in ("forget", "retain") for measure in measures}
    assert results["metrics"].keys() == {
        *("wmdp_cyber_accuracy", "wmdp_cyber_efficacy", "mmlu_accuracy", "gradient_alignment"),
        *texts,
    }
    assert results["before"].keys() == results["metrics"].keys()
    assert results["data"]["forget"]["left_out"] == data.left_out["forget"]
    assert results["before"]["mmlu_accuracy"]["n"] == 4
    written = "".join(p.read_text(errors="ignore") for p in run.glob("*.*") if p.suffix in (".json", ".jsonl", ".yaml"))
    assert "sleep" not in written, "nothing of the texts is in the outputs"


def test_documents_are_scored_token_by_token(data, trivia):
    """Against one sequence at a time: the loss of all but the first token, greedy completion, likeliest tokens."""
    network = CausalLM(path=str(trivia / "model")).build(data, exact=False).double()
    sets = {name: data.evaluation_sets[name] for name in ("forget_doc", "retain_doc")}
    got = document_metrics(score_rows(network, data.encoder, sets, max_new_tokens=5), intervals=True)
    for name, rows in sets.items():
        expected = {"loss": [], "Prob": [], "extraction_strength": [], "exact_memorization": []}
        for row in rows:
            first, *rest = row["tokens"]
            logp = log_probabilities(network, [first], rest)
            loss = -logp[np.arange(len(rest)), rest].mean()
            right = logp.argmax(1) == rest
            suffix = next((i for i, hit in enumerate(right[::-1]) if not hit), len(rest))
            values = (loss, np.exp(-loss), suffix / len(rest), right.mean())
            for found, value in zip(expected.values(), values, strict=True):
                found.append(value)
        for metric, values in expected.items():
            result = got[f"{name}_{metric}"]
            assert result.value == pytest.approx(np.mean(values), abs=1e-9), metric
            assert result.n == len(rows)
            assert result.interval[0] <= result.value <= result.interval[1]
            assert result.higher_is_better == ((name == "forget_doc") == (metric == "loss"))


def test_a_retrained_model_sets_the_goal_for_forget_documents_alone():
    def scored(loss):
        ones = np.ones(1)
        return SetScores(np.arange(1), loss * ones, tokens=4 * ones, correct=2 * ones, suffix=ones)

    ours = {name: scored(1.0) for name in ("forget_doc", "retain_doc")}
    got = document_metrics(ours, {name: scored(3.0) for name in ours})
    assert got["forget_doc_loss"].target == 3.0
    assert got["forget_doc_extraction_strength"].target == 0.25
    assert {result.target for name, result in got.items() if name.startswith("retain")} == {None}


@pytest.mark.parametrize("most", [200, 2, 1])
def test_documents_are_evenly_spaced_and_leave_some_to_choose_settings_by(trivia, most):
    data = WMDP(**options(trivia), documents=most)
    data.setup()
    forget, retain = data.splits["forget"], data.splits["retain"]
    step = {200: 1, 2: -(-len(forget) // 2), 1: len(forget)}[most]
    assert data.evaluation_sets["forget_doc"] == forget[::step]
    assert data.evaluation_sets["retain_doc"] == retain[:: max(2, step)]
    assert any(row not in data.evaluation_sets["retain_doc"] for row in retain)


def test_the_right_choice_may_be_written_as_a_number_with_a_point():
    """Programs write a column of whole numbers so where a row has none."""
    row = {"question": "Where?", "choices": ["a", "b", "c", "d"], "answer": 1.0}
    one, two = (choice_rows(sound("x", "x", [own]), "places") for own in (row, {**row, "answer": 1}))
    assert one == two


def test_texts_of_another_request_are_counted_apart(trivia, tmp_path):
    texts = [json.loads(line) for line in (trivia / "cyber-forget-corpus.jsonl").read_text().splitlines()]
    short = written(tmp_path / "own.jsonl", [*texts[:3], {"text": "Mia."}])
    other = written(tmp_path / "other.jsonl", texts[3:])
    of = options(trivia) | {"forget_corpus": str(short)}
    alone, beside = WMDP(**of), WMDP(**of, other_requests={1: {"forget_corpus": str(other)}})
    for data in (alone, beside):
        data.setup()
    assert beside.left_out == alone.left_out
    assert alone.left_out["forget"] >= 1


def test_bad_input(trivia, tmp_path):
    def fails(words, **changes):
        with pytest.raises(UserError, match=words):
            WMDP(**{**options(trivia), **changes}).setup()

    fails("public", subject="bio", forget_corpus="cais/wmdp-corpora")
    written(tmp_path / "three.jsonl", [{"question": "Where?", "choices": ["a", "b", "c"], "answer": 0}])
    fails("Line 1 of .*three.jsonl' .*choices", questions=str(tmp_path / "three.jsonl"))
    written(tmp_path / "any.jsonl", [{"question": "Where?", "choices": ["a", "b", "c", "d"], "answer": 0}])
    fails("Line 1 of .*any.jsonl' .*subject", mmlu=str(tmp_path / "any.jsonl"))
    written(tmp_path / "empty.jsonl", [{"body": "no text"}])
    fails("empty.jsonl' .*'text': .*`data.forget_corpus`", forget_corpus=str(tmp_path / "empty.jsonl"))
    (tmp_path / "packed.JSONL.gz").write_bytes(gzip.compress((tmp_path / "empty.jsonl").read_bytes()))
    fails("packed.JSONL.gz' .*'text': .*`data.forget_corpus`", forget_corpus=str(tmp_path / "packed.JSONL.gz"))
    fails("documents=0 ", documents=0)
    fails("chunk=15 ", chunk=15)
