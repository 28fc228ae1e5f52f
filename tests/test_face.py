"""The package's face shows every public name, and no other."""

import inspect
from importlib import import_module
from pkgutil import iter_modules

import pytest

import ofmu_pl
from ofmu_pl import Network, PairedDataModule, UnlearningModule

ROOMS = {"data": PairedDataModule, "modules": UnlearningModule, "networks": Network}


def below(cls):
    return {cls}.union(*map(below, cls.__subclasses__()))


@pytest.mark.parametrize(
    "package", ["ofmu_pl", "ofmu_pl.data", "ofmu_pl.metrics", "ofmu_pl.modules", "ofmu_pl.networks"]
)
def test_every_name_is_there(package):
    face = import_module(package)
    assert face.__all__
    assert all(hasattr(face, name) for name in face.__all__)


def test_a_name_that_is_not_there_is_an_attribute_error():
    with pytest.raises(AttributeError, match="OFMUU"):
        ofmu_pl.OFMUU  # noqa: B018


def test_the_face_shows_what_its_rooms_show():
    rooms = [import_module(f"ofmu_pl.{room}").__all__ for room in ("data", "metrics", "modules", "networks")]
    assert {name for room in rooms for name in room} <= set(ofmu_pl.__all__)
    assert len(set(ofmu_pl.__all__)) == len(ofmu_pl.__all__)


@pytest.mark.parametrize("room", ROOMS)
def test_no_method_data_module_or_network_is_forgotten(room):
    package = import_module(f"ofmu_pl.{room}")
    for module in iter_modules(package.__path__, f"{package.__name__}."):
        import_module(module.name)
    ours = {cls for cls in below(ROOMS[room]) if cls.__module__.startswith(f"{package.__name__}.")}
    choices = {cls.__name__ for cls in ours if not inspect.isabstract(cls) and not cls.__name__.startswith("_")}
    assert choices
    assert choices <= set(package.__all__)
