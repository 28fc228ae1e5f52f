"""The quickstart over several seeds: stores the values of its runs, and writes docs/results/quickstart.md.

for seed in 0 1 2 3 4; do ofmu_pl quickstart --seed $seed; done
python scripts/quickstart_results.py logs/quickstart logs/quickstart-seed* [--only-table]

The page follows from the stored values alone.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import pages

from ofmu_pl.support.files import write_json
from ofmu_pl.support.records import RESULTS, Results

NAME = "quickstart"
COLUMNS = {
    "forget_Q_A_Prob": "p forget",
    "mia_loss": "membership AUC",
    "forget_truth_ratio": "truth ratio",
    "retain_Q_A_Prob": "p retain",
    "model_utility": "utility",
}
"""Metrics that are shown of each of the three models."""
MODELS = ("target", "OFMU", "retrained")
ABOUT = """A Llama of about a million parameters learned 50 invented authors and forgot five of them (40 rows), and one
was retrained without them; five more are never seen by any model. The method's settings were chosen on seeds 1000 and
1001 ([the path](../log/2026-11-23-path.md), [the guess](../log/2026-11-23-guess.md), [whose loss a row ends
at](../log/2026-11-23-alike.md)), the corpus on seed 0. p is exp(-loss) of the true answer, the mean over rows; the AUC
is that of telling forgotten from never-seen rows by their loss."""
FOLLOWS = "[More that these models were asked, for an older form of the method](../log/2026-11-21-quickstart.md)."


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", type=Path, nargs="*", help="folders of the quickstart, one a seed")
    parser.add_argument("--only-table", action="store_true", help="write the page from the stored values")
    args = parser.parse_args()
    data = pages.RESULTS_FOLDER / "data" / f"{NAME}.json"
    if not args.only_table:
        write_json(data, pages.facts() | {"seeds": [summary(folder / "ofmu/latest") for folder in args.runs]})
    pages.write_page(NAME, page(json.loads(data.read_text())))


def summary(run: Path) -> dict[str, Any]:
    """What the page needs of a run."""
    results = Results.read(run / RESULTS)
    assert results.reference is not None, "the quickstart compares with its retrained model"
    sides = (results.before, results.metrics, results.reference.metrics)
    return {
        "seed": results.provenance["seed"],
        "results_version": results.provenance["results_version"],
        "steps": results.provenance["steps"],
        "forget_quality": results.metrics["forget_quality"]["value"],
        "forget_quality_D": results.metrics["forget_quality_D"]["value"],
        "values": {name: [side[name]["value"] for side in sides] for name in COLUMNS},
    }


def page(stored: dict[str, Any]) -> str:
    """The page from the stored values."""
    rows = []
    for run in stored["seeds"]:
        qualities = ["", f"{run['forget_quality']:.2g} ({run['forget_quality_D']:.3g})", "1 (0)"]
        for model, values, quality in zip(MODELS, zip(*run["values"].values(), strict=True), qualities, strict=True):
            rows.append([str(run["seed"]), model, *(f"{value:.3f}" for value in values), quality])
    for k, model in enumerate(MODELS):
        of_all = ([run["values"][name][k] for run in stored["seeds"]] for name in COLUMNS)
        rows.append(["mean", model, *map(pages.spread, of_all), ""])
    head = ["seed", "model", *COLUMNS.values(), "forget quality (D)"]
    written = pages.written_by("quickstart_results.py", NAME, stored)
    lines = ["# The quickstart, over several seeds", "", written, ABOUT, "", *pages.table(head, rows), "", FOLLOWS]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    main()
