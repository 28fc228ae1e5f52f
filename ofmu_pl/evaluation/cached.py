"""Scores kept by content: a model that this version of the code has scored on these rows is not scored again."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ofmu_pl.evaluation import scoring
from ofmu_pl.evaluation.prompts import stops_of
from ofmu_pl.evaluation.shares import read_shared, writes
from ofmu_pl.metrics import Scores, SetScores
from ofmu_pl.modules.reference_scores import facts_of
from ofmu_pl.support.kept import cache_folder, content_path, keep
from ofmu_pl.support.sets import is_document


def cached_scores(
    model: Any,
    data: Any,
    *,
    items: int | None = None,
    max_new_tokens: int,
    hidden: int | None = None,
    texts: bool = False,
    progress: bool = False,
) -> Scores:
    """Run ``scoring.score_rows`` on all evaluation sets of a data module, or read what it gave before.

    Numbers are kept and texts are not: where texts are wanted, the model generates them again.

    Args:
        model: A Hugging Face causal language model.
        data: A ``PairedDataModule`` after ``setup``.
        items: See ``scoring.score_rows``.
        max_new_tokens: Length of generations.
        hidden: See ``scoring.score_rows``.
        texts: Whether ``generations`` are wanted.
        progress: Show a progress bar.
    """
    path, folder = None, cache_folder()
    if folder is not None:
        facts = facts_of(model, data) | {
            "rows": {name: data.hashes[f"{name}_eval"] for name in data.evaluation_sets},
            "kinds": data.hashes["retain"],  # which tell the tokens that are a row's own
            "settings": [items, max_new_tokens, hidden, *_more(model, data)],
        }
        path = content_path(folder, "scores", facts)
    scores = _read(path)
    if scores is None:
        scores = scoring.score_rows(
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
    elif texts:
        scoring.add_generations(
            model,
            data.encoder,
            data.evaluation_sets,
            scores,
            max_new_tokens=max_new_tokens,
            hidden=hidden,
            progress=progress,
        )
    return scores


def _more(model: Any, data: Any) -> list[str]:
    """What sets of some kinds are scored for besides, and what else than the end token ends answers, since 0.1.0."""
    documents = any(map(is_document, data.evaluation_sets))
    counted = any("counts" in row for rows in data.evaluation_sets.values() for row in rows[:1])
    found = {"thorough": data.thorough, "documents' bytes": documents, "words that count": counted}
    ends = [f"token {x} ends" for x in stops_of(model, data.encoder) if x != data.tokenizer.eos_token_id]
    return [name for name, there in found.items() if there] + ends


def _read(path: Path | None) -> Scores | None:
    """Read stored scores."""
    stored = read_shared(path)
    return stored and {name: SetScores.from_dict(s) for name, s in stored.items()}
