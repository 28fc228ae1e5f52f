"""Texts and multiple-choice questions from local files or the hub."""

from __future__ import annotations

from pathlib import Path

from ofmu_pl.data.encoded import Row
from ofmu_pl.data.own_files import from_hub, is_text, read_file
from ofmu_pl.support.errors import UserError
from ofmu_pl.support.files import below

LETTERS = "ABCD"


def read_rows(source: str, config: str | None, split: str, what: str) -> list[Row]:
    """Rows of a JSON-lines or parquet file, of ``CONFIG.jsonl`` in a folder, or of a data set on the hub."""
    path = Path(source).expanduser()
    if path.is_dir():
        path = below(path, f"{config}.jsonl", f"The configuration of --data.{what}")
    if path.suffix in (".jsonl", ".json", ".parquet") or path.is_absolute() or source.startswith((".", "~")):
        return read_file(path, what).rows
    return from_hub(source, config, split, what, f"give `{what}` a JSON-lines file").rows


def texts(rows: list[Row], what: str) -> list[str]:
    """The non-empty ``text`` fields."""
    found = [row["text"] for row in rows if is_text(row.get("text"))]
    if not found:
        raise UserError(f"No row of --data.{what} has a 'text': give JSON lines with that field.")
    return found


def choice_rows(rows: list[Row], subject: str | None, what: str) -> list[Row]:
    """Multiple-choice questions as lm-eval's ``mmlu`` and ``wmdp`` tasks ask them, zero-shot.

    The right letter becomes the ``answer`` and the others the ``perturbed_answer``, each after one space.

    Args:
        rows: Rows with ``question``, ``choices`` (four) and ``answer`` (0 to 3).
        subject: The subject that the first line names; ``None``: each row's ``subject``.
        what: The option that names the rows, for messages (which quote no text, as texts may be hazardous).
    """
    found = []
    for number, row in enumerate(rows, start=1):
        listed, right = row.get("choices"), row.get("answer")
        if not isinstance(listed, list) or len(listed) != 4 or right not in (0, 1, 2, 3):
            raise UserError(
                f"Row {number} of --data.{what} lacks four choices and the number, 0 to 3, of the right one: give both."
            )
        about = subject or row.get("subject")
        if not isinstance(row.get("question"), str) or not isinstance(about, str):
            raise UserError(f"Row {number} of --data.{what} has no question, or no subject: give it both.")
        about = about.replace("_", " ")
        lines = [f"The following are multiple choice questions (with answers) about {about}.", ""]
        lines += [row["question"].strip(), *(f"{LETTERS[i]}. {choice}" for i, choice in enumerate(listed)), "Answer:"]
        letters = [f" {letter}" for letter in LETTERS]
        answer = letters.pop(int(right))  # programs write 1.0 where another row has none
        found.append({"question": "\n".join(lines), "answer": answer, "perturbed_answer": letters})
    return found
