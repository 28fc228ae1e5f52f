"""What a run that can be resumed refuses."""

from types import SimpleNamespace

import pytest
from lightning.pytorch import callbacks

from ofmu_pl.support.errors import UserError
from ofmu_pl.training.resumable import Resumable


@pytest.mark.parametrize(
    ("name", "options"), [("GradientAccumulationScheduler", {"scheduling": {0: 4}}), ("EMAWeightAveraging", {})]
)
def test_callbacks_that_step_for_lightning_are_refused(name, options):
    if not hasattr(callbacks, name):
        pytest.skip(f"this version of Lightning has no {name}")
    trainer = SimpleNamespace(callbacks=[getattr(callbacks, name)(**options)])
    with pytest.raises(UserError, match=name):
        Resumable({}, "").setup(trainer, None, "fit")
