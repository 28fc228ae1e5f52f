"""WMDP (Li et al. 2024): hazardous knowledge, unlearned from texts and measured by multiple choice."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any, Literal

from ofmu_pl.data.corpora import choice_rows, read_rows, texts
from ofmu_pl.data.text import Encoded, Encoder, PlainEncoder, Row
from ofmu_pl.data.text_base import TextDataModule
from ofmu_pl.errors import UserError
from ofmu_pl.losses import IGNORED
from ofmu_pl.metrics import MetricResult, Scores
from ofmu_pl.metrics.choice import choice_metrics

ABOUT = {"bio": "biology", "cyber": "cybersecurity", "chem": "chemistry"}


class WMDP(TextDataModule):
    """Forget and retain texts in chunks; WMDP's questions and MMLU for the judges.

    The biology forget corpus is gated and the chemistry one does not exist: for these give your own JSON lines.
    Nothing of these texts is shipped, logged or written into results.

    Args:
        subject: Whose questions are asked, and whose corpus is forgotten.
        questions: WMDP's questions: hub id, a folder with wmdp-SUBJECT.jsonl, or a file.
        forget_corpus: Hub id of the corpora, a folder with SUBJECT-forget-corpus.jsonl, or a file with ``text`` fields.
        retain_corpus: The same for what is kept; by default wikitext-2, as in the published runs.
        retain_config: Its configuration on the hub, or its file's name in a folder.
        mmlu: Utility questions: hub id, a folder with all.jsonl, or a file; ``null``: none.
        chunk: Tokens of a training row; documents are cut into such pieces, pieces under 16 tokens are dropped.
        batch_size: Rows a batch (published RMU run: 4).
        kwargs: See ``TextDataModule``.
    """

    name = "wmdp"

    def __init__(
        self,
        subject: Literal["cyber", "bio", "chem"] = "cyber",
        questions: str = "cais/wmdp",
        forget_corpus: str = "cais/wmdp-corpora",
        retain_corpus: str = "Salesforce/wikitext",
        retain_config: str = "wikitext-2-raw-v1",
        mmlu: str | None = "cais/mmlu",
        chunk: int = 512,
        batch_size: int = 4,
        **kwargs: Any,
    ) -> None:
        super().__init__(batch_size, **kwargs)
        if subject != "cyber" and forget_corpus == "cais/wmdp-corpora":
            raise UserError(
                f"WMDP's {subject} forget corpus is not public (bio: by request form at cais/wmdp; chem: none exists): "
                "give a JSON-lines file with 'text' fields as --data.forget_corpus."
            )
        self.subject, self.questions, self.forget_corpus = subject, questions, forget_corpus
        self.retain_corpus, self.retain_config, self.mmlu, self.chunk = retain_corpus, retain_config, mmlu, chunk

    def load(self) -> tuple[dict[str, list[Row]], dict[str, list[Row]]]:
        """Read and chunk the corpora, read the questions."""
        forget = read_rows(self.forget_corpus, f"{self.subject}-forget-corpus", "train", "forget_corpus")
        retain = read_rows(self.retain_corpus, self.retain_config, "test", "retain_corpus")
        splits = {
            "forget": self._chunks(texts(forget, "forget_corpus")),
            "retain": self._chunks(texts(retain, "retain_corpus")),
        }
        splits["full"] = splits["retain"] + splits["forget"]
        rows = read_rows(self.questions, f"wmdp-{self.subject}", "test", "questions")
        sets = {f"wmdp_{self.subject}": choice_rows(rows, ABOUT[self.subject], "questions")}
        if self.mmlu is not None:
            sets["mmlu"] = choice_rows(read_rows(self.mmlu, "all", "test", "mmlu"), None, "mmlu")
        return splits, sets

    @property
    def row_tokens(self) -> int:
        """A chunk's."""
        return self.chunk

    def make_encoder(self) -> Encoder:
        """Questions are asked as plain text: WMDP's published figures use no chat template."""
        return PlainEncoder(self.tokenizer)

    def encode(self, row: Row) -> Encoded:
        """A chunk, with the loss on every token but the first."""
        return Encoded(row["tokens"], [IGNORED, *row["tokens"][1:]], 1)

    @staticmethod
    def identity(row: Row) -> Hashable:
        """A chunk's tokens."""
        return tuple(row["tokens"])

    @staticmethod
    def metrics(scores: Scores, reference: Scores | None = None, **options: Any) -> dict[str, MetricResult]:
        """Accuracy and efficacy."""
        return choice_metrics(scores, reference, **options)

    def _chunks(self, documents: list[str]) -> list[Row]:
        tokenizer = self.make_tokenizer()
        rows = []
        for ids in tokenizer(documents, add_special_tokens=False)["input_ids"]:
            pieces = [ids[i : i + self.chunk] for i in range(0, len(ids), self.chunk)]
            rows += [{"tokens": piece} for piece in pieces if len(piece) >= 16]
        return rows
