"""What else a language model can still do: tasks of lm-eval, published ones or one's own, before and after a run.

What a task says of a model is kept by content, as scores are, so that a target is asked once for all runs on it.
"""

import hashlib
import importlib.util
import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from difflib import get_close_matches
from importlib.metadata import version
from itertools import chain, islice
from pathlib import Path
from typing import Any

from lightning.pytorch.utilities import rank_zero_warn
from lightning.pytorch.utilities.seed import isolate_rng
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from ofmu_pl.data.tokenizers import tokenizer_hash
from ofmu_pl.evaluation.table import Metrics
from ofmu_pl.metrics.bootstrap import wilson
from ofmu_pl.metrics.result import LAST, Metric, MetricResult, by_name
from ofmu_pl.modules.reference_scores import computed
from ofmu_pl.networks.base import evaluating
from ofmu_pl.support.errors import UserError, reason
from ofmu_pl.support.files import file_hash
from ofmu_pl.support.kept import cache_folder, content_path, keep, read_shared
from ofmu_pl.support.provenance import config_hash, weights_hash
from ofmu_pl.training.together import one_token, together

BATCH = 8
"""Requests at a time; lm-eval's search for a larger batch would fill the memory that the run's optimizers need."""
SHARES = ("acc", "exact_match", "f1")
"""What the names of metrics that are shares of one begin with; tasks do not say their metrics' units."""
PREFIX = "task_"  # so that the name of a task's metric is never a suite's


class Tasks:
    """Tasks of lm-eval by name, run by lm-eval itself on a model that is in memory."""

    def __init__(self, names: Sequence[str], folder: str | None = None, rows: int | None = None) -> None:
        if importlib.util.find_spec("lm_eval") is None:
            raise UserError("`evaluation.tasks` needs the package lm-eval, which is missing: install 'ofmu_pl[tasks]'.")
        self.names, self.rows = list(names), rows
        self.folder = None if folder is None else Path(folder).expanduser()
        self.manager = _manager(self.names, self.folder)
        if self.folder is not None:
            rank_zero_warn(
                f"The Python functions that tasks in '{self.folder}' name (!function) are run with all your rights "
                "(evaluation.tasks_folder): read its files first."
            )

    def __call__(self, model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase) -> Metrics:
        """Measure a model, or read what was measured before; random numbers and mode are afterwards as they were."""
        import lm_eval
        from lm_eval.models.huggingface import HFLM

        with isolate_rng(), evaluating(model):
            path = self._path(_load(self.manager, self.names), model, tokenizer)
            stored = read_shared(path)
            if stored is not None:
                return {name: _kept(name, entry) for name, entry in stored.items()}
            judge = HFLM(pretrained=model, tokenizer=tokenizer, batch_size=BATCH)
            blank = one_token(model)
            with together(model, blank):
                blank()  # peft generates by the model below, which gathers no more than the layers
                found = lm_eval.simple_evaluate(
                    judge, tasks=self.names, task_manager=self.manager, limit=self.rows, log_samples=False
                )
        if found is None:  # of several ranks the first one has it
            return {}
        results = by_name(*read_results(found, self.names))
        if path is not None:
            keep(path, {name: result.as_dict() | {"says": result.metric.says} for name, result in results.items()})
        return results

    def _path(self, tasks: dict[str, Any], model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase) -> Path | None:
        """Where what these tasks say of a model is kept."""
        folder = cache_folder()
        if folder is None:
            return None
        own = sorted(x for x in self.folder.rglob("*") if x.suffix in (".py", ".yaml")) if self.folder else []
        facts = {
            "weights": weights_hash(model),
            "config": config_hash(model, generates=True),
            "computes": computed(model),
            "dtype": str(model.dtype),
            "device": model.device.type,
            "tokenizer": tokenizer_hash(tokenizer),
            "tasks": {name: [task.dump_config(), _hash_of(task, self.rows)] for name, task in tasks.items()},
            "files": [file_hash(path) for path in own],
            "rows": self.rows,
            "versions": [version(name) for name in ("torch", "transformers", "lm_eval")],
        }
        return content_path(folder, "tasks", json.loads(json.dumps(facts, default=str)))


def _kept(name: str, entry: dict[str, Any]) -> MetricResult:
    """A result as it was measured, with the sentence that pages show."""
    result = MetricResult.from_dict(name, entry)
    return replace(result, metric=replace(result.metric, says=entry.get("says")))


def _hash_of(task: Any, rows: int | None) -> str:
    """Hash of what a task asks, and of what it draws its examples from."""
    shown = task.fewshot_docs() if task.config.num_fewshot else []
    asked = [json.dumps(row, sort_keys=True, default=str) for row in chain(islice(task.eval_docs, rows), shown or [])]
    return hashlib.sha256("\n".join(asked).encode()).hexdigest()


def _manager(names: Sequence[str], path: Path | None) -> Any:
    """What finds tasks: in the folder alone if it has them all, since to read all of lm-eval's takes half a minute."""
    from lm_eval.tasks import TaskManager

    if path is not None and not path.is_dir():
        raise UserError(f"`evaluation.tasks_folder` is '{path}', which is no folder: give that of your YAML files.")
    known: list[str] = []
    for defaults in (False, True) if path else (True,):
        manager = TaskManager(include_path=path, include_defaults=defaults)
        known = manager.all_tasks
        if set(names) <= set(known):
            return manager
    unknown = next(name for name in names if name not in known)
    near = ", ".join(get_close_matches(unknown, known, n=3)) or "none"
    raise UserError(
        f"`evaluation.tasks` names '{unknown}', which is none (near: {near}): give names that `lm-eval ls tasks` "
        "prints, or `evaluation.tasks_folder`."
    )


def _load(manager: Any, names: list[str]) -> dict[str, Any]:
    """Load tasks by name, those of groups too, before they are run: what is wrong is raised as any error."""
    try:
        return dict(manager.load(names)["tasks"])
    except Exception as error:
        raise UserError(
            f"lm-eval cannot load the tasks {', '.join(names)} ({type(error).__name__}: {reason(error):.200}): mend "
            "the YAML file, or fetch the data into the hub's cache where there is a network."
        ) from error


def read_results(found: dict[str, Any], names: Sequence[str]) -> Iterator[MetricResult]:
    """Results of the tasks asked for, and of a tag's; of a group its own alone, if it has any."""
    parts = found.get("group_subtasks") or {}
    below: set[str] = set()
    for name in parts:
        if any("," in key for key in found["results"].get(name, ())):
            below |= _below(name, parts)
    for task, values in found["results"].items():
        if task in below and task not in names:
            continue
        counts = [found["n-samples"].get(name) for name in _below(task, parts) | {task}]
        n = sum(count["effective"] for count in counts if count)
        for key, value in values.items():
            name, _, selection = key.partition(",")
            if not selection or name.endswith("_stderr") or not isinstance(value, int | float):
                continue
            upwards = (found.get("higher_is_better") or {}).get(task, {}).get(name)
            if upwards is None:
                rank_zero_warn(f"The task '{task}' does not say whether a higher '{name}' is better: it is left out.")
                continue
            label = name if selection == "none" else f"{name}_{selection}"
            error = values.get(f"{name}_stderr,{selection}")
            share = name.startswith(SHARES) and 0 <= value <= 1  # squadv2's f1 is in per cent
            metric = Metric(
                f"{PREFIX}{task}_{label}",
                higher_is_better=bool(upwards),
                unit="0 to 1" if share else "score",
                group="kept",
                column=LAST,
                says=f"In the test {task}, the model reaches {{value}}.",
            )
            yield metric.result(float(value), n, interval=_interval(value, error, n, share))


def _below(group: str, parts: dict[str, list[str]]) -> set[str]:
    """Tasks and groups in a group, at any depth."""
    found: set[str] = set()
    for part in parts.get(group, ()):
        found |= {part} | _below(part, parts)
    return found


def _interval(value: float, error: object, n: int, share: bool) -> tuple[float, float] | None:
    """The 95 % interval that a standard error gives, of shares Wilson's; ``None``: there is no error."""
    if not isinstance(error, int | float):
        return None
    if share:
        return wilson(float(value), float(value * (1 - value) / error**2) if error else n)
    return float(value - 1.96 * error), float(value + 1.96 * error)
