"""What is wrong with a command's words, in one sentence.

jsonargparse tries every alternative of a type, and its message tells of all of them. The errors that it chains say
the same piece by piece: which key, of which class, and at the end of the chain why.
"""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Iterable, Iterator
from difflib import get_close_matches
from importlib.util import find_spec

from jsonargparse import ArgumentError
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

import ofmu_pl
from ofmu_pl.attacks.base import Attack
from ofmu_pl.cli.words import nearest, unrecognized
from ofmu_pl.data.base import PairedDataModule
from ofmu_pl.evaluation.base import Evaluation
from ofmu_pl.modules.base import UnlearningModule
from ofmu_pl.networks.base import Network
from ofmu_pl.support.errors import UserError
from ofmu_pl.support.extras import missing

BASES = {
    "attacks": Attack,
    "model": UnlearningModule,
    "network": Network,
    "data": PairedDataModule,
    "evaluation": Evaluation,
    "optimizer": Optimizer,
    "scheduler": LRScheduler,
}
"""What the options that take a class take."""
EXAMPLES = {
    "experiments": "benchmarks/paper_tiny.yaml",
    "requests": "requests/authors.yaml",
    "attacks": "attacks.yaml",
}
"""A configuration for commands other than ``fit``, by an option that only such a command needs."""
KINDS = {
    "int": "a whole number",
    "float": "a number",
    "bool": "true or false",
    "str": "text",
    "dict": "a mapping",
    "list": "a list",
    "tuple": "a list",
    "iterable": "a list",
    "sequence": "a list",
    "NoneType": "null",
}


class OptionError(ArgumentError):
    """A class's options do not read as given.

    Args:
        message: Why, in jsonargparse's words.
        options: Options that the class has.
    """

    def __init__(self, message: str, options: Iterable[str]) -> None:
        super().__init__(None, message)
        self.options = list(options)


def causes(error: BaseException | None) -> Iterator[BaseException]:
    """The error and what it came from, the innermost last."""
    while error is not None:
        yield error
        error = error.__cause__ or (None if error.__suppress_context__ else error.__context__)


def refused(error: Exception) -> UserError:
    """Why a class of the configuration could not be made: our own sentence, or what a foreign class says."""
    chain = list(causes(error))
    for cause in chain:
        if isinstance(cause, UserError):
            return cause
    innermost = chain[-1]
    what = " ".join(str(innermost).split()) or type(innermost).__name__
    return UserError(f"The configuration makes no run: {what.rstrip('.!')}.")


def choices(base: type) -> dict[str, type]:
    """Classes that an option for ``base`` takes, by the names that the command line knows."""
    found: dict[str, type] = {}
    subclasses: list[type] = base.__subclasses__()
    for cls in subclasses:
        package = re.match(r"torch\.optim(\.lr_scheduler)?\b|ofmu_pl\b", cls.__module__)
        if package and not cls.__name__.startswith("_") and not inspect.isabstract(cls):
            if package[0] != "ofmu_pl":
                found[f"{package[0]}.{cls.__name__}"] = cls
            elif cls.__name__ in dir(ofmu_pl) and not getattr(cls, "takes_objects", False):
                found[cls.__name__] = cls
        found.update(choices(cls))
    return dict(sorted(found.items()))


def no_choice(key: str, name: str) -> str:
    """The sentence for a class that an option does not take."""
    base = BASES.get(key.rpartition(".")[2])
    if base is None:
        return f"--{key} takes no '{name}': give the whole import path of a class that it takes"
    names = choices(base)
    close = {full.rpartition(".")[2].lower(): full for full in names}
    near = get_close_matches(name.rpartition(".")[2].lower(), close, n=1)
    hint = f" (did you mean {close[near[0]]}?)" if near else ""
    return f"--{key} takes no '{name}'{hint} but one of {', '.join(names)}"


def explain(message: str, error: BaseException | None, options: Iterable[str]) -> str:
    """What is wrong, from the innermost cause.

    Args:
        message: Message of jsonargparse for the whole chain.
        error: Last error of the chain.
        options: Names of the options that the command has.

    Returns:
        A sentence without its full stop.
    """
    if sentence := unrecognized(message, options):
        return sentence
    of_help = re.match(r"--([\w.]+)\.help: ", message)
    keys: list[str] = [of_help[1]] if of_help else []
    owner, kinds, text, deeper, cls = "", "", message, None, None
    for cause in causes(error):
        text = str(cause).strip()
        if isinstance(cause, OptionError):
            options = [".".join([*keys, option]) for option in cause.options]
        elif isinstance(cause, TypeError) and (key := re.match('Parser key "([^"]+)"', text)):
            keys.append(key[1])
            kinds, deeper = "", None
        elif cls := re.match(r"Problem with given class_path '[\w.]*?(\w+)'|.*class_path='[\w.]*?(\w+)'", text):
            owner = cls[1] or cls[2]
        elif union := re.search(r"Subtypes: \[(.*)\]", text):
            kinds = union[1]
            deeper = re.search(r"Problem with given class_path '[\w.]*?(\w+)':\s+(.*)", text)
        if isinstance(cause, ArgumentError) and cause.argument_name:
            keys = [cause.argument_name.lstrip("-").removesuffix(".help")]
    if deeper and re.match("Expected a <", text):  # a list was tried first, and it is the class that is wrong
        owner, text = deeper[1], deeper[2]
    return _innermost(".".join(keys), owner, text, kinds, list(options))


def _innermost(key: str, owner: str, text: str, kinds: str, options: list[str]) -> str:
    if found := re.search("Option '([^']+)' is not accepted", text):
        option = found[1].replace("init_args.", "")
        whole = f"{key}.{option}" if key else option
        what = f"{owner} has no option '{option}'" if owner else f"There is no option '{option}'"
        return what + nearest(whole, options)
    if found := re.match(r"Subcommand '\w+' does not accept option '([^']+)'", text):
        sections = {option.partition(".")[0] for option in options}
        return f"There is no option '{found[1]}'" + nearest(found[1].partition(".")[0], sections)
    if found := re.match(r"argument (?:-\w/)?(--[\w.]+): expected one argument", text):
        return f"{found[1]} has no value: write one behind it"
    if found := re.search("following arguments are required: (.*)", text):
        return _missing(key, owner, found[1])
    if found := re.search(
        "Expected a dot import path string: (.*)|Import path (.*) does not correspond|but (.*) is abstract", text
    ):
        return no_choice(key, found[1] or found[2] or found[3])
    denied = re.search(r"Importing '([\w.]+)' is not allowed", text)
    root = denied[1].partition(".")[0] if denied else ""
    if denied and (root in sys.modules or find_spec(root)):
        module = denied[1].rpartition(".")[0]
        return (
            f"'{denied[1]}' is of no package that options may name: take it out; only if you know it to be safe, add "
            f"--trust {module}"
        )
    if found := re.match("Expected a (.*?)[.] Got value: (.*)", text, re.DOTALL):
        return f"--{key} takes {_kinds(kinds or found[1])}, not '{found[2]:.80}'"
    if found := denied or re.match(r"No module named '([\w.]+)'", text):
        module = found[1].rpartition(".")[0] if denied else found[1]
        if lack := missing(module):
            return f"--{key} needs {lack}"
        file = module.replace(".", "/") + ".py"
        return (
            f"--{key} names a class of the module '{module}', which is not there: run `python -m ofmu_pl` in the "
            f"folder that holds {file}, or put that folder on PYTHONPATH"
        )
    text = " ".join(text.split())
    return f"--{key}: {text}" if key else text


def _missing(key: str, owner: str, names: str) -> str:
    wanted = [name.split(".", 1)[-1] for name in names.split(", ")]
    options = ", ".join(f"--{key}.{name}" if key else f"--{name}" for name in wanted)
    bases = [BASES[name] for name in wanted if name in BASES]
    if owner and not bases:
        return f"{owner} needs {options}"
    if key and bases:
        return (
            f"{owner} needs {options}: give a base configuration first (--config ofmu_pl:authors.yaml -c OVERLAY), or "
            f"one of {', '.join(choices(bases[0]))}"
        )
    example = next((EXAMPLES[name] for name in wanted if name in EXAMPLES), "authors.yaml")
    return f"The command needs {options}: give a configuration, for example --config ofmu_pl:{example}"


def _kinds(text: str) -> str:
    """Types as jsonargparse prints them, in words."""
    found: list[str] = []
    values: list[str] = []
    pattern = r"(?:typing\.)?Literal\[([^]]*)\]|<class '[\w.]*?(\w+)'>|([\w.]+)\[[^]]*\]"
    for literal, cls, generic in re.findall(pattern, text):
        values += [literal] if literal else []
        name = cls or generic.rpartition(".")[2]
        kind = KINDS.get(name) or KINDS.get(name.lower()) or f"a {name}"
        if not literal and kind not in found and name != "Tensor":
            found.append(kind)
    if values:
        found.insert(0, f"one of {', '.join(values)}")
    return " or ".join(found) or "something else"
