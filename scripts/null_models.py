"""Trains tiny models that are alike, and some that forgot, and keeps their numbers: docs/results/null-models.json.

python scripts/null_models.py logs/null_models    # twelve minutes of a core; killed, it goes on where it stopped
python scripts/nulls.py                           # the tables that follow from them (scripts/nulls_over_models.py)
"""

import json
import sys
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

from ofmu_pl import Authors, CausalLM, LogitLens, Quantise, Relearn
from ofmu_pl.attacks.subject import Subject
from ofmu_pl.cli import main as ofmu_pl
from ofmu_pl.evaluation.scoring import score_rows
from ofmu_pl.support.files import read_json, replacing, write_json

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
OF_RETAIN = ("ids", "answer_loss")
"""All that is kept of retained rows."""


def fit(place: Path, name: str, seed: int, steps: int, *words: object) -> Path:
    """Make a run, unless its model is there; returns the model's folder."""
    folder = place / "runs" / name.replace(", ", "-").replace(" ", "_")
    model = folder / "latest/hf"
    if not (model / "config.json").is_file():
        data = [f"--data.{key}={value}" for key, value in DATA.items()]
        where = ["--logs", folder.parents[1], "--benchmark", folder.parent.name, "--method", folder.name]
        given = ["--seed_everything", seed, "--trainer.max_steps", steps, "--trainer.enable_progress_bar=false"]
        plain = [
            "--trainer.accelerator=cpu",
            "--evaluation.max_new_tokens=1",
            "--export.folder=hf",
            "--checkpoint.save_top_k=0",
        ]
        ofmu_pl(list(map(str, ["fit", *words, *data, *where, *given, *plain])))
    return model


def models(place: Path) -> Iterator[tuple[str, Path, float]]:
    """Name, folder and noise of each model; it is trained when it is asked for."""
    config = CONFIGS / "tiny/target.yaml"
    for kind, (split, seeds) in TRAINED.items():
        for steps, of in seeds.items():
            for seed in of:
                name, schedule = f"{kind}, {steps} steps, seed {seed}", f"--model.scheduler.total_steps={steps}"
                folder = fit(place, name, seed, steps, "--config", config, "--model.split", split, schedule)
                yield name, folder, 0.0
                if kind == "target" and steps == max(seeds):
                    yield from ((f"{name}, noise {share}", folder, share) for share in NOISE)
    target = place / f"runs/target-{380}_steps-seed_10/latest/hf"
    for kind, (overlay, rate, lengths) in UNLEARNED.items():
        for steps in lengths:
            words = ["--config", CONFIGS / "authors.yaml", "-c", CONFIGS / f"methods/{overlay}.yaml"]
            words += ["--model.network.path", target, "--evaluation.reference=null", "--evaluation.every_n_steps=null"]
            name = f"{kind}, {steps} iterations"
            folder = fit(place, name, 0, steps, *words, f"--model.optimizer.lr={rate}", "--data.batch_size=8")
            yield name, folder, 0.0


class Noisy(CausalLM):
    """A language model with noise on its weights, a share of each tensor's root mean square."""

    share = 0.0

    def build(self, *args: Any, **kwargs: Any) -> Any:
        """Build the model, with the same noise each time."""
        model, draw = super().build(*args, **kwargs), torch.Generator().manual_seed(0)
        with torch.no_grad():
            for p in model.parameters() if self.share else ():
                p.add_(self.share * p.pow(2).mean().sqrt() * torch.randn(p.shape, generator=draw))
        return model


def measured(folder: Path, share: float) -> dict[str, Any]:
    """Scores of a model's rows, and what attacks find on them."""
    data, recipe = Authors(**DATA, tokenizer=str(folder)), Noisy(str(folder))
    recipe.share = share
    data.setup("fit")
    subject = Subject(recipe, data)
    sets = {name: data.evaluation_sets[name] for name in ("forget", "holdout", "retain")}
    scores = score_rows(subject.build(), data.encoder, sets, max_new_tokens=None, kinds=data.kinds)
    kept = {}
    for name, s in scores.items():
        fields = s.as_dict() if name != "retain" else {field: s.as_dict()[field] for field in OF_RETAIN}
        kept[name] = {field: rounded(values) for field, values in fields.items() if values is not None}
    found = {a.name: rounded(asdict(a.run(subject, 0))) for a in ATTACKS}
    for finding in found.values():
        finding["seconds"] = 0.0
    return {"scores": kept, "attacks": found}


def rounded(x: Any) -> Any:
    """Numbers of five digits, in whatever they stand."""
    if isinstance(x, dict):
        return {name: rounded(value) for name, value in x.items()}
    if isinstance(x, list):
        return [rounded(value) for value in x]
    return float(f"{x:.5g}") if isinstance(x, float) else x


def main() -> None:
    """Train, measure and keep, model by model."""
    place, found = Path(sys.argv[1]), {}
    for name, folder, share in models(place):
        path = place / "measured" / f"{name}.json"
        if not path.is_file():
            path.parent.mkdir(parents=True, exist_ok=True)
            write_json(path, measured(folder, share))
        found[name] = read_json(path)
    with replacing(STORED) as partial:
        lines = [f"{json.dumps(name)}:{json.dumps(x, separators=(',', ':'))}" for name, x in found.items()]
        partial.write_text("{" + ",\n".join(lines) + "}\n", encoding="utf-8")
    print(STORED)


if __name__ == "__main__":
    main()
