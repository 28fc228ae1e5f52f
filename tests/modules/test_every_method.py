"""Every public method is in the list of tests/helpers/methods.py, from which tests take them, and has an overlay."""

from collections import Counter
from pathlib import Path

import pytest
import yaml

from ofmu_pl import modules
from tests.helpers.methods import SETTINGS

OVERLAYS = Path(__file__).parents[2] / "configs/methods"


@pytest.mark.parametrize("name", modules.__all__)
def test_a_public_method_is_tested(name):
    shown = {name for setting in SETTINGS for name in setting.names}
    assert name in shown, f"{name} is public: give it a line in SETTINGS of tests/helpers/methods.py"


@pytest.mark.parametrize("name", modules.__all__)
def test_a_public_method_has_an_overlay(name):
    """Whose values are the method's own, and which its page shows."""
    shown = set()
    for path in OVERLAYS.glob("*.yaml"):
        model = yaml.safe_load(path.read_text(encoding="utf-8"))["model"]
        options = model.get("init_args", {})
        for part in (model, options.get("rectify"), options.get("constrain")):
            shown.add(part.get("class_path") if isinstance(part, dict) else part)
    assert name in shown, f"{name} is public: no file of configs/methods names it"


def test_no_two_settings_have_one_name():
    assert set(Counter(setting.name for setting in SETTINGS).values()) == {1}
