"""The exported model's folder takes nothing else's place."""

import pytest

from ofmu_pl.support.errors import UserError
from ofmu_pl.training.export import ModelExport


@pytest.mark.parametrize("name", ["checkpoints", "./checkpoints/hf", "results.json", "config.yaml", "audit.html"])
def test_what_the_run_writes_is_no_name_for_the_model(name):
    with pytest.raises(UserError, match="would take the place of what the run itself writes"):
        ModelExport(name)


@pytest.mark.parametrize("name", ["hf", "models/llama-1.5", None])
def test_other_names_are(name):
    assert ModelExport(name).folder == name
