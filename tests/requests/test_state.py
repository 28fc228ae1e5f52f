"""What is asked for, how results become a matrix, and what may change between two starts."""

import json
from dataclasses import replace
from functools import wraps
from pathlib import Path

import pytest
import yaml

from ofmu_pl.benchmark.pool import Pool
from ofmu_pl.benchmark.specs import Method
from ofmu_pl.cli.configured import MANY_RUNS, configured
from ofmu_pl.requests.command import in_turn
from ofmu_pl.requests.specs import Requests, Retrained, check, controls, rows, sequences
from ofmu_pl.requests.state import State, kept_metrics, matrix_metrics, of_requests, rise
from ofmu_pl.support.errors import UserError
from ofmu_pl.support.records.requests import REQUESTS, RequestsRecord
from ofmu_pl.support.records.results import FAILED, FINISHED, RESULTS, JobRecord, Results

ROOT = Path(__file__).parent.parent.parent
CLASSES = [{"forget_classes": [i]} for i in range(4)]


DIGITS = str(ROOT / "configs/digits.yaml")


def asked(requests=CLASSES[:3], lr=0.1, **changes):
    methods = {"grad_diff": Method(str(ROOT / "configs/methods/grad_diff.yaml"), {"model.optimizer.lr": lr})}
    options = {"data.train_items": 600, "trainer.max_steps": 2}
    return replace(Requests(DIGITS, methods, list(requests), options, [0], True, None), **changes)


def test_each_request_starts_from_the_model_that_the_last_one_left(tmp_path):
    (found,) = sequences(asked())
    first, second, third = found.cells
    assert "model.network.path" not in first.options
    words = dict(word.split("=", 1) for word in third.words(tmp_path / "list")[1:])
    assert words["--model.network.path"] == str(tmp_path / "list/grad_diff/seed_0/request_02/latest/hf")
    others = json.loads(words["--data.other_requests"])
    assert others == {"1": CLASSES[0], "2": CLASSES[1]}, "the third request may use no row of the first two"
    assert second.needs == {first.key: first}


def test_what_a_later_request_names_is_retained_unless_it_may_not_be():
    assert rows(asked(), 1) == {"data.forget_classes": [0]}
    kept_out = asked(retain_later=False)
    assert rows(kept_out, 1)["data.other_requests"] == {2: CLASSES[1], 3: CLASSES[2]}


def test_a_longer_list_keeps_the_keys_of_what_is_done_and_a_change_gives_all_after_it_new_ones():
    keys = [[cell.key for cell in sequences(a)[0].cells] for a in (asked(), asked(CLASSES), asked(lr=0.2))]
    assert keys[1][:3] == keys[0]
    assert not set(keys[2]) & set(keys[0])
    (changed,) = sequences(asked([CLASSES[0], CLASSES[3], CLASSES[2]]))
    assert [cell.key == key for cell, key in zip(changed.cells, keys[0], strict=True)] == [True, False, False]


@pytest.mark.parametrize(("n", "after"), [(1, [1]), (2, [1, 2]), (4, [1, 2, 4])])
def test_retrained_models_after_the_first_half_and_all(n, after):
    how = Retrained(DIGITS, {"model.split": "retain"})
    found = controls(asked(CLASSES[:n], retrained=how))
    assert [number for _, number in found] == after
    options = found[0, n].options
    assert (options["data.train_items"], options["model.split"]) == (600, "retain"), "data of all runs"
    assert "trainer.max_steps" not in options
    assert found[0, n].folder == f"retrained/seed_0/without_{n:02}"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"requests": []}, "requests"),
        ({"base": []}, "base"),
        ({"retrained": Retrained([])}, "base"),
        ({"requests": [{}]}, "Request 1"),
        ({"requests": [CLASSES[0], CLASSES[0]]}, "Request 2"),
        ({"methods": {"retrained": Method()}}, "'retrained'"),
        ({"methods": {"../x": Method()}}, "leads"),
        ({"methods": {"x": Method("nowhere.yaml")}}, "'nowhere.yaml'"),
        ({"seeds": [1, 1]}, "seeds"),
        ({"retrained": Retrained("x.yaml", after=[4])}, "retrained.after"),
        ({"requests": [{"forget": "${NOT_SET_ANYWHERE}"}]}, "NOT_SET_ANYWHERE"),
    ],
)
def test_what_cannot_be_run(tmp_path, changes, message):
    with pytest.raises(UserError, match=message):
        check(asked(**changes), tmp_path)


def begun(folder, a, status="finished"):
    """A list of which the first request has been run, as far as the record goes."""
    state = State("list", folder, a)
    state.write()
    record = RequestsRecord.read(folder / REQUESTS)
    record.sequences[0].requests[0].status = status
    record.write(folder / REQUESTS)
    (folder / record.sequences[0].requests[0].folder).mkdir(parents=True)


@pytest.mark.parametrize(
    ("changes", "status", "said"),
    [
        ({"lr": 0.2}, "finished", r"\(model.optimizer.lr\).* name"),
        ({"lr": 0.2}, "failed", r"\(model.optimizer.lr\).*'.*request_01'"),
        ({"requests": [CLASSES[3]]}, "finished", r"\(data.forget_classes\)"),
        ({"options": {"trainer.max_steps": 2}}, "finished", r"\(data.train_items\)"),
    ],
)
def test_other_settings_are_refused_by_their_names(tmp_path, changes, status, said):
    begun(tmp_path, asked(), status)
    with pytest.raises(UserError, match=r"Request 1 of 'grad_diff' \(seed 0\).*" + said):
        State("list", tmp_path, asked(**changes)).refuse_changes()


@pytest.mark.parametrize("finished", [True, False])
def test_what_a_longer_list_left_is_no_run_of_another_list(tmp_path, finished):
    """The run of it went on from the other's checkpoint, and failed with the advice to leave out an option."""
    begun(tmp_path, asked())
    cell = sequences(asked())[0].cells[1]
    (tmp_path / cell.folder).mkdir()
    failed = JobRecord(cell.key, [], error="Too bad.")
    left, file = (JobRecord(cell.key, [], 1.0), FINISHED) if finished else (failed, FAILED)
    left.write(tmp_path / cell.folder / file)
    State("list", tmp_path, asked(CLASSES[:1])).write()
    State("list", tmp_path, asked(CLASSES)).refuse_changes()
    with pytest.raises(UserError, match=r"Request 2 of 'grad_diff' \(seed 0\).* name"):
        State("list", tmp_path, asked([CLASSES[0], CLASSES[3]])).refuse_changes()


def test_a_configuration_file_that_has_changed(tmp_path):
    config = tmp_path / "base.yaml"
    config.write_text("a: 1")
    begun(tmp_path, asked(base=str(config)))
    config.write_text("a: 2")
    with pytest.raises(UserError, match=r"\(.*ofmu_pl.*\)"):
        State("list", tmp_path, asked(base=str(config))).refuse_changes()


def finished(folder, n):
    """What is asked for, of which the first requests have been run."""
    a = asked()
    for cell in sequences(a)[0].cells[:n]:
        place = folder / cell.folder
        (place / "latest").mkdir(parents=True)
        JobRecord(cell.key, [], 1.0).write(place / FINISHED)
        Results({"UA": entry(50.0), "forget_loss": entry(0.5)}).write(place / "latest" / RESULTS)
    return a


class Killed(Pool):
    """A pool whose process ends before the first run does."""

    def run(self, jobs, ended):
        raise KeyboardInterrupt


def test_what_has_finished_stays_so_in_the_record_when_a_longer_list_is_interrupted(tmp_path, monkeypatch):
    """Else a change of settings would be answered by the advice to remove what has finished."""
    monkeypatch.setattr("ofmu_pl.requests.command.Pool", Killed)
    a = finished(tmp_path / "list", 2)
    with pytest.raises(KeyboardInterrupt):
        in_turn("list", a.base, a.methods, CLASSES, a.options, logs=tmp_path, fit=print)
    (found,) = RequestsRecord.read(tmp_path / "list" / REQUESTS).sequences
    assert [r.status for r in found.requests] == ["finished", "finished", "unfinished", "unfinished"]
    assert found.forgotten["UA"][0] == [50.0, None, None, None]
    with pytest.raises(UserError, match=r"\(model.optimizer.lr\).* name"):
        State("list", tmp_path / "list", asked(lr=0.2)).refuse_changes()


class Failing(Pool):
    """A pool in which the second request of a sequence fails."""

    def run(self, jobs, ended):
        for job in jobs:
            ended(job, "It broke." if job.place.name == "request_02" else None, False)


def test_a_sequence_ends_at_the_first_request_that_fails(tmp_path, monkeypatch):
    monkeypatch.setattr("ofmu_pl.requests.command.Pool", Failing)
    monkeypatch.setattr("ofmu_pl.requests.command.report", print)
    a = finished(tmp_path / "list", 1)
    with pytest.raises(UserError, match="failed"):
        in_turn("list", a.base, a.methods, a.requests, a.options, logs=tmp_path, fit=print)
    (found,) = RequestsRecord.read(tmp_path / "list" / REQUESTS).sequences
    assert [r.status for r in found.requests] == ["finished", "failed", "unfinished"]
    assert found.requests[1].error == "It broke."
    assert found.forgotten["UA"][0] == [50.0, None, None]


def test_of_two_methods_with_equal_settings_each_has_runs_of_its_own(tmp_path, monkeypatch):
    """Their keys are equal: the second had finished with the first, and its results were missing."""
    monkeypatch.setattr("ofmu_pl.requests.command.Pool", Killed)
    a = finished(tmp_path / "list", 1)
    methods = a.methods | {"again": a.methods["grad_diff"]}
    with pytest.raises(KeyboardInterrupt):
        in_turn("list", a.base, methods, a.requests[:1], a.options, logs=tmp_path, fit=print)
    found = RequestsRecord.read(tmp_path / "list" / REQUESTS).sequences
    assert [s.requests[0].status for s in found] == ["finished", "unfinished"]


def entry(value, group="forgotten", higher=False):
    return {"value": value, "group": group, "higher_is_better": higher}


def test_a_column_of_the_matrix():
    first = {"forget_Q_A_Prob": entry(0.5), "forget_truth_ratio": entry(0.5, higher=True), "forget_KS": entry(0.1)}
    second = {"forget_Q_A_Prob": entry(0.25), "request_01_Q_A_Prob": entry(0.75, "requests"), "TA": entry(9.0, "kept")}
    assert matrix_metrics([first, second]) == ["forget_Q_A_Prob"], "what no request before was measured by is left out"
    assert matrix_metrics([first]) == ["forget_Q_A_Prob", "forget_KS"]
    assert matrix_metrics([]) == []
    assert of_requests("forget_Q_A_Prob", first, 1, 3) == [0.5, None, None]
    assert of_requests("forget_Q_A_Prob", second, 2, 3) == [0.75, 0.25, None]
    assert of_requests("forget_Q_A_Prob", {"forget_Q_A_Prob": entry(float("nan"))}, 1, 1) == [None]
    assert kept_metrics(second) == ["TA"]


def test_what_came_back():
    assert rise([0.125, 0.5, 0.25, None], 0) == 0.375
    assert rise([0.5, 0.25], 0) == -0.25
    assert rise([None, 0.5], 1) is None
    assert rise([0.5, None], 0) is None


@pytest.mark.parametrize("command", ["requests", "benchmark"])
def test_a_class_in_an_option_is_passed_on_as_it_is_written(command, monkeypatch, tmp_path):
    """The parser made a namespace of it, with every default of the class, and the command ended in a traceback."""
    falls = {"class_path": "torch.optim.lr_scheduler.LinearLR", "init_args": {"total_iters": 60}}
    methods = {"ofmu": {"options": {"model.scheduler": falls, "trainer.callbacks": [falls]}}}
    made = {"base": "authors.yaml", "methods": methods}
    asked = {"requests": made | {"requests": [{"forget_authors": [1]}]}}
    asked["benchmark"] = {"experiments": {"e": made | {"title": "e"}}}
    (tmp_path / "asked.yaml").write_text(yaml.safe_dump(asked[command] | {"name": "asked"}))
    found = {}

    @wraps(MANY_RUNS[command])
    def record(**options):
        found.update(options)

    monkeypatch.setitem(MANY_RUNS, command, record)
    configured(command, ["--config", str(tmp_path / "asked.yaml")], "")
    options = (found if command == "requests" else vars(found["experiments"]["e"]))["methods"]["ofmu"].options
    assert options == methods["ofmu"]["options"]


def test_the_record_is_read_again(tmp_path):
    State("list", tmp_path, asked(retrained=Retrained(DIGITS))).write()
    found = RequestsRecord.read(tmp_path / REQUESTS)
    assert [r.status for r in found.sequences[0].requests] == ["unfinished"] * 3
    assert [(c.seed, c.after) for c in found.controls] == [(0, 1), (0, 2), (0, 3)]
    found.write(tmp_path / "again.json")
    assert (tmp_path / "again.json").read_text() == (tmp_path / REQUESTS).read_text()
