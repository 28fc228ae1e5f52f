"""What is wrong with a command's words, in one sentence.

jsonargparse tries every alternative of a type, and its message tells of all of them. The errors that it chains say
the same piece by piece: which key, of which class, and at the end of the chain why. A dozen of these reasons get a
sentence of ours; every other is passed on as it is, behind the option's name.
"""

import inspect
import re
import sys
from collections.abc import Iterable, Iterator
from difflib import get_close_matches
from importlib.machinery import PathFinder
from types import ModuleType

import torch
from jsonargparse import ArgumentError
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

import ofmu_pl
from ofmu_pl.attacks.base import Attack
from ofmu_pl.cli.words import nearest, unrecognized
from ofmu_pl.data.base import PairedDataModule
from ofmu_pl.evaluation.base import Evaluation
from ofmu_pl.modules.base import UnlearningModule
from ofmu_pl.modules.lower_level import LowerLevel
from ofmu_pl.modules.moved import MOVED
from ofmu_pl.modules.steppers import Stepper
from ofmu_pl.modules.upper_level import UpperLevel
from ofmu_pl.networks.base import Network
from ofmu_pl.support.errors import UserError, memory_is_full
from ofmu_pl.support.extras import missing

BASES: dict[str, tuple[ModuleType, type]] = {
    "attacks": (ofmu_pl, Attack),
    "model": (ofmu_pl, UnlearningModule),
    "network": (ofmu_pl, Network),
    "data": (ofmu_pl, PairedDataModule),
    "evaluation": (ofmu_pl, Evaluation),
    "lower": (ofmu_pl, LowerLevel),
    "stepper": (ofmu_pl, Stepper),
    "upper": (ofmu_pl, UpperLevel),
    "optimizer": (torch.optim, Optimizer),
    "scheduler": (torch.optim.lr_scheduler, LRScheduler),
}
"""What the options that take a class take, and the package whose classes a sentence names."""
EXAMPLES = {
    "experiments": "benchmarks/paper_tiny.yaml",
    "requests": "requests/authors.yaml",
    "attacks": "attacks.yaml",
}
"""A configuration for commands other than ``fit``, by an option that only such a command needs."""


class OptionError(ArgumentError):
    """A class's options do not read as given."""

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


def choices(option: str) -> list[str]:
    """Classes that an option takes, by the names that the command line knows."""
    package, base = BASES[option]
    prefix = "" if package is ofmu_pl else f"{package.__name__}."
    found = []
    for name in dir(package):
        cls = getattr(package, name)
        if not inspect.isclass(cls) or not issubclass(cls, base) or cls in (base, Optimizer):
            continue
        if not inspect.isabstract(cls) and not getattr(cls, "takes_objects", False):
            found.append(prefix + name)
    return found


def explain(message: str, error: BaseException | None, options: Iterable[str]) -> str:
    """What is wrong, from the innermost cause, as a sentence without its full stop."""
    if sentence := unrecognized(message, options):
        return sentence
    keys: list[str] = []
    owner, kinds, text, other = "", "", message, None
    for cause in causes(error):
        text = str(cause).strip()
        if isinstance(cause, UserError):
            return text.rstrip(".")
        if memory_is_full(cause):  # what could not be loaded is not there, and nothing wrong with the option
            raise MemoryError from cause
        if isinstance(cause, OptionError):
            options = [".".join([*keys, option]) for option in cause.options]
        elif key := re.match(r'Parser key "([^"]+)"|--([\w.]+)\.help: ', text):
            if isinstance(cause, TypeError):
                name = key[1] or key[2]
                keys += [] if keys[-1:] == [name] else [name]  # of a section it is said twice
                kinds, other = "", None
        elif cls := re.match(r"Problem with given class_path '[\w.]*?(\w+)'|.*class_path='[\w.]*?(\w+)'", text):
            owner = cls[1] or cls[2]
        elif union := re.search(r"Subtypes: \[(.*)\]", text):
            kinds = union[1]
            other = re.search(r"Problem with given class_path '[\w.]*?(\w+)':\s+(.*)", text)
    if other and text.startswith("Expected a <"):  # a list was tried first, and it is the class that is wrong
        owner, text = other[1], other[2]
    return _reason(".".join(keys), owner, text, kinds, list(options))


def _reason(key: str, owner: str, text: str, kinds: str, options: list[str]) -> str:
    if found := re.search(r"(?:O|o)ption '([^']+)'(?: is not accepted|$)", text):
        option = found[1].replace("init_args.", "")
        whole = f"{key}.{option}" if key else option
        what = f"{owner} has no option {whole}" if owner and key else f"There is no option {whole}"
        moved = f": it is {MOVED[option]} now" if owner == "OFMU" and option in MOVED else None
        return what + (moved or nearest(whole if key else whole.partition(".")[0], options))
    if found := re.search("following arguments are required: (.*)", text):
        return _lacks(key, owner, found[1], options)
    if found := re.search("import path string: (.*)|Import path (.*) does not correspond|but (.*) is abstract", text):
        return no_choice(key, found[1] or found[2] or found[3])
    if found := re.search(r"Importing '([\w.]+)' is not allowed|^No module named '([\w.]+)'", text):
        return _not_imported(key, found[1] or f"{found[2]}.", denied=bool(found[1]))
    if found := re.match("Expected a (.*?)[.] Got value: (.*)", text, re.DOTALL):
        wanted = re.sub(r"<class '(?:\w+\.)*(\w+)'>|typing\.", r"\1", kinds or found[1])
        wanted = wanted.replace("NoneType", "null").replace("Literal", "one of ")
        return f"{key} takes {wanted}, not '{found[2]:.80}'"
    text = " ".join(text.split())
    if found := re.search('import path format: (.*)|load config "(.*)"|Got value: (.*) Subclass types', text):
        return f"{key} takes options by name, not '{found[1] or found[2] or found[3]:.80}'"
    return f"{key}: {text}" if key else text


def no_choice(key: str, name: str) -> str:
    """The sentence for a class that an option does not take."""
    option = key.rpartition(".")[2]
    if option not in BASES:
        return f"{key} takes no '{name}': give the whole import path of a class that it takes"
    names = choices(option)
    by_last = {full.rpartition(".")[2].lower(): full for full in names}
    near = get_close_matches(name.rpartition(".")[2].lower(), by_last, n=1)
    hint = f" (did you mean {by_last[near[0]]}?)" if near else ""
    return f"{key} takes no '{name}'{hint} but one of {', '.join(names)}"


def _not_imported(key: str, path: str, denied: bool) -> str:
    """The sentence for a class that may not be named, or whose module is not there."""
    module, root = path.rpartition(".")[0], path.partition(".")[0]
    if denied and (root in sys.modules or PathFinder.find_spec(root)):
        return (
            f"'{path}' is of no package that options may name: take it out; only if you know it to be safe, add "
            f"--trust {module}"
        )
    if lack := missing(module):
        return f"{key} needs {lack}"
    return (
        f"{key} names a class of the module '{module}', which is not there: run `python -m ofmu_pl` in the folder that "
        f"holds {module.replace('.', '/')}.py, or put that folder on PYTHONPATH"
    )


def _lacks(key: str, owner: str, names: str, options: list[str]) -> str:
    wanted = [name.split(".", 1)[-1] for name in names.split(", ")]
    lacking = ", ".join(f"{key}.{name}" if key else name for name in wanted)
    if not key:
        example = next((file for option, file in EXAMPLES.items() if option in options), "authors.yaml")
        return f"The command needs {lacking}: give a configuration, for example --config ofmu_pl:{example}"
    if wanted[0] not in BASES:
        return f"{owner} needs {lacking}"
    return (
        f"{owner} needs {lacking}: give a base configuration first (--config ofmu_pl:authors.yaml -c OVERLAY), or one "
        f"of {', '.join(choices(wanted[0]))}"
    )
