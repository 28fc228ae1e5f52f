"""Tokenizers as they lie in folders and on the hub, and what names one."""

from __future__ import annotations

import copy
import hashlib
import json
from collections.abc import Sequence
from typing import Any

from lightning.pytorch.utilities import rank_zero_warn
from transformers import AutoTokenizer

from ofmu_pl.support.errors import NotAtHand, UserError
from ofmu_pl.support.hub import model_folder, offline


def load_tokenizer(source: Any) -> Any:
    """Load a tokenizer; without a pad token it pads with its end token, or with another that it has.

    Args:
        source: Folder or hub id of the tokenizer, or one that is loaded already, which is copied.

    Raises:
        UserError: There is no tokenizer.
    """
    if not isinstance(source, str) and not hasattr(source, "all_special_tokens"):
        raise UserError(
            f"`tokenizer` is a {type(source).__name__}, no tokenizer of transformers': load it by "
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


def _read(source: str) -> Any:
    folder = model_folder(source, "path", "tokenizer")
    try:
        return AutoTokenizer.from_pretrained(folder or source, local_files_only=offline(), trust_remote_code=False)
    except Exception as error:  # so many does transformers raise at files that it does not expect
        why = "" if folder else ", for it is neither a local folder nor a reachable hub id"
        raise (UserError if folder else NotAtHand)(
            f"'{source}' has no tokenizer that can be read{why}: give a model's folder with tokenizer.json and "
            "tokenizer_config.json (one that needs code of its own is not run), or name another source of it as "
            "`tokenizer`."
        ) from error


def rendered(tokenizer: Any, turns: Sequence[dict[str, str]], answers: bool, date: str | None, remedy: str) -> str:
    """Turns as the tokenizer's chat template writes them.

    Args:
        tokenizer: A tokenizer with a chat template.
        turns: What is said in turn, each with its ``role`` and ``content``.
        answers: Whether the assistant's answer follows.
        date: What the template prints as the date, if it prints one.
        remedy: What to do where the template refuses, for the message.

    Raises:
        UserError: The template refuses the turns, or none of several is the default.
    """
    try:
        return str(
            tokenizer.apply_chat_template(list(turns), add_generation_prompt=answers, tokenize=False, date_string=date)
        )
    except Exception as error:  # a template is a program of others, which fails as it likes
        roles = ", ".join(turn["role"] for turn in turns)
        raise UserError(
            f"The chat template of '{tokenizer.name_or_path}' refuses the roles {roles} ({error}): {remedy}."
        ) from error


def special_tokens(tokenizer: Any) -> list[Any]:
    """What ends and begins texts, and how tokens become text again, which ``tokenizer_hash`` does not know."""
    cleans = getattr(tokenizer, "clean_up_tokenization_spaces", None)
    return [sorted((name, str(token)) for name, token in tokenizer.special_tokens_map.items()), cleans]


def tokenizer_hash(tokenizer: Any, facts: list[Any]) -> str:
    """First 16 hex digits of the SHA-256 of a tokenizer and of facts beside it, which JSON can hold."""
    backend = getattr(tokenizer, "backend_tokenizer", None)  # merges and normalisation too, where it is fast
    facts = [*facts, json.loads(backend.to_str()) if backend else sorted(tokenizer.get_vocab().items())]
    return hashlib.sha256(json.dumps(facts).encode()).hexdigest()[:16]
