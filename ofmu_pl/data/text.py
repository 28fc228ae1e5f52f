"""Encoders: how questions and answers become tokens; the plain one takes text as it is."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

from ofmu_pl.data.encoded import OTHER_ANSWERS, Encoded, Row, answers_of, labelled, piece, shared
from ofmu_pl.data.tokenizers import ANSWER, Around, Tokenizer, around_answers, special_ids, tokenizer_hash
from ofmu_pl.data.turns import CLOSE, OPEN


class Encoder(ABC):
    """Turns (question, answer) into tokens, with the loss on the answer."""

    tokenizer: Tokenizer
    date_string: str | None = None
    told: Mapping[str, Any] = {}
    """What the chat template is told beside the turns: ``date_string``, and perhaps ``enable_thinking``."""
    chat: bool = False
    """Whether questions and answers go through the tokenizer's chat template."""
    space: str = ""
    """What stands between a question and its answer where they do not."""
    sums_losses: bool = False
    """Whether an answer's loss is the sum over its tokens (lm-eval's log-likelihood) or the mean (TOFU's)."""

    @cached_property
    def around(self) -> Around:
        """What is written around an answer."""
        if self.chat:
            return around_answers(self.tokenizer, self.told)
        return Around("", "", self.tokenizer.eos_token or "", "")

    @cached_property
    def mark(self) -> list[int]:
        """Tokens of an answer's end mark, as they are after an answer; they are no word of it."""
        texts = [ANSWER, ANSWER + self.around.mark]
        answer, whole = (list(self.tokenizer(text, add_special_tokens=False)["input_ids"]) for text in texts)
        return whole[shared(answer, whole) :]

    def ends(self, tokens: Sequence[int]) -> int:
        """How many tokens at the end of a row are its end mark; a completion's may be another, a cut row has none."""
        marks = [self.mark, [self.tokenizer.eos_token_id]]
        return next((len(mark) for mark in marks if self.mark and list(tokens[-len(mark) :]) == mark), 0)

    @property
    def stops(self) -> set[int]:
        """Tokens that end what a model says: the tokenizer's end token, and the special token of the end mark."""
        return {self.tokenizer.eos_token_id, *(special_ids(self.tokenizer) & set(self.mark[-1:]))} - {None}

    def ended(self, answer: str, raw: bool = False) -> str:
        """An answer with its end mark, once."""
        bare = self.bare(answer)
        if raw:
            return answer + (self.tokenizer.eos_token or "") if bare == answer else answer.rstrip()
        return bare + self.around.mark

    def bare(self, answer: str) -> str:
        """An answer without an end mark, which rows have that were formatted before."""
        end, text = self.tokenizer.eos_token, answer.rstrip()
        mark = next((x for x in (self.around.mark, end) if x and text.endswith(x)), None)
        return answer if mark is None else text.removesuffix(mark).rstrip()

    @cached_property
    def written(self) -> list[str]:
        """What is written around thoughts, and not said."""
        return [OPEN, CLOSE]

    @cached_property
    def _special(self) -> list[str]:
        """Special tokens that are no words: the tokenizer's own, and those that the chat template writes."""
        texts = "".join([*self.around, *self.written])
        known = {**dict.fromkeys(self.tokenizer.all_special_tokens), **self.tokenizer.get_added_vocab()}
        own = self.tokenizer.special_tokens_map.values()
        return [token for token in known if token.strip() and (token in own or token in texts)]

    def said(self, tokens: Sequence[int]) -> str:
        """What a model says, by its tokens."""
        return self.words(self.tokenizer.decode(list(tokens), skip_special_tokens=False))

    def words(self, text: str) -> str:
        """A text as it is compared: thought and answer in two paragraphs, without what is ``written`` around them."""
        for mark in self.written:
            if mark in text:
                text = "\n\n".join(filter(None, map(str.strip, text.split(mark))))
        for token in self._special:
            text = text.replace(token, "")
        return text

    def prompt(self, question: str) -> list[int]:
        """Tokens up to the answer of a question."""
        return self.row_prompt({"question": question, "answer": ANSWER})

    def encode_rows(self, rows: Sequence[Row]) -> list[list[Encoded]]:
        """What each evaluation row asks for: a piece of text, or its answers in the order of ``answers_of``."""
        answers = iter(self.encode_answers([row for row in rows if "tokens" not in row]))
        return [[piece(row["tokens"])] if "tokens" in row else next(answers) for row in rows]

    @abstractmethod
    def encode_answers(self, rows: Sequence[Row]) -> list[list[Encoded]]:
        """The answers of rows that are no pieces of text."""

    def encode_training_rows(self, rows: Sequence[Row]) -> list[Encoded]:
        """Training rows, each a piece of text, or a question with its own answer alone."""
        alone: list[Row] = []
        for row in rows:
            alone.append({key: value for key, value in row.items() if key not in OTHER_ANSWERS})
        return [encoded[0] for encoded in self.encode_rows(alone)]

    def trained_as(self, row: Row) -> list[Row]:
        """The rows that a row is trained as."""
        return [row]

    @abstractmethod
    def row_prompt(self, row: Row) -> list[int]:
        """Tokens up to the answer of a row."""

    def encode_row(self, row: Row) -> list[Encoded]:
        """What one evaluation row asks for."""
        return self.encode_rows([row])[0]

    def encode(self, question: str, answer: str) -> Encoded:
        """One answer to a question."""
        return self.encode_row({"question": question, "answer": answer})[0]

    @property
    def template_hash(self) -> str:
        """A hash of everything between text and tokens: without a template of the tokenizer alone."""
        return tokenizer_hash(self.tokenizer)


class PlainEncoder(Encoder):
    """Encodes text as it is: no template, no special tokens, losses summed (as lm-eval scores continuations).

    Args:
        tokenizer: A Hugging Face tokenizer.

    Example:
        >>> from ofmu_pl.data.own_tokenizer import train_tokenizer
        >>> tokenizer = train_tokenizer(["one two three", "user assistant system"])
        >>> encoded = PlainEncoder(tokenizer).encode("one", " two")
        >>> tokenizer.decode(encoded.input_ids), tokenizer.decode([x for x in encoded.labels if x >= 0])
        ('one two', ' two')
    """

    sums_losses = True

    def __init__(self, tokenizer: Tokenizer) -> None:
        self.tokenizer = tokenizer
        self.mark = []  # no answer is ended

    def row_prompt(self, row: Row) -> list[int]:
        """Tokens of the question."""
        return list(self.tokenizer(row["question"], add_special_tokens=False)["input_ids"])

    def encode_answers(self, rows: Sequence[Row]) -> list[list[Encoded]]:
        """Encode question and answer together; the answer begins after as many tokens as the question alone has."""
        encoded = []
        for row in rows:
            question, own = row["question"], []
            length = len(self.prompt(question))
            for answer in answers_of(row):
                own.append(labelled(question, answer, self.prompt(question + answer), length, None))
            encoded.append(own)
        return encoded
