"""What several processes cannot do is refused, without starting any."""

from types import SimpleNamespace

import pytest
import torch
from lightning.pytorch.strategies import FSDPStrategy, ModelParallelStrategy

from ofmu_pl.data.base import PairedDataModule
from ofmu_pl.support.errors import UserError
from ofmu_pl.training.descent import check_optimizer
from ofmu_pl.training.parallel import ranks_of


def test_rows_that_ranks_cannot_share_evenly():
    data = SimpleNamespace(batch_size=8, splits={"forget": range(3), "retain": range(20)})
    PairedDataModule.check_shares(data, ("retain",), 2)
    with pytest.raises(UserError, match=r"3 forget .*data\.batch_size"):
        PairedDataModule.check_shares(data, ("forget", "retain"), 2)


class LayersCut(ModelParallelStrategy):
    device_mesh = property(lambda self: {"tensor_parallel": SimpleNamespace(size=lambda: 2)})


def test_strategies_that_do_not_serve():
    with pytest.raises(UserError, match="data_parallel_size"):
        ranks_of(LayersCut())
    with pytest.raises(UserError, match="FSDPStrategy .*ddp"):
        ranks_of(FSDPStrategy())


def test_an_optimizer_that_cannot_step_on_shards():
    optimizer = pytest.importorskip("bitsandbytes").optim.AdamW8bit([torch.nn.Parameter(torch.zeros(2))])
    cpu = torch.device("cpu")
    check_optimizer(optimizer, sharded=False, device=cpu)
    with pytest.raises(UserError, match="AdamW8bit .*FSDP2"):
        check_optimizer(optimizer, sharded=True, device=cpu)
