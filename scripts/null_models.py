"""Trains tiny models that are alike, and some that forgot, and keeps their numbers: docs/results/null-models.json.

python scripts/null_models.py logs/null_models    # twelve minutes of a core; killed, it goes on where it stopped
python scripts/nulls.py                           # the tables that follow from them (scripts/nulls_over_models.py)
"""

import json
import shutil
import sys
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM

from ofmu_pl import Authors, CausalLM, LogitLens, Quantise, Relearn
from ofmu_pl.attacks.subject import Subject
from ofmu_pl.cli import main as ofmu_pl
from ofmu_pl.evaluation.scoring import score_rows
from ofmu_pl.support.files import replacing, write_json, write_text
from ofmu_pl.support.kept import SUMS

STORED = Path(__file__).parents[1] / "docs/results/null-models.json"
CONFIGS = Path(__file__).parents[1] / "configs"
DATA = {"authors": 20, "forget_authors": 4, "forget_seed": 0, "holdout_authors": 4}
ATTACKS = (Relearn("forget", rates=[1e-3], steps=40, every=5), Quantise(widths=[4, 3]), LogitLens())
TRAINED = {
    "retrained": ("retain", {380: range(10), 200: range(6), 100: range(6)}),
    "target": ("full", {380: range(10, 14), 200: range(10, 12), 100: range(10, 12)}),
}
"""By kind the split, and the seeds by number of steps; retrained models and targets share none."""
UNLEARNED = {"NPO": ("npo", 3e-4, (8, 14, 40)), "OFMU of first order": ("ofmu_first_order", 1e-3, (160,))}
"""By kind the overlay, the rate, and the iterations from the first target of 380 steps."""
NOISE = (0.002, 0.01, 0.03)
"""Noise on a target's weights, of each tensor's root mean square."""
QUICK = ["--trainer.enable_progress_bar=false", "--trainer.accelerator=cpu", "--evaluation.max_new_tokens=1"]
QUICK += ["--export.folder=hf", "--checkpoint.save_top_k=0"]
OF_RETAIN = ("ids", "answer_loss")
"""All that is kept of retained rows."""


def fit(place: Path, name: str, seed: int, steps: int, *words: str) -> Path:
    """Make a run, unless its model is there; returns the model's folder."""
    method = name.replace(", ", "-").replace(" ", "_")
    model = place / "runs" / method / "latest/hf"
    if not (model / "config.json").is_file():
        where = [f"--logs={place}", "--benchmark=runs", f"--method={method}"]
        given = [f"--seed_everything={seed}", f"--trainer.max_steps={steps}", *QUICK]
        ofmu_pl(["fit", *words, *(f"--data.{key}={value}" for key, value in DATA.items()), *where, *given])
    return model


def noisy(model: Path, share: float) -> Path:
    """The model with noise on its weights, a share of each tensor's root mean square: the same noise each time."""
    folder = model.with_name(f"noise_{share}")
    if not folder.is_dir():
        network, draw = AutoModelForCausalLM.from_pretrained(model), torch.Generator().manual_seed(0)
        with torch.no_grad():
            for p in network.parameters():
                p.add_(share * p.pow(2).mean().sqrt() * torch.randn(p.shape, generator=draw))
        with replacing(folder) as partial:
            shutil.copytree(model, partial, ignore=shutil.ignore_patterns(SUMS))
            network.save_pretrained(partial)
    return folder


def models(place: Path) -> Iterator[tuple[str, Path]]:
    """Name and folder of each model; it is trained when it is asked for."""
    for kind, (split, seeds) in TRAINED.items():
        for steps, of in seeds.items():
            words = ["--config", f"{CONFIGS}/tiny/target.yaml", "--model.split", split]
            for seed in of:
                name = f"{kind}, {steps} steps, seed {seed}"
                folder = fit(place, name, seed, steps, *words, f"--model.scheduler.total_steps={steps}")
                yield name, folder
                if kind == "target" and steps == max(seeds):
                    yield from ((f"{name}, noise {share}", noisy(folder, share)) for share in NOISE)
    target = place / "runs/target-380_steps-seed_10/latest/hf"
    for kind, (overlay, rate, lengths) in UNLEARNED.items():
        words = ["--config", f"{CONFIGS}/authors.yaml", "-c", f"{CONFIGS}/methods/{overlay}.yaml"]
        words += [f"--model.network.path={target}", "--evaluation.reference=null", "--evaluation.every_n_steps=null"]
        words += [f"--model.optimizer.lr={rate}", "--data.batch_size=8"]
        for steps in lengths:
            name = f"{kind}, {steps} iterations"
            yield name, fit(place, name, 0, steps, *words)


def measured(folder: Path) -> dict[str, Any]:
    """Scores of a model's rows, and what attacks find on them."""
    data = Authors(**DATA, tokenizer=str(folder))
    data.setup("fit")
    subject = Subject(CausalLM(str(folder)), data)
    sets = {name: data.evaluation_sets[name] for name in ("forget", "holdout", "retain")}
    scores = score_rows(subject.build(), data.encoder, sets, max_new_tokens=None, kinds=data.kinds)
    kept = {name: {field: x for field, x in s.as_dict().items() if x is not None} for name, s in scores.items()}
    kept["retain"] = {field: kept["retain"][field] for field in OF_RETAIN}
    found = {a.name: asdict(a.run(subject, 0)) | {"seconds": 0.0} for a in ATTACKS}
    return {"scores": kept, "attacks": found}


def main() -> None:
    """Train, measure and keep, model by model; numbers of five digits."""
    place, lines = Path(sys.argv[1]).absolute(), []
    for name, folder in models(place):
        path = place / "measured" / f"{name}.json"
        if not path.is_file():
            write_json(path, measured(folder))
        found = json.loads(path.read_text(), parse_float=lambda digits: float(f"{float(digits):.5g}"))
        lines.append(f"{json.dumps(name)}:{json.dumps(found, separators=(',', ':'))}")
    write_text(STORED, "{" + ",\n".join(lines) + "}\n")
    print(STORED)


if __name__ == "__main__":
    main()
