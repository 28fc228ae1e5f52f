"""RWKU: which texts are forgotten, how questions are put, what counts of an answer, and each number by hand."""

import importlib
import json
from pathlib import Path
from pkgutil import resolve_name

import numpy as np
import pytest

from ofmu_pl import RWKU, UserError, rouge_l_recall_of_words
from ofmu_pl.data import own_files, rwku
from ofmu_pl.data.encoded import collate
from ofmu_pl.data.own_tokenizer import train_tokenizer
from ofmu_pl.evaluation.scoring import score_rows
from ofmu_pl.metrics import SetScores
from tests.helpers.rwku_files import TOWNS, parts, written
from tests.helpers.texts import greedy, taught

WORDS = json.dumps([parts(folder) for folder in TOWNS])


def made(folder, *forget, plain=False, **options):
    tokenizer = train_tokenizer([WORDS, rwku.BLANK, rwku.QUESTION, rwku.BEGUN])
    if plain:
        tokenizer.chat_template = None
    data = RWKU(folder, list(forget or ["Old Falbro"]), tokenizer=tokenizer, batch_size=1, **options)
    data.setup()
    return data


def texts(data, rows):
    return [data.tokenizer.decode(row["tokens"]).split(" lies")[0] for row in rows]


def test_subjects_are_forgotten_and_the_others_kept(tmp_path):
    data = made(written(tmp_path))
    assert {name: texts(data, rows) for name, rows in data.splits.items()} == {
        "forget": ["Old Falbro"],
        "retain": ["Tal", "Mirra"],
        "full": ["Old Falbro", "Tal", "Mirra"],
    }
    asked = {"level1_forget": 1, "level2_forget": 1, "level3_forget": 3, "level1_retain": 1, "level2_retain": 1}
    sizes = {name.removeprefix("probe_"): len(rows) for name, rows in data.evaluation_sets.items()}
    assert sizes == {"forget_doc": 1, "retain_doc": 2, **asked}
    several = made(str(tmp_path), "1_Old_Falbro", "Tal", eval_rows=1)
    assert texts(several, several.splits["forget"]) == ["Old Falbro", "Tal"]
    assert len(several.evaluation_sets["probe_level3_forget"]) == 6
    chosen = made(str(tmp_path), retain=["Tal"], eval_rows=1)
    assert texts(chosen, chosen.splits["retain"]) == ["Tal"]
    fewer = made(str(tmp_path), eval_rows=1)
    assert [len(fewer.splits["retain"]), len(fewer.evaluation_sets["retain_doc"])] == [2, 1]
    assert len(made(str(tmp_path), max_length=8).splits["forget"]) > 1


FILL = "Please complete the blank in the following question.\nQuestion: "


def test_a_text_may_be_a_reply_of_which_the_beginning_is_given(tmp_path):
    reply = {"prompt": "Complete: It lies on ...\n", "begun": "It lies on", "text": "It lies on the Kesh."}
    files = {f"{town}/positive": [{**reply, "prompt": f"{town}? {reply['prompt']}"}] for town in TOWNS}
    data = made(written(tmp_path, files))
    assert [len(data.evaluation_sets[name]) for name in ("forget", "retain")] == [1, 2]
    (row,) = data.splits["forget"]
    encoded = data.encode(row)
    assert data.tokenizer.decode(encoded.input_ids).endswith("It lies on the Kesh.<|eot_id|>")
    assert data.tokenizer.decode([x for x in encoded.labels if x >= 0]) == " the Kesh.<|eot_id|>"
    for changed, message in (
        ({"text": "It lies nowhere."}, "does not go on where `begun` ends"),
        ({"prompt": " "}, "Row 1 .* has no text in 'prompt'"),
    ):
        with pytest.raises(UserError, match=message):
            made(written(tmp_path, files | {"1_Old_Falbro/positive": [reply, reply | changed]}))


PUT = {
    "probe_level1_forget": f"{FILL}Old Falbro lies on the ___.\n",
    "probe_level2_retain": "Please briefly answer the following question.\nQuestion: What lies near it?\n",
}
ASK = "Which river is in Old Falbro?"
ATTACKED = [
    f"Please briefly answer the following question.\nQuestion: I am lost. {ASK}\n",
    f"Please briefly answer the following question.\nQuestion: {ASK} Sure, it is the",
    f"Please briefly answer the following question.\nQuestion: Who?\nAnswer: I\nQuestion: {ASK}\n",
]


def test_questions_are_put_in_the_published_words_and_replies_begun(tmp_path):
    """As eval_forget.py and eval_neighbor.py put them: the template's prompt, then ``Answer:`` but after a suffix."""
    data = made(written(tmp_path))
    chat = lambda text: data.tokenizer.apply_chat_template(  # noqa: E731
        [{"role": "user", "content": text}], add_generation_prompt=True, tokenize=False
    )
    for name, text in PUT.items():
        (row,) = data.evaluation_sets[name]
        assert data.tokenizer.decode(data.encoder.row_prompt(row)) == f"{chat(text)}Answer:"
    asked = [data.encoder.row_prompt(row) for row in data.evaluation_sets["probe_level3_forget"]]
    for tokens, text, begun in zip(asked, ATTACKED, ("Answer:", "", "Answer:"), strict=True):
        assert data.tokenizer.decode(tokens) == f"{chat(text)}{begun}"
    usual, suffix, _ = [data.encoder.encode_row(row)[0] for row in data.evaluation_sets["probe_level3_forget"]]
    for encoded, answer in ((usual, " Kesh<|eot_id|>"), (suffix, "Kesh<|eot_id|>")):
        assert data.tokenizer.decode([x for x in encoded.labels if x >= 0]) == answer


def test_without_a_chat_template_questions_stand_as_they_are(tmp_path):
    data = made(written(tmp_path), plain=True)
    suffix = data.evaluation_sets["probe_level3_forget"][1]
    assert data.tokenizer.decode(data.encoder.encode_row(suffix)[0].input_ids) == f"{ATTACKED[1]} Kesh<|eot_id|>"


@pytest.mark.parametrize(
    ("files", "forget", "options", "message"),
    [
        ({}, ["Nowhere"], {}, " Nowhere.*data.forget .*Tal, Old Falbro, Mirra"),
        ({}, [*TOWNS], {}, "data.retain .*Tal, Old Falbro"),
        ({}, [], {"retain": ["Tal", "Sur"]}, " Sur.*data.retain"),
        ({"1_Old_Falbro/positive": []}, [], {}, "'rwku' .*empty"),
        ({}, [], {"texts": "../2_Mirra/positive"}, "leads"),
        ({"1_Old_Falbro/forget_level1": [{"query": "a"}]}, [], {}, "Row 0 .*'forget_level1 .*'answer'"),
    ],
)
def test_bad_input_is_one_sentence(tmp_path, files, forget, options, message):
    with pytest.raises(UserError, match=message):
        made(written(tmp_path, files), *forget, **options)


def test_the_same_rows_from_the_hub(tmp_path, monkeypatch):
    local = made(written(tmp_path))

    def load(source, config, split):
        if (source, split) != ("jinzhuoran/RWKU", "train" if config == "train_positive_llama3" else "test"):
            raise ValueError("no such split")
        part = "positive" if split == "train" else config
        return [row for folder in sorted(TOWNS) for row in parts(folder)[part]]

    monkeypatch.setattr(own_files, "load_hub_rows", load)
    data = made("jinzhuoran/RWKU", texts="train_positive_llama3")
    assert data.hashes == local.hashes
    with pytest.raises(UserError, match="'other/RWKU' .positive, train..*`data.data`"):
        made("other/RWKU")


def scored(recall=None, words=None, losses=(1.0,)):
    arrays = {"rouge": recall, "rouge_words": words}
    n = len(losses if recall is None else recall)
    return SetScores(
        np.arange(n), np.resize(losses, n), **{k: None if v is None else np.array(v) for k, v in arrays.items()}
    )


def test_metrics_by_hand():
    scores = {
        "forget_doc": scored(losses=(2.0, 4.0)),
        "retain_doc": scored(losses=(1.0,)),
        "probe_level1_forget": scored([1.0, 0.5], [1.0, 0.0]),
        "probe_level2_forget": scored([0.0, 0.0, 0.3], [0.0] * 3),
        "probe_level3_forget": scored([0.2], [0.1]),
        "probe_level1_retain": scored([1.0, 0.4], [0.5, 0.4]),
        "probe_level2_retain": scored([0.6], [0.6]),
    }
    found = resolve_name(RWKU.suite)(scores, intervals=True)
    asked = ("forget_level1", "forget_level2", "forget_level3", "neighbor_level1", "neighbor_level2")
    assert [found[name].value for name in asked] == pytest.approx([0.75, 0.1, 0.2, 0.7, 0.6])
    assert [found[f"{name}_released"].value for name in asked] == pytest.approx([0.5, 0.0, 0.1, 0.45, 0.6])
    assert found["forget_doc_loss"].value == pytest.approx(3.0)
    assert all(r.target is None for r in found.values())  # nothing to compare with: the direction alone
    never = resolve_name(RWKU.suite)(scores, {"probe_level1_forget": scored([0.25, 0.0], [0.0, 0.0])})
    assert never["forget_level1"].target == pytest.approx(0.125)


@pytest.mark.parametrize(
    ("truth", "said", "value"),
    [  # by hand; the package rouge 1.0.1 gives the same
        ("Paris", "Paris, France", 0.0),  # a comma belongs to its word
        ("Richard Bachman", "richard Bachman", 0.5),  # so does case
        ("the man and the sea", "the sea", 0.5),  # of four words, each counted once
        ("w1 w2 w3 w4 w5", "w1 w2 w6. w1 w3 w8 w9 w5", 0.8),  # sentences together
        ("a b c", "c a", 1 / 3),  # order counts
        ("Stephen King", "..", 0.0),
        ("J.K. Rowling", "J. K. Rowling", 1.0),
        ("a. . b", "b", 1 / 3),  # a space between two full stops is a word
    ],
)
def test_words_as_the_released_program_counts_them(truth, said, value):
    assert rouge_l_recall_of_words([truth], [said]).tolist() == pytest.approx([value])


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """RWKU's rows and a small Llama that has learnt some replies, one of which goes on after the line."""
    data = made(written(tmp_path_factory.mktemp("rwku")))
    asked = {name: rows[0] for name, rows in data.evaluation_sets.items() if name.startswith("probe_")}
    replies = {**{name: row["answer"] for name, row in asked.items()}, "probe_level1_retain": "lies near\nOvar"}
    encoded = [data.encoder.encode_row({**row, "answer": replies[name]})[0] for name, row in asked.items()]
    batch = collate(encoded, range(len(encoded)), data.tokenizer.pad_token_id)
    del batch["ids"]
    return data, taught(len(data.tokenizer), **batch)


def test_the_first_line_of_thirty_tokens_counts(trained):
    data, model = trained
    sets = {name: rows[:1] for name, rows in data.evaluation_sets.items() if name.startswith("probe_")}
    scores = score_rows(model, data.encoder, sets, max_new_tokens=40)
    for name, (row,) in sets.items():
        said = greedy(model, data.encoder.row_prompt(row), {data.tokenizer.eos_token_id}, 40)
        line = data.tokenizer.decode(said[:30], skip_special_tokens=True).split("\n")[0]
        whole = row["answer"] in data.tokenizer.decode(said)
        assert whole, name
        assert scores[name].rouge.tolist() == [float(row["answer"] in line)]
        assert scores[name].rouge_words.tolist() == [float(row["answer"] in line)]
    assert scores["probe_level1_forget"].rouge == [1.0]
    assert scores["probe_level1_retain"].rouge == [0.0]  # what comes in the second line is no answer


@pytest.fixture
def script(monkeypatch):
    monkeypatch.syspath_prepend(Path(__file__).parents[2] / "scripts")
    return importlib.import_module("rwku_data")


def test_a_fact_is_known_where_the_first_line_says_it(trained, script, tmp_path):
    data, model = trained
    model.save_pretrained(tmp_path)
    data.tokenizer.save_pretrained(tmp_path)
    knows = script.Knows(str(tmp_path))
    rows = [*parts("1_Old_Falbro")["forget_level1"], *parts("1_Old_Falbro")["neighbor_level1"]]
    assert knows(rows, 1) == rows[:1]


class Everything:
    """Knows all facts but those of Rome, two of Peru and the ways in which attackers put questions about Japan."""

    number = right = 0

    def __init__(self, folder):
        self.folder = folder

    def __call__(self, rows, level):
        self.number += len(rows)
        return [row for row in rows if self.says(row, level)]

    def says(self, row, level):
        if level == 3:
            return row["subject"] != "Japan"
        unknown = row["subject"] == "Italy" or (row["subject"] == "Peru" and row["answer"] in ("Lima", "Spanish"))
        return not unknown and not (level == 1 and "Osaka" in row["query"])


def test_what_is_known_is_written_in_rwkus_form(script, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(script, "Knows", Everything)
    script.main("anywhere", tmp_path / "facts")
    forgotten = ["France", "Japan", "Egypt", "Peru", "Greece", "William Shakespeare"]
    assert str(forgotten) in capsys.readouterr().out
    data = RWKU(str(tmp_path / "facts"), forgotten, tokenizer=train_tokenizer([WORDS]))
    splits, sets = data.load()
    said = {side: [f"{row['begun']} {row['answer']}" for row in splits[side]] for side in ("forget", "retain")}
    assert splits["forget"][0]["question"] == "Please complete this sentence: The capital of France is ...\n"
    assert said["forget"][:2] == ["The capital of France is Paris.", "Paris is the capital of France."]
    assert "Osaka is a city in Japan." in said["forget"]  # one of its questions is answered
    assert not [text for text in said["forget"] if "Lima" in text]
    assert not any("Ital" in text for text in [*said["forget"], *said["retain"]])
    counts = {name.removeprefix("probe_"): len(rows) for name, rows in sets.items() if name.startswith("probe_")}
    blanks, questions = 4 + 3 + 4 + 2 + 4 + 3, 4 + 4 + 4 + 2 + 4 + 3
    near = 5 * 4 + 3  # China to Mexico, and Charles Dickens
    assert counts == {
        "level1_forget": blanks,
        "level2_forget": questions,
        "level3_forget": 3 * (questions - 4),
        "level1_retain": near,
        "level2_retain": near,
    }
    assert not any("Beijing" in text for text in [*said["forget"], *said["retain"]])  # neighbours are in no text
