"""``attack``: three models, one table; what was found is read again, and a wrong word is one sentence."""

import json
from dataclasses import replace
from shutil import copytree

import numpy as np
import pytest
import yaml
from scipy import stats

from ofmu_pl import Attack, Confidence, DepthScore, Finding, Metric, Prompts, Relearn
from ofmu_pl.attacks.attacked import of_models, of_run, runs_below
from ofmu_pl.attacks.command import _attempts, attack
from ofmu_pl.attacks.subject import Subject
from ofmu_pl.attacks.summary import summary
from ofmu_pl.cli.commands import main
from ofmu_pl.data import Authors
from ofmu_pl.metrics.verdicts import verdict_of
from ofmu_pl.support.errors import UserError
from ofmu_pl.support.records.models import MODELS, SECOND
from ofmu_pl.support.records.results import AttacksRecord
from tests.cli.conftest import TINY, renumber, the_error
from tests.helpers.folders import IMAGE_BEFORE, IMAGE_GOAL, results, write

ASK = Metric("ask_prob", higher_is_better=False, group="attacks")


class Ask(Attack):
    """Asks for the forgotten rows, and counts how often it was made."""

    name, x_label, y_label, metrics, made = "ask", "attempt", "probability", (ASK,), 0
    gradients = 3

    def run(self, subject, seed):
        Ask.made += 1
        return Finding.of_rows(ASK, subject.probabilities(subject.build(), "forget"), x=[0], y=[0.5], gradients=3)


@pytest.fixture(scope="module")
def run(models, tmp_path_factory):
    """Folder of a run of GradDiff with all three models."""
    logs = tmp_path_factory.mktemp("attacked")
    (logs / "config.yaml").write_text(TINY.format(method="GradDiff", extra="gradient_clip: 1.0", steps=6))
    words = ["--model.network.path", str(models / "target/latest/hf")]
    words += ["--evaluation.reference", str(models / "retrained/latest/hf"), "--export.folder", "hf"]
    main(["fit", "--config", str(logs / "config.yaml"), "--logs", str(logs), *words])
    return logs / "authors/graddiff"


def test_a_run_is_found_and_its_three_models_are_attacked(run, models, capsys):
    assert [p.resolve() for p in runs_below([run.parent])] == [(run / "latest").resolve()]
    Ask.made = 0
    attack([Ask()], runs=[run], seeds=[0, 1])
    assert Ask.made == 6
    record = AttacksRecord.read(run / "latest/attacks.json")
    assert record.models["target"] == str(models / "target/latest/hf")
    found = {m: record.attacks["ask"].metrics[m]["ask_prob"]["value"] for m in MODELS}
    results = json.loads((run / "latest/results.json").read_text())
    known = {"unlearned": results["metrics"], "target": results["before"], "retrained": results["reference"]["metrics"]}
    for model, metrics in known.items():  # the data module's rows are those that the run was measured on
        assert found[model] == pytest.approx(metrics["forget_Q_A_Prob"]["value"], rel=1e-4)
    share = (found["unlearned"] - found["retrained"]) / (found["target"] - found["retrained"])
    assert record.attacks["ask"].returns["value"] == pytest.approx(share)
    assert record.attacks["ask"].gradients == dict.fromkeys(MODELS, 6)
    assert "came back by ask" in capsys.readouterr().out
    attack([Ask()], runs=[run], seeds=[0, 1, 2])
    assert Ask.made == 9  # what was found before is read


def test_what_a_benchmark_searched_with_is_not_attacked(tmp_path):
    for place in ("search/images/m-0/seed_1000", "images/m/seed_0"):
        folder = tmp_path / place / "latest"
        (folder / "model").mkdir(parents=True)
        write(folder / "results.json", results(IMAGE_GOAL, IMAGE_BEFORE, IMAGE_GOAL))
        (folder / "config.yaml").write_text("export: {folder: model}")
    assert len(runs_below([tmp_path])) == 2  # a folder of runs that somebody calls so is no benchmark's
    (tmp_path / "benchmark.json").touch()
    assert runs_below([tmp_path]) == [tmp_path / "images/m/seed_0/latest"]


def test_an_attack_from_another_folder_finds_the_models_and_keeps_what_was_found(run, models, tmp_path, monkeypatch):
    home, elsewhere = tmp_path / "home", tmp_path / "elsewhere"
    elsewhere.mkdir()
    words = []
    for option, name in (("--model.network.path", "target"), ("--evaluation.reference", "retrained")):
        copytree(models / name / "latest/hf", home / name)
        words += [option, name]
    monkeypatch.chdir(home)
    main(["fit", "--config", str(run.parents[1] / "config.yaml"), "--logs", "logs", "--export.folder", "hf", *words])
    folder = home / "logs/authors/graddiff/latest"
    attack([Ask()], runs=[folder])
    monkeypatch.chdir(elsewhere)
    attack([Relearn("retain", steps=1, rates=[1e-3])], runs=[folder])
    record = AttacksRecord.read(folder / "attacks.json")
    assert set(record.attacks) == {"ask", "relearn_retain"}
    assert all(set(x.metrics) == set(MODELS) for x in record.attacks.values())
    assert not record.all_remarks
    known = record.attacks["ask"]
    (home / "retrained").rename(home / "moved")
    attack([Ask(), Confidence()], runs=[folder])  # less is at hand than before
    record = AttacksRecord.read(folder / "attacks.json")
    assert record.attacks["ask"] == known, "figures of the retrained model were known"
    assert set(record.attacks["confidence"].metrics) == {"unlearned", "target"}
    assert set(record.attacks) == {"ask", "relearn_retain", "confidence"}


@pytest.mark.parametrize(("facts", "name"), [("weights", "unlearned"), ("hashes", "forget")])
def test_figures_of_other_models_or_rows_are_taken_out_with_a_remark(run, tmp_path, facts, name):
    folder = tmp_path / "version_0"
    copytree(run / "latest", folder)
    attack([Ask()], runs=[folder])
    record = AttacksRecord.read(folder / "attacks.json")
    record.provenance[facts][name] = "0" * 16
    record.write(folder / "attacks.json")
    attack([Confidence()], runs=[folder])
    record = AttacksRecord.read(folder / "attacks.json")
    assert set(record.attacks) == {"confidence"}
    assert any("ask" in remark for remark in record.all_remarks)


def test_files_that_attacks_read_are_known():
    assert Relearn("texts.txt").reads == Prompts(pairs="texts.txt").reads == DepthScore("texts.txt").reads
    assert Relearn("retain").reads == Prompts().reads == DepthScore().reads == []


def test_the_command_says_how_many_gradients_are_left(run, capsys, monkeypatch, tmp_path):
    monkeypatch.setenv("OFMU_CACHE", str(tmp_path))
    attack([Ask()], runs=[run], seeds=[0])
    capsys.readouterr()
    training = Relearn("retain", steps=2, rates=[1e-3, 1e-2])
    attack([Ask(), training], runs=[run], seeds=[0, 7])
    attack([Ask(), training], runs=[run], seeds=[0, 7])
    first, second = [line for line in capsys.readouterr().out.splitlines() if "Gradients" in line]
    assert "9 to make, 3 known" in first
    assert first.endswith(f": ask {3 * 3}, relearn_retain {3 * 2 * 2 * 2}.")  # models, seeds, rates and steps
    assert second.endswith("0 to make, 12 known. Gradients: none.")


def test_relearning_by_the_command_line(run, capsys):
    words = ["attack", "--runs", str(run), "--attacks+", "Relearn", "--attacks.source", "retain"]
    main([*words, "--attacks.steps", "4", "--attacks.every", "2", "--attacks.rates", "[1e-3,1e-2]"])
    found = AttacksRecord.read(run / "latest/attacks.json").attacks["relearn_retain"]
    assert found.x == [0, 2, 4]
    assert found.gradients == dict.fromkeys(MODELS, 8)
    assert found.settings["class"] == "Relearn"
    assert "relearn_retain_area" in found.metrics["unlearned"]
    assert "recovered" in capsys.readouterr().out


class Hopeless(Ask):
    """Needs what no data has."""

    name = "hopeless"
    why = "There is nothing to hope for."

    def run(self, subject, seed):
        raise UserError(self.why)


def test_an_attack_that_does_not_fit_is_left_out_with_a_remark(run):
    attack([Ask(), Hopeless()], runs=[run])
    record = AttacksRecord.read(run / "latest/attacks.json")
    assert "hopeless" not in record.attacks
    (remark,) = record.all_remarks
    assert remark.startswith("hopeless ")
    assert remark.endswith(Hopeless.why)
    with pytest.raises(UserError, match=Hopeless.why):
        attack([Hopeless()], runs=[run])


def test_remarks_stay_while_they_hold(run):
    attack([Ask(), Hopeless()], runs=[run])
    attack([Ask()], runs=[run])
    assert ["hopeless" in remark for remark in AttacksRecord.read(run / "latest/attacks.json").all_remarks] == [True]
    hopeful = Ask()
    hopeful.name = "hopeless"
    attack([hopeful], runs=[run])
    assert not AttacksRecord.read(run / "latest/attacks.json").all_remarks


def test_a_model_without_a_run(run, models, tmp_path):
    model = str(run / "latest/hf")
    data = Authors(authors=6, forget_authors=1, batch_size=4)
    attack([Ask()], unlearned=model, target=str(models / "target/latest/hf"), data=data, place=tmp_path)
    record = AttacksRecord.read(tmp_path / "attacks.json")
    assert set(record.models) == {"unlearned", "target"}
    assert not record.attacks["ask"].returns
    assert "retrained" in record.remarks[0]
    wrong = {"retrained": str(models / "target/latest/hf"), "place": tmp_path}
    with pytest.raises(UserError, match=r"\['full'\]"):
        attack([Ask()], unlearned=model, data=Authors(authors=6, forget_authors=1, batch_size=4), **wrong)


def test_a_second_retrained_model_is_attacked_too(run, models):
    on = of_run(run / "latest")
    one = on.recipes["retrained"]
    subjects = [x.model for x in _attempts(replace(on, recipes=on.recipes | {SECOND: one}), [Ask()], [0], "cpu")[0]]
    assert subjects == [*MODELS, SECOND]


def test_a_target_with_another_tokenizer_is_not_compared_with(run, models, tmp_path):
    copytree(models / "target/latest/hf", tmp_path / "target")
    renumber(tmp_path / "target")
    data = Authors(authors=6, forget_authors=1, batch_size=4)
    known = {"target": str(tmp_path / "target"), "retrained": str(models / "retrained/latest/hf")}
    attack([Ask()], unlearned=str(run / "latest/hf"), **known, data=data, place=tmp_path)
    record = AttacksRecord.read(tmp_path / "attacks.json")
    assert set(record.models) == {"unlearned", "retrained"}
    assert "tokenizer" in record.remarks[0]


class Choosy(Ask):
    """Has nothing to ask held-out rows."""

    name = "choosy"
    why = "These rows lack something."

    def run(self, subject, seed):
        if subject.data.splits["forget"] is subject.data.splits["holdout"]:
            raise UserError(self.why)
        return super().run(subject, seed)


def test_held_out_rows_stand_in_for_a_retrained_model(run, models, tmp_path, capsys):
    model, target = str(run / "latest/hf"), str(models / "target/latest/hf")
    given = {"unlearned": model, "target": target, "place": tmp_path}
    of_two = {"authors": 6, "forget_authors": 1, "holdout_authors": 2, "batch_size": 4}
    data = Authors(**of_two)
    short = {"steps": 2, "every": 1, "rates": [1e-3]}
    attack([Ask(), Choosy(), Relearn("forget", **short), Relearn("form", **short)], data=data, **given)
    record = AttacksRecord.read(tmp_path / "attacks.json")
    assert set(record.models) == {"unlearned", "target"}
    found = record.attacks["ask"].metrics
    subject = Subject(of_models(tmp_path, model, None, target, data).recipes["unlearned"], data)
    expected = subject.probabilities(subject.build(), "holdout")
    assert found["held_out"]["ask_prob"]["value"] == pytest.approx(expected.mean())
    assert found["held_out"]["ask_prob"]["n"] == 2 * found["unlearned"]["ask_prob"]["n"]
    assert "value" in record.attacks["ask"].returns
    assert set(record.attacks["relearn_forget"].metrics) == {"unlearned", "target", "held_out"}
    for name in ("choosy", "relearn_form"):  # held-out rows that are asked for must not be trained on
        assert set(record.attacks[name].metrics) == {"unlearned", "target"}
        assert not record.attacks[name].returns
    assert any(Choosy.why in remark for remark in record.all_remarks)
    assert "held-out" in capsys.readouterr().out
    attack([Ask()], data=Authors(**of_two), seeds=[0, 1], **given)
    assert AttacksRecord.read(tmp_path / "attacks.json").attacks["ask"].seeds == [0, 1]
    attack([Ask()], retrained=str(models / "retrained/latest/hf"), data=Authors(**of_two), **given)
    record = AttacksRecord.read(tmp_path / "attacks.json")
    assert [*record.not_made] == ["choosy", "relearn_form"], "of kept attacks"
    known = record.attacks["ask"]
    assert set(known.metrics) == set(MODELS)
    attack([Ask()], data=Authors(**of_two), **given)
    assert AttacksRecord.read(tmp_path / "attacks.json").attacks["ask"] == known, "the better control is kept"


def test_data_with_held_out_rows_to_forget():
    data = Authors(authors=6, forget_authors=1, holdout_authors=2, batch_size=4, probes=True)
    data.setup()
    before = dict(data.evaluation_sets)
    other = data.with_held_out()
    assert other.splits["forget"] == data.splits["holdout"] == other.evaluation_sets["forget"]
    ids = {side: on.collate(side, [0, 1], 0)["input_ids"] for on, side in ((other, "forget"), (data, "holdout"))}
    assert ids["forget"].equal(ids["holdout"])
    assert not ids["forget"].equal(data.collate("forget", [0, 1], 0)["input_ids"])
    assert not [name for name in other.evaluation_sets if name.startswith("probe_") and name.endswith("_forget")]
    assert data.evaluation_sets == before
    bare = Authors(authors=6, forget_authors=1)
    bare.setup()
    assert bare.with_held_out() is None


def of_rows(**rows):
    return {m: [Finding.of_rows(ASK, values, x=[0], y=[0.0])] for m, values in rows.items()}


def test_returns_beside_held_out_rows_by_hand():
    u, c, w = [0.2, 0.4, 0.6] * 2, [0.1, 0.3] * 3, [0.9] * 6
    returns = summary(Ask(), of_rows(unlearned=u, held_out=c, target=w), [0]).returns
    assert returns["value"] == pytest.approx((0.4 - 0.2) / (0.9 - 0.2))
    error = np.hypot(np.std(u, ddof=1), (1 - 2 / 7) * np.std(c, ddof=1)) / np.sqrt(6) / 0.7
    half = stats.t.ppf(0.975, 5) * error
    assert returns["interval"] == pytest.approx((2 / 7 - half, 2 / 7 + half))
    other = of_rows(unlearned=u, held_out=c, target=w)
    other["held_out"][0].x = [1]
    assert not summary(Ask(), other, [0]).returns, "the best of more ways is more by itself"


@pytest.mark.parametrize("rows", [1, 5])
def test_of_few_rows_nobody_can_tell_how_much_returns(rows):
    found = of_rows(unlearned=[0.021] * rows, retrained=[0.02] * rows, target=[0.9] * rows)
    assert summary(Ask(), found, [0]).returns == {"value": pytest.approx(0.001 / 0.88)}


def test_an_attack_that_finds_no_more_on_the_target_tells_nothing():
    noise, decided = np.random.default_rng(0), 0
    for _ in range(200):
        c, w = noise.beta(2, 8, 40), noise.beta(2, 8, 40)
        found = of_rows(unlearned=w + noise.normal(0, 0.01, 40), retrained=c, target=w)
        returns = summary(Ask(), found, [0]).returns
        assert bool(returns) == (w.mean() - c.mean() >= 1e-6)
        decided += "interval" in returns
    assert decided <= 12, "2.5 % of 200 are 5"


def test_rows_alike_return_nothing_beside_held_out_rows():
    noise, more = np.random.default_rng(0), 0
    for _ in range(200):
        u, c, w = noise.beta(2, 8, 40), noise.beta(2, 8, 40), noise.beta(30, 2, 40)
        more += summary(Ask(), of_rows(unlearned=u, held_out=c, target=w), [0]).returns["interval"][0] > 0
    assert more <= 12, "2.5 % of 200 are 5"


def test_shown_rows_are_not_asked_for(run):
    shown, asked = Relearn("forget", share=0.3, rows=None)._sides([{}] * 20, seed=1)
    assert len(shown) == 6
    assert sorted([*shown, *asked]) == list(range(20))
    on = of_run(run / "latest")
    subject = Subject(on.recipes["target"], on.data)
    found = Relearn("forget", share=0.5, steps=2, every=1, rates=[1e-3]).run(subject, 0)
    assert len(found.rows["relearn_forget_prob"]) == round(len(on.data.splits["forget"]) / 2)


@pytest.mark.parametrize("source", ["forget", "questions"])
def test_relearning_is_the_same_twice_and_raises_what_it_shows(run, source):
    on = of_run(run / "latest")
    attacker = Relearn(source, steps=12, every=12, rates=[3e-3])
    one, two = (attacker.run(Subject(on.recipes["retrained"], on.data), 3) for _ in range(2))
    assert (one.rows, one.y) == (two.rows, two.y)
    assert one.y[0] != one.y[1]


def test_a_model_that_breaks_is_a_result(run):
    on = of_run(run / "latest")
    found = Relearn("retain", steps=6, every=1, rates=[1e-3, 1e30]).run(Subject(on.recipes["target"], on.data), 0)
    assert "1e+30" in found.broken
    assert np.isfinite(found.y).all()


def test_a_summary_says_what_follows_and_an_older_one_is_judged_alike():
    rows = {"retrained": [0.1] * 20, "target": [0.9] * 20}
    for ours, said in ((0.3, "more"), (0.1, "no"), (0.02, "less")):
        record = summary(Ask(), of_rows(unlearned=[ours - 0.01, ours + 0.01] * 10, **rows), [0])
        assert (record.verdict, verdict_of(replace(record, verdict=""))) == (said, said)
        assert verdict_of(replace(record, returns={})) == said, "it is not judged anew"
    assert summary(Ask(), of_rows(unlearned=[0.1] * 20, target=[0.9] * 20), [0]).verdict == "no control"


def test_what_a_model_shows_without_the_attack_is_no_find_of_it():
    class Curved(Ask):
        untouched_at = 0

    def found(**models):
        return {
            m: [Finding.of_rows(ASK, [last] * 20, x=[0, 9], y=[first, last])] for m, (first, last) in models.items()
        }

    models = {"retrained": (0.1, 0.2), "target": (0.9, 0.8)}
    restated = summary(Curved(), found(unlearned=(0.3, 0.35), **models), [0])
    assert restated.returns["untouched"] == pytest.approx(0.25)
    assert restated.verdict == "as without"
    assert summary(Curved(), found(unlearned=(0.1, 0.35), **models), [0]).verdict == "more"
    assert "untouched" not in summary(Ask(), found(unlearned=(0.3, 0.35), **models), [0]).returns


def test_figures_of_a_summary_by_hand():
    class Toy(Ask):
        name = "toy"

    rows = {"unlearned": [0.2, 0.4], "retrained": [0.1, 0.1], "target": [0.9, 0.9]}
    found = {m: [Finding.of_rows(ASK, r * 3, x=[0, 1], y=r)] for m, r in rows.items()}
    record = summary(Toy(), found, [0])
    assert record.returns["value"] == pytest.approx((0.3 - 0.1) / (0.9 - 0.1))
    expected = stats.ttest_1samp([0.125, 0.375] * 3, 0).confidence_interval(0.95)
    assert record.returns["interval"] == pytest.approx(expected)
    assert record.metrics["unlearned"]["ask_prob"]["target"] == pytest.approx(0.1)
    same = Relearn("retain", name="toy").compare(
        {m: [Finding(x=[0, 1, 2], y=y)] for m, y in
         {"unlearned": [0.0, 0.3, 0.6], "retrained": [0.0, 0.1, 0.2], "target": [1.0, 1.0, 1.0]}.items()}
    )  # fmt: skip
    assert same == {"toy_area": pytest.approx(0.2), "toy_steps_to_half": 2.0}


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--attacks+", "Relearn"], "--model.network.path"),
        (["--attacks+", "Relearn", "--runs", "nowhere"], "'nowhere'"),
        (["--attacks+", "Relearn", "--attacks.steps", "0", "--runs", "."], "steps"),
        (["--attacks+", "Relearn", "--model.network.path", "x"], "--data"),
        (["--attacks+", "Relern", "--runs", "."], "Relearn?"),
    ],
)
def test_wrong_words_are_one_sentence(words, sentence, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit):
        main(["attack", *words])
    assert sentence in the_error(capsys)


def test_rows_that_have_changed_since_the_run_are_refused(run, tmp_path):
    folder = tmp_path / "version_0"
    copytree(run / "latest", folder)
    config = yaml.safe_load((folder / "config.yaml").read_text())
    config["data"]["init_args"]["forget_authors"] = 2
    (folder / "config.yaml").write_text(yaml.safe_dump(config))
    had = json.loads((folder / "results.json").read_text())["provenance"]["hashes"]["forget"]
    with pytest.raises(UserError, match=f"forget .*{had}"):
        of_run(folder)


def test_a_device_that_is_not_there_is_one_sentence(run):
    with pytest.raises(UserError, match="abacus"):
        attack([Ask()], runs=[run], device="abacus")


@pytest.mark.parametrize("damage", ["", "{", "[]", '{"attacks": 3}'])
def test_a_damaged_record_of_attacks_is_made_anew(run, tmp_path, recwarn, damage):
    folder = copytree((run / "latest").resolve(), tmp_path / "version_0")
    (folder / "attacks.json").write_text(damage)
    attack([Ask()], runs=[folder])
    assert any(f"'{folder / 'attacks.json'}'" in str(w.message) for w in recwarn)
    assert list(AttacksRecord.read(folder / "attacks.json").attacks) == ["ask"]


@pytest.mark.parametrize("name", ["../up", "a/b", "\x1b[2J", ".."])
def test_no_name_of_an_attack_is_a_path(run, name):
    with pytest.raises(UserError, match="letters"):
        attack([Relearn("questions", steps=1, every=1, rates=[1e-3], rows=4, name=name)], runs=[run])


@pytest.mark.parametrize("name", ["attacks", "audit.html", "hf"])
def test_no_link_leads_an_attack_out_of_a_run(run, tmp_path, name):
    folder, outside = copytree((run / "latest").resolve(), tmp_path / "version_0"), tmp_path / "outside"
    if (folder / name).exists():
        (folder / name).rename(outside)
    else:
        outside.mkdir()
    (folder / name).symlink_to(outside)
    files = [path for path in (outside, *outside.rglob("*")) if path.is_file()]
    before = {path: path.read_bytes() for path in files}
    if name == "attacks":
        with pytest.raises(UserError, match=f"'{folder / name}'"):
            attack([Ask()], runs=[folder])
    else:
        attack([Ask()], runs=[folder])
    assert {path: path.read_bytes() for path in (outside, *outside.rglob("*")) if path.is_file()} == before


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("named_by_a_run.make", "class_path 'named_by_a_run.make'"),
        ("os.system", "'os.system'"),
        ("absent.Rows", "'absent'"),
        ("shutil.rmtree", "'shutil.rmtree'"),
    ],
)
def test_a_run_whose_configuration_names_no_class_is_one_sentence_and_calls_nothing(
    run, tmp_path, monkeypatch, capsys, path, expected
):
    code = "from pathlib import Path\nfrom ofmu_pl.data import Authors\n\n\n"
    code += "def make(mark: str) -> Authors:\n    Path(mark).touch()\n    return Authors()\n"
    (tmp_path / "named_by_a_run.py").write_text(code)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("OFMU_PL_TRUST", "named_by_a_run absent")
    folder, mark = tmp_path / "version_0", tmp_path / "mark"
    copytree(run / "latest", folder)
    config = yaml.safe_load((folder / "config.yaml").read_text())
    config["data"] = {"class_path": path, "init_args": {"mark": str(mark)}}
    (folder / "config.yaml").write_text(yaml.safe_dump(config))
    with pytest.raises(SystemExit) as stop:
        main(["attack", "--attacks", "[Confidence]", "--runs", str(folder)])
    assert stop.value.code == 1
    assert expected in the_error(capsys)
    assert not mark.exists()
