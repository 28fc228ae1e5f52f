"""The table of docs/hardware.md: what `plan` says that models of 1 to 70 B take. `python scripts/plans.py --json FILE`.

Layers are alike, and each adds the same bytes. A cell is planned with four and with five layers, which is more than
FSDP2 gathers at a time, and extended to all (``--whole``: planned with all, which takes minutes each). Cells that FILE
has are not planned again.
"""

import argparse
import json
import tempfile
from pathlib import Path
from unittest import mock

from ofmu_pl.cli import main as command
from ofmu_pl.networks.pretrained import SHAPES
from ofmu_pl.planning.needs import SLACK, Needs

MODELS = {"1 B": "llama-3.2-1b", "8 B": "llama-3.1-8b", "13 B": "llama-2-13b", "32 B": "qwen2.5-32b"}
MODELS |= {"70 B": "llama-2-70b"}
WAYS = {
    "full": ["--model.network.activation_checkpointing", "true", "--model.micro_batch_size", "1"],
    "LoRA": ["-c", "configs/hardware/fsdp2_lora_8x80.yaml"],
    "QLoRA": ["-c", "configs/hardware/qlora_1x80.yaml"],
}
LEAST = {"full": 12, "LoRA": 2, "QLoRA": 0.5}
"""Bytes a parameter that a device holds at least, so that no plan is made for one that cannot hold them."""
SHARDED = ["-c", "configs/hardware/fsdp2_lora_8x80.yaml", "--model.network.lora", "null"]
DEVICE = 80e9
DEPTHS = (4, 5)
CUT = {"full": ("parameters", "vectors", "optimizer"), "LoRA": ("parameters",), "QLoRA": ()}
"""Kinds of memory that are cut among ranks."""


def needs(words: list[str]) -> Needs:
    """What ``plan`` says of the options of a run."""
    found: list[Needs] = []
    with mock.patch.object(Needs, "show", lambda self, _: found.append(self)):
        command(["plan", *words])
    return found[0]


def planned(words: list[str], shape: dict[str, object], layers: int) -> dict[str, float]:
    """Bytes of one process, by kind, and of its host."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "config.json").write_text(json.dumps(shape | {"num_hidden_layers": layers}))
        found = needs(["--config", "configs/tofu.yaml", *words, "--model.network.path", folder])
    return {**found.memory, "host": found.host, "all": found.parameters}


def cell(words: list[str], model: str, whole: bool) -> dict[str, float]:
    """The same of all layers of a model."""
    shape = json.loads((SHAPES / model / "config.json").read_text())
    layers = shape["num_hidden_layers"]
    if whole:
        return planned(words, shape, layers)
    few, more = (planned(words, shape, n) for n in DEPTHS)
    return {kind: few[kind] + (layers - DEPTHS[0]) * (more[kind] - few[kind]) for kind in few}


def total(found: dict[str, float], cut: tuple[str, ...] = (), share: float = 1.0) -> float:
    """Bytes of a device that holds so many times the share that was planned."""
    return sum(x * (share if kind in cut else 1) for kind, x in found.items() if kind not in ("host", "all"))


def row(size: str, way: str, one: dict[str, float] | None, shards: dict[str, float] | None) -> str:
    """A line of the table."""
    found, devices, ranks = one, 1, 1
    if one is None or total(one) * SLACK > DEVICE:
        assert shards is not None
        found, ranks = shards, 8
        devices = next((n for n in (2, 4, 8, 16, 32, 64, 128) if total(shards, CUT[way], 8 / n) * SLACK <= DEVICE), 0)
    assert found is not None
    share = ranks / devices
    host = (found["parameters"] * share + found["host"] - found["parameters"]) if ranks > 1 else found["host"]
    scaled = {kind: x * (share if kind in CUT[way] else 1) for kind, x in found.items()}
    parts = [scaled["parameters"], scaled["vectors"] + scaled["optimizer"]]
    parts += [scaled["activations"] + scaled["gathered"]]
    cells = [*(f"{x / 1e9:.1f}" for x in parts), f"**{total(scaled) / 1e9:.1f}**"]
    return f"| {size} | {way} | {devices} | {' | '.join(cells)} | {host / 1e9:.0f} | no |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=Path, required=True)
    parser.add_argument("--whole", action="store_true")
    options = parser.parse_args()
    cells = json.loads(options.json.read_text()) if options.json.is_file() else {}

    def made(name: str, words: list[str], model: str) -> dict[str, float]:
        if name not in cells:
            cells[name] = cell(words, model, options.whole)
            options.json.write_text(json.dumps(cells, indent=1))
        return cells[name]

    rows = []
    for way in reversed(WAYS):
        for size, model in MODELS.items():
            one = shards = None
            if LEAST[way] * float(size.split()[0]) * 1e9 <= DEVICE:
                words = [*WAYS[way], "-c", "configs/hardware/gpu1.yaml"]
                one = made(f"{way} {size} one", words, model)
            if one is None or total(one) * SLACK > DEVICE:
                sharded = SHARDED[:2] if way == "LoRA" else [*SHARDED, "--model.network.base_dtype", "float32"]
                shards = made(f"{way} {size} shards", sharded, model)
            rows.append(row(size, way, one, shards))
    titles = [
        "model",
        "trained",
        "devices",
        "parameters",
        "vectors, optimizer, logits",
        "graphs, whole layers",
        "**peak**",
    ]
    print(f"| {' | '.join([*titles, 'host', 'run'])} |")
    print("|---" * 9 + "|")
    print("\n".join(rows))


if __name__ == "__main__":
    main()
