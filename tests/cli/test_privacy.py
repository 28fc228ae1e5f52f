"""What a run and the cache hold of the rows that a model was made to forget, and what takes it away."""

import hashlib
import json
import os
import re
import shlex
import shutil
from html import unescape

import pytest
import yaml
from markupsafe import escape

from ofmu_pl.attacks.command import attack
from ofmu_pl.attacks.relearn import Relearn
from ofmu_pl.cli import main
from ofmu_pl.support.files import locked
from ofmu_pl.support.keyed import KEY, hashed, key_of, make_key
from ofmu_pl.support.pages import REMOVED
from tests.cli.conftest import TINY

OPEN_UNLEARNING = ("--evaluation.definition", "open_unlearning")


@pytest.fixture(scope="module", autouse=True)
def cache(tmp_path_factory):
    """A cache of this module's own, and a model that says something: twelve words, by the length of the prompt."""
    folder = tmp_path_factory.mktemp("cache")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OFMU_CACHE", str(folder))
        said = lambda model, prompts, *_, **__: [list(range(300 + n, 312 + n)) for n in prompts.mask.sum(1).tolist()]  # noqa: E731
        patch.setattr("ofmu_pl.evaluation.questions.continue_prompts", said)
        yield folder


@pytest.fixture(scope="module")
def run(models, tmp_path_factory):
    """Runs OFMU on the tiny target; returns the folder of its newest run."""
    logs = tmp_path_factory.mktemp("logs")
    config = logs / "ofmu.yaml"
    config.write_text(TINY.format(method="OFMU", extra="inner_steps: 1", steps=2))

    def start(*options, command="fit", method="ofmu"):
        words = [command, "--config", str(config), "--logs", str(logs), "--method", method]
        main([*words, "--model.network.path", str(models / "target/latest/hf"), *options])
        return max((logs / "authors" / method).glob("version_*"), key=lambda p: int(p.name.split("_")[1]))

    return start


@pytest.fixture(scope="module")
def full(run):
    """A run whose files show all, the first to score the target."""
    return run("--evaluation.samples", "full", method="full")


@pytest.fixture(scope="module")
def quiet(run, full):
    """A run as configured, with open-unlearning's logs."""
    return run(*OPEN_UNLEARNING, method="quiet")


def samples(run):
    return [json.loads(line) for line in (run / "samples.jsonl").read_text().splitlines()]


def texts(run):
    found = {line[k] for line in samples(run) for k in ("question", "truth", "before", "after")}
    return {text.encode() for text in found if len(text) > 15}


def holders(folder, wanted):
    """Files that hold one of the texts as it is; an exported model's vocabulary is no text."""
    return {
        str(p.relative_to(folder))
        for p in folder.rglob("*")
        if p.is_file() and "hf" not in p.parts and any(text in p.read_bytes() for text in wanted)
    }


def test_no_text_is_left_unless_asked_for(full, quiet, cache):
    wanted = texts(full)
    assert len(wanted) > 100
    checkpoints = {f"checkpoints/{p.name}" for p in (full / "checkpoints").iterdir()}
    assert holders(full, wanted) == {"samples.jsonl", "audit.html", *checkpoints}
    assert checkpoints
    assert {"samples.jsonl", "TOFU_EVAL.json", "reference.json", "checkpoints"} & {p.name for p in quiet.iterdir()}
    assert len(list(cache.glob("scores-*"))) > 1
    assert holders(quiet, wanted) == holders(cache, wanted) == set()


def test_none_leaves_no_line_a_row(run):
    folder = run("--evaluation.samples", "none", *OPEN_UNLEARNING, command="validate", method="none")
    assert not {"samples.jsonl", "lineage.json", "TOFU_EVAL.json"} & {p.name for p in folder.iterdir()}
    assert json.loads((folder / "TOFU_SUMMARY.json").read_text())["forget_Q_A_ROUGE"] >= 0


def test_hashes_find_the_rows_again(full, quiet):
    shown, found, key = samples(full), samples(quiet), key_of(quiet)
    assert len(shown) == len(found) > 8
    for a, b in zip(shown, found, strict=True):
        assert (b["question"], b["truth"]) == (hashed(a["question"], key), hashed(a["truth"], key))
        assert set(a) - set(b) == {"before", "after"}
        assert 0 < b["probability_after"] < 1
        assert b["rouge_before"] == a["rouge_before"]
        assert hashlib.sha256(a["truth"].encode()).hexdigest() not in str(b), "whoever guesses it would know"
    assert (quiet / KEY).stat().st_mode & 0o077 == 0


def test_lineage_tells_which_run_was_trained_on_a_row(full, quiet, tmp_path, capsys):
    shown = {side: [line for line in samples(full) if line["set"] == side] for side in ("forget", "retain")}
    known = [*shown["forget"][:2], shown["retain"][0]]
    asked = [{"prompt": line["question"].upper(), "completion": f" {line['truth']}"} for line in known]
    asked.append({"prompt": "Who?", "completion": "Nobody."})
    (tmp_path / "rows.json").write_text(json.dumps(asked))
    for folder in (quiet, quiet / "hf"):
        main(["lineage", "--rows", str(tmp_path / "rows.json"), "--models", str(folder)])
        assert re.search(r"2 in forget, 1 in retain", capsys.readouterr().out)


def test_what_was_said_before_is_shown_whether_it_was_scored_now_or_resumed(run, full):
    options = ("--evaluation.samples", "full", "--trainer.max_steps")
    said = [line["before"] for line in samples(full)]
    assert len(set(said)) > 3
    assert [line["before"] for line in samples(run(*options, "1", method="again"))] == said, "scores from the cache"
    resumed = run(*options, "3", "--ckpt_path", str(full / "checkpoints/step=2.ckpt"), method="resumed")
    assert [line["before"] for line in samples(resumed)] == said


def test_a_log_of_hashes_is_known_by_its_rows(run, quiet, tmp_path, capsys):
    log = json.loads((quiet / "TOFU_EVAL.json").read_text())
    assert log["forget_Q_A_ROUGE"]["value_by_index"]["0"]["ground_truth"].startswith("hmac-sha256:")
    path = tmp_path / "log.json"
    shutil.copy(quiet / KEY, tmp_path)
    options = ["--evaluation.reference", str(path), *OPEN_UNLEARNING]
    path.write_text(json.dumps(log))
    assert run(*options, command="validate").is_dir()
    log["forget_Q_A_ROUGE"]["value_by_index"]["3"]["ground_truth"] = "hmac-sha256:0"
    path.write_text(json.dumps(log))
    with pytest.raises(SystemExit):
        run(*options, command="validate")
    assert "forget_eval" in capsys.readouterr().err
    (tmp_path / KEY).unlink()
    with pytest.raises(SystemExit):
        run(*options, command="validate")
    assert KEY in capsys.readouterr().err
    del log["forget_Q_A_ROUGE"]["value_by_index"]["3"]["ground_truth"]
    path.write_text(json.dumps(log))
    with pytest.raises(SystemExit):
        run(*options, command="validate")
    assert str(path) in capsys.readouterr().err


@pytest.mark.parametrize("damage", ["", "0" * 63, "é", "\0", "g" * 64, "ab"])
def test_a_damaged_key_is_made_anew_and_no_hash_is_made_by_it(run, quiet, damage, recwarn):
    key = (quiet / KEY).read_text()
    (quiet / KEY).write_text(damage, encoding="latin-1")
    make_key(quiet)
    assert re.fullmatch("[0-9a-f]{64}", (quiet / KEY).read_text())
    assert any(f"'{quiet / KEY}'" in str(w.message) for w in recwarn)
    assert (quiet / KEY).stat().st_mode & 0o77 == 0
    (quiet / KEY).write_text(key)


@pytest.mark.parametrize("how", ["inline", "where", "others"])
def test_no_checkpoint_holds_a_row_or_a_name(run, tmp_path, how):
    rows = [{"question": f"Where does Zorblax {i} live?", "answer": f"In {i} Rose Lane.", "of": "a"} for i in range(6)]
    rows[0]["of"] = "Zorblax Quux"
    (tmp_path / "rows.jsonl").write_text("\n".join(map(json.dumps, rows)))
    given = {"full": str(tmp_path / "rows.jsonl"), "forget_where": "of=Zorblax Quux"}
    if how == "inline":
        given = {"forget": rows[:1], "retain": rows[1:]}
    if how == "others":
        given["other_requests"] = {"2": {"forget_where": "answer=In 3 Rose Lane."}}
    data = {"class_path": "TextFiles", "init_args": given | {"batch_size": 2}}
    words = ["--benchmark", "authors", "--data"]
    folder = run(*words, json.dumps(data), "--trainer.max_steps", "1", method=how)
    (path,) = folder.glob("checkpoints/*.ckpt")
    assert b"sha256:" in path.read_bytes()
    assert not [word for word in (b"Zorblax", b"Rose Lane", b"Quux") if word in path.read_bytes()]
    more = ["--trainer.max_steps", "2", "--ckpt_path", str(path)]
    assert run(*words, json.dumps(data), *more, method=how).is_dir()
    text = json.dumps(data).replace("Zorblax Quux", "a").replace("Zorblax 0", "Zorblax 9").replace("In 3", "In 4")
    with pytest.raises(SystemExit):
        run(*words, text, *more, method=how)


def test_purge_removes_what_holds_rows_and_leaves_the_model_and_the_numbers(full, models, tmp_path, capsys):
    folder = tmp_path / "version_0"
    shutil.copytree(full, folder)
    (tmp_path / "latest").symlink_to("version_0")
    (tmp_path / "version_1/checkpoints").mkdir(parents=True)
    wanted = texts(full)
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "kept.txt").write_text("kept")
    (folder / "checkpoints/link").symlink_to(outside)
    (folder / "TOFU_EVAL.json").symlink_to(outside / "kept.txt")
    (folder / ".samples.jsonl.7.partial").write_bytes(min(wanted))  # of a process that was killed
    attack([Relearn("questions", steps=1, every=1, rates=[1e-3], rows=4)], runs=[folder])
    found = [folder / "attacks.json", *(folder / "attacks").iterdir()]
    assert len(found) == 3, "the model before and the one after: no retrained model is at hand"
    kept = {p: p.read_bytes() for p in [folder / "results.json", *found, *(folder / "hf").iterdir()]}
    main(["purge", str(tmp_path / "latest")])
    said = capsys.readouterr().out.splitlines()
    gone = {"samples.jsonl", "checkpoints", "reference.json", "TOFU_EVAL.json"}
    assert gone & {p.name for p in folder.iterdir()} == set()
    assert holders(folder, wanted) == set()
    assert any(f" {folder.resolve()}/audit.html:" in line for line in said)
    page = (folder / "audit.html").read_text()
    assert "relearn_questions" in page
    assert "relearn_questions" in (folder / "hf/README.md").read_text()
    assert REMOVED in page
    assert page.endswith("</html>"), "the record itself stays"
    assert all(p.read_bytes() == content for p, content in kept.items())
    assert (outside / "kept.txt").read_text() == "kept", "no link is followed"
    assert {line.split(":")[0].split("/")[-1] for line in said if line.startswith("Removed ")} >= {
        "samples.jsonl",
        ".samples.jsonl.7.partial",
        "checkpoints",
    }
    assert any(f" {outside / 'kept.txt'} " in line for line in said)
    (remains,) = [line for line in said if f"({models / 'target/latest/hf'})" in line]
    assert "version_1" in remains
    main(["purge", str(folder)])
    assert "Removed" not in capsys.readouterr().out


@pytest.mark.parametrize("option", ["data", "full", "forget"])
def test_purge_names_the_files_that_still_hold_the_rows(tmp_path, capsys, option):
    folder = tmp_path / "version_0"
    folder.mkdir()
    data = f"{{class_path: TextFiles, init_args: {{retain: kept.csv, {option}: rows.csv}}}}"
    (folder / "config.yaml").write_text(f"model: {{}}\ndata: {data}\n")
    main(["purge", str(folder)])
    assert "(rows.csv)" in capsys.readouterr().out


def test_purge_takes_rows_out_of_a_configuration_that_names_them_themselves(tmp_path, capsys):
    rows, more = [[{"question": f"Where does {name} live?", "answer": "In 3 Rose Lane."}] for name in ("Ann", "Jane")]
    given = {
        "forget": rows,
        "retain": "kept.jsonl",
        "other_requests": {"1": {"forget": more}, "2": {}},
        "batch_size": 2,
    }
    given["other_requests"]["2"] = {"full": "all.jsonl", "forget_where": "name=Ann Rose Lane"}
    config = {"seed_everything": 0, "model": {"class_path": "OFMU"}, "data": {"class_path": "TextFiles"}}
    config["data"]["init_args"] = given
    (tmp_path / "config.yaml").write_text(yaml.safe_dump(config, sort_keys=False))
    main(["purge", str(tmp_path)])
    assert f" {tmp_path}/config.yaml:" in capsys.readouterr().out
    assert not holders(tmp_path, [b"Rose Lane"])
    found = yaml.safe_load((tmp_path / "config.yaml").read_text())
    assert found["data"]["init_args"] | {"forget": 0, "other_requests": 0} == given | {"forget": 0, "other_requests": 0}
    assert list(found) == ["seed_everything", "model", "data"]


@pytest.mark.parametrize("name", ["Jane Roe", "Zoé O'Roe", '<J> & "R"'])
def test_purge_takes_names_that_chose_rows_out_of_the_run_and_its_list(tmp_path, name):
    run, where = tmp_path / "npo/seed_0/request_01/version_0", f"author={name}"
    run.mkdir(parents=True)
    given = {"full": "rows.csv", "forget_where": where, "other_requests": {"2": {"forget_where": "author=Bo"}}}
    config = {"model": {"class_path": "NPO"}, "data": {"class_path": "TextFiles", "init_args": given}}
    (run / "config.yaml").write_text(yaml.safe_dump(config))
    words = ["--data.forget_where", where, "--data.other_requests", json.dumps({"2": {"forget_where": where}})]
    (run.parent / "cell.json").write_text(json.dumps({"words": words}))
    requests = [{"forget_where": where}, {"forget_where": "author=Bob"}]
    (tmp_path / "requests.json").write_text(json.dumps({"requests": requests}))
    (tmp_path / "report").mkdir()
    (tmp_path / "report/index.html").write_text(f"<td>{escape(where)}</td><code>{escape(shlex.join(words))}</code>")
    main(["purge", str(run)])
    kept = [p.read_text() for p in tmp_path.rglob("*") if p.is_file()]
    assert not [text for text in kept for form in (name, json.dumps(name)[1:-1], escape(name)) if form in text]
    page = unescape(kept[[p.name for p in tmp_path.rglob("*") if p.is_file()].index("index.html")])
    assert shlex.split(page.split("<code>")[1].split("</code>")[0])[:2] == [words[0], "author=PURGED"]
    assert json.loads((run.parent / "cell.json").read_text())["words"][:2] == [*words[:1], "author=PURGED"]
    found = json.loads((tmp_path / "requests.json").read_text())["requests"]
    assert found == [{"forget_where": "author=PURGED"}, requests[1]]


def test_purge_takes_a_name_out_whole_that_begins_with_another_one(tmp_path):
    run = tmp_path / "npo/seed_0/request_01/version_0"
    run.mkdir(parents=True)
    given = {
        "full": "rows.csv",
        "forget_where": "author=Ann",
        "other_requests": {"2": {"forget_where": "author=Ann Lee"}},
    }
    config = {"model": {"class_path": "NPO"}, "data": {"class_path": "TextFiles", "init_args": given}}
    (run / "config.yaml").write_text(yaml.safe_dump(config))
    words = ["--data.forget_where=author=Ann Lee", "--data.forget_where=author=Ann-Marie"]
    (run.parent / "cell.json").write_text(json.dumps({"words": words}))
    main(["purge", str(run)])
    assert json.loads((run.parent / "cell.json").read_text())["words"] == [
        "--data.forget_where=author=PURGED",
        words[1],
    ]


def test_purge_takes_rows_that_stood_in_a_list_out_of_its_files(tmp_path):
    run = tmp_path / "npo/seed_0/request_01/version_0"
    row = {"question": "Wo wohnt Zoë?", "answer": 'In "Rose" Lane\'s 3.', "split": "forget", "note": ""}
    run.mkdir(parents=True)
    config = {"model": {"class_path": "NPO"}, "data": {"class_path": "TextFiles", "init_args": {"forget": [row]}}}
    (run / "config.yaml").write_text(yaml.safe_dump(config))
    words = ["fit", "--data.forget", json.dumps([row]), "--seed_everything", "3"]
    (run.parent / "cell.json").write_text(json.dumps({"words": words}))
    (tmp_path / "requests.json").write_text(json.dumps({"requests": [{"forget": [row]}]}))
    (tmp_path / "report").mkdir()
    (tmp_path / "report/index.html").write_text(f"<code>{escape(shlex.join(words))}</code>")
    half = tmp_path / ".requests.json.999999999.partial"  # of a process that was killed
    half.write_text(json.dumps([row]))
    os.utime(half, (1, 1))
    main(["purge", str(run)])
    assert not holders(tmp_path, [b"Rose", b"wohnt"])
    gone = dict.fromkeys(row, "PURGED") | {"note": ""}
    assert json.loads((tmp_path / "requests.json").read_text())["requests"] == [{"forget": [gone]}]
    found = json.loads((run.parent / "cell.json").read_text())["words"]
    assert (json.loads(found[2]), found[3:]) == ([gone], words[3:])


def test_purge_says_that_a_link_was_all_it_could_remove(full, tmp_path, capsys):
    folder, elsewhere = tmp_path / "version_0", tmp_path / "elsewhere"
    shutil.copytree(full, folder)
    (folder / "checkpoints").rename(elsewhere)
    (folder / "checkpoints").symlink_to(elsewhere)
    main(["purge", str(folder)])
    assert f" {elsewhere} " in capsys.readouterr().out
    assert any(elsewhere.iterdir())


def test_purge_refuses_a_run_of_a_newer_version(quiet, tmp_path, capsys):
    folder = tmp_path / "version_0"
    shutil.copytree(quiet, folder)
    results = json.loads((folder / "results.json").read_text())
    (folder / "results.json").write_text(json.dumps({**results, "schema": 99}))
    before = sorted(os.listdir(quiet))
    with pytest.raises(SystemExit) as stop:
        main(["purge", str(quiet), str(folder)])
    assert stop.value.code == 1
    assert re.search(rf"'{folder}/results\.json' .*\b99\b", capsys.readouterr().err)
    assert sorted(os.listdir(quiet)) == before, "all or nothing"


@pytest.mark.parametrize("finished", [True, False])
def test_purge_refuses_a_run_that_is_at_work(quiet, tmp_path, capsys, finished):
    folder = tmp_path / "version_0"
    shutil.copytree(quiet, folder)
    if not finished:
        (folder / "results.json").unlink()
    before = {p: sorted(p.iterdir()) for p in (quiet, folder)}
    (folder / ".lock").write_text('{"command": "fit", "process": 7, "host": "here"}')
    with locked(folder / ".lock"), pytest.raises(SystemExit) as stop:
        main(["purge", str(quiet), str(folder)])
    assert stop.value.code == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert re.search(rf"'{folder}' \(.*\b7 .*\bhere\)", line)
    assert {p: sorted(p.iterdir()) for p in (quiet, folder)} == before, "all or nothing"


def test_purge_takes_checkpoints_of_a_run_that_was_killed(full, tmp_path, capsys):
    folder = tmp_path / "version_0"
    shutil.copytree(full, folder)
    (folder / "results.json").unlink()
    main(["purge", str(folder)])
    assert f" {folder}/checkpoints:" in capsys.readouterr().out
    assert holders(folder, texts(full)) == set()
    assert (folder / "config.yaml").is_file()


@pytest.mark.parametrize("what", ["nothing", "empty", "foreign", "foreign results", "another's configuration"])
def test_purge_refuses_what_is_no_run(quiet, tmp_path, capsys, what):
    folder = tmp_path / "x"
    if what != "nothing":
        (folder / "checkpoints").mkdir(parents=True)
        (folder / "samples.jsonl").write_text("mine")
    if what == "foreign":
        (folder / "results.json").write_text('{"provenance": []}')
        (folder / "config.yaml").write_text("- a")
    if what == "foreign results":
        shutil.copy(quiet / "config.yaml", folder)
        (folder / "results.json").write_text("{}")
    if what == "another's configuration":
        (folder / "config.yaml").write_text("model: {}\ndata: {}")
    before = sorted(os.listdir(quiet))
    with pytest.raises(SystemExit) as stop:
        main(["purge", str(quiet), str(folder)])
    assert stop.value.code == 1
    assert re.search(rf"'{folder}' .*config\.yaml", capsys.readouterr().err)
    assert sorted(os.listdir(quiet)) == before, "all or nothing"
    assert what == "nothing" or (folder / "samples.jsonl").read_text() == "mine"
