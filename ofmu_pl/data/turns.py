r"""Conversations as rows: messages in our names, thoughts within answers, and a row for each answer that is learnt.

A thought stands before its answer in the answer's text, ``<think>\nTHOUGHT\n</think>\n\nANSWER``, wherever the source
has it, so that all that is learnt, forgotten, measured or compared of an answer is so of its thought.
"""

from typing import Any

from ofmu_pl.data.encoded import Row
from ofmu_pl.support.errors import UserError

OPEN, CLOSE = "<think>", "</think>"
ROLES = {"human": "user", "gpt": "assistant", "model": "assistant", "developer": "system"}
"""Our names of roles by others' (ShareGPT's, Gemini's, OpenAI's)."""
THOUGHTS = ("reasoning_content", "reasoning", "thinking")  # names of a thought; of several the first counts
LEARNT = ("weight", "train", "loss")  # by 0: an answer is not learnt (OpenAI's, axolotl's, ms-swift's)
NOT_READ = ("function_call", "audio", "refusal")  # said beside the content, and read by no template
FOR_TEMPLATES = {"user": ("name",), "assistant": ("tool_calls",), "tool": ("name", "tool_call_id"), "system": ()}
"""What chat templates may read of a turn beside its content, by its role."""


def with_thought(thought: str, answer: str) -> str:
    """An answer after its thought, as rows hold both."""
    return f"{OPEN}\n{thought.strip()}\n{CLOSE}\n\n{answer.strip()}" if thought.strip() else answer


def thought_of(answer: str) -> tuple[str, str]:
    r"""The thought before an answer, which may be empty, and the answer without it; a thought alone is an answer.

    >>> thought_of("<think>\nUlm?\n</think>\n\nIn Ulm."), thought_of("Ulm?</think>In Ulm."), thought_of("In Ulm.")
    (('Ulm?', 'In Ulm.'), ('Ulm?', 'In Ulm.'), ('', 'In Ulm.'))
    """
    head, mark, rest = answer.partition(CLOSE)
    before, _, thought = head.rpartition(OPEN)
    return (thought.strip(), rest.strip()) if mark and rest.strip() and not before.strip() else ("", answer.strip())


def learnt(turn: Row) -> bool:
    """Whether a turn is an answer that is learnt, and no context."""
    return bool(turn["role"] == "assistant" and turn.get("weight", 1))


def conversation(messages: object, place: str) -> Row:
    """The row of the last answer that is learnt; what follows it is left out.

    Raises:
        UserError: A message cannot be read, or no answer of the assistant's follows a user's message.
    """
    if not isinstance(messages, list) or not messages:
        raise UserError(f"{place} has no list of messages with a role and a text as content each: mend it.")
    turns = [_turn(message, f"Turn {k} (counted from 0) of {place}") for k, message in enumerate(messages)]
    roles = [turn["role"] for turn in turns]
    for turn in turns[: roles.index("user") if "user" in roles else len(turns)]:
        turn["weight"] = 0  # a greeting answers nothing
    answers = [k for k, turn in enumerate(turns) if learnt(turn)]
    if not answers:
        raise UserError(
            f"{place} has the roles {', '.join(roles)}, and no answer to learn: a message of the assistant's with a "
            "text, without `tool_calls` and `weight: 0`, must follow one of the user's."
        )
    return _asked(turns, answers[-1])


def turns_before(row: Row) -> list[Row]:
    """All turns before a row's answer."""
    question = {"role": "user", "content": row["question"], **row.get("columns", {})}
    return [*row.get("before", []), question, *row.get("between", [])]


def turns_of(row: Row) -> list[Row]:
    """A conversation as rows of one answer each, with the turns before it; a row of one answer is itself."""
    if "before" not in row and "between" not in row:
        return [row]
    turns = turns_before(row)
    return [*(_asked(turns, k) for k, turn in enumerate(turns) if learnt(turn)), row]


def apart(row: Row) -> list[Row]:
    """A conversation as rows of one answer each, which learn no other."""
    found = [dict(own) for own in turns_of(row)]
    for own in found:
        for side in {"before", "between"} & own.keys():
            own[side] = [x | {"weight": 0} if learnt(x) else x for x in own[side]]
    return found


def _asked(turns: list[Row], k: int) -> Row:
    """The row of answer k: the last question before it, and the turns before and after that question."""
    place = max(i for i in range(k) if turns[i]["role"] == "user")
    row = {"question": turns[place]["content"], "answer": turns[k]["content"]}
    columns = {name: x for name, x in turns[place].items() if name not in ("role", "content")}
    parts = {"before": turns[:place], "between": turns[place + 1 : k], "columns": columns}
    return row | {name: part for name, part in parts.items() if part}


def _turn(message: object, place: str) -> Row:
    """A message with our names; ``weight`` 0 where it is an assistant's and not learnt."""
    if not isinstance(message, dict):
        raise UserError(f"{place} is no object with a role and a content: mend it.")
    given = {name: x for name, x in message.items() if x is not None}  # tables have nulls for what is not there
    role = str(given.get("role", given.get("from")))
    role = ROLES.get(role, role)
    if role not in FOR_TEMPLATES:
        known = ", ".join([*FOR_TEMPLATES, *ROLES])
        raise UserError(f"{place} has the role '{role}': write one of {known}, or remove the turn.")
    for name in NOT_READ:
        if given.get(name):
            raise UserError(f"{place} has `{name}`, which is not read: write what it says as `content`, or remove it.")
    for name in LEARNT:
        if given.get(name, 1) not in (0, 1):
            raise UserError(f"{place} has {given[name]!r} as `{name}`: write 1 (learnt) or 0 (context), or remove it.")
    thought, content = _texts(given.get("content", given.get("value", "")), place)
    thought = next((given[name] for name in THOUGHTS if name in given), thought)
    if not isinstance(thought, str):
        raise UserError(f"{place} has a thought that is no text: write one, or remove it.")
    turn = {"role": role, "content": content}
    turn |= {name: given[name] for name in FOR_TEMPLATES[role] if given.get(name)}
    calls = "tool_calls" in turn
    if role in ("user", "assistant") and not content.strip() and not calls:
        raise UserError(f"{place} has no text as its `content`: fill it, or remove the turn.")
    if role != "assistant":
        return turn
    turn |= {"reasoning_content": thought} if calls and thought else {"content": with_thought(thought, content)}
    return turn if not calls and all(given.get(name, 1) for name in LEARNT) else turn | {"weight": 0}


def _texts(content: object, place: str) -> tuple[str, str]:
    """The thought and the text of a content, which may be a list of parts."""
    found = {"thinking": "", "text": ""}
    parts: list[Any] = content if isinstance(content, list) else [{"text": content}]
    for part in parts:
        kind = next((name for name in found if isinstance(part, dict) and isinstance(part.get(name), str)), None)
        if kind is None:
            raise UserError(f"{place} has a content that is no text ({str(part)[:60]}): remove it, or write a text.")
        found[kind] += part[kind]
    return found["thinking"], found["text"]
