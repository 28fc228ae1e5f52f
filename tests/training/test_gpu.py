"""What only a GPU shows: its random numbers, its sums in another order, its memory."""

from functools import partial

import pytest
import torch
from torch import nn

import ofmu_pl
from ofmu_pl.modules import OFMU, UNDIAL, GradDiff
from ofmu_pl.networks import CausalLM, SmallCNN
from tests.helpers.images import train_on_digits
from tests.helpers.training import TINY, interrupted, train, weights
from tests.unlearning.test_unlearn import FAST, IMAGES, PREPARED

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU")
DIFFERENCES = {"engine": "finite_difference", "inner_steps": 1}


def on(device, module, steps):
    """The weights after a run of a method on a device, its network initialised alike each time."""
    run = train_on_digits if module.recipe.modality == "images" else train
    run(module, steps, trainer={"accelerator": device})
    return weights(module).cpu()


NETWORKS = [partial(CausalLM, config=TINY), partial(SmallCNN, width=8)]


@pytest.mark.parametrize("network", NETWORKS, ids=["text", "images"])
def test_a_run_is_the_one_on_a_cpu_but_for_rounding(network):
    make = partial(GradDiff, optimizer=lambda p: torch.optim.SGD(p, lr=0.1))
    start = on("cpu", make(network()), 0)
    assert torch.equal(on("gpu", make(network()), 0), start)
    found, expected = on("gpu", make(network()), 3), on("cpu", make(network()), 3)
    assert (found - expected).norm() < 1e-3 * (expected - start).norm()


@pytest.mark.parametrize("method", [UNDIAL, partial(OFMU, **DIFFERENCES)], ids=["a frozen copy", "OFMU"])
def test_a_run_goes_on_bit_for_bit_where_operations_are_deterministic(method, tmp_path):
    make = lambda: method(CausalLM(config=TINY), optimizer=FAST)  # noqa: E731
    interrupted(make, tmp_path, 4, at=2, trainer={"accelerator": "gpu", "deterministic": True})


@pytest.mark.parametrize("method", [None, partial(GradDiff, optimizer=FAST)], ids=["OFMU", "GradDiff"])
def test_a_loaded_classifier_unlearns_and_comes_back_to_its_device(method):
    model = nn.Sequential(nn.Flatten(), nn.Linear(48, 8), nn.Softplus(), nn.Linear(8, 2))
    options = {"method": method, "steps": 3, "progress": False, "accelerator": "gpu"}
    result = ofmu_pl.unlearn(model, **IMAGES, **PREPARED, **options)
    assert result.metrics["RA"].n == 30
    assert next(model.parameters()).device.type == "cpu"


def test_a_full_memory_halves_the_micro_batches():
    wide = TINY | {"hidden_size": 256, "num_attention_heads": 4, "intermediate_size": 4096, "num_hidden_layers": 4}
    make = partial(OFMU, optimizer=FAST, **DIFFERENCES)
    whole = on("gpu", make(CausalLM(config=wide)), 2)
    needed = torch.cuda.max_memory_reserved()
    torch.cuda.empty_cache()
    try:
        torch.cuda.set_per_process_memory_fraction(0.8 * needed / torch.cuda.mem_get_info()[1])
        with pytest.warns(UserWarning, match="memory"):
            found = on("gpu", make(CausalLM(config=wide)), 2)
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0)
    assert (found - whole).norm() < 1e-2 * whole.norm()
