"""Rows as tokens of any model: by its chat template, or by a plain one; several turns; documents."""

import json
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import cached_property
from itertools import chain
from typing import Any

from ofmu_pl.data.encoded import Encoded, Row, answers_of, labelled, shared
from ofmu_pl.data.text import Encoder
from ofmu_pl.data.tokenizers import ANSWER, Tokenizer, Turns, rendered, tokenizer_hash
from ofmu_pl.data.turns import CLOSE, OPEN, apart, learnt, thought_of, turns_before, with_thought
from ofmu_pl.support.errors import UserError

PROMPT_TEMPLATE = "Question: {question}\nAnswer:"  # how a question is put to a model that has no chat template
PLACE = re.compile(r"\{[^{}]+\}")  # a place of a template that a column fills, as `{question}`
THOUGHT = "A thought."  # stands for any thought, to see what a template writes around it
ROWS_PER_CALL = 1000  # rows that a tokenizer is called for: enough to hide what a call costs, few enough for memory
ROWS_KEPT = 10_000  # most rows whose tokens an encoder keeps (some 10 MB for TOFU's 1,417)


class RowEncoder(Encoder):
    r"""Encodes questions and answers, prompts and completions, conversations, and pieces of documents.

    The tokenizer's chat template writes questions, conversations and answers, with a fixed date, since Llama 3's would
    insert today's, and forget quality moves with it. The end mark is what the template writes after an answer, which
    need not be the tokenizer's end token. Where there is no template, or ``prompt_template`` is given, a question is
    put in by it; the answer follows after a space (none, if the template ends with one), then the tokenizer's end
    token. Where a row has a text ``begun``, the reply begins with it, and the answer follows after a space. A prompt
    and its completion are taken as they are. A begin or end token that a row has is not written twice. The loss covers
    answers with their thoughts and end marks, in training those of all the assistant's turns that are learnt.

    Args:
        tokenizer: A Hugging Face tokenizer; without an end token answers have no end mark.
        system_prompt: Content of a system turn before questions and conversations without one; ``None``: none.
        prompt_template: A text with ``{question}`` in it instead of the chat template, and places for what rows
            have in ``columns`` (``{"{input}": "a text"}``); ``None``: the tokenizer's chat template, or
            ``"Question: {question}\nAnswer:"`` where it has none.
        date_string: What the chat template prints as the date, if it prints one.
        max_length: Longer rows are cut at the right; ``None``: never.
        template_options: What the chat template is told beside the turns, as ``{"enable_thinking": False}``.

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
        template_options: Mapping[str, Any] | None = None,
    ) -> None:
        self.chat = prompt_template is None and bool(tokenizer.chat_template)
        self.template = PROMPT_TEMPLATE if prompt_template is None else prompt_template
        if "{question}" not in self.template:
            raise UserError(
                f"`data.prompt_template` is {self.template!r}: write {{question}} where it goes: {PROMPT_TEMPLATE!r}."
            )
        self.tokenizer, self.system_prompt, self.max_length = tokenizer, system_prompt, max_length
        self.told = {"date_string": date_string, **(template_options or {})}
        self.date_string = self.told["date_string"] if self.chat else None
        self.space = "" if self.template[-1].isspace() else " "
        self.first = first_tokens(tokenizer)
        self._kept: dict[str, list[Encoded]] = {}

    @cached_property
    def written(self) -> list[str]:
        """What is written around thoughts: by the template, or in rows."""
        with suppress(UserError):  # a template that writes no thoughts
            said = self._turn([{"role": "user", "content": "Who?"}], with_thought(THOUGHT, ANSWER))[1]
            before, _, rest = said.partition(THOUGHT)
            return [*filter(str.strip, (before, rest.partition(ANSWER)[0])), *super().written]
        return super().written

    def row_prompt(self, row: Row) -> list[int]:
        """Tokens up to the answer of a row, earlier turns and all, as they are where the answer follows."""
        opening, whole = (self._started(row, ids) for ids in self._tokens(self._texts(row, row["answer"])))
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
        """Training rows, with the loss on every turn of the assistant's that is learnt."""
        return [self._all_turns(*pair) for pair in zip(rows, super().encode_training_rows(rows), strict=True)]

    def trained_as(self, row: Row) -> list[Row]:
        """A row, or its answers one by one, where the template writes an earlier answer otherwise than the last."""
        return [row] if self._keeps_turns(row) else apart(row)

    def _keeps_turns(self, row: Row) -> bool:
        whole = self._texts(row, row["answer"])[1]
        return all(whole.startswith(end) for _, end in self._earlier(row))

    def _all_turns(self, row: Row, encoded: Encoded) -> Encoded:
        """The row with the loss on the assistant's earlier turns, too."""
        earlier = self._earlier(row)
        if not earlier:
            return encoded
        if not self._keeps_turns(row):
            raise UserError(
                f"The chat template of '{self.tokenizer.name_or_path}' writes an earlier turn otherwise than the "
                f"last (row that ends with the question '{row['question'][:60]}'): give each turn a row of its "
                "own, or set `data.prompt_template`."
            )
        labels = list(encoded.labels)
        for texts in earlier:
            first, last = (shared(self._started(row, x), encoded.input_ids) for x in self._tokens(texts))
            labels[first:last] = encoded.input_ids[first:last]
        return Encoded(encoded.input_ids, labels, encoded.prompt_length, encoded.lost)

    def _earlier(self, row: Row) -> list[tuple[str, str]]:
        """Everything before each earlier answer that is learnt, and the same with the answer."""
        found = []
        turns = turns_before(row) if "before" in row or "between" in row else []
        for k, turn in enumerate(turns):
            if learnt(turn):
                opening, said = self._turn(self._with_system(turns[:k]), turn["content"])
                found.append((opening, opening + said))
        return found

    @property
    def template_hash(self) -> str:
        """A hash of everything between text and tokens: template and what it yields, system turn, date, tokenizer."""
        template = self.tokenizer.chat_template if self.chat else self.template
        facts = [template, self.system_prompt, self.date_string, self.max_length, *self.around]
        return tokenizer_hash(self.tokenizer, [*facts, self.told])

    def _encode(self, rows: Sequence[Row]) -> list[list[Encoded]]:
        """The answers of each row; the tokenizer is called for all, since a call takes longer than a text."""
        asked = []
        for i, row in enumerate(rows):
            for answer in answers_of(row):
                asked.append((i, answer, self._texts(row, answer)))
        different = list(dict.fromkeys(chain.from_iterable(texts for *_, texts in asked)))
        tokens = dict(zip(different, self._tokens(different), strict=True))
        encoded: list[list[Encoded]] = [[] for _ in rows]
        for i, answer, texts in asked:
            opening, whole = (self._started(rows[i], tokens[text]) for text in texts)
            length = max(1, shared(opening, whole))  # an answer begins where the prompt's own tokens differ
            encoded[i].append(labelled(rows[i]["question"], answer, whole, length, self.max_length))
        return encoded

    def _texts(self, row: Row, answer: str) -> tuple[str, str]:
        """Everything before an answer, and the same with the answer."""
        if "raw" in row:
            return row["question"], row["question"] + self.ended(answer, True)
        turns = self._with_system(turns_before(row))
        if "begun" in row:
            opening = self._turn(turns, ANSWER)[0] + row["begun"]
            return opening, opening + self.ended(f" {answer.strip()}")
        opening, said = self._turn(turns, answer)
        return opening, opening + said

    def _turn(self, turns: Turns, answer: str) -> tuple[str, str]:
        """Everything before an answer, and the answer with its thought and its end mark, as the template writes them.

        A thought that the template leaves out follows the beginning of one at the end of the prompt, if it has that.
        """
        answer, opening = self.bare(answer.strip()), self._render(turns, True)
        if not self.chat:
            return opening, self.space + answer + self.around.mark
        thought, words = thought_of(answer)
        whole = self._render([*turns, {"role": "assistant", "content": answer}], False)
        head = whole.removesuffix(words + self.around.tail)
        start = head[: shared(opening, head)]
        if head == whole or thought not in head[len(start) :]:
            return opening, self._gone_on(opening, thought, words, turns)
        if not thought:  # an empty one belongs to the prompt, white space to the answer
            start = opening if head.startswith(opening) and not head.removeprefix(opening).strip() else head
        return start, (head + words)[len(start) :] + self.around.mark

    def _gone_on(self, opening: str, thought: str, words: str, turns: Turns) -> str:
        """An answer whose thought the template leaves out, as the model says it after a prompt that begins one."""
        if thought and opening.rstrip().endswith(OPEN):
            close = f"\n{CLOSE}\n\n" if opening.endswith("\n") else CLOSE
            return thought + close + words + self.around.mark
        raise UserError(
            f"The chat template of '{self.tokenizer.name_or_path}' leaves out a part of the answer to "
            f"'{turns[-1]['content'][:60]}'{' (its thought)' if thought else ''}: take it out of the row, set "
            "`data.chat_template_kwargs`, or give a `data.prompt_template`."
        )

    def _with_system(self, turns: Turns) -> list[Row]:
        own = [] if self.system_prompt is None else [{"role": "system", "content": self.system_prompt}]
        return [*([] if turns and turns[0]["role"] == "system" else own), *turns]

    def _render(self, turns: Turns, answer_follows: bool) -> str:
        if not self.chat:
            nexts = [*(turn["role"] for turn in turns[1:]), "assistant"]
            return "".join(self._plain(*pair) for pair in zip(turns, nexts, strict=True))
        remedy = "set `data.system_prompt` to null, mend the messages, or give a `data.prompt_template`"
        given = [self._message(turn) for turn in turns]
        return rendered(self.tokenizer, given, answer_follows, self.told, remedy)

    def _plain(self, turn: Row, then: str) -> str:
        content = turn["content"] or (json.dumps(turn["tool_calls"]) if "tool_calls" in turn else "")
        if turn["role"] == "user" and then != "user":
            filled = {**turn, "{question}": content}
            return PLACE.sub(lambda place: filled.get(place[0], place[0]), self.template)
        if turn["role"] == "assistant":
            return f"{self.space}{self.ended(content.strip())}\n"
        return f"{content.strip()}\n\n" if content.strip() else ""

    def _message(self, turn: Row) -> Row:
        """A turn as the chat template reads it, with its thought as a field where it reads one."""
        message = {name: x for name, x in turn.items() if name != "weight"}
        if turn["role"] == "assistant" and CLOSE in turn["content"] and self._reads_thoughts:
            thought, message["content"] = thought_of(turn["content"])
            message |= {"reasoning_content": thought, "thinking": thought} if thought else {}  # `thinking` is gpt-oss'
        return message

    @cached_property
    def _reads_thoughts(self) -> bool:
        """Whether the chat template reads a thought from a field of its own."""
        turns = [{"role": "user", "content": "Who?"}, {"role": "assistant", "content": ANSWER}]
        turns[1] |= {"reasoning_content": THOUGHT, "thinking": THOUGHT}
        return THOUGHT in rendered(self.tokenizer, turns, False, self.told)

    def _tokens(self, texts: Sequence[str]) -> list[list[int]]:
        return list(self.tokenizer(list(texts), add_special_tokens=False)["input_ids"])

    def _started(self, row: Row, ids: list[int]) -> list[int]:
        """Tokens with the first one, unless they have it or the chat template decides."""
        templated = self.chat and "raw" not in row
        return ids if templated or ids[: len(self.first)] == self.first else self.first + ids


def first_tokens(tokenizer: Tokenizer) -> list[int]:
    """The token that a tokenizer puts before every text (Llama's and Gemma's do, GPT-2's does not), or none."""
    begins = list(tokenizer("")["input_ids"])[:1]
    return begins if begins == [tokenizer.bos_token_id] else []
