"""Rows as tokens of any model: by its chat template, or by a plain one; several turns; documents."""

import json
import re
from collections.abc import Sequence

from ofmu_pl.data.encoded import Encoded, Row, answers_of, labelled, shared
from ofmu_pl.data.text import Encoder
from ofmu_pl.data.tokenizers import Tokenizer, Turns, rendered, tokenizer_hash
from ofmu_pl.support.errors import UserError

PROMPT_TEMPLATE = "Question: {question}\nAnswer:"  # how a question is put to a model that has no chat template
PLACE = re.compile(r"\{[^{}]+\}")  # a place of a template that a column fills, as `{question}`
ROWS_PER_CALL = 1000  # rows that a tokenizer is called for: enough to hide what a call costs, few enough for memory
ROWS_KEPT = 10_000  # most rows whose tokens an encoder keeps (some 10 MB for TOFU's 1,417)


class RowEncoder(Encoder):
    r"""Encodes questions and answers, prompts and completions, conversations, and pieces of documents.

    Questions and conversations go through the tokenizer's chat template, with a fixed date, since Llama 3's would
    insert today's, and forget quality moves with it. The end mark is what the template writes after an answer, which
    need not be the tokenizer's end token. Where there is no template, or ``prompt_template`` is given, a question is
    put in by it; the answer follows after a space (none, if the template ends with one), then the tokenizer's end
    token. Where a row has a text ``begun``, the reply begins with it, and the answer follows after a space. A prompt
    and its completion are taken as they are. A begin or end token that a row has is not written twice. The loss covers
    answers with their end marks, in training those of all the assistant's turns.

    Args:
        tokenizer: A Hugging Face tokenizer; without an end token answers have no end mark.
        system_prompt: Content of a system turn before questions and conversations without one; ``None``: none.
        prompt_template: A text with ``{question}`` in it instead of the chat template, and places for what rows
            have in ``columns`` (``{"{input}": "a text"}``); ``None``: the tokenizer's chat template, or
            ``"Question: {question}\nAnswer:"`` where it has none.
        date_string: What the chat template prints as the date, if it prints one.
        max_length: Longer rows are cut at the right; ``None``: never.

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
        tokenizer: Tokenizer,
        system_prompt: str | None = None,
        prompt_template: str | None = None,
        date_string: str = "10 Apr 2025",
        max_length: int | None = 512,
    ) -> None:
        self.chat = prompt_template is None and bool(tokenizer.chat_template)
        self.template = PROMPT_TEMPLATE if prompt_template is None else prompt_template
        if "{question}" not in self.template:
            raise UserError(
                f"`data.prompt_template` is {self.template!r}: write {{question}} where it goes: {PROMPT_TEMPLATE!r}."
            )
        self.tokenizer, self.system_prompt, self.max_length = tokenizer, system_prompt, max_length
        self.date_string = date_string if self.chat else None
        self.space = "" if self.template[-1].isspace() else " "
        self.first = first_tokens(tokenizer)
        self._kept: dict[str, list[Encoded]] = {}

    def prompt(self, question: str) -> list[int]:
        """Tokens up to the answer."""
        row = {"question": question}
        return self._started(row, self._tokens([self._opening(row)])[0])

    def row_prompt(self, row: Row) -> list[int]:
        """Tokens up to the answer of a row, earlier turns and all, as they are where the answer follows."""
        opening, whole = (self._started(row, ids) for ids in self._tokens(self._texts(row, [row["answer"]])))
        return whole[: max(1, shared(opening, whole))]

    def encode_answers(self, rows: Sequence[Row]) -> list[list[Encoded]]:
        """The answers of several rows; they are kept, since a run measures the same rows often."""
        keys = [json.dumps(row, sort_keys=True) for row in rows]
        asked = dict(zip(keys, rows, strict=True))
        if len(self._kept.keys() | asked.keys()) > ROWS_KEPT:
            self._kept.clear()
        new = [key for key in asked if key not in self._kept]
        for start in range(0, len(new), ROWS_PER_CALL):
            part = new[start : start + ROWS_PER_CALL]
            self._kept.update(zip(part, self._encode([asked[key] for key in part]), strict=True))
        return [self._kept[key] for key in keys]

    def encode_training_rows(self, rows: Sequence[Row]) -> list[Encoded]:
        """Training rows, with the loss on every turn of the assistant's."""
        return [self._all_turns(*pair) for pair in zip(rows, super().encode_training_rows(rows), strict=True)]

    def _all_turns(self, row: Row, encoded: Encoded) -> Encoded:
        """The row with the loss on the assistant's earlier turns, too."""
        if "before" not in row:
            return encoded
        before, opening, labels = self._with_system(row["before"]), self._opening(row), list(encoded.labels)
        for i, turn in enumerate(before):
            if turn["role"] != "assistant":
                continue
            start, end = self._render(before[:i], True), self._render(before[: i + 1], False)
            end = end[: end.rfind(self.around.mark) + len(self.around.mark)].rstrip()
            if not (opening.startswith(end) and end.startswith(start)):
                raise UserError(
                    f"The chat template of '{self.tokenizer.name_or_path}' writes an earlier turn otherwise than the "
                    f"last (row that ends with the question '{row['question'][:60]}'): give each turn a row of its "
                    "own, or set `data.prompt_template`."
                )
            first, last = (shared(self._started(row, x), encoded.input_ids) for x in self._tokens([start, end]))
            labels[first:last] = encoded.input_ids[first:last]
        return Encoded(encoded.input_ids, labels, encoded.prompt_length, encoded.lost)

    @property
    def template_hash(self) -> str:
        """A hash of everything between text and tokens: template and what it yields, system turn, date, tokenizer."""
        template = self.tokenizer.chat_template if self.chat else self.template
        facts = [template, self.system_prompt, self.date_string, self.max_length, *self.around]
        return tokenizer_hash(self.tokenizer, facts)

    def _encode(self, rows: Sequence[Row]) -> list[list[Encoded]]:
        """The answers of each row; the tokenizer is called for all, since a call takes longer than a text."""
        texts: list[str] = []
        for row in rows:
            texts += self._texts(row, answers_of(row))
        tokens = iter(self._tokens(texts))
        encoded = []
        for row in rows:
            opening, own = self._started(row, next(tokens)), []
            for answer in answers_of(row):
                whole = self._started(row, next(tokens))
                length = max(1, shared(opening, whole))  # an answer begins where the prompt's own tokens differ
                own.append(labelled(row["question"], answer, whole, length, self.max_length))
            encoded.append(own)
        return encoded

    def _texts(self, row: Row, answers: Sequence[str]) -> list[str]:
        """Everything before the answer, and the same with each answer."""
        opening, space = self._opening(row), " " if "begun" in row else self.around.space
        if "raw" in row:
            return [opening, *(opening + self.ended(answer, True) for answer in answers)]
        return [opening, *(opening + self.ended(space + answer.strip()) for answer in answers)]

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
        remedy = "set `data.system_prompt` to null, mend the messages, or give a `data.prompt_template`"
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

    def _tokens(self, texts: list[str]) -> list[list[int]]:
        return list(self.tokenizer(texts, add_special_tokens=False)["input_ids"])

    def _started(self, row: Row, ids: list[int]) -> list[int]:
        """Tokens with the first one, unless they have it or the chat template decides."""
        templated = self.chat and "raw" not in row
        return ids if templated or ids[: len(self.first)] == self.first else self.first + ids


def first_tokens(tokenizer: Tokenizer) -> list[int]:
    """The token that a tokenizer puts before every text (Llama's and Gemma's do, GPT-2's does not), or none."""
    begins = list(tokenizer("")["input_ids"])[:1]
    return begins if begins == [tokenizer.bos_token_id] else []
