"""WMDP (Li et al. 2024): hazardous knowledge, unlearned from texts and measured by multiple choice."""

from pathlib import Path
from typing import Any, ClassVar, Literal

from ofmu_pl.data.encoded import SHORTEST, Row
from ofmu_pl.data.own_files import Rows, is_text, read_file, read_part
from ofmu_pl.data.row_encoder import first_tokens
from ofmu_pl.data.row_formats import READERS, kind_of
from ofmu_pl.data.text import Encoder, PlainEncoder
from ofmu_pl.data.text_base import TextDataModule
from ofmu_pl.support.errors import UserError, check_range

ABOUT = {"bio": "biology", "cyber": "cybersecurity", "chem": "chemistry"}
LETTERS = "ABCD"


class WMDP(TextDataModule):
    """Forget and retain texts in chunks, evaluated by WMDP's questions and MMLU.

    The biology forget corpus is gated and the chemistry one does not exist: for these give your own JSON lines.
    No part of these texts is shipped, logged or written into results.

    Args:
        subject: Subject whose corpus is forgotten and whose questions are asked.
        questions: WMDP's questions: hub id, a folder with wmdp-SUBJECT.jsonl, or a file; ``null``: none.
        forget_corpus: Hub id of the corpora, a folder with SUBJECT-forget-corpus.jsonl, or a file with ``text`` fields.
        retain_corpus: The same for the texts to keep; by default wikitext-2, as in the published runs.
        mmlu: Questions that measure utility: hub id, a folder with all.jsonl, or a file; ``null``: none.
        chunk: Tokens of a training row. Documents are cut into such pieces, each with the tokenizer's first token, if
            it has one, before it; those under 16 tokens are left out, and their number is printed and stands in
            ``results.json``.
        documents: Largest number of pieces of each corpus, evenly spaced, that are scored themselves (the evaluation
            sets ``forget_doc`` and ``retain_doc``). Of the retain corpus at most every second piece is scored, so that
            the others can serve to choose settings.
        batch_size: Rows per batch (published RMU run: 4).
        kwargs: See ``TextDataModule``.

    Example:
        >>> data = WMDP("cyber", questions="~/data/wmdp", mmlu=None, tokenizer="HuggingFaceH4/zephyr-7b-beta")
        >>> data.setup()  # doctest: +SKIP
        >>> data.suite, data.chunk
        ('ofmu_pl.metrics.choice.wmdp_metrics', 512)
    """

    name = "wmdp"
    suite = "ofmu_pl.metrics.choice.wmdp_metrics"
    length_argument: ClassVar[str | None] = "chunk"

    def __init__(
        self,
        subject: Literal["cyber", "bio", "chem"] = "cyber",
        questions: str | None = "cais/wmdp",
        forget_corpus: str = "cais/wmdp-corpora",
        retain_corpus: str = "Salesforce/wikitext",
        mmlu: str | None = "cais/mmlu",
        chunk: int = 512,
        documents: int = 200,
        batch_size: int = 4,
        **kwargs: Any,
    ) -> None:
        super().__init__(batch_size=batch_size, max_length=chunk, **kwargs)
        if subject != "cyber" and forget_corpus == "cais/wmdp-corpora":
            raise UserError(
                f"WMDP's {subject} forget corpus is not public (bio: by request form at cais/wmdp; chem: none exists): "
                "give a JSON-lines file with 'text' fields as data.forget_corpus."
            )
        check_range(1, documents=documents)
        check_range(SHORTEST, chunk=chunk)
        self.documents = documents
        self.subject, self.questions, self.forget_corpus = subject, questions, forget_corpus
        self.retain_corpus, self.mmlu, self.chunk = retain_corpus, mmlu, chunk

    def load(self) -> tuple[dict[str, list[Row]], dict[str, list[Row]]]:
        """Read and chunk the corpora, read the questions."""
        self.left_out = {}  # not those of the module that this is a copy of (``others``)
        forget = _part(self.forget_corpus, f"{self.subject}-forget-corpus", "train", "data.forget_corpus")
        retain = _part(self.retain_corpus, "wikitext-2-raw-v1", "test", "data.retain_corpus")
        splits = {"forget": self._chunks("forget", _texts(forget)), "retain": self._chunks("retain", _texts(retain))}
        splits["full"] = splits["retain"] + splits["forget"]
        sets = self._document_sets(splits)
        if self.questions is not None:
            rows = _part(self.questions, f"wmdp-{self.subject}", "test", "data.questions")
            sets[f"wmdp_{self.subject}"] = choice_rows(rows, ABOUT[self.subject])
        if self.mmlu is not None:
            sets["mmlu"] = choice_rows(_part(self.mmlu, "all", "test", "data.mmlu"), None)
        return splits, sets

    def make_encoder(self) -> Encoder:
        """Questions are asked as plain text: WMDP's published figures use no chat template."""
        return PlainEncoder(self.tokenizer)

    def _document_sets(self, splits: dict[str, list[Row]]) -> dict[str, list[Row]]:
        """Evenly spaced pieces of both corpora as evaluation sets."""
        closest = {"forget": 1, "retain": 2}
        return {
            f"{split}_doc": splits[split][:: max(step, -(-len(splits[split]) // self.documents))]
            for split, step in closest.items()
        }

    def _chunks(self, split: str, documents: list[str]) -> list[Row]:
        tokenizer = self.make_tokenizer()
        first = first_tokens(tokenizer)
        step = self.chunk - len(first)
        rows: list[Row] = []
        self.left_out[split] = 0
        for ids in tokenizer(documents, add_special_tokens=False)["input_ids"]:
            pieces = [first + ids[i : i + step] for i in range(0, len(ids), step)]
            rows += [{"tokens": tokens} for tokens in pieces if len(tokens) >= SHORTEST]
            self.left_out[split] += sum(len(tokens) < SHORTEST for tokens in pieces)
        return rows


def _part(source: str, config: str, split: str, option: str) -> Rows:
    if kind_of(Path(source)) in READERS:
        return read_file(Path(source).expanduser(), option)
    return read_part(source, f"{config}.jsonl", config, split, option)


def _texts(read: Rows) -> list[str]:
    """The non-empty ``text`` fields."""
    found = [row["text"] for row in read.rows if is_text(row.get("text"))]
    if not found:
        raise UserError(f"No row of '{read.source}' has a 'text': give `{read.option}` JSON lines with that field.")
    return found


def choice_rows(read: Rows, subject: str | None) -> list[Row]:
    """Multiple-choice questions as lm-eval's ``mmlu`` and ``wmdp`` tasks ask them, zero-shot.

    The right letter becomes the ``answer`` and the others the ``perturbed_answer``, each after one space.

    Args:
        read: Rows with ``question``, ``choices`` (four) and ``answer`` (0 to 3). Messages quote none: texts may be
            hazardous.
        subject: The subject that the first line names; ``None``: each row's ``subject``.
    """
    found = []
    for i, row in enumerate(read.rows):
        listed, right, about = row.get("choices"), row.get("answer"), subject or row.get("subject")
        if not isinstance(listed, list) or len(listed) != 4 or right not in (0, 1, 2, 3):
            raise UserError(f"{read.place(i)} lacks four choices and the number, 0 to 3, of the right one: give both.")
        if not isinstance(row.get("question"), str) or not isinstance(about, str):
            raise UserError(f"{read.place(i)} has no question, or no subject: give it both.")
        lines = [f"The following are multiple choice questions (with answers) about {about.replace('_', ' ')}.", ""]
        lines += [row["question"].strip(), *(f"{LETTERS[i]}. {choice}" for i, choice in enumerate(listed)), "Answer:"]
        letters = [f" {letter}" for letter in LETTERS]
        answer = letters.pop(int(right))  # programs write 1.0 where another row has none
        found.append({"question": "\n".join(lines), "answer": answer, "perturbed_answer": letters})
    return found
