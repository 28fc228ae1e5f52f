"""LUME (Ramakrishna et al. 2025; SemEval-2025 Task 4): stories and biographies, to be continued and asked about."""

import re
from pathlib import Path
from typing import Any

from ofmu_pl.data.encoded import Row
from ofmu_pl.data.own_files import read_file
from ofmu_pl.data.text_base import TextDataModule
from ofmu_pl.support.errors import UserError, check_range
from ofmu_pl.support.sets import HOLDOUT, PROBE

KINDS = {"sc": "regurgitation", "qa": "knowledge"}
"""What a row measures, by the two letters before the number that ends its id: a completion, or an answer."""


class LUME(TextDataModule):
    """LUME's rows that must go and those that must stay, read as the published evaluation reads them.

    A row's input stands as it is, with no template, and its output follows after a space. Rows are also evaluated by
    task and kind, in the sets ``probe_TASK_KIND_SIDE``: ``probe_task1_regurgitation_forget`` holds the completions of
    the stories that must go. The published evaluation generates 256 tokens.

    Args:
        data: Folder with the released forget.jsonl and retain.jsonl (github.com/amazon-science/lume-llm-unlearning,
            folder data), whose rows have ``id``, ``input``, ``output`` and ``task``.
        tasks: Tasks whose rows are used, such as ``[Task1, Task2]`` (Task 3 is about real people); ``null``: all.
        holdout: JSON-lines file of rows that no model has seen, of the same form, for membership attacks (the
            organisers' own are not public); ``null``: none.
        eval_rows: Most retain rows that are evaluated, evenly spaced, so that a search of settings may look at the
            others; ``null``: all.
        kwargs: See ``TextDataModule``.

    Example:
        >>> data = LUME("~/lume/data", tasks=["Task1", "Task2"], tokenizer="allenai/OLMo-1B-0724-hf")
        >>> data.setup()  # doctest: +SKIP
        >>> sorted(data.evaluation_sets)[:3]  # doctest: +SKIP
        ['forget', 'probe_task1_knowledge_forget', 'probe_task1_knowledge_retain']
    """

    name = "lume"
    suite = "ofmu_pl.metrics.lume.lume_metrics"

    def __init__(
        self,
        data: str,
        tasks: list[str] | None = None,
        holdout: str | None = None,
        eval_rows: int | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        check_range(1, eval_rows=eval_rows)
        self.data, self.tasks, self.holdout, self.eval_rows = data, tasks, holdout, eval_rows

    def load(self) -> tuple[dict[str, list[Row]], dict[str, list[Row]]]:
        """Read both files, and sort their rows by task and kind."""
        folder = Path(self.data).expanduser()
        splits = {side: self._chosen(folder / f"{side}.jsonl", "data.data") for side in ("forget", "retain")}
        sets = splits | {"retain": self.evaluated(splits["retain"])}
        for side in splits:
            for row in sets[side]:
                sets.setdefault(f"{PROBE}{row['task']}_{row['kind']}_{side}", []).append(row)
        if self.holdout is not None:
            sets[HOLDOUT] = self._chosen(Path(self.holdout).expanduser(), "data.holdout")
        return splits | {"full": splits["forget"] + splits["retain"]}, sets

    def _chosen(self, path: Path, option: str) -> list[Row]:
        rows = _rows(path, option)
        if self.tasks is None:
            return rows
        wanted, there = {task.lower() for task in self.tasks}, {row["task"] for row in rows}
        if wanted - there:
            missing, known = (", ".join(sorted(tasks)) for tasks in (wanted - there, there))
            raise UserError(f"'{path}' has no rows of {missing}: choose data.tasks among {known}.")
        return [row for row in rows if row["task"] in wanted]


def _rows(path: Path, option: str) -> list[Row]:
    """Rows as encoders read them."""
    read, rows = read_file(path, option), []
    for i, (opening, answer, task) in enumerate(read.texts("input", "output", "task")):
        kind = re.search(r"(sc|qa)\d+$", str(read.rows[i].get("id")))  # what is before may end in letters, too
        if kind is None:
            raise UserError(f"{read.place(i)} is none of LUME's: give it an 'id' that ends in sc or qa and a number.")
        space = "" if opening[-1].isspace() else " "
        told = {"task": task.lower(), "kind": KINDS[kind[1]]}
        rows.append({"question": opening, "answer": space + answer.strip(), "raw": True, **told})
    return rows
