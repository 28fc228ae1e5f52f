"""What messages, docstrings, README and docs tell a reader to set or to look up is there."""

import inspect
import re
from pathlib import Path

import pytest
from lightning.pytorch import Trainer
from lightning.pytorch.callbacks import ModelCheckpoint

from ofmu_pl import data, modules
from ofmu_pl.evaluation.images import ImageEvaluation
from ofmu_pl.evaluation.originals import Original
from ofmu_pl.evaluation.text import TextEvaluation
from ofmu_pl.modules.lower_level import BoundedLoss, HeldOutLevels
from ofmu_pl.modules.reaching import Reach
from ofmu_pl.modules.steppers import AdamSteps, PlainSteps, SharedSteps
from ofmu_pl.modules.upper_level import FlatteningStep, NoPenalty, PrintedPenalty
from ofmu_pl.networks import CausalLM, Classifier, ResNet18, SmallCNN
from ofmu_pl.training.export import ModelExport

ROOT = Path(__file__).parents[2]
CLASSES = {
    "data": [getattr(data, name) for name in data.__all__],
    "model.network": [CausalLM, Classifier, ResNet18, SmallCNN],
    "model": [getattr(modules, name) for name in modules.__all__],
    "model.lower": [BoundedLoss, HeldOutLevels],
    "model.stepper": [AdamSteps, PlainSteps, SharedSteps],
    "model.upper": [FlatteningStep, NoPenalty, PrintedPenalty, Reach],
    "evaluation": [TextEvaluation, ImageEvaluation],
    "original": [Original],
    "export": [ModelExport],
    "checkpoint": [ModelCheckpoint],
    "trainer": [Trainer],
}


def options(group):
    """Constructor arguments of a group's classes, also those that they pass on to their bases."""
    classes = {base for cls in CLASSES[group] if inspect.isclass(cls) for base in cls.__mro__}
    own = [vars(cls)["__init__"] for cls in classes if "__init__" in vars(cls)]
    return {"help"} | {name for init in own for name in inspect.signature(init).parameters}


def sources():
    places = [
        *ROOT.glob("ofmu_pl/**/*.py"),
        *ROOT.glob("configs/**/*.yaml"),
        *ROOT.glob("scripts/*"),
        ROOT / "README.md",
        *ROOT.glob("docs/**/*.md"),
    ]
    return {path: path.read_text() for path in places if path.is_file()}


@pytest.mark.parametrize("group", CLASSES)
def test_options_exist(group):
    pattern = re.compile(rf"--{re.escape(group)}\.(\w+)")
    named = {(path.name, name) for path, text in sources().items() for name in pattern.findall(text)}
    known = options(group) | {"margin"}  # of the method that docs/extending.md writes
    assert {entry for entry in named if entry[1] not in known} == set()


def test_notes_that_are_cited_exist():
    """A file that is not in the repository explains nothing to its reader; pages name others from where they are."""
    pattern = re.compile(r"[\w./-]*\w\.md\b")
    texts = sources().items()
    named = {(path.name, name) for path, text in texts if path.suffix != ".md" for name in pattern.findall(text)}
    places = (ROOT, ROOT / "docs/results")
    assert {entry for entry in named if not any((place / entry[1]).is_file() for place in places)} == set()
