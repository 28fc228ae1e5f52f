"""The table of docs/hardware.md: what `plan` says that models of 1 to 70 B take. `python scripts/plans.py --json FILE`.

Layers are alike, and each adds the same bytes. A cell is planned with four and with five layers, which is more than
FSDP2 gathers at a time, and extended to all. Cells that FILE has are not planned again.
"""

import json
import tempfile
from pathlib import Path
from unittest import mock

from jsonargparse import auto_cli

from ofmu_pl.cli import main as command
from ofmu_pl.networks.pretrained import SHAPES
from ofmu_pl.planning.needs import SLACK, Needs
from ofmu_pl.support.files import read_json, write_json

MODELS = {"1 B": "llama-3.2-1b", "8 B": "llama-3.1-8b", "13 B": "llama-2-13b", "32 B": "qwen2.5-32b"}
MODELS |= {"70 B": "llama-2-70b"}
WAYS = {
    "QLoRA": ["-c", "configs/hardware/qlora_1x80.yaml"],
    "LoRA": ["-c", "configs/hardware/fsdp2_lora_8x80.yaml"],
    "full": ["--model.network.activation_checkpointing", "true", "--model.micro_batch_size", "1"],
}
LEAST = {"full": 12, "LoRA": 2, "QLoRA": 0.5}
"""Bytes a parameter that a device holds at least, so that no plan is made for one that cannot hold them."""
SHARDED = {"LoRA": WAYS["LoRA"]}
SHARDED["full"] = [*WAYS["LoRA"], "--model.network.lora", "null", "--model.network.base_dtype", "float32"]
DEVICE, DEPTHS, RANKS = 80e9, (4, 5), 8
CUT = {"full": ("parameters", "vectors", "optimizer"), "LoRA": ("parameters",), "QLoRA": ()}
"""Kinds of memory that are cut among ranks."""
TITLES = "parameters | vectors, optimizer, logits | graphs, whole layers | **peak** | host | run"
Bytes = dict[str, float]


def needs(words: list[str]) -> Needs:
    """What ``plan`` says of the options of a run."""
    found: list[Needs] = []
    with mock.patch.object(Needs, "show", lambda self, _: found.append(self)):
        command(["plan", *words])
    return found[0]


def planned(words: list[str], shape: dict[str, object], layers: int) -> Bytes:
    """Bytes of one process, by kind, and of its host."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "config.json").write_text(json.dumps(shape | {"num_hidden_layers": layers}))
        found = needs(["--config", "configs/tofu.yaml", *words, "--model.network.path", folder])
    return {**found.memory, "host": found.host, "all": found.parameters}


def extended(words: list[str], model: str) -> Bytes:
    """The same of all layers of a model."""
    shape = read_json(SHAPES / model / "config.json")
    few, more = (planned(words, shape, n) for n in DEPTHS)
    return {kind: few[kind] + (shape["num_hidden_layers"] - DEPTHS[0]) * (more[kind] - few[kind]) for kind in few}


def on(devices: int, found: Bytes, ranks: int, way: str) -> Bytes:
    """Bytes of a device of so many, by kind, where ``found`` was planned for ``ranks``."""
    memory = {kind: x for kind, x in found.items() if kind not in ("host", "all")}
    return memory | {kind: memory[kind] * ranks / devices for kind in CUT[way]}


def fits(memory: Bytes) -> bool:
    """Whether a device holds it."""
    return sum(memory.values()) * SLACK <= DEVICE


def row(size: str, way: str, found: Bytes, ranks: int) -> str:
    """A line of the table, with the fewest devices that hold what was planned for ``ranks``."""
    counts = [1] if ranks == 1 else [2, 4, 8, 16, 32, 64, 128]
    devices = next(n for n in counts if fits(on(n, found, ranks, way)))
    memory, host = on(devices, found, ranks, way), found["host"]
    if ranks > 1:
        host += memory["parameters"] - found["parameters"]
    parts = [memory["parameters"], memory["vectors"] + memory["optimizer"], memory["activations"] + memory["gathered"]]
    cells = [*(f"{x / 1e9:.1f}" for x in parts), f"**{sum(memory.values()) / 1e9:.1f}**"]
    return f"| {size} | {way} | {devices} | {' | '.join(cells)} | {host / 1e9:.0f} | no |"


def main(*, json: Path) -> None:
    """Print the table; what is planned for it is kept in a file."""
    cells = read_json(json) if json.is_file() else {}

    def made(name: str, words: list[str], model: str) -> Bytes:
        if name not in cells:
            cells[name] = extended(words, model)
            write_json(json, cells)
        return dict(cells[name])

    print(f"| model | trained | devices | {TITLES} |\n" + "|---" * 9 + "|")
    for way, words in WAYS.items():
        for size, model in MODELS.items():
            found, ranks = Bytes(), 1
            if LEAST[way] * float(size.split()[0]) * 1e9 <= DEVICE:
                found = made(f"{way} {size} one", [*words, "-c", "configs/hardware/gpu1.yaml"], model)
            if not found or not fits(on(1, found, 1, way)):
                found, ranks = made(f"{way} {size} shards", SHARDED[way], model), RANKS
            print(row(size, way, found, ranks))


if __name__ == "__main__":
    auto_cli(main)
