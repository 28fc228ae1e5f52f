"""Which rows a model was trained on, as keyed hashes that whoever has a row and the key can look up."""

from collections.abc import Sequence
from pathlib import Path

from ofmu_pl.data.encoded import Row, same
from ofmu_pl.data.turns import turns_of
from ofmu_pl.support.files import write_json
from ofmu_pl.support.keyed import hashed, make_key
from ofmu_pl.support.records.results import LINEAGE


def prints(row: Row, key: bytes) -> set[str]:
    """Hashes of a row, one for each question and answer in it, however they are spelt (``same``).

    A piece of a document has none: where it begins and ends follows from the tokenizer.
    """
    if "tokens" in row:
        return set()
    return {hashed(f"{same(turn['question'])}\n{same(turn['answer'])}", key) for turn in turns_of(row)}


def write_lineage(folder: Path, splits: dict[str, Sequence[Row]], streams: Sequence[str]) -> None:
    """Write ``lineage.json`` of the rows that a run was trained on, each stream's for itself."""
    key, found = make_key(folder), {}
    for stream in streams:
        found[stream] = sorted(set().union(*(prints(row, key) for row in splits[stream])))
    write_json(folder / LINEAGE, found)
