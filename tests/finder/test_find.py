"""The rows that name a person, in every form that files have."""

import json
import re
import unicodedata

import pytest

from ofmu_pl.cli import main
from ofmu_pl.data import TextFiles
from ofmu_pl.finder.names import ALONE, find


def score(text, name):
    return max((hit.score for hit in find([text], [name])), default=0.0)


@pytest.mark.parametrize(
    ("text", "least", "most"),
    [
        ("Who is Zoë Ann O'Brien-Smith?", 100, 100),
        (unicodedata.normalize("NFD", "ZOË ANN O'BRIEN-SMITH"), 100, 100),
        ("Zoe\u00a0Ann\nO\u2019Brien Smith's house", 100, 100),
        ("Z. A. O'Brien-Smith", 75, 95),
        ("O'Brien-Smith, Zoe", 75, 95),
        ("Zoe Ann O'Brein-Smith", 85, 99),
        ("Zoe Ann O'Brien-Smyth", 85, 99),
        ("Smith came", ALONE, ALONE),
        ("Smith's works, and Anne", ALONE, ALONE),
        ("Zoe Ann came", 0, 0),
        ("the smithy of Zoe", 0, 80),
    ],
)
def test_a_name_in_many_spellings(text, least, most):
    assert least <= score(text, "Zoë Ann O'Brien-Smith") <= most


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("محمد علي", "اتصل مُحَمَّد عَلِيّ أمس."),
        ("مُحَمَّد عَلِيّ", "اتصل محمد علي أمس."),
        ("محمد علي", "اتصل محـــمد علي أمس."),
        ("דוד לוי", "דָּוִד לֵוִי גר בחיפה."),
        ("राम शर्मा", "कल राम शर्मा ने फोन किया।"),
        ("Anna Lee", "An\u00adna Lee phoned."),
        ("Anna Lee", "Anna\u200b Lee phoned."),
        ("Anna Lee", "\u200eAnna\u200f Le\u2060e phoned."),
    ],
)
def test_signs_within_a_word_are_no_slips(name, text):
    """Vowel signs, points, stretches, soft hyphens, joiners and marks of direction."""
    (hit,) = find([text], [name])
    assert hit.score == 100
    assert hit.text[hit.begin - 1 : hit.begin] in ("", " ", "\u200e"), "a mark is of whole words"
    assert hit.text[hit.end] in " .\u200f"


def test_a_vowel_sign_makes_another_word():
    assert score("कल राम शर्मा ने", "रमा शर्मी") < 100


def test_another_given_name_is_another_person():
    assert (
        score("Alejandro Escobedo Rodriguez", "Alejandro Cordero Rodriguez")
        < 70
        < score("A. C. Rodriguez", "Alejandro Cordero Rodriguez")
    )


def test_a_script_without_spaces_and_one_word():
    assert score("昨日王小明は来た", "王小明") == 100
    assert score("王大明", "王小明") == 0
    assert score("Seen: Aristotle.", "Aristotle") == 100
    assert 85 < score("Aristotel said", "Aristotle") < 100


def test_a_mention_in_a_long_text_is_told_apart():
    short, long = "Eva Novak sings.", "word " * 150 + "Eva Novak sings."
    assert [hit.inside for hit in find([short, long, long + short], ["Eva Novak"])] == [False, True, False]


def test_numbers_are_what_fit_reads(tmp_path, capsys):
    rows = [{"question": f"Who is {name}?", "answer": "A painter."} for name in ("Eva Novak", "Ida Berg", "E. Novák")]
    rows.append({"question": "Who painted?", "answer": "word " * 150 + "Eva Novak"})
    (tmp_path / "all.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (tmp_path / "names.txt").write_text("\ufeffEva Novak\n\n", encoding="utf-8")
    main(
        ["find", "--rows", str(tmp_path / "all.jsonl"), "--names", str(tmp_path / "names.txt"), "--out", str(tmp_path)]
    )
    numbers = tmp_path / "all.rows.txt"
    assert numbers.read_text().split() == ["0", "2"]
    assert (tmp_path / "all.inside.txt").read_text().split() == ["3"]
    assert "--data.forget_rows" in capsys.readouterr().out
    splits, _ = TextFiles(full=str(tmp_path / "all.jsonl"), forget_rows=str(numbers), tokenizer="gpt2").load()
    assert [row["question"] for row in splits["forget"]] == ["Who is Eva Novak?", "Who is E. Novák?"]


def test_the_page_escapes_what_rows_hold(tmp_path):
    rows = [{"messages": [{"role": "user", "content": "<script>Eva Novak"}, {"role": "assistant", "content": "No."}]}]
    (tmp_path / "a.json").write_text(json.dumps(rows))
    (tmp_path / "n.txt").write_text("Eva Novak")
    main(["find", "--rows", str(tmp_path / "a.json"), "--names", str(tmp_path / "n.txt"), "--out", str(tmp_path / "o")])
    page = (tmp_path / "o/found.html").read_text()
    assert "<script" not in page
    assert "<mark>Eva Novak</mark>" in page


def test_the_page_marks_the_words_where_they_stand(tmp_path):
    texts = ["Novakova met a certain Novak.", unicodedata.normalize("NFD", "The café of Éva Novák.")]
    (tmp_path / "a.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
    (tmp_path / "n.txt").write_text("Éva Novák", encoding="utf-8")
    main(["find", "--rows", str(tmp_path / "a.jsonl"), "--names", str(tmp_path / "n.txt"), "--out", str(tmp_path)])
    page = (tmp_path / "found.html").read_text(encoding="utf-8")
    assert "Novakova met a certain <mark>Novak</mark>." in page
    assert "The café of <mark>Éva Novák</mark>." in page


@pytest.mark.parametrize(("names", "told"), [("", "name"), ("\n", "name"), (None, "missing"), ("/", "folder")])
def test_no_names_are_one_sentence(tmp_path, names, told, capsys):
    (tmp_path / "a.jsonl").write_text('{"text": "Eva"}\n')
    if names == "/":
        (tmp_path / "n.txt").mkdir()
    elif names is not None:
        (tmp_path / "n.txt").write_text(names)
    with pytest.raises(SystemExit, match="1"):
        main(["find", "--rows", str(tmp_path / "a.jsonl"), "--names", str(tmp_path / "n.txt")])
    said = capsys.readouterr().err
    assert re.search(rf"n\.txt\b.* {told}\b", said)


@pytest.mark.parametrize("least", ["700", "nan"])
def test_a_score_out_of_range_is_refused_and_writes_nothing(tmp_path, least, capsys):
    (tmp_path / "a.jsonl").write_text('{"text": "Eva"}\n')
    (tmp_path / "n.txt").write_text("Eva")
    words = ["--rows", str(tmp_path / "a.jsonl"), "--names", str(tmp_path / "n.txt"), "--out", str(tmp_path / "out")]
    with pytest.raises(SystemExit, match="1"):
        main(["find", *words, "--least", least])
    assert "least" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()
