"""Rows of one's own: every form and file, any tokenizer, what is measured without a retrained model, and bad input."""

import csv
import gzip
import json
import re

import numpy as np
import pandas
import pyarrow
import pytest
from datasets import Dataset, DatasetDict
from pyarrow import parquet
from transformers import AutoTokenizer, GPT2LMHeadModel

from ofmu_pl.cli.commands import main
from ofmu_pl.data import RowEncoder, TextFiles, own_files, row_formats
from ofmu_pl.data.alternatives import REFUSALS
from ofmu_pl.data.own_files import read_source
from ofmu_pl.data.own_rows import form_of
from ofmu_pl.data.own_tokenizer import train_tokenizer
from ofmu_pl.data.text_files import NO_HOLDOUT
from ofmu_pl.evaluation.scoring import score_rows
from ofmu_pl.losses import IGNORED
from ofmu_pl.metrics import SetScores
from ofmu_pl.metrics.own_rows import own_rows_metrics
from ofmu_pl.support.errors import UserError
from ofmu_pl.support.keyed import hashed, key_of
from tests.helpers import citizen_rows
from tests.helpers.citizen_rows import SIDES, TRADES, asked, plain_tokenizer, random_gpt2

FORGET, RETAIN, HOLDOUT = SIDES.values()


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """A random GPT-2, whose tokenizer has neither a chat template nor a pad token."""
    folder = tmp_path_factory.mktemp("gpt2")
    tokenizer = plain_tokenizer()
    for part in (tokenizer, random_gpt2(tokenizer)):
        part.save_pretrained(folder)
    return folder


@pytest.fixture
def fit(model, tmp_path):
    """Two iterations of the shipped configuration; returns results.json."""

    def run(*options):
        folder = citizen_rows.fit(tmp_path, "--model.network.path", str(model), *options)
        return json.loads((folder / "results.json").read_text())

    return run


@pytest.mark.parametrize(("split", "times"), [("full", 1), ("retain", 0)])
def test_what_was_taught_says_how_it_is_made_to_forget(split, times, model, tmp_path, caplog):
    words = ["--config", "configs/text_finetune.yaml", "--logs", str(tmp_path), "--model.network.path", str(model)]
    words += ["--data.max_length", "64", "--trainer.max_steps", "1", "--evaluation.max_new_tokens", "2"]
    main(["fit", *words, "--method", "taught", "--model.split", split, *citizen_rows.files(tmp_path)])
    assert "Results: " in caplog.text
    assert len(re.findall(r"Next: .*text\.yaml.*/taught/version_0/hf", caplog.text)) == times


def test_the_command_on_files(fit, tmp_path, capsys):
    """No retrained model: the goal is what held-out rows have, and attacks that cannot tell them apart."""
    results = fit(*citizen_rows.files(tmp_path), "--table", "all")
    metrics = results["metrics"]
    for side, group in (("forget", "forgotten"), ("holdout", "unseen"), ("retain", "kept")):
        for measure in ("loss", "Q_A_Prob", "Q_A_ROUGE", "extraction_strength", "exact_memorization"):
            name = measure if side == "forget" and measure.startswith("ex") else f"{side}_{measure}"
            entry = metrics[name]
            assert entry["group"] == group
            assert len(entry["interval"]) == 2
            assert entry["n"] == {"forget": 4, "holdout": 4, "retain": 12}[side]
            unseen = metrics[f"holdout_{measure}"]["value"]
            assert entry["target"] == (pytest.approx(unseen) if side == "forget" else None)
    for attack in ("mia_loss", "mia_zlib", "mia_min_k", "mia_min_k_plus_plus"):
        low, high = metrics[attack]["interval"]
        assert metrics[attack]["target"] == 0.5
        assert 0 <= low <= metrics[attack]["value"] <= high <= 1
    assert metrics["privacy_score"]["target"] == 1.0
    assert metrics["mia_loss"]["column"] == 9, "the test of being gone is a column of the report"
    assert metrics.keys() == results["before"].keys()
    assert results["remark"].startswith("Nothing shows"), "a random model knows no row"
    out = capsys.readouterr().out
    assert "holdout_Q_A_Prob" in out
    assert out.index("Nothing shows") < out.index("forget_loss")
    assert "Forgotten:" not in out
    run = tmp_path / "logs/text/ofmu/version_0"
    assert "limit of 2 iterations" in (run / "audit.html").read_text()
    for page, first in ((run / "audit.html", "A model was made to forget"), (run / "hf/README.md", "This card")):
        text = page.read_text()
        assert 0 < text.index("Nothing shows") < text.index(first)


def test_documents_and_conversations(fit):
    """Pieces of unseen documents are the goal for pieces of documents; each turn that is kept is scored."""
    said = [{"role": "user", "content": "Who?"}, {"role": "assistant", "content": "I."}]
    pages = [[{"text": " ".join(row["answer"] for row in asked(numbers))}] for numbers in (range(9), range(20, 30))]
    sides = {"forget": pages[0], "holdout": pages[1], "retain": [{"messages": [*said, *said]}]}
    results = fit(*(f"--data.{name}={json.dumps(rows)}" for name, rows in sides.items()))
    metrics = results["metrics"]
    for measure in ("loss", "Prob", "extraction_strength", "exact_memorization"):
        unseen = metrics[f"holdout_doc_{measure}"]
        assert metrics[f"forget_doc_{measure}"]["target"] == unseen["value"]
        assert unseen["group"] == "unseen"
    assert metrics["mia_loss"]["target"] == metrics["mia_zlib"]["target"] == 0.5
    assert metrics["mia_loss"]["n"] == results["data"]["forget"]["rows"] + results["data"]["holdout_doc_eval"]["rows"]
    assert metrics["retain_Q_A_ROUGE"]["n"] == 2
    assert "forget_loss" not in metrics


def test_without_holdout_rows_it_is_said_what_cannot_be_told(fit, tmp_path, capsys):
    retain = json.dumps([{"text": row["question"] + row["answer"]} for row in RETAIN])
    options = ["--data.retain", retain, "--evaluation.definition", "open_unlearning"]
    options += ["--data.prompt_template", r"Q: {question}\nA:"]
    with pytest.warns(UserWarning, match=re.escape(NO_HOLDOUT)):
        results = fit(*citizen_rows.files(tmp_path, {"forget": FORGET}), *options)
    assert results["remark"].endswith(NO_HOLDOUT)
    assert NO_HOLDOUT in " ".join(capsys.readouterr().out.split())
    assert not [name for name in results["metrics"] if "mia" in name or "holdout" in name or "priv" in name]
    assert results["metrics"]["forget_Q_A_Prob"]["target"] is None
    run = tmp_path / "logs/text/ofmu/version_0"
    assert NO_HOLDOUT in " ".join((run / "audit.html").read_text().split())
    asked = json.loads((run / "TOFU_EVAL.json").read_text())["forget_Q_A_ROUGE"]
    assert asked["value_by_index"]["0"]["input"] == hashed(f"Q: {FORGET[0]['question']}\nA:", key_of(run))


def test_a_retrained_model_sets_the_goals_and_wrong_answers_switch_on_the_rest_of_tofus_suite():
    def scored(loss):
        values = np.full(4, loss)
        return SetScores(
            np.arange(4), values, values, np.full((4, 2), 3.0), tokens=values, correct=values, suffix=values
        )

    ours, theirs = ({"forget": scored(x), "retain": scored(1.0)} for x in (1.0, 2.0))
    got = own_rows_metrics(ours, theirs)
    assert got["forget_loss"].target == 2.0
    assert got["forget_Q_A_Prob"].target == pytest.approx(np.exp(-2.0))
    assert got["forget_quality_D"].value == 1.0
    assert got["retain_loss"].value == 1.0
    assert got["retain_loss"].target is None


def load(model, **options):
    data = TextFiles(**{"tokenizer": str(model), "max_length": 64, "batch_size": 2} | options)
    data.setup()
    return data


def said(data, stream="forget"):
    """Each row of a split as text: all of it, and what has a loss."""
    batch = data.collate(stream, list(range(len(data.splits[stream]))), 0)
    pairs = zip(batch["input_ids"], batch["labels"], batch["attention_mask"], strict=True)
    decode = data.tokenizer.decode
    return [(decode(ids[mask.bool()]), decode(labels[labels != IGNORED])) for ids, labels, mask in pairs]


END = "<|eot_id|>"


@pytest.mark.parametrize(
    ("row", "read", "learned"),
    [
        ({"question": "Who?", "answer": "I."}, f"Question: Who?\nAnswer: I.{END}", f" I.{END}"),
        ({"prompt": "He is ", "completion": "a baker."}, f"He is a baker.{END}", f" a baker.{END}"),
        (
            {
                "messages": [
                    {"role": "system", "content": "Be brief."},
                    {"role": "user", "content": "Who?"},
                    {"role": "assistant", "content": "I."},
                    {"role": "user", "content": "You?"},
                    {"role": "assistant", "content": "Me."},
                ]
            },
            f"Be brief.\n\nQuestion: Who?\nAnswer: I.{END}\nQuestion: You?\nAnswer: Me.{END}",
            f" I.{END} Me.{END}",
        ),
    ],
)
def test_every_form_without_a_chat_template(model, row, read, learned):
    data = load(model, forget=[row], retain=RETAIN)
    assert said(data) == [(read, learned)]
    turns = len(row.get("messages", [])) // 2 or 1
    encoded = [data.encoder.encode_row(x)[0] for x in data.evaluation_sets["forget"]]
    assert len(encoded) == turns, "each turn is evaluated on its own"
    asked = "".join(data.tokenizer.decode(x.input_ids[x.prompt_length :]) for x in encoded)
    assert asked == learned, "what is trained on is what is evaluated"
    prompts = [data.encoder.row_prompt(x) for x in data.evaluation_sets["forget"]]
    assert prompts == [x.input_ids[: x.prompt_length] for x in encoded]


ALPACA = [{"instruction": "Translate to French.", "input": word, "output": "mot"} for word in ("cat", "dog {question}")]
CALLED = {"question": "instruction", "answer": "output"}


def test_a_template_takes_other_columns(model):
    template = "I: {question}\\nWords: {input}\\nA {}:"
    data = load(model, full=ALPACA, forget_rows=[0], columns=CALLED, prompt_template=template)
    assert said(data)[0][0] == f"I: Translate to French.\nWords: cat\nA {{}}: mot{END}"
    assert said(data, "retain")[0][0] == f"I: Translate to French.\nWords: dog {{question}}\nA {{}}: mot{END}"
    assert (
        data.encoder.encode_row(data.evaluation_sets["forget"][0])[0].input_ids == data.encoded("forget")[0].input_ids
    )
    numbers, year = [{**FORGET[i], "year": i or None} for i in range(2)], "{year}: {question}"
    data = load(model, forget=numbers, retain=[{**RETAIN[0], "year": 7}], prompt_template=year)
    assert [text[:2] for text, _ in said(data)] == [": ", "1:"]


@pytest.mark.parametrize("name", ["answer", "output"])
def test_a_template_that_tells_the_answer_is_refused(name):
    """By any of its names; another column that says the same, as where a word is to be repeated, is none of them."""
    options = {"full": ALPACA, "forget_rows": [0], "columns": CALLED}
    with pytest.raises(UserError, match=rf"`{{{name}}}`.*`data\.prompt_template`"):
        TextFiles(**options, prompt_template=f"{{question}} {{{name}}}").load()
    options["full"] = [{**row, "input": "mot"} for row in ALPACA[:1]] + ALPACA[1:]
    assert TextFiles(**options, prompt_template="{question} {input}").load()


def test_conversations_as_others_write_them(model):
    """ShareGPT's from and value, and contents in parts, are the same rows as plain messages."""
    ours = [
        {"role": "system", "content": "Hi."},
        {"role": "user", "content": "A?"},
        {"role": "assistant", "content": "B."},
    ]
    senders = {"system": "system", "user": "human", "assistant": "gpt"}
    theirs = [{"from": senders[turn["role"]], "value": turn["content"]} for turn in ours]
    halves = lambda text: [{"type": "text", "text": text[:1]}, {"type": "text", "text": text[1:]}]  # noqa: E731
    parts = [{"role": turn["role"], "content": halves(turn["content"])} for turn in ours]
    forms = [{"messages": ours}, {"conversations": theirs}, {"messages": parts}]
    splits = [TextFiles([row], RETAIN, holdout=[{"messages": [*ours, *ours[1:]]}]).load()[0] for row in forms]
    assert splits[0] == splits[1] == splits[2]
    picture = [{"role": "user", "content": [{"type": "image"}]}, ours[-1]]
    tool = [*theirs[:2], {"from": "tool", "value": "x"}]
    for messages in (picture, tool, [{"from": ["gpt"], "value": "x"}], ["x"], "Who?"):
        with pytest.raises(UserError, match="Row 0"):
            TextFiles([{"conversations": messages}], RETAIN).load()


def test_a_tokenizer_without_an_end_token(model, tmp_path):
    """It was refused; the last token of an answer is now one of its words, and counts as such."""
    tokenizer = AutoTokenizer.from_pretrained(model)
    tokenizer.eos_token = None
    tokenizer.save_pretrained(tmp_path / "endless")
    with pytest.warns(UserWarning, match="endless'.* end "):
        data = load(tmp_path / "endless", forget=FORGET, retain=RETAIN)
    assert said(data)[0] == ("Question: What does citizen 0 do?\nAnswer: 0 is a baker.", " 0 is a baker.")
    network = GPT2LMHeadModel.from_pretrained(model).eval()
    scores = score_rows(network, data.encoder, data.evaluation_sets, max_new_tokens=2, thorough=True)
    labels = data.collate("forget", [0], 0)["labels"]
    assert scores["forget"].tokens[0] == (labels != IGNORED).sum()


def test_a_chat_template_is_used(model):
    tokenizer = train_tokenizer(["one two three", "user assistant system"])
    ours = RowEncoder(tokenizer, "Be brief.")
    assert ours.row_prompt(FORGET[0]) == ours.prompt(FORGET[0]["question"])
    before = [{"role": "user", "content": "one"}, {"role": "assistant", "content": "two"}]
    encoded = ours.encode_training_rows([{"question": "two", "answer": "three", "before": before}])[0]
    assert tokenizer.decode([x for x in encoded.labels if x != IGNORED]) == f"two{END}three{END}"
    assert ours.encode_row({"question": "two", "answer": "three", "before": before})[0].labels.count(IGNORED) > 9
    plain = RowEncoder(tokenizer, prompt_template="{question}\n")
    assert tokenizer.decode(plain.encode("one", "two").input_ids) == f"one\ntwo{END}"


def test_other_answers_for_methods_that_prefer_them(tmp_path, model):
    streams = ("forget", "retain", "alternative")
    splits, _ = TextFiles(FORGET, RETAIN, streams=streams).load()
    assert [row["question"] for row in splits["alternative"]] == [row["question"] for row in FORGET]
    assert {row["answer"] for row in splits["alternative"]} <= set(REFUSALS)
    rows = [{"prompt": "He is", "completion": " a baker."}]
    (tmp_path / "no.txt").write_text("unknown.\n")
    splits, _ = TextFiles(rows, RETAIN, streams=streams, alternatives=str(tmp_path / "no.txt")).load()
    assert splits["alternative"] == [{"question": "He is", "answer": " unknown.", "raw": True}]
    others = [{"question": row["question"], "answer": str(i)} for i, row in enumerate(FORGET)]
    for name, text in (("other.json", json.dumps(others, indent=1)), ("other.csv", pandas.DataFrame(others).to_csv())):
        (tmp_path / name).write_text(text)
        splits, _ = TextFiles(FORGET, RETAIN, streams=streams, alternatives=str(tmp_path / name)).load()
        assert [row["answer"] for row in splits["alternative"]] == [str(i) for i in range(len(FORGET))]
    (tmp_path / "other.csv.gz").write_bytes(gzip.compress((tmp_path / "other.csv").read_bytes()))
    packed, _ = TextFiles(FORGET, RETAIN, streams=streams, alternatives=str(tmp_path / "other.csv.gz")).load()
    assert packed["alternative"] == splits["alternative"]
    columns, own = {"question": "asked", "answer": "said"}, [[row["question"], row["answer"]] for row in FORGET]
    (tmp_path / "named.csv").write_text(pandas.DataFrame(own, columns=["asked", "said"]).to_csv())
    sides = [[{"asked": row["question"], "said": row["answer"]} for row in rows] for rows in (FORGET, RETAIN)]
    named = TextFiles(*sides, columns=columns, streams=streams, alternatives=str(tmp_path / "named.csv")).load()[0]
    assert [row["answer"] for row in named["alternative"]] == [row["answer"] for row in FORGET]
    with pytest.raises(UserError, match="question"):
        TextFiles(FORGET, RETAIN, streams=streams, alternatives=str(tmp_path / "named.csv")).load()
    turns = told("Who?", "Ann.", "Of where?", "Oslo.")
    (row,) = TextFiles([turns], [told("Who?", "Bob.")], streams=streams).load()[0]["alternative"]
    assert [turn["content"] for turn in row["before"]] == ["Who?", row["answer"]], "all turns are unlearnt"
    (tmp_path / "of.json").write_text(json.dumps([{"question": "Of where?", "answer": "Rome."}]))
    with pytest.raises(UserError, match="of.json'.*conversations"):
        TextFiles([turns], [told("Who?", "Bob.")], streams=streams, alternatives=str(tmp_path / "of.json")).load()
    with pytest.raises(UserError, match="Documents"):
        TextFiles([{"text": "one two"}], RETAIN, streams=streams, tokenizer=str(model)).load()


def test_documents_lose_no_token(model, tmp_path):
    texts = [" ".join(row["answer"] for row in asked_rows) for asked_rows in (asked(range(60)), asked(range(2)))]
    for name, text in zip("ab", texts, strict=True):
        (tmp_path / f"{name}.txt").write_text(text)
    (tmp_path / "empty.txt").write_text("\n")
    data = load(model, forget=str(tmp_path), retain=RETAIN, holdout=[{"text": "Nobody is here."}])
    pieces = [row["tokens"] for row in data.splits["forget"]]
    whole = [data.tokenizer(text)["input_ids"] for text in texts]
    assert pieces[:2] == [whole[0][:64], whole[0][64:128]]
    assert pieces[-2] == whole[0][-64:]
    assert pieces[-1] == whole[1]
    assert sum(piece == whole[1] for piece in pieces) == 1
    assert data.evaluation_sets.keys() == {"forget_doc", "retain", "holdout_doc"}
    assert said(data)[-1] == (texts[1], data.tokenizer.decode(whole[1][1:]))


def table(folder, end):
    path, rows = folder / f"rows{end}", [{**row, "town": "Gent"} for row in FORGET]
    if end == ".jsonl":
        citizen_rows.written(path, rows)
    elif end == ".json":
        path.write_text(json.dumps(rows))
    elif end == ".parquet":
        Dataset.from_list(rows).to_parquet(str(path))
    else:
        pandas.DataFrame(rows).to_csv(path, index=False, sep="\t" if end == ".tsv" else ",")
    return str(path)


@pytest.mark.parametrize("end", [".jsonl", ".json", ".csv", ".tsv", ".parquet"])
def test_every_file(end, tmp_path):
    splits, sets = TextFiles(forget=table(tmp_path, end), retain=RETAIN).load()
    assert splits["forget"] == sets["forget"] == FORGET
    assert splits["full"] == RETAIN + FORGET


def test_words_of_a_table_stay_as_they_are(tmp_path):
    path = tmp_path / "rows.csv"
    path.write_bytes('\ufeffquestion,answer\n"Which\nnumber, please?",007\nWhich word?,NA\n'.encode())
    splits, _ = TextFiles(forget=str(path), retain=RETAIN).load()
    assert [row["answer"] for row in splits["forget"]] == ["007", "NA"]
    assert splits["forget"][0]["question"] == "Which\nnumber, please?"


@pytest.mark.parametrize("end", ["\n", '"x\n'])
def test_a_long_text_of_a_table_changes_no_limit_of_the_process(tmp_path, end):
    """Python's own is for other tables, which whoever imports the library may read; it stays for a broken one, too."""
    path, limit = tmp_path / "rows.csv", csv.field_size_limit()
    path.write_text(f'text\n"{"x" * (limit + 1)}"{end}')
    if end == "\n":
        assert len(read_source(str(path), "forget").rows[0]["text"]) == limit + 1
    else:
        with pytest.raises(UserError, match="Line 2 of .*rows.csv'"):
            read_source(str(path), "forget")
    assert csv.field_size_limit() == limit


@pytest.mark.parametrize("separator", [";", "\t"])
def test_a_table_as_programs_write_it_where_a_comma_separates_decimals(tmp_path, separator):
    path = tmp_path / "rows.csv"
    lines = ["", "question; answer", "", '"Who, ""Ann""; or who?";Ann, a clerk', "Which?;", ""]
    path.write_text("\r\n".join(lines).replace(";", separator), newline="")
    rows = read_source(path, "forget")
    said = f'Who, "Ann"{separator} or who?'
    assert rows.rows == [{"question": said, "answer": "Ann, a clerk"}, {"question": "Which?", "answer": ""}]


@pytest.mark.parametrize(
    ("name", "asked_for"),
    [("hub:me/mine", ("me/mine", None, "train")), ("hub:me/mine/small/test", ("me/mine", "small", "test"))],
)
def test_the_hub(monkeypatch, name, asked_for):
    calls = []
    monkeypatch.setattr("ofmu_pl.data.own_files.load_hub_rows", lambda *words: calls.append(words) or FORGET)
    assert TextFiles(forget=name, retain=RETAIN).load()[0]["forget"] == FORGET
    assert calls == [asked_for]

    def refuse(*_):
        raise RuntimeError("Dataset scripts are no longer supported")

    monkeypatch.setattr("ofmu_pl.data.own_files.load_hub_rows", refuse)
    with pytest.raises(UserError, match="me/mine.*scripts"):
        TextFiles(forget=name, retain=RETAIN).load()


def test_copies_of_a_row_count_once(model):
    copies = [FORGET[0], dict(reversed(FORGET[1].items()))]
    other = {**FORGET[0], "answer": FORGET[0]["answer"].upper()}
    turns = [{"role": "user", "content": "Who?"}, {"role": "assistant", "content": "I."}]
    data = load(
        model, forget=[*FORGET, *copies, other], retain=[{"messages": turns}, {"messages": turns}], holdout=HOLDOUT * 3
    )
    splits = {name: len(rows) for name, rows in data.splits.items()}
    assert splits == {"forget": 5, "retain": 1, "holdout": 4, "full": 6}
    assert {name: len(rows) for name, rows in data.evaluation_sets.items()} == {"forget": 5, "retain": 1, "holdout": 4}
    assert data.splits["forget"] == [*FORGET, other]


def test_copies_of_a_piece_count_once(model):
    texts = [{"text": f"Citizen {i} has lived here since the flood of {i}."} for i in (1, 2, 1)]
    data = load(model, forget=texts, retain=RETAIN)
    assert len(data.splits["forget"]) == 2
    assert len(data.evaluation_sets["forget_doc"]) == 2


def test_columns_of_other_names_and_rows_chosen_from_one_file():
    rows = [{"q": row["question"], "a": row["answer"], "town": TRADES[i % 2]} for i, row in enumerate(RETAIN)]
    columns = {"question": "q", "answer": "a"}
    splits, _ = TextFiles(full=rows, columns=columns, forget_rows=[3, 1]).load()
    assert splits["forget"] == [RETAIN[1], RETAIN[3]]
    assert splits["retain"] == [RETAIN[0], RETAIN[2], *RETAIN[4:]]
    splits, _ = TextFiles(full=rows, columns=columns, forget_where="town=tailor").load()
    assert splits["forget"] == RETAIN[1::2]


@pytest.mark.parametrize(("value", "chosen"), [("true", [0, 2]), ("False", [1, 3]), ("null", [4]), ("2", [5])])
def test_rows_chosen_by_a_value_that_is_no_text(tmp_path, value, chosen):
    rows = [{**row, "gone": gone} for row, gone in zip(RETAIN, [True, False, True, False, None, 2], strict=False)]
    path = tmp_path / "rows.json"
    path.write_text(json.dumps(rows))
    splits, _ = TextFiles(full=str(path), forget_where=f"gone={value}").load()
    assert splits["forget"] == [RETAIN[i] for i in chosen]


def test_optional_columns_and_the_most_rows_that_are_evaluated():
    more = {"paraphrased_question": "What?", "paraphrased_answer": "So.", "perturbed_answer": "No."}
    _, sets = TextFiles(forget=[{**row, **more} for row in FORGET], retain=RETAIN, eval_rows=5).load()
    assert [row["question"] for row in sets["forget_paraphrased"]] == ["What?"] * 4
    assert sets["forget"][0]["perturbed_answer"] == ["No."]
    assert sets["retain"] == [RETAIN[k * 12 // 5] for k in range(5)]
    _, sets = TextFiles(forget=[{**FORGET[0], **more}, FORGET[1]], retain=RETAIN).load()
    assert sets["forget"] == FORGET[:2], "not every row has them"


@pytest.mark.parametrize(("chosen", "near"), [("U-17", 2), ("José", 1)])
def test_near_misses_of_a_chosen_value_are_reported(chosen, near):
    users = ["U-17", "U-17 ", "u-17", "José", "Jose\u0301", "V"]
    rows = [{**row, "user": user} for row, user in zip(RETAIN, users, strict=False)]
    with pytest.warns(UserWarning, match=f"{near} .*'{chosen}' in 'user'"):
        assert len(TextFiles(full=rows, forget_where=f"user={chosen}").load()[0]["forget"]) == 1


def test_a_forget_passage_inside_a_retain_document_is_reported(model):
    secret = " ".join(f"Word{i}" for i in range(40))
    texts = {"forget": [{"text": secret}], "retain": [{"text": "A day."}, {"text": f"It began. {secret} So it ended."}]}
    with pytest.warns(UserWarning, match=r"Row 0 .*forget' and Row 1 .*retain'"):
        TextFiles(**texts, tokenizer=str(model)).load()
    kept, longer = [{"text": "A day."}], [{"text": f"It began. {secret} So it ended."}]
    with pytest.warns(UserWarning, match=r"Row 0 .*holdout' and Row 0 .*forget'"):
        TextFiles(texts["forget"], kept, longer, tokenizer=str(model)).load()
    with pytest.warns(UserWarning, match=r"Row 0 .*holdout' and Row 1 .*retain'"):
        TextFiles(kept, [{"text": "B day."}, *texts["forget"]], longer, tokenizer=str(model)).load()


def test_hidden_files_and_folders_are_no_documents(tmp_path):
    for place in ("a.txt", "B.TXT", ".drafts/b.txt", "sub/.c.txt"):
        (tmp_path / place).parent.mkdir(exist_ok=True)
        (tmp_path / place).write_text(f"{place} is here")
    assert read_source(str(tmp_path), "full").rows == [{"text": "B.TXT is here"}, {"text": "a.txt is here"}]
    for listed in ([tmp_path / "a.txt"], [str(tmp_path / "a.txt")]):
        with pytest.raises(UserError, match=r"`full` .*a\.txt'"):
            read_source(listed, "full")


@pytest.fixture
def place(tmp_path):
    """Writes files of a folder by name, and returns it."""

    def write(**contents):
        for name, content in contents.items():
            path = tmp_path / "place" / name.replace("__", "/").replace("_", ".")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return tmp_path / "place"

    return write


def test_a_folder_of_texts_with_markdown_and_what_is_linked_there(place, tmp_path):
    folder = place(b_md="# Falbro", a_txt="Ann", sub__c_txt="Cleo")
    for path in ("archive/d.txt", "e.txt"):
        (tmp_path / path).parent.mkdir(exist_ok=True)
        (tmp_path / path).write_text(f"{path} tells")
    (folder / "archive").symlink_to(tmp_path / "archive")
    (folder / "e.txt").symlink_to(tmp_path / "e.txt")
    (folder / "sub/back").symlink_to(folder)  # a circle
    rows = read_source(str(folder), "data.forget")
    assert [row["text"] for row in rows.rows] == ["Ann", "archive/d.txt tells", "# Falbro", "e.txt tells", "Cleo"]
    assert rows.files == 5
    assert rows.place(4) == f"'sub/c.txt' of '{folder}'"
    (folder / "gone.txt").symlink_to(tmp_path / "nothing.txt")
    with pytest.raises(UserError, match=r"gone\.txt"):
        read_source(str(folder), "data.forget")


@pytest.mark.parametrize("name", ["b.html", "b.docx", "b", "letters/b.pdf"])
def test_what_is_not_understood_stops_on_the_forget_side_and_is_reported_elsewhere(place, name):
    folder = place(a_txt="Ann", letters__c_txt="Cleo")
    (folder / name).write_text("Ann")
    for option in ("data.forget", "data.full"):
        with pytest.raises(UserError, match=rf"1 of 3 files .*{name}"):
            read_source(str(folder), option)
    for option in ("data.retain", "data.holdout"):
        with pytest.warns(UserWarning, match=rf"1 of 3 files .*{name}"):
            assert len(read_source(str(folder), option).rows) == 2


def shards(folder, name, number, of):
    """Files of two rows each, as the hub has them; returns all rows."""
    rows = [{"question": f"Who lives in {i}?", "answer": f"Number {i}."} for i in range(2 * of)]
    folder.mkdir(parents=True, exist_ok=True)
    for i in range(number):
        table = pyarrow.Table.from_pylist(rows[2 * i : 2 * i + 2])
        parquet.write_table(table, folder / f"{name}-{i:05}-of-{of:05}.parquet")
    return rows


def test_shards_of_parquet_are_one_source(tmp_path):
    rows = shards(tmp_path / "data", "train", 3, 3)
    read = read_source(str(tmp_path / "data"), "data.forget")
    assert (read.rows, read.files) == (rows, 3)
    assert read.place(3) == f"Row 1 (counted from 0) of 'train-00001-of-00003.parquet' of '{tmp_path / 'data'}'"
    shards(tmp_path / "data", "test", 1, 1)
    with pytest.raises(UserError, match="test, train"):
        read_source(str(tmp_path / "data"), "data.forget")
    shards(tmp_path / "half", "train", 2, 3)
    with pytest.raises(UserError, match="2 of 3 shards"):
        read_source(str(tmp_path / "half"), "data.retain")


def test_a_folder_of_lines_and_tables_is_one_source_and_texts_among_them_are_refused(place):
    line = json.dumps(RETAIN[0])
    folder = place(a_jsonl=line, sub__b_csv="question,answer\nWho?,I.\n")
    read = read_source(str(folder), "data.retain")
    assert read.rows == [RETAIN[0], {"question": "Who?", "answer": "I."}]
    assert read.place(0) == f"Line 1 of 'a.jsonl' of '{folder}'"
    place(README_md="# Rows")
    with pytest.raises(UserError, match=r"Line 1 of 'a\.jsonl' .*two files"):
        form_of(read_source(str(folder), "data.retain"), {})


def test_what_datasets_has_saved_to_disk(tmp_path):
    rows = [*RETAIN[:3]]
    Dataset.from_list(rows).save_to_disk(tmp_path / "one", num_shards=2)
    DatasetDict(train=Dataset.from_list(rows)).save_to_disk(tmp_path / "dict")
    DatasetDict(train=Dataset.from_list(rows), test=Dataset.from_list(rows)).save_to_disk(tmp_path / "parts")
    for name, files in (("one", 2), ("dict", 1), ("parts/train", 1)):
        read = read_source(str(tmp_path / name), "data.forget")
        assert (read.rows, read.files) == (rows, files)
    with pytest.raises(UserError, match="train, test"):
        read_source(str(tmp_path / "parts"), "data.forget")
    (tmp_path / "one/data-00001-of-00002.arrow").write_bytes(b"half")
    with pytest.raises(UserError, match="no data set that can be loaded"):
        read_source(str(tmp_path / "one"), "data.forget")


PACKED = {
    "rows.jsonl.gz": ("\n".join(map(json.dumps, RETAIN[:2])), RETAIN[:2]),
    "rows.ndjson": ("\n".join(map(json.dumps, RETAIN[:2])), RETAIN[:2]),
    "rows.JSON.GZ": (json.dumps(RETAIN[:2]), RETAIN[:2]),
    "rows.csv.gz": ("question,answer\r\nWho?,I.\r\n", [{"question": "Who?", "answer": "I."}]),
    "rows.tsv.gz": ("question\tanswer\nWho, you?\tI.\n", [{"question": "Who, you?", "answer": "I."}]),
    "page.txt.gz": ("\ufeffOne day.\r\nTwo.", [{"text": "One day.\nTwo."}]),
}


@pytest.mark.parametrize("name", PACKED)
def test_packed_files(tmp_path, name):
    text, rows = PACKED[name]
    content = text.encode()
    (tmp_path / name).write_bytes(gzip.compress(content) if name.lower().endswith(".gz") else content)
    assert read_source(str(tmp_path / name), "data.forget").rows == rows


@pytest.mark.parametrize("how", ["cut", "not packed", "too large"])
def test_packed_files_that_cannot_be_read(tmp_path, monkeypatch, how):
    path = tmp_path / "rows.jsonl.gz"
    packed = gzip.compress(json.dumps(RETAIN).encode())
    path.write_bytes({"cut": packed[:-9], "not packed": b"{}"}.get(how, packed))
    if how == "too large":
        monkeypatch.setattr(row_formats, "LARGEST_JSON", 100)
    with pytest.raises(UserError, match=r"rows\.jsonl\.gz' (cannot be unpacked|has more than 100 bytes)"):
        read_source(str(path), "data.forget")


def test_how_many_files_and_rows_were_read_is_said(place, model, caplog):
    folder = place(a_txt="Ann lives in Ulm.", b_txt="Ann was born in Ulm.")
    with caplog.at_level("INFO", logger="lightning.pytorch.utilities.rank_zero"):
        TextFiles(str(folder), RETAIN, tokenizer=str(model)).load()
    assert "Read: forget 2 row(s) of 2 file(s), retain 12 row(s)." in caplog.text


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("jq.jsonl", "\n".join(json.dumps(row, indent=1) for row in RETAIN)),
        ("squad.json", json.dumps({"version": "1", "text": "About us.", "data": RETAIN})),
        ("split.json", json.dumps({"train": RETAIN})),
        ("lines.json", "\n".join(map(json.dumps, RETAIN))),
        ("pandas.json", json.dumps({name: {str(i): x[name] for i, x in enumerate(RETAIN)} for name in RETAIN[0]})),
    ],
)
def test_json_as_jq_pandas_and_benchmarks_write_it(tmp_path, name, text):
    (tmp_path / name).write_text(text)
    rows = read_source(str(tmp_path / name), "full")
    assert rows.rows == RETAIN
    assert rows.marks[1][:6] == {"jq.jsonl": "Line 5", "lines.json": "Line 2"}.get(name, "Row 1 ")


@pytest.mark.parametrize("column", ["messages", "conversations"])
def test_the_turns_of_one_row_are_no_rows(tmp_path, column):
    row = {"source": "a", column: [{"from": "human", "value": "Who?"}, {"from": "gpt", "value": "I."}]}
    for one in (row, RETAIN[0] | {"related": [RETAIN[1]]}):
        (tmp_path / "one.json").write_text(json.dumps(one, indent=1))
        assert read_source(str(tmp_path / "one.json"), "full").rows == [one]


def test_objects_of_python_that_hold_rows():
    frame = pandas.DataFrame(RETAIN)
    for source in (frame, DatasetDict(train=Dataset.from_pandas(frame)), iter(RETAIN)):
        assert read_source(source, "full").rows == RETAIN
    lists = pandas.DataFrame({"question": ["Who?"], "perturbed_answer": [np.array(["a", "b"])]})
    assert read_source(lists, "full").rows == [{"question": "Who?", "perturbed_answer": ["a", "b"]}]
    assert read_source(["a text", "another"], "full").rows == [{"text": "a text"}, {"text": "another"}]
    with pytest.raises(UserError, match="`full` .*train, test"):
        read_source({"train": RETAIN, "test": RETAIN}, "full")


def messages(*roles):
    return {"messages": [{"role": role, "content": "x"} for role in roles]}


def told(*texts):
    """A conversation of these turns."""
    return {"messages": [{"role": ("user", "assistant")[i % 2], "content": x} for i, x in enumerate(texts)]}


BAD = {
    "overlap but for capitals": (
        {"retain": [*RETAIN, {**FORGET[2], "answer": f" {FORGET[2]['answer'].upper()}"}]},
        "1 of 4",
    ),
    "holdout was trained on": ({"holdout": [HOLDOUT[0], FORGET[0]]}, "1 of 2 holdout .* Row 1 "),
    "a turn of a retained conversation": (
        {"forget": [told("Who?", "I.")], "retain": [told("Who?", "I.", "And?", "You.")]},
        "1 of 1 forget .*retain",
    ),
    "no answer": ({"forget": [FORGET[0], {"question": "Who?"}]}, "Row 1 .* 'data.forget' .* 'answer'"),
    "no rows": ({"forget": []}, "^'data.forget' .*`data.forget`"),
    "no source": ({"forget": None}, "`data.forget`"),
    "two ways": ({"full": RETAIN}, "`data.full` beside `data.forget`"),
    "rows of no file": ({"forget_rows": np.array([1, 2])}, "`data.full`"),
    "no such column": ({"columns": {"question": "prompt"}}, "'prompt'.*`data.columns`.*question, answer"),
    "no form": ({"forget": [{"q": "Who?", "a": "I."}]}, " q, a "),
    "mixed forms": ({"forget": [FORGET[0], {"text": "It."}]}, "Row 1 .* 'text'.* 'question'"),
    "holdout of another form": ({"holdout": [{"text": "It is."}]}, "holdout .*'text', .*forget .*'question'"),
    "the user's last word": ({"forget": [messages("user")]}, "Row 0 .*roles user,"),
    "wrong answers differ": (
        {"forget": [{**row, "perturbed_answer": ["x"] * n} for n, row in enumerate(FORGET, start=1)]},
        "Row 1 .* 2 .*'perturbed_answer'",
    ),
    "no wrong answer": ({"forget": [{**row, "perturbed_answer": ["x", ""]} for row in FORGET]}, "'perturbed_answer'"),
    "columns without names": ({"forget": [{**FORGET[0], 1: "x"}]}, "Row 0 .*columns"),
    "a template without a place": ({"prompt_template": "Q:"}, "`data.prompt_template` is 'Q:'"),
    "a template of no column": ({"prompt_template": "{question} {x}"}, "'x'.*`data.prompt_template`"),
    "a template of conversations": (
        {"forget": [{**messages("user", "assistant"), "mood": "x"}], "prompt_template": "{mood} {question}"},
        "`{mood}`.*`data.prompt_template`",
    ),
    "a list of ways to ask": ({"forget": [{**FORGET[0], "paraphrased_question": ["x"]}]}, "'paraphrased_question'"),
    "a document of nothing": ({"forget": [{"text": " "}]}, "empty.*`data.forget`"),
    "pieces of one token": ({"forget": [{"text": "One two."}], "max_length": 1}, "data.max_length .*1,"),
    "a missing file": ({"forget": "nowhere.jsonl"}, "'nowhere.jsonl'"),
    "half a name on the hub": ({"forget": "hub:mine"}, "'hub:mine'.*`data.forget`"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_rows(case, model):
    changes, words = BAD[case]
    with pytest.raises(UserError, match=words):
        load(model, **{"forget": FORGET, "retain": RETAIN, **changes})


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({}, "`data.full`.*`data.forget_rows`.*`data.forget_where"),
        ({"forget_rows": [12]}, "data.forget_rows=12"),
        ({"forget_rows": [1, 2, 1]}, "data.forget_rows .*1 2"),
        ({"forget_rows": [True, False]}, "data.forget_rows=True"),
        ({"forget_rows": list(range(12))}, "`data.forget_rows` .*12 of 12"),
        ({"forget_where": "answer=none"}, "0 of 12 .*`data.forget_where`"),
        ({"forget_where": "half=both"}, "12 of 12 .*`data.forget_where`"),
        ({"forget_where": "author=Falbro"}, "'author'.*`data.forget_where`"),
        ({"forget_where": "Falbro"}, "`data.forget_where` .*COLUMN=VALUE"),
        ({"forget_rows": "nowhere.txt"}, "`data.forget_rows` 'nowhere.txt'"),
    ],
)
def test_bad_choices(options, words):
    with pytest.raises(UserError, match=words):
        TextFiles(full=[{**row, "half": "both"} for row in RETAIN], **options).load()


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("a.csv", b"question,answer\nq,caf\xe9\n", "Line 2 of .* UTF-8 .*LATIN1"),
        ("a.txt", "café".encode("utf-16"), "UTF-16"),
        ("a.csv", b"a,b\n\x93c\x94,d\n", "CP1252"),
        ("a.csv", b"a,b\nc\0,dddd\n", "Line 2 .* NUL"),
        ("a.jsonl", b'{"question": "q", "answer": "a"}\n\n{"question":', "Line 3 of .* JSON"),
        ("a.jsonl", rb'{"question": "q", "answer": "\ud83d!"}', r"Line 1 of .* \(\\ud83d"),
        ("a.json", b'[{"question": ', "JSON .*line 1 column 15"),
        ("a.csv", b"question,answer\nq,a\nq,a,b,c\n", "^Line 3 of .*columns"),
        ("a.csv", b'question,answer\n"Who?,Ann\nr,Bob\n', "^Line 3 of .* table"),
        ("a.csv", b'question, answer\n"Who?", "Ann"\n', "^Line 2 of .* space "),
        ("a.csv", b"question,answer,answer\nq,a,b\n", r"columns .*\(question, answer, answer\)"),
        ("a.parquet", b"PAR1", "parquet"),
        ("a.docx", b"", r"\.jsonl, \.ndjson, \.json, \.csv"),
    ],
)
def test_bad_files(tmp_path, name, content, words):
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(UserError, match=words) as error:
        TextFiles(forget=str(path), retain=RETAIN).load()
    assert str(path) in str(error.value)


@pytest.mark.parametrize("column", [["x" * 2000] * 16, ["x" * 32000], ["x"] * 200])
def test_a_small_parquet_file_that_stands_for_much_is_refused(tmp_path, monkeypatch, column):
    monkeypatch.setattr(row_formats, "LARGEST_LINE", 1000)
    monkeypatch.setattr(row_formats, "LARGEST_TABLE", 100)
    path = tmp_path / "rows.parquet"
    parquet.write_table(pyarrow.table({"text": column}), path)
    with pytest.raises(UserError, match="rows.parquet.* 1000.* 100 "):
        read_source(str(path), "forget")


@pytest.mark.parametrize("kind", ["text", "listed once", "view", "turns", "bytes"])
def test_a_cell_of_parquet_has_a_bound_of_its_own(tmp_path, monkeypatch, kind):
    """Less than sixteen rows may have together, and more than one may."""
    monkeypatch.setattr(row_formats, "LARGEST_LINE", 1000)
    cells = {"text": ["x" * 2000, *"abc"], "bytes": [b"x" * 2000, b"a"]}
    cells["turns"] = [[{"role": "user", "content": "x" * 2000}], [{"role": "user", "content": "a"}]]
    cells["listed once"] = pyarrow.array(["x" * 600, "y" * 600, "x" * 600]).dictionary_encode()
    cells["view"] = pyarrow.array(["x" * 2000, "a"], type=pyarrow.string_view())
    path = tmp_path / "rows.parquet"
    parquet.write_table(pyarrow.table({"text": cells[kind]}), path)
    if kind == "listed once":
        assert len(read_source(str(path), "forget").rows) == 3, "each is as long as a row may be"
        return
    with pytest.raises(UserError, match=r"rows.parquet' .* 20\d\d .* 1000"):
        read_source(str(path), "forget")


@pytest.mark.parametrize("name", ["rows.json", "rows.jsonl", "rows.csv", "rows.txt"])
def test_no_text_is_longer_than_a_line_may_be(tmp_path, monkeypatch, name):
    for module in (own_files, row_formats):
        monkeypatch.setattr(module, "LARGEST_LINE", 1000)
    content = {"rows.txt": "x" * 2000, "rows.csv": "text\n" + "x" * 2000}
    content["rows.jsonl"] = json.dumps({"text": "x" * 2000})
    path = tmp_path / name
    path.write_text(content.get(name, json.dumps([{"text": "x" * 2000}])))
    with pytest.raises(UserError, match=rf"{name}.*1000"):
        read_source(str(path), "forget")


def test_a_mark_in_front_and_ends_of_lines_are_no_part_of_a_text(tmp_path):
    """As programs on Windows write them: U+FEFF before the first line, and a carriage return at the end of each."""
    path, streams = tmp_path / "lines", ("forget", "retain", "alternative")
    path.write_text("\ufeffNo idea.\r\n", encoding="utf-8", newline="")
    splits, _ = TextFiles(FORGET, RETAIN, streams=streams, alternatives=str(path)).load()
    assert {row["answer"] for row in splits["alternative"]} == {"No idea."}
    rows = [{"question": row["question"], "answer": "-"} for row in FORGET]
    path.write_text("\ufeff" + "\n".join(map(json.dumps, rows)), encoding="utf-8")
    splits, _ = TextFiles(FORGET, RETAIN, streams=streams, alternatives=str(path)).load()
    assert {row["answer"] for row in splits["alternative"]} == {"-"}
    path.write_text("\ufeff1\r\n3\r\n", encoding="utf-8", newline="")
    splits, _ = TextFiles(full=RETAIN, forget_rows=path).load()
    assert splits["forget"] == [RETAIN[1], RETAIN[3]]
