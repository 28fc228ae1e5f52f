"""Rows of one's own as tokens of any model: by its chat template, or by a plain one; several turns; documents."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from ofmu_pl.data.encoded import Encoded, Row, answers_of, labelled, piece, shared
from ofmu_pl.data.text import Encoder
from ofmu_pl.data.tokenizers import rendered, tokenizer_hash
from ofmu_pl.support.errors import UserError

PROMPT_TEMPLATE = "Question: {question}\nAnswer:"
"""How a question is put to a model that has no chat template."""
PLACE = re.compile(r"\{[^{}]+\}")
"""A place of a template that a column fills, as ``{question}``."""
Turns = Sequence[dict[str, str]]


class RowEncoder(Encoder):
    r"""Encodes questions and answers, prompts and completions, conversations, and pieces of documents.

    Questions and conversations go through the tokenizer's chat template, as by ``ChatEncoder``. Where there is none, or
    ``prompt_template`` is given, a question is put in by it; the answer follows after a space (none, if the template
    ends with one), then the tokenizer's end token. Where a row has a text ``begun``, the reply begins with it, and the
    answer follows after a space. A prompt and its completion are taken as they are. A begin or end token that a row has
    is not written twice. The loss covers answers with their end marks, in training those of all the assistant's turns.

    Args:
        tokenizer: A Hugging Face tokenizer; without an end token answers have no end mark.
        system_prompt: Content of a system turn before questions and conversations without one; ``None``: none.
        prompt_template: A text with ``{question}`` in it instead of the chat template, and places for what rows
            have in ``columns`` (``{"{input}": "a text"}``); ``None``: the tokenizer's chat template, or
            ``"Question: {question}\nAnswer:"`` where it has none.
        date_string: What the chat template prints as the date, if it prints one.
        max_length: Longer rows are cut at the right; ``None``: never.

    Raises:
        UserError: ``prompt_template`` has no place for the question.

    Example:
        >>> from ofmu_pl.data.own_tokenizer import train_tokenizer
        >>> tokenizer = train_tokenizer(["one two three", "user assistant system"])
        >>> tokenizer.chat_template = None
        >>> encoded = RowEncoder(tokenizer).encode("one", "two")
        >>> tokenizer.decode(encoded.input_ids)
        'Question: one\nAnswer: two<|eot_id|>'
        >>> tokenizer.decode([x for x in encoded.labels if x >= 0])
        ' two<|eot_id|>'
    """

    def __init__(
        self,
        tokenizer: Any,
        system_prompt: str | None = None,
        prompt_template: str | None = None,
        date_string: str = "10 Apr 2025",
        max_length: int | None = 512,
    ) -> None:
        self.chat = prompt_template is None and bool(tokenizer.chat_template)
        self.template = PROMPT_TEMPLATE if prompt_template is None else prompt_template
        if "{question}" not in self.template:
            raise UserError(
                f"`prompt_template` is {self.template!r}: write {{question}} where the question belongs, as in "
                f"{PROMPT_TEMPLATE!r}."
            )
        self.tokenizer, self.system_prompt, self.max_length = tokenizer, system_prompt, max_length
        self.date_string = date_string if self.chat else None
        self.space = "" if self.template[-1].isspace() else " "
        self.first = first_tokens(tokenizer)

    def prompt(self, question: str) -> list[int]:
        """Tokens up to the answer."""
        return self._tokens(self._opening({"question": question}), self.chat)

    def row_prompt(self, row: Row) -> list[int]:
        """Tokens up to the answer of a row, earlier turns and all, as they are where the answer follows."""
        whole, length = self._whole(row)
        return whole[:length]

    def encode_all(self, question: str, answers: Sequence[str]) -> list[Encoded]:
        """Tokens and labels of several answers to one question.

        Raises:
            UserError: No token of an answer is left (it is empty, or the question fills ``max_length``).
        """
        return [self._answered({"question": question, "answer": answer}) for answer in answers]

    def encode_row(self, row: Row) -> list[Encoded]:
        """What an evaluation row asks for: a piece of text, or its answers in the order of ``answers_of``."""
        if "tokens" in row:
            return [piece(row["tokens"])]
        return [self._answered({**row, "answer": answer}) for answer in answers_of(row)]

    def encode_training(self, row: Row) -> Encoded:
        """A training row, with the loss on every turn of the assistant's.

        Raises:
            UserError: No token of the last answer is left, or the chat template rewrites earlier turns.
        """
        if "tokens" in row:
            return piece(row["tokens"])
        encoded, before = self._answered(row), self._with_system(row.get("before", []))
        opening, labels = self._opening(row), list(encoded.labels)
        for i, turn in enumerate(before):
            if turn["role"] != "assistant":
                continue
            start, end = self._render(before[:i], True), self._render(before[: i + 1], False)
            end = end[: end.rfind(self.around.mark) + len(self.around.mark)].rstrip()
            if not (opening.startswith(end) and end.startswith(start)):
                raise UserError(
                    f"The chat template of '{self.tokenizer.name_or_path}' writes an earlier turn otherwise than the "
                    f"last (row that ends with the question '{row['question'][:60]}'): give each turn a row of its "
                    "own, or set `prompt_template`."
                )
            first, last = (shared(self._tokens(text, self.chat), encoded.input_ids) for text in (start, end))
            labels[first:last] = encoded.input_ids[first:last]
        return Encoded(encoded.input_ids, labels, encoded.prompt_length, encoded.lost)

    @property
    def template_hash(self) -> str:
        """Identity of everything between text and tokens: template, system turn, date, tokenizer."""
        template = self.tokenizer.chat_template if self.chat else self.template
        facts = [template, self.system_prompt, self.date_string, self.max_length, *self.around]
        return tokenizer_hash(self.tokenizer, facts)

    def _answered(self, row: Row) -> Encoded:
        """The row with the loss on its answer."""
        return labelled(row["question"], row["answer"], *self._whole(row), self.max_length)

    def _whole(self, row: Row) -> tuple[list[int], int]:
        """Tokens of a row, uncut, and how many are before its answer, which begins where the prompt's own differ."""
        raw, opening, answer = "raw" in row, self._opening(row), row["answer"]
        space = " " if "begun" in row else self.around.space
        closing = answer if raw else space + answer.strip()
        whole = self._tokens(opening + self.ended(closing, raw), self.chat and not raw)
        return whole, max(1, shared(self._tokens(opening, self.chat and not raw), whole))

    def _opening(self, row: Row) -> str:
        """Everything before the answer."""
        if "raw" in row:
            return str(row["question"])
        turns = [*row.get("before", []), {"role": "user", "content": row["question"], **row.get("columns", {})}]
        return self._render(self._with_system(turns), True) + str(row.get("begun", ""))

    def _with_system(self, turns: Turns) -> list[dict[str, str]]:
        own = [] if self.system_prompt is None else [{"role": "system", "content": self.system_prompt}]
        return [*([] if turns and turns[0]["role"] == "system" else own), *turns]

    def _render(self, turns: Turns, answer_follows: bool) -> str:
        if not self.chat:
            return "".join(self._plain(turn) for turn in turns)
        remedy = "mend the messages, or set `prompt_template`"
        text = rendered(self.tokenizer, turns, answer_follows, self.date_string, remedy)
        return text + self.around.lead if answer_follows else text

    def _plain(self, turn: dict[str, str]) -> str:
        content = turn["content"]
        if turn["role"] == "user":
            filled = {**turn, "{question}": content}
            return PLACE.sub(lambda place: filled.get(place[0], place[0]), self.template)
        if turn["role"] == "assistant":
            return f"{self.space}{self.ended(content.strip())}\n"
        return f"{content.strip()}\n\n"

    def _tokens(self, text: str, written: bool) -> list[int]:
        """Tokens; ``written``: the template has written the first one already."""
        ids = list(self.tokenizer(text, add_special_tokens=False)["input_ids"])
        return ids if written or ids[: len(self.first)] == self.first else self.first + ids


def first_tokens(tokenizer: Any) -> list[int]:
    """The token that a tokenizer puts before every text (Llama's and Gemma's do, GPT-2's does not), or none."""
    begins = list(tokenizer("")["input_ids"])[:1]
    return begins if begins == [tokenizer.bos_token_id] else []
