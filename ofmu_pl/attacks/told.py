"""Tells the person who signs what attacks found: the audit page and the model card of a run, made anew in part."""

from __future__ import annotations

from pathlib import Path

from ofmu_pl.attacks.attacked import Attacked
from ofmu_pl.attacks.base import UNLEARNED
from ofmu_pl.evaluation.attacked import parts
from ofmu_pl.support.files import replacing
from ofmu_pl.support.kept import renew_sum
from ofmu_pl.support.pages import AUDIT, CARD, renewed
from ofmu_pl.support.records import ATTACKS, AttacksRecord


def tell(on: Attacked) -> None:
    """Write what ``attacks.json`` of a run has into its audit page and its model's card; what users added stays."""
    record, model = AttacksRecord.read(on.place / ATTACKS), Path(str(on.recipes[UNLEARNED].path))
    unmarked = []
    for path in (on.place / AUDIT, model / CARD):
        if not path.is_file() or path.is_symlink():
            continue
        text: str | None = path.read_text(encoding="utf-8", errors="surrogateescape")
        for part, new in parts(path.name, on.data.modality, record).items():
            text = renewed(text, part, new) if text is not None else None
        if text is None:
            unmarked.append(str(path))
            continue
        with replacing(path) as temporary:
            temporary.write_text(text, encoding="utf-8", errors="surrogateescape")
        renew_sum(path)
    if unmarked:
        print(f"Written by an earlier version and left as they are, without the attacks: {', '.join(unmarked)}.")
