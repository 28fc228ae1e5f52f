"""The command itself: a sequence that was killed and went on, one that got longer, and what ``validate`` says of it."""

import time
from pathlib import Path

import pytest
from jsonargparse import auto_cli

from ofmu_pl.benchmark.specs import Method
from ofmu_pl.cli import main
from ofmu_pl.requests.specs import Requests, Retrained, check
from ofmu_pl.requests.state import State
from ofmu_pl.support.records.manifest import Value
from ofmu_pl.support.records.requests import REQUESTS, RequestsRecord
from ofmu_pl.support.records.results import Results
from tests.helpers.process import killed_benchmark, start_server

ROOT = Path(__file__).parent.parent.parent
AUTHORS = f"""
name: NAME
workers: 1
base: {ROOT}/configs/authors.yaml
options:
  model.network.path: TARGET
  model.scheduler: null
  data.authors: 6
  data.batch_size: 8
  trainer.max_steps: 3
  trainer.accelerator: cpu
  evaluation.reference: null
  evaluation.every_n_steps: null
  evaluation.max_new_tokens: 4
  checkpoint.every_n_train_steps: 1
methods:
  npo: {{overlay: {ROOT}/configs/methods/npo.yaml, options: {{model.optimizer.lr: 1.0e-2}}}}
requests:
  - {{forget_authors: [3]}}
  - {{forget_authors: [1]}}
"""
TARGET = [
    *("fit", "--config", str(ROOT / "configs/tiny/target.yaml"), "--model.scheduler", "null"),
    *("--trainer.max_steps", "60", "--data.authors", "6", "--evaluation.max_new_tokens", "1"),
    *("--checkpoint.save_top_k", "0", "--model.optimizer.lr", "2e-2", "--trainer.enable_progress_bar", "false"),
    *("--model.network.config", '{"model_type": "llama", "hidden_size": 16, "intermediate_size": 16,'
      '"num_hidden_layers": 1, "num_attention_heads": 2, "tie_word_embeddings": true}'),
]  # fmt: skip


@pytest.fixture(scope="module")
def logs(tmp_path_factory):
    """Folder with a target, a sequence that was run at once, and the list of another one like it."""
    start_server()
    logs = tmp_path_factory.mktemp("logs")
    main([*TARGET, "--logs", str(logs), "--benchmark", "models", "--method", "target"])
    text = AUTHORS.replace("TARGET", str(logs / "models/target/latest/hf"))
    for name in ("whole", "killed"):
        (logs / f"{name}.yaml").write_text(text.replace("NAME", name))
    main(words(logs, "whole"))
    return logs


def words(logs, name):
    return ["requests", "--config", str(logs / f"{name}.yaml"), "--logs", str(logs)]


def _kill(logs):
    """Run the other one until the first request has finished and the second has begun."""
    begun = logs / "killed/npo/seed_0/request_02"
    killed_benchmark(words(logs, "killed"), logs / "output.txt", begun.is_dir)
    limit = time.monotonic() + 60
    while _held(begun):  # its run sees that it is gone
        assert time.monotonic() < limit
        time.sleep(0.05)
    assert not (begun / "cell.json").exists(), "nothing was interrupted"
    record = RequestsRecord.read(logs / "killed" / REQUESTS)
    assert [r.status for r in record.sequences[0].requests] == ["finished", "unfinished"]


def _held(folder):
    from ofmu_pl.training.run_folders import _holder, versions

    return any(_holder(version) is not None for version in versions(folder))


def record(logs, name):
    return RequestsRecord.read(logs / name / REQUESTS)


def lasting(found):
    """What of the record does not depend on when, where and how fast a sequence was run."""
    (s,) = found.sequences
    gradients = [r.cost.gradient_evaluations for r in s.requests]
    return s.forgotten, s.before, s.returned, s.kept, gradients, [(r.key, r.status) for r in s.requests]


@pytest.mark.slow
def test_killed_and_gone_on_is_the_same(logs):
    _kill(logs)
    main(words(logs, "killed"))
    one, other = (lasting(record(logs, name)) for name in ("whole", "killed"))
    assert one == other


def test_the_matrix_is_what_validate_says_of_the_models(logs):
    (s,) = record(logs, "whole").sequences
    matrix = s.forgotten["forget_Q_A_Prob"]
    assert [len(row) for row in matrix] == [2, 2]
    assert matrix[1][0] is None, "nobody had asked for it yet"
    config = str(logs / "whole/npo/seed_0/request_01/latest/config.yaml")
    for request, after, author in ((1, 2, 3), (2, 2, 1)):
        path = logs / f"whole/npo/seed_0/request_{after:02}/latest/hf"
        method = f"by_hand_{request}_{after}"
        options = ["--model.network.path", str(path), "--data.forget_authors", f"[{author}]"]
        main(
            ["validate", "--config", config, *options, "--logs", str(logs), "--benchmark", "check", "--method", method]
        )
        found = Results.read(logs / f"check/{method}/version_0/results.json").metrics
        assert matrix[request - 1][after - 1] == pytest.approx(found["forget_Q_A_Prob"]["value"], rel=1e-6)
        rouge = s.forgotten["forget_Q_A_ROUGE"][request - 1][after - 1]
        assert rouge == pytest.approx(found["forget_Q_A_ROUGE"]["value"], rel=1e-6)
    assert s.returned["forget_Q_A_Prob"] == [pytest.approx(matrix[0][1] - matrix[0][0]), None]
    assert s.before["forget_Q_A_Prob"][0] > matrix[0][0], "it has forgotten something"
    assert len(s.kept["retain_Q_A_Prob"]) == 3


@pytest.mark.slow
def test_a_request_is_added(logs, capsys):
    before = record(logs, "whole")
    times = {p: p.stat().st_mtime_ns for p in (logs / "whole").rglob("cell.json")}
    config = logs / "whole.yaml"
    config.write_text(config.read_text() + "  - {forget_authors: [0]}\n")
    main(words(logs, "whole"))
    assert "npo, seed 0" in " ".join(capsys.readouterr().out.split())
    assert {p: p.stat().st_mtime_ns for p in times} == times, "what had finished was run again"
    (old,), (new,) = before.sequences, record(logs, "whole").sequences
    assert [row[:2] for row in new.forgotten["forget_Q_A_Prob"][:2]] == old.forgotten["forget_Q_A_Prob"]
    assert None not in [row[2] for row in new.forgotten["forget_Q_A_Prob"]]
    page = (logs / "whole/report/index.html").read_text()
    assert "3 requests" in page
    assert {p.name for p in (logs / "whole/report/figures").iterdir()} == {"requests-matrix.png", "requests-drift.png"}


def read(
    name: str,
    base: str | list[str],
    methods: dict[str, Method],
    requests: list[dict[str, Value]],
    options: dict[str, Value],
    retrained: Retrained | None = None,
):
    return Requests(base, methods, requests, options, [0], True, retrained)


@pytest.mark.parametrize("path", sorted((ROOT / "configs/requests").glob("*.yaml")), ids=lambda p: p.stem)
def test_every_shipped_list_plans_and_its_commands_can_be_read(path, monkeypatch, tmp_path, capsys):
    monkeypatch.chdir(ROOT)
    for name in ("OFMU_SHARED", "OFMU_MUSE", "OFMU_MUSE_TARGET"):
        monkeypatch.setenv(name, "/data")
    asked = auto_cli(read, args=["--config", str(path)], as_positional=False)
    check(asked, tmp_path / "list")
    state = State("list", tmp_path / "list", asked)
    assert "${" not in str([cell.words(tmp_path / "list") for cell in state.cells])
    refused = []
    for cell in [*(sequence.cells[0] for sequence in state.sequences), *list(state.controls.values())[:1]]:
        with pytest.raises(SystemExit) as stop:
            main([*cell.words(tmp_path), "--print_config"])
        refused += [capsys.readouterr().err] if stop.value.code else []
    assert not refused
