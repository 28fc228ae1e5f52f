"""A page for each method."""

import inspect
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from itertools import takewhile
from pathlib import Path
from typing import Any

import yaml

from makers.rst import heading, table, tree, verbatim
from makers.stored import stored
from ofmu_pl import losses, modules
from ofmu_pl.modules.rectify import Rectifier

ROOT = Path(__file__).parents[2]
OVERLAYS = ROOT / "configs/methods"
SHARED = (
    "ofmu_pl.modules.two_terms",
    "ofmu_pl.modules.base",
    "ofmu_pl.modules.lower_level",
    "ofmu_pl.modules.scrutiny",
)
"""Files whose classes are no method."""


def method_pages() -> Iterator[tuple[str, str]]:
    """A page for each method, by the name of its class."""
    overlays = defaultdict(list)
    for path in sorted(OVERLAYS.glob("*.yaml")):
        config = yaml.safe_load(path.read_text(encoding="utf-8"))
        for name in {config["model"].get("class_path"), *parts(config)} - {None}:
            overlays[name.rpartition(".")[2]].append(path)
    names = sorted(modules.__all__, key=str.lower)
    for name in names:  # the overlay of the method's own name first
        own = sorted(overlays[name], key=lambda path: path.stem != name.lower())
        yield f"methods/{name}", method_page(name, own)
    about = (
        "One page a method, made from its docstring, its overlays and the stored results. "
        ":doc:`/choosing` compares them in words, :doc:`/results/index` in numbers.\n\n"
    )
    yield "methods/index", tree("Methods, one by one", about + overlay_table(overlays), names)


def overlay_table(overlays: Mapping[str, list[Path]]) -> str:
    """A row for each overlay, with its methods and what its first sentence says."""
    methods = defaultdict(list)
    for name, paths in overlays.items():
        for path in paths:
            methods[path].append(name)
    rows = []
    for path in sorted(methods):
        pages = ", ".join(f":doc:`{name} <{name}>`" for name in sorted(methods[path], key=str.lower))
        rows.append([f"``{path.stem}``", pages, verbatim(first_sentence(path))])
    return table(["overlay", "page", "what it is"], rows)


def first_sentence(overlay: Path) -> str:
    """The first sentence of the comment that an overlay begins with."""
    lines = overlay.read_text(encoding="utf-8").splitlines()
    comment = " ".join(line[2:] for line in takewhile(lambda line: re.match(r"# \S", line), lines))
    return re.split(r"(?<=\.) (?=[A-Z-])", comment)[0]


def parts(config: Mapping[str, Any]) -> set[str]:
    """What an overlay rectifies a method's steps with, and what constrains them."""
    given = [config["model"].get("init_args", {}).get(option) for option in ("rectify", "constrain")]
    return {part["class_path"] if isinstance(part, dict) else part for part in given if part}


def method_page(name: str, overlays: list[Path]) -> str:
    """The page of one method."""
    cls = getattr(modules, name)
    text = heading(name, "=")
    if words := getattr(cls, "in_words", ""):
        text += f"*In plain words:* {words}\n\n"
    if name == "OFMU" or issubclass(cls, Rectifier):  # whose formula stands where the file begins
        text += f".. automodule:: {cls.__module__}\n   :no-members:\n   :no-index:\n\n"
    text += f".. autoclass:: ofmu_pl.{name}\n   :no-members:\n\n"
    used = [f for f in vars(losses).values() if inspect.isfunction(f) and f.__name__ in names_in(cls)]
    used = [f for f in used if f.__module__ == losses.__name__ and not f.__name__.startswith("_")]
    if used:
        text += heading("Its loss")
        text += "".join(f".. autofunction:: ofmu_pl.losses.{f.__name__}\n   :no-index:\n\n" for f in used)
    if overlays:
        text += heading("Overlays, and where their values come from")
        kind = "digits" if getattr(cls, "modality", None) == "images" else "tofu"
        for path in overlays:
            place = path.relative_to(ROOT)
            text += f"``{place}``:\n\n.. literalinclude:: /../{place}\n   :language: yaml\n\n"
        text += (
            ".. code-block:: bash\n\n"
            f"   python -m ofmu_pl fit --config configs/{kind}.yaml -c {overlays[0].relative_to(ROOT)} ...\n\n"
        )
    if found := stored(name.lower(), {path.stem for path in overlays}):
        text += heading("How it did here") + found
    return text


def names_in(cls: type) -> set[str]:
    """Names that the code of a class and of its own bases in the package's method files uses."""
    names: set[str] = set()
    for base in cls.__mro__:
        if base.__module__.startswith("ofmu_pl.modules") and base.__module__ not in SHARED:
            for function in vars(base).values():
                names |= set(getattr(getattr(function, "__code__", None), "co_names", ()))
    return names
