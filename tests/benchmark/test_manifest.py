"""What a benchmark that is started again knows of its runs before it has looked at them."""

import pytest

from ofmu_pl.benchmark.manifest import Manifest
from ofmu_pl.benchmark.pool import Job
from ofmu_pl.benchmark.specs import Planned, Prepare, SearchedMethod
from ofmu_pl.support.records.manifest import BenchmarkRecord
from ofmu_pl.support.records.reading import NewerError

PLACE = ("e", "all", "npo", 0)


def experiment(**options):
    wanted = {"base": "a.yaml", "gradients": 4, "options": {"x": [1, 2.5]}, "seeds": [0], **options}
    return {"e": Planned(title="E", methods={"npo": SearchedMethod(overlay="npo.yaml")}, **wanted)}


def finished(folder, **options):
    """The runs that a manifest calls finished, after one that had ended its only run."""
    first = Manifest("b", folder, experiment())
    first.place(PLACE, "key", "shared/place")
    first.searched("e", "npo")["all"] = {"choice": {"lr": 1}, "scores": {}}
    first.end("key", None)
    first.write()
    again = Manifest("b", folder, experiment(**options))
    again.write()
    found = BenchmarkRecord.read(folder / "benchmark.json").experiments["e"]
    assert (found.title, found.base, found.ours) == ("E", options.get("base", "a.yaml"), "ofmu")
    return [(c.seed, c.folder) for c in found.cells if c.status == "finished"], found.methods["npo"].searched


def test_what_is_asked_for_as_before_stays_known(tmp_path):
    for options in ({}, {"seeds": [1, 0]}, {"note": "another"}):
        cells, searched = finished(tmp_path, **options)
        assert cells == [(0, "shared/place")]
        assert searched["all"]["choice"] == {"lr": 1}


OTHERS = {"gradients": 5, "options": {"x": [1, 2]}, "base": "b.yaml", "scenarios": {"all": {"y": 1}}, "seeds": [1]}


@pytest.mark.parametrize("options", [{key: value} for key, value in OTHERS.items()], ids=OTHERS)
def test_what_is_asked_for_otherwise_does_not(tmp_path, options):
    assert finished(tmp_path, **options) == ([], {})


def test_attacks_that_failed_are_made_again_or_no_longer_asked_for(tmp_path):
    first = Manifest("b", tmp_path, experiment())
    first.place(PLACE, "key", "shared/place")
    first.end("key", None)
    first.cells[PLACE].attack_error = "Too bad."
    first.write()
    assert first.failures()
    again = Manifest("b", tmp_path, experiment())
    assert not again.failures()
    again.write()
    assert BenchmarkRecord.read(tmp_path / "benchmark.json").experiments["e"].cells[0].status == "finished"


def test_a_file_of_a_newer_version_stays(tmp_path):
    (tmp_path / "benchmark.json").write_text('{"schema": 99}')
    with pytest.raises(NewerError):
        Manifest("b", tmp_path, experiment())
    (tmp_path / "cell.json").write_text('{"schema": 99}')
    with pytest.raises(NewerError):
        _ = Job(tmp_path, "key", print).record


def test_a_file_that_cannot_be_read_is_written_anew(tmp_path):
    (tmp_path / "benchmark.json").write_text("{")
    with pytest.warns(UserWarning, match="benchmark.json"):
        Manifest("b", tmp_path, experiment()).write()
    assert BenchmarkRecord.read(tmp_path / "benchmark.json").name == "b"


def test_models_that_are_made_first_are_told(tmp_path):
    """What a table rests on: settings, place and time of each."""
    target = Prepare("target.yaml", "model.network.path", {"x": 1}, ["seed"])
    manifest = Manifest("b", tmp_path, experiment(prepare={"target": target}))
    for seed in (0, 1, 2):
        manifest.prepare("e", "target", f"key {seed}", f"prepared/e/target/seed_{seed}")
    manifest.end("key 0", None, 12.5)
    manifest.end("key 1", "It diverged.", None)
    manifest.end("a run's", None, 3.0)
    manifest.write()
    told = BenchmarkRecord.read(tmp_path / "benchmark.json").experiments["e"].prepare["target"]
    assert (told.base, told.gives, told.options, told.each) == ("target.yaml", "model.network.path", {"x": 1}, ["seed"])
    assert [(m.folder[-1], m.status, m.error, m.seconds) for m in told.made] == [
        ("0", "finished", None, 12.5),
        ("1", "failed", "It diverged.", None),
        ("2", "unfinished", None, None),
    ]
