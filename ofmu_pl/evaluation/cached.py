"""Scores kept by content: a model that this version of the code has scored on these rows is not scored again."""

from __future__ import annotations

from transformers import PreTrainedModel

from ofmu_pl.data.text_base import TextDataModule
from ofmu_pl.evaluation.prompts import stops_of
from ofmu_pl.evaluation.scoring import score_rows
from ofmu_pl.evaluation.shares import read_shared, writes
from ofmu_pl.metrics import Scores, SetScores
from ofmu_pl.modules.reference_scores import facts_of
from ofmu_pl.support.kept import cache_folder, content_path, keep


def cached_scores(
    model: PreTrainedModel,
    data: TextDataModule,
    *,
    items: int | None = None,
    max_new_tokens: int,
    hidden: int | None = None,
    texts: bool = False,
    progress: bool = False,
) -> Scores:
    """Run ``scoring.score_rows``, whose arguments these are, on all evaluation sets, or read what it gave before.

    Numbers are kept and texts are not: where ``texts`` are wanted, the model is scored anew.
    """
    path, folder = None, cache_folder()
    if folder is not None:
        counted = [name for name, rows in data.evaluation_sets.items() if "counts" in (rows or [{}])[0]]
        facts = facts_of(model, data) | {
            "rows": {name: data.hashes[f"{name}_eval"] for name in data.evaluation_sets},
            "kinds": data.hashes["retain"],  # which tell the tokens that are a row's own
            "settings": [items, max_new_tokens, hidden, data.thorough, counted, stops_of(model, data.encoder)],
        }
        path = content_path(folder, "scores", facts)
    stored = None if texts else read_shared(path)
    if stored is not None:
        return {name: SetScores.from_dict(fields) for name, fields in stored.items()}
    scores = score_rows(
        model,
        data.encoder,
        data.evaluation_sets,
        max_new_tokens=max_new_tokens,
        items=items,
        hidden=hidden,
        thorough=data.thorough,
        kinds=data.kinds,
        progress=progress,
    )
    if path is not None and writes():
        keep(path, {name: s.as_dict() for name, s in scores.items()})
    return scores
