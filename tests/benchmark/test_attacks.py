"""Which attacks follow from finished runs, and what becomes of those that fail."""

import os
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from ofmu_pl.benchmark.command import Stages
from ofmu_pl.benchmark.comparison import RETRAINED, TARGET, Comparisons
from ofmu_pl.benchmark.grid import Grid
from ofmu_pl.benchmark.manifest import Manifest
from ofmu_pl.benchmark.pool import Job, Pool
from ofmu_pl.benchmark.progress import Live
from ofmu_pl.benchmark.specs import Planned, SearchedMethod, check
from ofmu_pl.metrics.per_example import FEWEST
from ofmu_pl.report.collect import collect
from ofmu_pl.support.errors import UserError
from ofmu_pl.support.records.manifest import BenchmarkRecord
from ofmu_pl.support.records.results import FINISHED, JobRecord
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


def attacked(folder, fails="nothing", **changes):
    """Jobs by place, and what is known of attacks on runs that have finished; those at one place broke."""
    experiments = {"e": replace(EXPERIMENT, **changes)}
    seeds = experiments["e"].seeds
    bench = folders.Benchmark(folder)
    bench.experiment("e", "table", folders.table(scenarios=("all",), seeds=seeds, methods={"ofmu": 0.0, "npo": 0.3}))
    grid, manifest, jobs = Grid(experiments), Manifest("b", folder, experiments), {}
    ready = {("e", "all", m, s): grid.run("e", m, "all", s) for s in seeds for m in EXPERIMENT.methods}

    def end(given, ended):
        for job in given:
            jobs[str(job.place.relative_to(folder / "attacks/e/all"))] = job
            if str(job.place).endswith(fails):
                ended(job, "It broke.", True)
                continue
            JobRecord(job.key, job.words, 1.0).write(job.place / FINISHED)
            Path(job.result).parent.mkdir(parents=True, exist_ok=True)
            Path(job.result).write_text('{"attacks": {}}')
            ended(job, None, True)

    for place, cell in ready.items():
        manifest.place(place, cell.key, cell.folder)
        manifest.end(cell.key, None)
    stages = Stages(folder, manifest, grid, SimpleNamespace(run=end), Live(1, folder), print)
    stages.plan_attacks(ready)
    stages.attack("e", ready)
    manifest.write()
    return jobs, manifest.failures(), BenchmarkRecord.read(folder / "benchmark.json").experiments["e"]


def test_a_job_a_run_is_the_command_with_its_folder(tmp_path):
    jobs, _, _ = attacked(tmp_path)
    job = jobs["npo/seed_1"]
    run = tmp_path / "e/all/npo/seed_1/latest"
    assert job.words == ["attack", f"--config={CONFIGS / 'attacks.yaml'}", "--runs", str(run)]
    assert job.result == str(run / "attacks.json")
    assert set(jobs) == {f"{m}/seed_{s}" for m in ("ofmu", "npo") for s in (0, 1)}, "too few to attack together"
    assert len({j.key for j in jobs.values()}) == 4


def test_attacks_follow_the_run_that_they_need(tmp_path):
    """Whichever of its runs ends, its attacks are what comes next; a run that failed leaves none to wait for."""
    grid = Grid({"e": EXPERIMENT})
    stages = Stages(tmp_path, Manifest("b", tmp_path, grid.experiments), grid, None, Live(1, tmp_path), print)
    ready = {("e", "all", m, 0): grid.run("e", m, "all", 0) for m in EXPERIMENT.methods}
    stages.plan_attacks(ready)
    assert stages.live.total == 2
    for (_, _, method, _), cell in ready.items():
        job = Job(tmp_path / cell.folder, cell.key, print)
        failure = "It broke." if method == "npo" else None
        assert [j.words[-1] for j in stages._end(job, failure, False) or []] == (
            [] if failure else [str(tmp_path / "e/all/ofmu/seed_0/latest")]
        )
    assert stages.live.total == 1


def test_what_follows_a_job_comes_before_what_waits(tmp_path):
    order = []
    jobs = {name: Job(tmp_path / name, name, os.getpid) for name in ("first", "then", "last")}

    def end(job, sentence, fresh):
        order.append(job.key)
        return [jobs["then"]] if job.key == "first" else None

    Pool(1, Live(1, tmp_path)).run([jobs["first"], jobs["last"]], end)
    Pool(1, Live(1, tmp_path)).run([jobs["first"], jobs["last"]], end)  # of which nothing is left to do
    assert order == ["first", "then", "last"] * 2


def test_files_are_put_over_each_other_and_are_part_of_the_key(tmp_path):
    seeds = tmp_path / "seeds.yaml"
    keys = set()
    for text in ("seeds: [1]", "seeds: [1, 2]"):
        seeds.write_text(text)
        job = attacked(tmp_path, attacks=[*EXPERIMENT.attacks, str(seeds)])[0]["ofmu/seed_0"]
        assert job.words[1:3] == [f"--config={CONFIGS / 'attacks.yaml'}", f"--config={seeds}"]
        keys.add(job.key)
    assert len(keys) == 2
    assert attacked(tmp_path, attacks=[])[0] == {}


def test_a_failed_attack_is_recorded_and_reported(tmp_path):
    _, failures, record = attacked(tmp_path, "npo/seed_1")
    assert [cell.attack_error for cell in record.cells] == [None, None, None, "It broke."]
    assert failures == {"attacks on e/all/npo/seed_1": "It broke."}
    assert any("e/all/npo/seed_1 " in p and p.endswith(": It broke.") for p in collect(tmp_path).problems)


def test_the_runs_of_a_method_are_attacked_together_where_there_are_enough(tmp_path):
    seeds = list(range(FEWEST))
    jobs, failures, record = attacked(tmp_path, "all/npo", seeds=seeds)
    assert jobs["npo"].words[-FEWEST:] == [str(tmp_path / f"e/all/npo/seed_{s}/latest") for s in seeds]
    assert "ofmu" in jobs
    assert record.attack_errors == {"all/npo": "It broke."}
    assert {cell.attack_error for cell in record.cells} == {None}
    assert failures == {"attacks on e/all/npo together": "It broke."}
    assert any("all/npo " in p and p.endswith(": It broke.") for p in collect(tmp_path).problems)


@pytest.mark.parametrize(
    ("change", "token"),
    [({"options": {"export.folder": None}}, "export.folder"), ({"attacks": "no.yaml"}, "'no.yaml'")],
)
def test_what_cannot_be_attacked_is_refused(tmp_path, change, token):
    check({"e": EXPERIMENT}, tmp_path)
    with pytest.raises(UserError, match=token):
        check({"e": replace(EXPERIMENT, **change)}, tmp_path)


def test_a_comparison_that_fails_is_reported_and_leaves_no_older_one(tmp_path):
    options = {"export.folder": "hf", TARGET: "target", RETRAINED: "retrained"}
    experiments = {"e": replace(EXPERIMENT, kind="alignment", attacks=None, options=options)}
    grid, manifest = Grid(experiments), Manifest("b", tmp_path, experiments)
    ready = {("e", "all", m, s): grid.run("e", m, "all", s) for s in (0, 1) for m in EXPERIMENT.methods}
    older = tmp_path / "e/analysis.json"
    older.parent.mkdir()
    older.write_text("{}")

    def end(given, ended):
        for job in given:
            ended(job, "It broke.", True)

    stages = Stages(tmp_path, manifest, grid, SimpleNamespace(run=end), Live(1, tmp_path), print)
    stages.compare(Comparisons(tmp_path, experiments), "e", ready)
    assert stages.not_compared == {f"analysis/e/all/seed_{s}": "It broke." for s in (0, 1)}
    assert not older.exists()
