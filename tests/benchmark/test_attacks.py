"""Which attacks follow from finished runs, and what becomes of those that fail."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from ofmu_pl.benchmark.attacks import Attacks
from ofmu_pl.benchmark.command import Stages
from ofmu_pl.benchmark.grid import Grid
from ofmu_pl.benchmark.manifest import Manifest
from ofmu_pl.benchmark.progress import Live
from ofmu_pl.benchmark.specs import Planned, SearchedMethod, check
from ofmu_pl.metrics.per_example import FEWEST
from ofmu_pl.report.collect import collect
from ofmu_pl.support.errors import UserError
from ofmu_pl.support.records import FINISHED, BenchmarkRecord, JobRecord
from tests.helpers import folders

CONFIGS = Path(__file__).parent.parent.parent / "configs"
EXPERIMENT = Planned(
    title="Text",
    base=str(CONFIGS / "authors.yaml"),
    methods={"ofmu": SearchedMethod(), "npo": SearchedMethod(str(CONFIGS / "methods/npo.yaml"))},
    attacks=[str(CONFIGS / "attacks.yaml")],
    options={"export.folder": "hf"},
    seeds=[0, 1],
)


def made(folder, experiment):
    """Jobs by place, and those over the runs of a method."""
    grid = Grid({"e": experiment})
    cells = {("e", "all", m, s): grid.run("e", m, "all", s) for s in experiment.seeds for m in experiment.methods}
    attacks = Attacks(folder, {"e": experiment}, print)
    jobs = attacks.jobs("e", cells)
    return jobs, list(attacks.over_runs("e", cells).values())


def test_a_job_a_run_is_the_command_with_its_folder(tmp_path):
    jobs, together = made(tmp_path, EXPERIMENT)
    job = jobs["e", "all", "npo", 1]
    run = tmp_path / "e/all/npo/seed_1/latest"
    assert job.words == ["attack", "--config", str(CONFIGS / "attacks.yaml"), "--runs", str(run)]
    assert job.place == tmp_path / "attacks/e/all/npo/seed_1"
    assert not job.made
    run.mkdir(parents=True)
    (run / "attacks.json").touch()
    assert job.made
    assert len({j.key for j in jobs.values()}) == 4
    assert together == []


def test_the_runs_of_a_method_are_attacked_together_where_there_are_enough(tmp_path):
    many = replace(EXPERIMENT, seeds=list(range(FEWEST)))
    _, (ofmu, npo) = made(tmp_path, many)
    assert ofmu.place == tmp_path / "attacks/e/all/ofmu"
    assert npo.words[-FEWEST:] == [str(tmp_path / f"e/all/npo/seed_{s}/latest") for s in many.seeds]


def test_files_are_put_over_each_other_and_are_part_of_the_key(tmp_path):
    seeds = tmp_path / "seeds.yaml"
    keys = set()
    for text in ("seeds: [1]", "seeds: [1, 2]"):
        seeds.write_text(text)
        jobs, _ = made(tmp_path, replace(EXPERIMENT, attacks=[*EXPERIMENT.attacks, str(seeds)]))
        job = jobs["e", "all", "ofmu", 0]
        assert job.words[1:5] == ["--config", str(CONFIGS / "attacks.yaml"), "--config", str(seeds)]
        keys.add(job.key)
    assert len(keys) == 2


def test_without_attacks_there_are_no_jobs(tmp_path):
    assert made(tmp_path, replace(EXPERIMENT, attacks=[])) == ({}, [])


def attacked(folder, fails, seeds):
    """What is known after attacks on runs that have finished, of which those at places that fail broke."""
    bench = folders.Benchmark(folder)
    bench.experiment("e", "table", folders.table(scenarios=("all",), seeds=seeds, methods={"ofmu": 0.0, "npo": 0.3}))
    experiments = {"e": replace(EXPERIMENT, seeds=seeds)}
    grid, manifest = Grid(experiments), Manifest("b", folder, experiments)
    ready = {("e", "all", m, s): grid.run("e", m, "all", s) for m in EXPERIMENT.methods for s in seeds}

    def end(jobs, ended):
        for job in jobs:
            if job.place in fails:
                ended(job, "It broke.", True)
                continue
            JobRecord(job.key, job.words, 1.0).write(job.place / FINISHED)
            Path(job.result).parent.mkdir(parents=True, exist_ok=True)
            Path(job.result).write_text('{"attacks": {}}')
            ended(job, None, True)

    for place in ready:
        manifest.end(place, None)
    with Live(1) as live:
        run = Stages(folder, manifest, grid, SimpleNamespace(run=end), live, print)
        run.attack(Attacks(folder, experiments, print), "e", ready)
    return manifest.failures(), BenchmarkRecord.read(folder / "benchmark.json").experiments["e"]


def test_a_failed_attack_is_recorded_and_reported(tmp_path):
    failures, record = attacked(tmp_path, [tmp_path / "attacks/e/all/npo/seed_1"], [0, 1])
    assert [cell.attack_error for cell in record.cells] == [None, None, None, "It broke."]
    assert failures == {"attacks on e/all/npo/seed_1": "It broke."}
    assert "e: the attacks on e/all/npo/seed_1 failed: It broke." in collect(tmp_path).problems


def test_failed_attacks_on_the_runs_of_a_method_together_are_recorded_and_reported(tmp_path):
    failures, record = attacked(tmp_path, [tmp_path / "attacks/e/all/npo"], list(range(FEWEST)))
    assert record.attack_errors == {"all/npo": "It broke."}
    assert {cell.attack_error for cell in record.cells} == {None}
    assert failures == {"attacks on e/all/npo together": "It broke."}
    assert "e: the attacks on the runs of all/npo together failed: It broke." in collect(tmp_path).problems


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"options": {"export.folder": None}}, "export no model that could be attacked"),
        ({"attacks": "configs/nothing.yaml"}, "'configs/nothing.yaml' of 'e' does not exist"),
    ],
)
def test_what_cannot_be_attacked_is_refused(tmp_path, change, words):
    check({"e": EXPERIMENT}, tmp_path)
    with pytest.raises(UserError, match=words):
        check({"e": replace(EXPERIMENT, **change)}, tmp_path)
