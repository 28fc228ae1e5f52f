"""KnowUnDo, privacy part (Tian et al. 2024): questions about invented people, to train on and to check with."""

from itertools import chain
from pathlib import Path
from typing import Any

from ofmu_pl.data.encoded import Row
from ofmu_pl.data.own_files import read_file
from ofmu_pl.data.text_base import TextDataModule
from ofmu_pl.support.errors import check_range
from ofmu_pl.support.sets import PROBE

PARTS = {"forget": "unlearn", "retain": "retention"}  # beginning of the names of a side's files


class KnowUnDo(TextDataModule):
    """The rows of KnowUnDo that methods forget and retain, and other rows of the same two kinds that no method sees.

    ``forget`` and ``retain`` are the files unlearn_train and retention_train; the sets ``probe_validation_forget`` and
    ``probe_validation_retain`` are unlearn_val and retention_val, which the target has learnt and no method draws, so
    that they tell forgetting a person from forgetting a sentence. ``full``, what the target learns, is all four. A
    retrained model (``retain``) has seen neither of the forget side's files, and not retention_val.

    The published scores need judges that are not here: KFR and KRR a model of contradiction and entities, the
    linguistic score another model's perplexity.

    Args:
        data: Folder with the four files (github.com/zjunlp/unlearn, dataset/KnowUnDo/privacy), JSON lists of rows with
            ``text``, the question, and ``labels``, the answer.
        eval_rows: Most rows of retention_train that are evaluated, evenly spaced, so that a search of settings may look
            at the others; ``null``: all.
        kwargs: See ``TextDataModule``.

    Example:
        >>> data = KnowUnDo("~/KnowUnDo/privacy", tokenizer="meta-llama/Llama-3.2-1B-Instruct")
        >>> data.setup()  # doctest: +SKIP
        >>> {name: len(rows) for name, rows in data.evaluation_sets.items()}  # doctest: +SKIP
        {'forget': 400, 'probe_validation_forget': 110, 'retain': 441, 'probe_validation_retain': 108}
    """

    name = "knowundo"
    suite = "ofmu_pl.metrics.own_rows.own_rows_metrics"

    def __init__(self, data: str, eval_rows: int | None = None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        check_range(1, eval_rows=eval_rows)
        self.data, self.eval_rows = data, eval_rows

    def load(self) -> tuple[dict[str, list[Row]], dict[str, list[Row]]]:
        """Read the four files."""
        folder, splits, sets = Path(self.data).expanduser(), {}, {}
        for side, part in PARTS.items():
            splits[side] = sets[side] = _rows(folder / f"{part}_train.json")
            sets[f"{PROBE}validation_{side}"] = _rows(folder / f"{part}_val.json")
        full = list(chain.from_iterable(sets.values()))
        sets["retain"] = self.evaluated(splits["retain"])
        return splits | {"full": full}, sets


def _rows(path: Path) -> list[Row]:
    return [{"question": q, "answer": a} for q, a in read_file(path, "data.data").texts("text", "labels")]
