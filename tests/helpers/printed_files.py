"""A reader's folder: all that the pages' commands and Python name and that is the reader's own."""

import csv
import shutil
from pathlib import Path

import numpy as np
import yaml
from PIL import Image

from tests.helpers import muse_files, rwku_files
from tests.helpers.citizen_rows import SIDES, asked, learnt, written
from tests.helpers.printed import blocks

NETS = """
from torch import nn

class SmallCNN(nn.Sequential):
    def __init__(self):
        super().__init__(nn.Conv2d(3, 4, 3, 2), nn.ReLU(), nn.AdaptiveAvgPool2d(4), nn.Flatten(), nn.Linear(64, 2))
"""
BEFORE_THE_BLOCKS = """
import ofmu_pl
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

def images(start, n):
    return [(torch.full((3, 4, 4), start + i, dtype=torch.uint8), i % 2) for i in range(n)]

model, tokenizer = AutoModelForCausalLM.from_pretrained("my-model"), AutoTokenizer.from_pretrained("my-model")
classifier = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(48, 8), torch.nn.ReLU(), torch.nn.Linear(8, 2))
forget_images, retain_images, test_images = images(0, 6), images(20, 30), images(100, 20)
train, test = retain_images, test_images
"""
"""What a reader has made before the pages' blocks."""


def table(path: Path, rows: list[dict]) -> None:
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, rows[0])
        writer.writeheader()
        writer.writerows(rows)


def modules(folder: Path) -> None:
    """Modules that the pages' readers have written themselves."""
    method, _, lower, upper = (text for page, text in blocks("python") if page == "docs/extending.md")
    (folder / "my_methods.py").write_text(method)
    (folder / "my_parts.py").write_text(f"{lower}\n{upper}")
    (folder / "my_nets.py").write_text(NETS)
    (folder / "efficientnet.py").write_text("import my_nets\n\n\nclass Lite0(my_nets.SmallCNN): pass\n")


def fill(folder: Path, site: Path, shared: Path) -> None:
    """Fill a folder, with the configurations of the wheel in ``site``; its parent gets the link ``shared``."""
    shutil.copytree(site / "ofmu_pl/configs", folder / "configs")
    (folder / "configs/benchmarks/NAME.yaml").write_text(yaml.safe_dump(_benchmark(folder)))
    for name, place in {
        "../shared": shared,
        "logs/NAME": Path("quickstart"),
        "FOLDER_WITH_TOFU_FILES": shared / "data/tofu",
        "MODEL": shared / "models/tofu-tiny-full",
        "BASE": shared / "models/tofu-tiny-full",
        "NEW_MODEL": shared / "models/tofu-tiny-full",
        "TARGET_MODEL": shared / "models/tofu-tiny-full",
        "RETRAINED_MODEL": shared / "models/tofu-tiny-retain90",
        "FOLDER/TOFU_SUMMARY.json": shared / "reference/open-unlearning-tiny/full/TOFU_SUMMARY.json",
    }.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).symlink_to(place)
    for name in ("forget.jsonl", "retain.jsonl"):  # LUME, cut: a run looks at every forget row before it begins
        rows = (shared / "data/lume" / name).read_text(encoding="utf-8").splitlines(keepends=True)
        (folder / "FOLDER" / name).write_text("".join(rows[::50]), encoding="utf-8")
    for part in learnt():
        part.save_pretrained(folder / "my-model")
    modules(folder)
    _texts(folder)
    _images(folder)


def _benchmark(folder: Path) -> dict:
    """One of two methods on the digits, with one seed: what stands for the reader's choice."""
    whole = yaml.safe_load((folder / "configs/benchmarks/digits.yaml").read_text())
    experiment = whole["experiments"]["images"]
    experiment |= {"seeds": [0], "gradients": 8, "scenarios": {"classwise": experiment["scenarios"]["classwise"]}}
    experiment["methods"] = {name: experiment["methods"][name] for name in ("ofmu", "finetune")}
    return whole | {"name": "mine"}


def _texts(folder: Path) -> None:
    """Rows of the reader's own in every form that a page names, and a task."""
    for name, side in {"forget": "forget", "retain": "retain", "unseen": "holdout", "unseen_2": "holdout"}.items():
        written(folder / f"{name}.jsonl", SIDES[side])
    written(folder / "rows.jsonl", [*SIDES["forget"], *SIDES["retain"], *SIDES["holdout"]])
    authors = ["Falbro"] * 4 + ["Kesh"] * 26
    table(folder / "rows.csv", [asked([30 + i])[0] | {"author": author} for i, author in enumerate(authors)])
    table(folder / "retain.csv", SIDES["retain"])
    (folder / "numbers.txt").write_text("0\n3\n")
    (folder / "people.txt").write_text("Falbro\n")
    (folder / "names.txt").write_text("Falbro\n")
    written(folder / "all.jsonl", asked(range(4)))
    (task,) = (text for page, text in blocks("yaml") if page == "docs/own-data-measured.md")
    (folder / "my_tasks").mkdir()
    (folder / "my_tasks/trades.yaml").write_text(task)
    choices = {"choices": ["a baker", "a sailor"], "gold": 0}
    written(folder / "my_tasks/trades.jsonl", [{"question": row["question"]} | choices for row in SIDES["retain"]])
    for name in ("two_hops", "de"):
        rows = [{"side": side, **row} for side in ("forget", "retain") for row in SIDES[side]]
        written(folder / f"{name}.jsonl", rows)
    (folder / "muse_bench/data/news").mkdir(parents=True)
    muse_files.written(folder / "muse_bench/data/news", muse_files.parts())
    (folder / "RWKU/Target").mkdir(parents=True)
    rwku_files.written(folder / "RWKU/Target")
    (folder / "RWKU/Target/1_Old_Falbro").rename(folder / "RWKU/Target/1_Stephen_King")


def _images(folder: Path) -> None:
    """Images of two classes, a network's file and its weights."""
    import torch

    draw = np.random.default_rng(0)
    for part in ("forget", "retain", "test"):
        for kind in ("cat", "dog"):
            place = folder / "photos" / part / kind
            place.mkdir(parents=True)
            for i in range(8):
                Image.fromarray(draw.integers(0, 256, (32, 32, 3), dtype=np.uint8)).save(place / f"{i}.png")
    space: dict = {"__name__": "my_nets"}
    exec(NETS, space)
    torch.save(space["SmallCNN"]().state_dict(), folder / "weights.pth")
