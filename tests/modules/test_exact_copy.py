"""What a run with the exact engine on shards says at its start."""

import pytest
from torch import nn

from ofmu_pl.data import Authors
from ofmu_pl.modules import OFMU
from ofmu_pl.networks import CausalLM
from ofmu_pl.training.parallel import Replica
from ofmu_pl.training.run import Run
from tests.helpers.training import TINY


@pytest.mark.parametrize(("engine", "copies"), [("autograd", True), ("autograd", False), ("finite_difference", True)])
def test_the_size_of_the_exact_engines_whole_copy_is_told(engine, copies, monkeypatch):
    said = []
    monkeypatch.setattr("ofmu_pl.modules.base.rank_zero_info", said.append)
    module = OFMU(CausalLM(config=dict(TINY)), engine=engine)
    module.run, module.network = Run(Authors()), nn.Linear(999, 1001, bias=False)
    module.replica = Replica(lambda: module.network) if copies else None
    module.on_fit_start()
    assert any("0.004 GB" in line for line in said) == (engine == "autograd" and copies)
