"""Under FSDP2 a rank holds its share of everything as long as a parameter, and that is what the plan says."""

from pathlib import Path

import pytest

from tests.distributed.memory_worker import data, method
from tests.helpers.peak_memory import fsdp2, needs
from tests.helpers.process import launch

WORKER = str(Path(__file__).parent / "memory_worker.py")


def measured(strategy, folder):
    """Bytes of the fullest rank: parameters, optimizer state, the engine's vectors."""
    launch(WORKER, 1 if strategy == "one" else 2, strategy, str(folder / strategy))
    ranks = [int(path.read_text()) for path in folder.glob(f"{strategy}-*")]
    assert len(ranks) == (1 if strategy == "one" else 2)
    return max(ranks)


@pytest.mark.slow
def test_two_ranks_hold_half_each_and_the_plan_knows(tmp_path):
    bytes_of = {strategy: measured(strategy, tmp_path) for strategy in ("one", "fsdp2")}
    assert bytes_of["fsdp2"] <= 0.55 * bytes_of["one"]
    for strategy, processes in (("one", {}), ("fsdp2", fsdp2(2))):
        module = method()
        memory = needs(module, data(module), **processes).memory
        planned = sum(memory[kind] for kind in ("parameters", "vectors", "optimizer"))
        assert planned == pytest.approx(bytes_of[strategy], rel=0.02), strategy
