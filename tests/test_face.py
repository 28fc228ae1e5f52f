"""The package's face shows every public name, and no other."""

from __future__ import annotations

import ast
import inspect
from dataclasses import is_dataclass
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules

import pytest

import ofmu_pl
from ofmu_pl import Network, PairedDataModule, UnlearningModule

ROOMS = {"data": PairedDataModule, "modules": UnlearningModule, "networks": Network}


def below(cls):
    return {cls}.union(*map(below, cls.__subclasses__()))


def test_every_name_is_there():
    assert set(ofmu_pl.__all__) == {"__version__", *ofmu_pl._HOMES}
    assert set(ofmu_pl.__all__) <= set(dir(ofmu_pl))
    for name, home in ofmu_pl._HOMES.items():
        assert getattr(ofmu_pl, name) is getattr(import_module(f"ofmu_pl.{home}"), name)


def test_a_name_that_is_not_there_is_an_attribute_error():
    with pytest.raises(AttributeError, match="module 'ofmu_pl' has no attribute 'OFMUU'"):
        ofmu_pl.OFMUU  # noqa: B018


@pytest.mark.parametrize("room", ["data", "metrics", "modules", "networks"])
def test_what_a_room_shows_is_what_the_face_shows_of_it(room):
    assert set(import_module(f"ofmu_pl.{room}").__all__) == set(ofmu_pl._NAMES[room].split())


@pytest.mark.parametrize("room", ROOMS)
def test_no_method_data_module_or_network_is_forgotten(room):
    package = import_module(f"ofmu_pl.{room}")
    for module in iter_modules(package.__path__, f"{package.__name__}."):
        import_module(module.name)
    ours = {cls for cls in below(ROOMS[room]) if cls.__module__.startswith(f"{package.__name__}.")}
    choices = {cls.__name__ for cls in ours if not inspect.isabstract(cls) and not cls.__name__.startswith("_")}
    assert choices
    assert choices <= set(package.__all__)


def test_type_checkers_see_the_same_names():
    tree = ast.parse(Path(ofmu_pl.__file__).read_text())
    block = next(node for node in tree.body if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING")
    seen = {(node.module, alias.name) for node in block.body for alias in node.names}
    shown = {(f"ofmu_pl.{home}", name) for home, names in ofmu_pl._NAMES.items() for name in names.split()}
    assert seen == {(m, "*" if (m, "*") in seen else name) for m, name in shown}


@pytest.mark.parametrize("room", ["core", "data", "modules", "networks"])
def test_every_class_has_an_example(room):
    shown = [getattr(ofmu_pl, name) for name, home in ofmu_pl._HOMES.items() if home.split(".")[0] == room]
    classes = [x for x in shown if isinstance(x, type) and not is_dataclass(x) and x is not Network]
    assert len(classes) >= 3
    assert [cls.__name__ for cls in classes if ">>> " not in (cls.__doc__ or "")] == []
