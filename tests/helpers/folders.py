"""Folders as ``benchmark`` leaves them, with known numbers: one experiment of every kind."""

import json
from pathlib import Path

import numpy as np

from ofmu_pl.metrics import Metric, choice, tofu, tofu_items, vision
from ofmu_pl.support.records.results import AttacksRecord
from tests.helpers.attacks import attacked

PROVENANCE = {"steps": 20, "benchmark": "authors", "git": "0123456789abcdef+", "ofmu_pl": "0.1.0", "python": "3.11.7"}
PROVENANCE |= {"versions": {"torch": "2.15.0", "scipy": "1.17.1"}}
DECLARED: dict[str, Metric] = {}
"""What metrics are, by name."""
for module in (tofu, tofu_items, vision):
    DECLARED |= {m.name: m for m in vars(module).values() if isinstance(m, Metric)}
DECLARED |= {m.name: m for m in vision.ATTACKS.values()}
for metric in (choice.EFFICACY.of("wmdp_bio"), choice.EFFICACY.of("wmdp_cyber"), choice.UTILITY.of("mmlu")):
    DECLARED[metric.name] = metric
TARGETS = {"forget_quality": 1.0, "forget_quality_D": 0.0, "avg_gap": 0.0}
REFERRED = ("forget_Q_A_Prob", "forget_truth_ratio", "UA", "RA", "TA", "MIA")
"""Metrics whose target is the retrained model's value."""


def write(path, content):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content))


def metrics(values, retrained, definition="exact"):
    """Entries of ``results.json``."""
    found = {}
    for name, value in values.items():
        target = retrained.get(name) if name in REFERRED else TARGETS.get(name)
        metric = DECLARED.get(name, Metric(name, higher_is_better=True))
        found[name] = metric.result(value, 40, target, definition).as_dict()
    return found


def results(values, before, retrained, seed=0, method="OFMU", definition="exact", **more):
    """``results.json`` of one run; ``more`` replaces whole entries."""
    mark = f"{method}-{seed}-{sorted(values.items())}"
    return {
        "definition": definition,
        "metrics": metrics(values, retrained, definition),
        "before": metrics(before, retrained, definition),
        "reference": {"source": "somewhere", "model": None, "metrics": metrics(retrained, retrained, definition)},
        "history": [],
        "provenance": {**PROVENANCE, "seed": seed, "method": method, "weights": str(hash(mark)),
                       "hashes": {"forget": "aa11", "retain": "bb22"}},
        "cost": {"training_seconds": 10.0, "evaluation_seconds": 1.0, "gradient_evaluations": 320.0,
                 "peak_memory_bytes": 1e9},
        "curves": {},
        **more,
    }  # fmt: skip


class Benchmark:
    """Collects experiments, then writes ``benchmark.json``."""

    def __init__(self, folder: Path, name="synthetic"):
        self.folder, self.name, self.experiments = folder, name, {}

    def experiment(self, name, kind, runs, failed=(), attacks=None, **more):
        """``runs``: results by (scenario, method, seed); ``attacks``: what ``attack`` found on some of them."""
        cells = []
        for (scenario, method, seed), content in runs.items():
            place = f"{name}/{scenario}/{method}/seed_{seed}"
            write(self.folder / place / "version_0/results.json", content)
            if not (self.folder / place / "latest").exists():
                (self.folder / place / "latest").symlink_to("version_0")
            if (scenario, method, seed) in (attacks or {}):
                AttacksRecord(attacks[scenario, method, seed]).write(self.folder / place / "version_0/attacks.json")
            words = ["fit", "--config", "configs/digits.yaml", "--seed_everything", str(seed)]
            write(self.folder / place / "cell.json", {"key": "k", "words": words, "seconds": 12.0})
            cells.append({"scenario": scenario, "method": method, "seed": seed, "folder": place,
                          "status": "finished", "error": None})  # fmt: skip
        for scenario, method, seed, status, error in failed:
            place = f"{name}/{scenario}/{method}/seed_{seed}"
            cells.append({"scenario": scenario, "method": method, "seed": seed, "folder": place, "status": status,
                          "error": error})  # fmt: skip
        said = {"title": name.capitalize(), "kind": kind, "paper": [], "note": "A tiny network on invented data."}
        entry = said | {
            "metrics": [],
            "ours": "ofmu",
            "gradients": 320,
            "scenarios": {c["scenario"]: {} for c in cells},
            "methods": {c["method"]: {"overlay": None, "options": {}} for c in cells},
            "seeds": sorted({c["seed"] for c in cells}),
            "cells": cells,
        }
        self.experiments[name] = entry | more
        self.save()
        return self

    def save(self):
        content = {"name": self.name, "version": "0.1.0", "date": "2026-11-21", "experiments": self.experiments}
        write(self.folder / "benchmark.json", content)


METHODS = {"ofmu": 0.0, "grad_ascent": 0.9, "grad_diff": 0.6, "npo": 0.3, "simnpo": 0.45, "rmu": 0.2}
"""How far each is from the goal, from 0 to 1."""
TEXT_BEFORE = {"forget_quality": 1e-16, "forget_quality_D": 0.88, "model_utility": 0.98, "forget_truth_ratio": 0.07,
               "forget_Q_A_Prob": 0.95}  # fmt: skip
TEXT_GOAL = {"forget_quality": 1.0, "forget_quality_D": 0.0, "model_utility": 0.97, "forget_truth_ratio": 0.6,
             "forget_Q_A_Prob": 0.02}  # fmt: skip
IMAGE_BEFORE = {"avg_gap": 50.0, "UA": 0.0, "RA": 100.0, "TA": 98.0, "MIA": 0.0}
IMAGE_GOAL = {"avg_gap": 0.0, "UA": 100.0, "RA": 100.0, "TA": 98.1, "MIA": 100.0}


def between(before, goal, far, noise):
    """Values of a method ``far`` from the goal; p-values move in their logarithms."""
    found = {}
    for name, end in goal.items():
        start, x = before[name], min(1.0, max(0.0, far + noise.normal(0, 0.02)))
        value = 10 ** (x * np.log10(start)) if name.endswith("quality") else end + x * (start - end)
        found[name] = float(value)
    if "avg_gap" in found:
        found["avg_gap"] = float(np.mean([abs(found[m] - goal[m]) for m in ("UA", "RA", "TA", "MIA")]))
    return found


def telemetry(iterations):
    """What OFMU logs: the penalty ten times as long as grad L_r; Phi curves upwards in the first half."""
    k = np.arange(iterations)
    found = {"L_f": k / iterations, "L_r": 1 + 0 * k, "Sim": np.cos(k), "grad_Phi": 1.0 + k, "grad_L_r": 2.0 + k}
    found |= {"penalty_share": 10.0 + 0 * k, "curvature": np.where(k < iterations / 2, 1.0, -1.0)}
    return {name: curve(values) for name, values in found.items()}


def curve(values):
    """A curve of a value an iteration, as ``results.json`` has it."""
    return {"step": list(range(1, len(values) + 1)), "value": np.asarray(values).tolist()}


def table(images=False, seeds=(0, 1, 2), scenarios=("forget01", "forget05"), methods=METHODS):
    """Runs of a table."""
    noise = np.random.default_rng(0)
    before, goal = (IMAGE_BEFORE, IMAGE_GOAL) if images else (TEXT_BEFORE, TEXT_GOAL)
    runs = {}
    for scenario in scenarios:
        for method, far in methods.items():
            for seed in seeds:
                kind = "OFMU" if method == "ofmu" else method
                runs[scenario, method, seed] = results(between(before, goal, far, noise), before, goal, seed, kind)
    return runs


def everything(folder: Path) -> Benchmark:
    """One experiment of every kind."""
    bench, noise = Benchmark(folder), np.random.default_rng(1)
    text = ["forget_quality", "model_utility", "forget_truth_ratio"]
    attacks = attacked(table(), METHODS, ["relearn_retain", "leak", "quantised"])
    bench.experiment("authors", "table", table(), paper=["tab:tofu-llama2-results", "fig:llama_overall"], metrics=text,
                     attacks=attacks,
                     failed=[("forget01", "kl", s, "failed", "KL diverged in outer iteration 3.") for s in (0, 1, 2)]
                     + [("forget05", "kl", 0, "unfinished", None)])  # fmt: skip
    images = ["avg_gap", "UA", "RA", "TA", "MIA"]
    methods = {"ofmu": 0.02, "finetune": 0.5, "grad_ascent": 0.1, "fisher": 1.0, "influence": 0.05}
    runs = table(images=True, seeds=range(5), scenarios=("classwise", "random"), methods=methods)
    bench.experiment("digits", "table", runs, paper=["tab:cifar-combined", "fig:cifar10_performance"], metrics=images,
                     attacks=attacked(runs, methods, ["lira"]))  # fmt: skip

    variants = {
        "ofmu": (0.1, {}),
        "no_similarity": (0.2, {"model.beta": 0}),
        "no_penalty": (0.3, {"model.upper.rho_0": 0}),
    }
    runs = table(scenarios=("forget05",), methods={m: far for m, (far, _) in variants.items()})
    for (_, method, _), run in runs.items():
        run["curves"] = telemetry(20 if method == "ofmu" else 40)
        if method == "no_penalty":
            run["curves"] |= {"penalty_share": curve([0.0] * 40), "curvature": curve([0.0] * 40)}
    bench.experiment("ablation", "ablation", runs, paper=["tab:ofmu-ablation"], metrics=text,
                     methods={m: {"options": o} for m, (_, o) in variants.items()})  # fmt: skip
    write(folder / "ablation/analysis.json", {"seeds": {s: aligned(noise, variants) for s in "012"}})

    points = {f"T{t}_rho{rho}": (t, rho) for t in (1, 2, 5, 10) for rho in (0.1, 0.5, 1.0)}
    runs = {}
    for name, (t, rho) in points.items():
        for seed in range(3):
            far = max(0.0, 0.8 - 0.3 * np.log10(t) * (1.5 - rho)) + noise.normal(0, 0.01)
            values = between(IMAGE_BEFORE, IMAGE_GOAL, far, noise)
            runs["classwise", name, seed] = results(values, IMAGE_BEFORE, IMAGE_GOAL, seed)
    options = {m: {"options": {"model.inner_steps": t, "model.upper.rho_0": rho}} for m, (t, rho) in points.items()}
    paper = ["fig:inner-rho-subplots"]
    bench.experiment("sweep", "sweep", runs, paper=paper, metrics=images, methods=options, ours=None)

    runs, k = {}, np.arange(1, 201)
    for t in (1, 2, 5, 10):
        for seed in range(3):
            norm = (3 / k**0.5 + 1 / t**0.5) * np.exp(noise.normal(0, 0.1, len(k)))
            curves = {"gradient_norm": curve(norm), "L_f": curve(k)}
            values = between(TEXT_BEFORE, TEXT_GOAL, 0.1, noise)
            runs["forget05", f"T{t}", seed] = results(values, TEXT_BEFORE, TEXT_GOAL, seed, curves=curves)
    options = {f"T{t}": {"options": {"model.inner_steps": t}} for t in (1, 2, 5, 10)}
    bench.experiment("convergence", "convergence", runs, methods=options, metrics=text, ours=None)

    draws = [f"draw_{i}" for i in range(5)]
    runs = table(seeds=(0,), scenarios=draws)
    bench.experiment("draws", "draws", runs, paper=["tab:variance"], metrics=["forget_quality_D", "model_utility"])

    runs = table(scenarios=("forget05",))
    for run in runs.values():
        for probe in ("paraphrase", "multi_hop", "cross_lingual"):
            for side in ("metrics", "before"):
                own = run[side]
                for name in ("forget_quality", "forget_truth_ratio"):
                    probed = {"value": min(1.0, own[name]["value"] * 1.1), "tested_as": f"probe_{probe}_{name}_D"}
                    own[f"probe_{probe}_{name}"] = {**own[name], **probed}
                own[f"probe_{probe}_model_utility"] = {**own["model_utility"]}
            goal = run["reference"]["metrics"]
            for name in text:
                goal[f"probe_{probe}_{name}"] = {**goal[name]}
    names = [f"probe_{probe}_forget_quality" for probe in ("paraphrase", "multi_hop", "cross_lingual")]
    bench.experiment("probes", "probes", runs, paper=["tab:hard-inscope"], metrics=names)

    runs = table(seeds=(0,), scenarios=[f"draw_{i}" for i in range(12)])
    bench.experiment("difficulty", "udi", runs, paper=["tab:udi-corr"], metrics=["model_utility"])
    found = [{"scenario": f"draw_{i}", "seed": 0, "udi_mean": 10.0 + i,
              "utility_drop": {m: far * 0.02 * i + noise.normal(0, 0.02) for m, far in METHODS.items()}}
             for i in range(12)]  # fmt: skip
    rho = {}
    for method, far in METHODS.items():
        rho[method] = {"rho": far, "low": far - 0.3, "high": min(1.0, far + 0.2), "p": 0.04, "n": 12}
    write(folder / "difficulty/analysis.json", {"draws": found, "spearman": rho})

    runs = table(scenarios=("forget05",))
    bench.experiment("embeddings", "alignment", runs, paper=["tab:embed-sim"], metrics=["model_utility"])
    write(folder / "embeddings/analysis.json", {"seeds": {s: aligned(noise, METHODS) for s in "012"}})

    runs = table(scenarios=("forget05",))
    for (_, method, seed), run in runs.items():
        times = {"ofmu": 16.0, "grad_ascent": 1.0}.get(method, 1.5) * (1 + 0.02 * seed)
        run["cost"] |= {"training_seconds": 10 * times, "gradient_evaluations": 20 * times,
                        "peak_memory_bytes": 1e9 * (1.3 if method == "ofmu" else 1.0)}  # fmt: skip
    bench.experiment("cost", "cost", runs, paper=["tab:runtime-comparison", "tab:memory-usage-single-fwd"],
                     metrics=[])  # fmt: skip
    return bench


def aligned(noise, methods):
    """What ``analyse`` returns, as far as the report reads it."""

    def third(level):
        return {"n": 13, "cosine": {m: {"value": level - 0.02 * i + noise.normal(0, 0.005), "interval": [0, 1]}
                                    for i, m in enumerate(["target", *methods])}}  # fmt: skip

    return {"n": 40, "easiest": third(0.6), "hardest": third(0.5), "all": third(0.55)}
