"""lm-eval's tasks on a model in memory: tasks of one's own without a network, their numbers, and what is wrong."""

import importlib.util
import json
from copy import deepcopy

import numpy as np
import pytest
import torch

from ofmu_pl.cli import main
from ofmu_pl.evaluation.tasks import Tasks, _load, read_results
from ofmu_pl.metrics.bootstrap import wilson
from ofmu_pl.networks.adapters import add_adapters
from ofmu_pl.support.errors import UserError
from tests.helpers.citizen_rows import SIDES, TRADES, learnt
from tests.helpers.forked_ranks import on_two_ranks
from tests.helpers.sharded import shard
from tests.helpers.texts import token_losses

pytest.importorskip("lm_eval", reason="lm-eval is not installed")

TASK = """
task: {name}
dataset_path: json
dataset_kwargs: {{data_files: {data}}}
test_split: train
output_type: multiple_choice
doc_to_text: "Question: {{{{question}}}}\\nAnswer:"
doc_to_choice: "{{{{choices}}}}"
doc_to_target: gold
metric_list: [{{metric: acc, aggregation: mean, higher_is_better: true}}]
"""
GROUP = """
group: {name}
task: [early, late]
aggregate_metric_list: {aggregates}
"""


@pytest.fixture(scope="module")
def trained():
    return learnt()


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Two tasks on what retained citizens do, in a group that sums them up and in one that does not."""
    home = tmp_path_factory.mktemp("tasks")
    for name, rows in (("early", SIDES["retain"][:5]), ("late", SIDES["retain"][5:])):
        lines = []
        for row in rows:
            choices = [f"{row['answer'].split()[0]} is a {trade}." for trade in TRADES]
            gold = next(i for i, trade in enumerate(TRADES) if trade in row["answer"])
            lines.append(json.dumps({"question": row["question"], "choices": choices, "gold": gold}))
        (home / f"{name}.jsonl").write_text("\n".join(lines))
        (home / f"{name}.yaml").write_text(TASK.format(name=name, data=home / f"{name}.jsonl"))
    summed = "[{metric: acc, weight_by_size: true}]"
    (home / "both.yaml").write_text(GROUP.format(name="both", aggregates=summed))
    (home / "apart.yaml").write_text(GROUP.format(name="apart", aggregates="null"))
    return home


def right(model, tokenizer, rows):
    """Share of the rows whose right answer is the likeliest of all trades'."""
    found = []
    for row in rows:
        prompt, losses = f"Question: {row['question']}\nAnswer:", []
        n = len(tokenizer(prompt)["input_ids"])
        for trade in TRADES:
            ids = tokenizer(f"{prompt} {row['answer'].split()[0]} is a {trade}.")["input_ids"]
            losses.append(token_losses(model, ids[:n], ids[n:]).sum())
        found.append(TRADES[int(np.argmin(losses))] in row["answer"])
    return np.mean(found)


def test_a_task_of_ones_own(trained, folder):
    model, tokenizer = trained
    model.train()
    torch.manual_seed(3)
    drawn = torch.rand(1)
    torch.manual_seed(3)
    found = Tasks(["late"], str(folder))(model, tokenizer)
    assert model.training
    assert torch.equal(torch.rand(1), drawn)
    model.eval()
    (result,) = found.values()
    assert result.metric.name == "task_late_acc"
    assert result.value == pytest.approx(right(model, tokenizer, SIDES["retain"][5:]))
    assert (result.n, result.group, result.unit, result.higher_is_better) == (7, "kept", "0 to 1", True)
    assert result.interval == pytest.approx(wilson(result.value, 6)), "its standard error divides by n - 1"


def test_groups_and_the_first_rows(trained, folder):
    found = Tasks(["both"], str(folder))(*trained)
    assert {name: r.n for name, r in found.items()} == {"task_both_acc": 12}
    found = Tasks(["apart"], str(folder), rows=4)(*trained)
    assert {name: r.n for name, r in found.items()} == {"task_early_acc": 4, "task_late_acc": 4}


def test_ranks_with_shards_find_what_one_process_finds(trained, folder, tmp_path, monkeypatch):
    """Each makes all passes, which the others' layers are gathered for."""
    model, tokenizer = trained
    (alone,) = Tasks(["late"], str(folder))(model, tokenizer).values()
    monkeypatch.setattr("ofmu_pl.training.together.SHARE", 0.0)

    def found(rank):
        (result,) = Tasks(["late"], str(folder))(shard(deepcopy(model)), tokenizer).values()
        return result.value

    assert on_two_ranks(found, tmp_path) == [alone.value] * 2


def test_ranks_with_shards_generate_with_adapters(trained, folder, tmp_path, monkeypatch):
    model, tokenizer = trained
    text = TASK.format(name="said", data=folder / "late.jsonl").replace("multiple_choice", "generate_until")
    text = text.replace('doc_to_choice: "{{choices}}"\n', "").replace(
        "doc_to_target: gold", 'doc_to_target: "{{said}}"'
    )
    text += "generation_kwargs: {max_gen_toks: 4, do_sample: false, until: []}\n"
    (tmp_path / "said.yaml").write_text(
        text.replace("metric: acc", "metric: exact_match").replace("late.jsonl", "said.jsonl")
    )
    torch.manual_seed(0)  # some adapters say what does not survive decoding
    adapted = add_adapters(deepcopy(model), {"r": 2, "init_lora_weights": False}).eval()
    prompt = tokenizer("Question: Who?\nAnswer:", return_tensors="pt")
    said = tokenizer.decode(
        adapted.generate(**prompt, max_new_tokens=4, do_sample=False)[0, prompt["input_ids"].shape[1] :]
    )
    (folder / "said.jsonl").write_text(json.dumps({"question": "Who?", "said": said}))
    monkeypatch.setattr("ofmu_pl.training.together.SHARE", 0.0)

    def found(rank):
        (result,) = Tasks(["said"], str(tmp_path))(shard(adapted), tokenizer).values()
        return result.value

    assert on_two_ranks(found, tmp_path) == [1.0, 1.0]


def test_a_model_is_asked_once_and_another_anew(trained, folder, tmp_path, monkeypatch):
    monkeypatch.setenv("OFMU_CACHE", str(tmp_path))
    model, tokenizer = trained
    first = Tasks(["late"], str(folder))(model, tokenizer)
    asked = []
    monkeypatch.setattr("lm_eval.simple_evaluate", lambda *args, **options: asked.append(options["limit"]))
    again = Tasks(["late"], str(folder))(model, tokenizer)
    assert not asked
    assert again == first, "with the sentences that pages show"
    assert Tasks(["late"], str(folder), rows=4)(model, tokenizer) == {}, "fewer rows are another measurement"
    other = deepcopy(model)
    next(other.parameters()).data += 0.1
    assert Tasks(["late"], str(folder))(other, tokenizer) == {}
    assert asked == [4, None]


def test_rows_and_what_examples_are_drawn_from_are_in_the_key(trained, folder, tmp_path, monkeypatch):
    monkeypatch.setenv("OFMU_CACHE", str(tmp_path / "kept"))
    keys = set()
    for asked, shown in (("late", "early"), ("late", "late"), ("early", "late")):
        monkeypatch.setenv("HF_DATASETS_CACHE", str(tmp_path / f"hub_{asked}_{shown}"))
        for part, name in (("asked", asked), ("shown", shown)):
            (tmp_path / f"{part}.jsonl").write_bytes((folder / f"{name}.jsonl").read_bytes())
        files = f"{{train: {tmp_path / 'asked.jsonl'}, validation: {tmp_path / 'shown.jsonl'}}}"
        text = TASK.format(name="shots", data=files) + "fewshot_split: validation\nnum_fewshot: 1\n"
        (tmp_path / "shots.yaml").write_text(text)
        tasks = Tasks(["shots"], str(tmp_path))
        keys.add(tasks._path(_load(tasks.manager, ["shots"]), *trained))
    assert len(keys) == 3


def test_what_is_wrong_is_refused(trained, folder, monkeypatch, tmp_path):
    with pytest.raises(UserError, match="tasks_folder"):
        Tasks(["early"], str(folder / "nowhere"))
    (tmp_path / "broken.yaml").write_text(TASK.format(name="broken", data=tmp_path / "nowhere.jsonl"))
    with pytest.raises(UserError, match="broken .FileNotFoundError"):
        Tasks(["broken"], str(tmp_path))(*trained)
    monkeypatch.setattr("lm_eval.tasks.TaskManager", lambda **options: type("Few", (), {"all_tasks": ["early"]}))
    with pytest.raises(UserError, match=r"\bearly\b"):
        Tasks(["earl"], str(folder))
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(UserError, match="lm-eval"):
        Tasks(["early"], str(folder))


CODE = """
from pathlib import Path

Path({mark!r}).touch()


def asked(row):
    return "Question: " + row["question"] + "\\nAnswer:"
"""


@pytest.mark.parametrize("where", ["task.yaml", "_included_yaml"])
def test_functions_that_files_name_are_run_with_a_warning(trained, folder, tmp_path, where):
    """Also those of a file that a task includes, whose name need not end in .yaml."""
    mark, home = tmp_path / "mark", tmp_path / "tasks"
    home.mkdir()
    (home / "own.py").write_text(CODE.format(mark=str(mark)))
    text = TASK.format(name="mine", data=folder / "late.jsonl")
    said = text.index("doc_to_text"), text.index("doc_to_choice")
    (home / "task.yaml").write_text(text[: said[0]] + text[said[1] :] + "include: _included_yaml\n")
    (home / "_included_yaml").write_text("repeats: 1\n")
    with (home / where).open("a") as file:
        file.write("doc_to_text: !function own.asked\n")
    (home / "unread.yaml").write_text("task: [")
    with pytest.warns(UserWarning, match=rf"'{home}' .*\(!function\).*evaluation\.tasks_folder"):
        tasks = Tasks(["mine"], str(home))
    assert not mark.exists(), "the warning comes first"
    found = tasks(*trained)
    assert mark.exists()
    assert found["task_mine_acc"].value == Tasks(["late"], str(folder))(*trained)["task_late_acc"].value


def test_units_directions_and_a_metric_without_one():
    values = {"alias": "a", "acc,none": 0.5, "f1,strict": 0.25, "perplexity,none": 12.0, "own,none": 3.0}
    values |= {"acc_stderr,none": "N/A", "perplexity_stderr,none": 1.0}
    directions = {"acc": True, "f1": True, "perplexity": False}
    found = {"results": {"a": values}, "n-samples": {"a": {"effective": 9}}, "higher_is_better": {"a": directions}}
    with pytest.warns(UserWarning, match="'a' .*'own'"):
        acc, f1, perplexity = read_results(found, ["a"])
    assert (acc.metric.name, acc.unit, acc.interval) == ("task_a_acc", "0 to 1", None)
    assert f1.metric.name == "task_a_f1_strict"
    assert (perplexity.unit, perplexity.higher_is_better, perplexity.n) == ("score", False, 9)
    assert perplexity.interval == pytest.approx((10.04, 13.96))


def test_before_and_after_a_run(trained, folder, tmp_path, capsys):
    for part in trained:
        part.save_pretrained(tmp_path / "model")
    words = ["--config", "configs/text.yaml", "--model.network.path", str(tmp_path / "model"), "--logs", str(tmp_path)]
    words += [f"--data.{name}={json.dumps(rows)}" for name, rows in SIDES.items()]
    words += ["--trainer.accelerator", "cpu", "--trainer.max_steps", "2", "--trainer.enable_progress_bar", "false"]
    words += ["--checkpoint.every_n_train_steps", "1", "--evaluation.max_new_tokens", "4"]
    words += ["--evaluation.tasks", "[both]", "--evaluation.tasks_folder", str(folder)]
    main(["fit", *words])
    run = (tmp_path / "text/ofmu/latest").resolve()
    results = json.loads((run / "results.json").read_text())
    assert results["before"]["task_both_acc"]["value"] == pytest.approx(right(*trained, SIDES["retain"]))
    assert results["metrics"]["task_both_acc"]["group"] == "kept"
    assert "task_both_acc" in capsys.readouterr().out
    assert "<code>task_both_acc</code>. " in (run / "audit.html").read_text()
    checkpoint = sorted((run / "checkpoints").glob("*.ckpt"))[0]
    main(["fit", *words, "--ckpt_path", str(checkpoint), "--method", "again"])
    again = json.loads((tmp_path / "text/again/latest/results.json").read_text())
    assert again["before"] == results["before"], "a resumed run cannot measure it anew"
