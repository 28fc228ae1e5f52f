"""Tokenizers as they lie in folders and on the hub, and what names one."""

import copy
import json
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from typing import Any, NamedTuple, TypeAlias

from lightning.pytorch.utilities import rank_zero_warn
from transformers import AutoTokenizer, PreTrainedTokenizerBase

from ofmu_pl.support.errors import NotAtHand, UserError, reason
from ofmu_pl.support.files import read_json, text_hash
from ofmu_pl.support.hub import local_folder, offline
from ofmu_pl.support.limits import within

Tokenizer: TypeAlias = PreTrainedTokenizerBase
Turns = Sequence[dict[str, Any]]
ANSWER = "An answer."  # stands for any answer, to see what a template writes around it
_COMMENT = re.compile(r"\{#.*?#\}", re.DOTALL)
_TODAY = re.compile(r"""strftime_now\(\s*(?:'([^']*)'|"([^"]*)")\s*\)""")


def load_tokenizer(source: str | Tokenizer) -> Tokenizer:
    """Load a tokenizer; without a pad token it pads with its end token, or with another that it has."""
    if not isinstance(source, str) and not hasattr(source, "all_special_tokens"):
        raise UserError(
            f"`data.tokenizer` is a {type(source).__name__}, no tokenizer of the package transformers: load it by "
            "AutoTokenizer.from_pretrained, or give its folder or hub id."
        )
    tokenizer = _read(source) if isinstance(source, str) else copy.deepcopy(source)
    # Where a folder has no tokenizer's files, some classes make one of their special tokens alone.
    whose = f"of '{source}' " if isinstance(source, str) else ""
    if not set(tokenizer.get_vocab()) - set(tokenizer.all_special_tokens) - set(tokenizer.get_added_vocab()):
        raise UserError(
            f"The tokenizer {whose}is empty: give a model's folder with tokenizer.json and tokenizer_config.json, or "
            "name another source of it as `tokenizer`."
        )
    if tokenizer.eos_token is None:
        rank_zero_warn(
            f"The tokenizer {whose}has no end token, so answers have no end mark: none is learnt or scored, and what "
            "the model says goes on to its greatest length."
        )
    if tokenizer.pad_token is None:  # masked wherever it stands; no new one, for which the model has no embedding
        own = (tokenizer.eos_token, tokenizer.bos_token, tokenizer.unk_token, tokenizer.convert_ids_to_tokens(0))
        tokenizer.pad_token = next(token for token in own if token is not None)
    return tokenizer


def _read(source: str) -> Tokenizer:
    folder = local_folder(source, "path", "tokenizer")
    try:
        return AutoTokenizer.from_pretrained(folder or source, local_files_only=offline(), trust_remote_code=False)
    except Exception as error:  # so many does transformers raise at files that it does not expect
        for path in sorted(folder.glob("*.json")) if folder else ():  # the model's own is read for the tokenizer, too
            try:
                read_json(path)
            except (OSError, ValueError) as damage:
                raise UserError(f"'{path}' cannot be read ({reason(damage)}): put back a whole one.") from damage
        why = "" if folder else ", for it is neither a local folder nor a reachable hub id"
        raise (UserError if folder else NotAtHand)(
            f"'{source}' has no tokenizer that can be read{why}: give a model's folder with tokenizer.json and "
            "tokenizer_config.json (one that needs code of its own is not run), or name another source of it as "
            "`tokenizer`."
        ) from error


def rendered(tokenizer: Tokenizer, turns: Turns, answers: bool, told: Mapping[str, Any], remedy: str = "") -> str:
    """Turns as the tokenizer's chat template writes them; what it is ``told`` has a ``date_string``, for today."""
    how, date = {**told, "add_generation_prompt": answers, "tokenize": False}, told["date_string"]
    try:
        template = _TODAY.sub(lambda found: repr(_dated(date, found[1] or found[2])), tokenizer.get_chat_template())
        if "strftime_now(" in _COMMENT.sub("", template):
            raise UserError(
                f"The chat template of '{tokenizer.name_or_path}' asks strftime_now for today's date in a form that is "
                "no text of its own, so that prompts would change by the day: give `data.prompt_template`, or a "
                "tokenizer whose template has the form in it."
            )
        with within("The template"):
            return str(tokenizer.apply_chat_template(list(turns), chat_template=template, **how))
    except UserError:
        raise
    except Exception as error:  # a template is a program of others, which fails as it likes
        roles = ", ".join(turn["role"] for turn in turns)
        raise UserError(
            f"The chat template of '{tokenizer.name_or_path}' refuses the roles {roles} ({error}) of what ends "
            f"with '{str(turns[-1]['content'])[:60]}': {remedy}."
        ) from error


def _dated(date: str | None, form: str) -> str | None:
    """A date in another form; one that is not as ``10 Apr 2025`` stays as it is."""
    with suppress(ValueError, TypeError):
        return datetime.strptime(date or "", "%d %b %Y").strftime(form)
    return date


class Around(NamedTuple):
    """What a chat template writes around an answer.

    Attributes:
        opening: The prompt, for a question that stands for any.
        before: All that stands before the answer, which may be more than the prompt (an empty thought), or less.
        mark: What ends the answer: up to the first special token, for the rest belongs to the next turn. The
            tokenizer's end token where the template writes nothing.
        tail: All that stands after an answer that is the last turn.
    """

    opening: str
    before: str
    mark: str
    tail: str


def around_answers(tokenizer: Tokenizer, told: Mapping[str, Any]) -> Around:
    """What a tokenizer's chat template writes around answers; nothing but an end token where it refuses a question."""
    asked = [{"role": "user", "content": "Who?"}, {"role": "assistant", "content": ANSWER}]
    opening = whole = ""
    with suppress(UserError):  # raised again with the first row
        opening, whole = (rendered(tokenizer, asked[:n], n == 1, told) for n in (1, 2))
    before, found, after = whole.rpartition(ANSWER)
    end = tokenizer.eos_token or ""
    if not found:
        return Around("", "", end, "")
    known = (*tokenizer.all_special_tokens, *tokenizer.get_added_vocab())
    ends = [after.index(token) + len(token) for token in known if token.strip() and token in after]
    return Around(opening, before, after[: min(ends)] if ends else after.rstrip() or end, after)


def refuse_other_tokens(kind: str, source: str, encoder: Any, template: bool = True) -> None:
    """Refuse a second model that would be fed tokens of another tokenizer than its own, where it has one."""
    try:
        theirs = load_tokenizer(source)
    except UserError:
        return
    written = encoder.around.before + encoder.around.mark if template else ""
    asked = template and encoder.chat and theirs.chat_template
    if _read_by(encoder.tokenizer, written) != _read_by(theirs, written):
        differs = "tokenizer"
    elif asked and around_answers(theirs, encoder.told) != encoder.around:
        differs = "chat template"
    else:
        return
    raise UserError(f"The {kind} '{source}' has another {differs} than this run: give one trained with the same.")


def _read_by(tokenizer: Tokenizer, text: str) -> tuple[dict[str, int], list[int]]:
    """The words that a tokenizer knows, and how it reads a text."""
    special = special_ids(tokenizer)
    words = {word: i for word, i in tokenizer.get_vocab().items() if i not in special}
    return words, tokenizer(text, add_special_tokens=False)["input_ids"]


def special_ids(tokenizer: Tokenizer) -> set[int]:
    """Tokens that are no words: base models' tokenizers do not call those special that only chats have."""
    return {*tokenizer.all_special_ids, *tokenizer.get_added_vocab().values()}


def tokenizer_hash(tokenizer: Tokenizer, facts: Sequence[object] = ()) -> str:
    """First 16 hex digits of the SHA-256 of a tokenizer and of facts beside it, which JSON can hold."""
    backend = getattr(tokenizer, "backend_tokenizer", None)  # merges and normalisation too, where it is fast
    whole = json.loads(backend.to_str()) if backend else sorted(tokenizer.get_vocab().items())
    special = sorted((name, str(token)) for name, token in tokenizer.special_tokens_map.items())
    cleans = getattr(tokenizer, "clean_up_tokenization_spaces", None)  # how tokens become text again
    return text_hash(json.dumps([*facts, special, cleans, whole]))
