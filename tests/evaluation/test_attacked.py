"""What attacks found, on the page that is signed and on the card."""

import re
import subprocess
from dataclasses import replace
from types import SimpleNamespace

import pytest
from markdown_it import MarkdownIt

import ofmu_pl
from ofmu_pl import Relearn
from ofmu_pl.attacks.command import tell
from ofmu_pl.evaluation.attacked import ALWAYS, PARTS, UNTRIED, parts, print_attacks
from ofmu_pl.evaluation.results import page, write_card
from ofmu_pl.metrics.verdicts import ONE_RETRAINED
from ofmu_pl.support.kept import damage, write_sums
from ofmu_pl.support.pages import AUDIT, CARD, marks, without_rows
from ofmu_pl.support.records.results import AttackRecord, AttacksRecord
from tests.evaluation.conftest import EXAMPLES
from tests.evaluation.test_audit import HOSTILE, Outline

MODELS = ("unlearned", "retrained", "target")


TWO_RETRAINED = (*MODELS, "second retrained")


def attack(ends, tests="bits", values=(0.3, 0.1, 0.9), models=MODELS, **more):
    """What an attack found whose share returns between two ends; none: the share is not known."""
    entries = dict(zip(models, values, strict=True))
    day = more.pop("date", "25 November 2026")
    found = {m: {"p": {"value": x, "unit": "0 to 1", "higher_is_better": False}} for m, x in entries.items()}
    found["unlearned"]["p"]["interval"] = [0.25, 0.35]
    returns = {"value": sum(ends) / 2, "interval": list(ends)} if ends else {}
    return AttackRecord({}, [0], "x", "probability", "p", found, returns=returns, tests=tests, date=day, **more)


def untouched(made, share):
    """The same, of a model that shows such a share without the attack."""
    return replace(made, returns=made.returns | {"untouched": share})


@pytest.mark.parametrize(
    ("made", "verdict"),
    [
        (attack((0.1, 0.4)), "more"),
        (attack((0.1, 0.4), zero_control=True), ""),
        (attack((-0.1, 0.4)), "no"),
        (attack((0.0, 0.4)), "no"),
        (untouched(attack((0.1, 0.4)), 0.09), "more"),
        (untouched(attack((0.1, 0.4)), 0.1), "as without"),
        (untouched(attack((-0.1, 0.4)), 0.3), "no"),
        (attack((-0.4, -0.1)), "less"),
        (attack((-0.1, 1.0)), ""),
        (attack((0.1, 1.2)), "more"),
        (attack(None), ""),
        (replace(attack(None), returns={"value": 0.2, "interval": [None, None]}), ""),
        (attack((0.1, 0.4), values=(0.05, 0.1, 0.09)), ""),  # it finds nothing on the target either
        (attack((0.1, 0.4), values=(0.3, 0.1), models=("unlearned", "retrained")), ""),
        (attack((0.1, 0.4), values=(0.3, 0.9), models=("unlearned", "target")), ""),
        (attack((0.1, 0.4), broken={"retrained": "It broke."}), ""),
        (attack((0.1, 0.4), broken={"unlearned": "It broke."}), "more"),
        (attack((-0.1, 0.4), broken={"unlearned": "It broke."}), ""),
        (attack((0.1, 0.4), models=("unlearned", "held_out", "target")), "more"),
        (attack((0.1, 0.4), values=(0.3, 0.1, 0.9, 0.15), models=TWO_RETRAINED), "more"),
        (attack((0.1, 0.4), values=(0.3, 0.1, 0.9, 0.2), models=TWO_RETRAINED), "no"),  # 12 % return of the second one
        (attack((-0.4, -0.1), values=(0.05, 0.1, 0.9, 0.2), models=TWO_RETRAINED), "no"),
    ],
)
def test_only_the_interval_says_more_and_what_could_not_tell_stays_untested(made, verdict):
    told = parts(AUDIT, "text", AttacksRecord({"a": made}, not_made={"rtt": "rtt was left out."}))
    found, untried = told[PARTS[1]], told[PARTS[2]]
    assert re.findall(r'class="verdict ([\w ]*)"', found) == [verdict]
    assert (UNTRIED["bits"].replace("'", "&#39;") in untried) == (not verdict)
    assert untried.count("<li>") == len([*UNTRIED, *ALWAYS]) - bool(verdict) + 1
    assert "<li>rtt was left out.</li>" in untried


def test_the_page_says_what_the_record_says():
    found = attack((0.1, 0.4))
    for verdict, words in [
        ("no", "No difference"),
        ("broken", "it broke the model"),
        ("{x}", "tell: why is not known"),
    ]:
        assert words in parts(AUDIT, "text", AttacksRecord({"a": replace(found, verdict=verdict)}))[PARTS[1]]


def test_the_first_sentence_counts():
    ends = {"a": (0.1, 0.3), "b": (0.2, 0.6), "c": (-0.1, 0.1), "d": None}
    made = {name: attack(between) for name, between in ends.items()}
    made["d"].date = "24 November 2026"
    said = parts(CARD, "text", AttacksRecord(made))[PARTS[0]]
    assert "25 November 2026 and 24 November 2026" in said
    assert re.search("4, 2 .*more.* 1 .*difference, 1 ", said)
    made["b"] = untouched(made["b"], 0.3)
    restated = parts(CARD, "text", AttacksRecord(made))[PARTS[0]]
    assert re.search("4, 1 .*more.* 1 added nothing .* without .* 1 .*difference, 1 ", restated)
    assert re.search(r"by b, .*: 40 % \(20 to 60 %\)", said)
    alone = attack(None, models=("unlearned", "target"), values=(0.3, 0.9))
    assert "neither" in parts(CARD, "text", AttacksRecord({"a": alone}))[PARTS[0]]


@pytest.mark.parametrize(
    ("models", "values", "times"),
    [(MODELS, (0.3, 0.1, 0.9), 1), (TWO_RETRAINED, (0.3, 0.1, 0.9, 0.15), 0), (("unlearned", "target"), (0.3, 0.9), 0)],
)
def test_the_command_says_once_what_one_retrained_model_leaves_out(models, values, times, monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", "300")
    made = {name: attack((0.1, 0.4), models=models, values=values) for name in ("a", "b")}
    print_attacks("a run", AttacksRecord(made))
    assert " ".join(capsys.readouterr().out.split()).count(ONE_RETRAINED[:40]) == times


def test_images_lack_what_texts_alone_have():
    assert UNTRIED["samples"] in parts(AUDIT, "text")[PARTS[2]]
    assert UNTRIED["samples"] not in parts(AUDIT, "images")[PARTS[2]]


def test_attacks_say_which_sentence_they_test():
    kinds = [getattr(ofmu_pl, name) for name in ofmu_pl.__all__]
    attacks = [x for x in kinds if isinstance(x, type) and issubclass(x, ofmu_pl.Attack)]
    assert {x.tests for x in attacks} - {""} <= UNTRIED.keys()
    assert Relearn().tests != Relearn("retain").tests


@pytest.fixture
def signed(told, tmp_path):
    """A run's folder with page, card and sums; and a function that tells what attacks found."""
    account = told(examples=EXAMPLES)
    (tmp_path / AUDIT).write_text(page(account), encoding="utf-8")
    write_card(account)
    write_sums(account.model)
    on = SimpleNamespace(
        place=tmp_path,
        recipes={"unlearned": SimpleNamespace(path=str(account.model))},
        data=SimpleNamespace(modality="text"),
    )

    def write(attacks):
        AttacksRecord(attacks).write(tmp_path / "attacks.json")
        tell(on)
        return [path.read_text(encoding="utf-8") for path in (tmp_path / AUDIT, account.model / CARD)]

    return tmp_path, write


def test_page_and_card_are_renewed_twice_and_purged_after(signed, capsys):
    folder, write = signed
    before = [(folder / AUDIT).read_text(), (folder / "hf" / CARD).read_text()]
    card = before[1].replace("library_name", "license: mit\nlibrary_name") + "\nMine."
    (folder / "hf" / CARD).write_text(card)
    write_sums(folder / "hf")
    once = write({"first": attack((0.1, 0.4), tests="bits")})
    twice = write({"first": attack((0.1, 0.4), tests="bits"), "newcomer": attack((-0.1, 0.1), tests="inside")})
    assert once != twice == write({"first": attack((0.1, 0.4)), "newcomer": attack((-0.1, 0.1), tests="inside")})
    for text, was in zip(twice, (before[0], card), strict=True):
        assert text.count("newcomer") == 1
        for untried, left in ((was, 1), (text, 0)):
            listed = untried.rpartition("What was not tested")[2]
            assert [listed.count(word) for word in ("quantisation", "states inside", "pruning")] == [left, left, 1]
        assert text.count("Attacks of 25 November 2026") == 1
    assert "license: mit" in twice[1], "what a user wrote stays"
    assert twice[1].endswith("Mine.")
    assert damage(folder / "hf") is None
    check = ["sha256sum", "--check", "--quiet", "SHA256SUMS"]
    assert subprocess.run(check, cwd=folder / "hf", check=False).returncode == 0
    assert Outline(twice[0]).open == []
    html = MarkdownIt("gfm-like", {"linkify": False}).render(twice[1])
    assert html.count("<table>") == 2
    assert f"<h2>{PARTS[1].capitalize()}</h2>" in html
    left = without_rows(twice[0])
    assert EXAMPLES[0].question not in left
    assert "newcomer" in left
    assert not capsys.readouterr().out
    assert write({}) == [before[0], card], "figures of other models were taken out"
    assert not list(folder.rglob("*.partial"))


def test_damage_of_the_model_is_not_hidden(signed):
    folder, write = signed
    (folder / "hf/weights").write_text("1")
    write_sums(folder / "hf")
    (folder / "hf/weights").write_text("2")
    write({"a": attack((0.1, 0.4))})
    assert "weights" in damage(folder / "hf")


def test_a_page_without_marks_stays_and_is_named(signed, capsys):
    folder, write = signed
    texts = []
    for path in (folder / AUDIT, folder / "hf" / CARD):
        texts.append(path.read_text().replace(marks(PARTS[1])[1], ""))
        path.write_text(texts[-1])
    assert write({"a": attack((0.1, 0.4))}) == texts
    (said,) = capsys.readouterr().out.splitlines()
    assert str(folder / AUDIT) in said


def test_no_link_is_followed_and_what_is_gone_is_passed_over(signed):
    folder, write = signed
    (folder / "hf" / CARD).unlink()
    (folder / AUDIT).rename(folder / "real")
    text = (folder / "real").read_text()
    (folder / AUDIT).symlink_to("real")
    AttacksRecord({}).write(folder / "attacks.json")
    (folder / "hf" / CARD).write_text("")
    write({"a": attack((0.1, 0.4))})
    assert (folder / "real").read_text() == text


def test_texts_of_others_stay_texts(signed):
    _, write = signed
    hostile = HOSTILE + "".join(marks(PARTS[1])[::-1]) + "\n# x | y"
    made = {hostile: replace(attack((0.1, 0.4), date=hostile, tests=hostile), y_label=hostile)}
    made |= {"b": attack((0.1, 0.2), tests="bits")}
    record = AttacksRecord(made, provenance={"weights": {"unlearned": hostile}})
    once = write(made)
    assert once == write(made)
    outline = Outline(once[0] + parts(AUDIT, "text", record)[PARTS[1]])
    assert not {"script", "img"} & set(outline.seen)
    assert not [name for name, _ in outline.attributes if name.startswith("on")]
    assert outline.open == []
    html = MarkdownIt("gfm-like", {"linkify": False}).render(once[1])
    assert "<script" not in html
    assert "<img" not in html
    assert html.count("<table>") == 2
    assert html.count("<h1>") == 1
