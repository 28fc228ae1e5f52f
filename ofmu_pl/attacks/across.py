"""What attacks find only over many runs of one method, which differ in their seeds."""

from collections.abc import Mapping, Sequence
from itertools import product
from pathlib import Path

from lightning.pytorch.utilities import rank_zero_warn

from ofmu_pl.attacks.base import Attack, Finding, Findings
from ofmu_pl.support.escapes import say
from ofmu_pl.support.records.models import RETRAINED, UNLEARNED
from ofmu_pl.support.records.results import ACROSS, NULL, RESULTS, AcrossRecord, Results

OVERALL = "score"
"""The competition's score: its points for forgetting, times what is kept of accuracy, as a ratio to the retrained."""
SEED = "seed_"  # how the names of folders begin that hold runs of one method
Found = Mapping[str, Findings]  # findings by attack and model


def across(attacks: Sequence[Attack], found: Mapping[Path, Found]) -> dict[Path, dict[str, dict[str, float]]]:
    """Compare the runs of each method, write ``across.json`` beside them and say where.

    Runs of one method, by whose folders findings are given, lie in neighbouring folders (``seed_0``, ``seed_1``), as a
    benchmark leaves them.

    Returns:
        Figures by folder of the method and attack; empty where no method has enough runs.
    """
    methods: dict[Path, list[Path]] = {}
    for run in found:
        place = run.resolve().parent
        if place.name.startswith(SEED):  # beside others lie other methods, or other requests
            methods.setdefault(place.parent, []).append(run)
    figures: dict[Path, dict[str, dict[str, float]]] = {}
    for method, runs in methods.items():
        results = [Results.read(run / RESULTS) for run in runs]
        if len({str(r.provenance.get("hashes", {}).get("forget")) for r in results}) > 1:
            rank_zero_warn(
                f"The runs of '{method}' forget different rows, so single rows cannot be compared over them."
            )
            continue
        for attack in attacks if len(runs) > 1 else ():
            sides: dict[str, list[Finding]] = {UNLEARNED: [], RETRAINED: []}
            for run, model in product(runs, sides):  # of other seeds they would count as so many models
                sides[model] += found[run].get(attack.name, {}).get(model, [])[:1]
            values = attack.across(sides[UNLEARNED], sides[RETRAINED])
            if not values:
                continue
            ratio = _kept(results)
            if ratio is not None and "forgetting_score" in values:
                values |= {f"{OVERALL}{end}": values[f"forgetting_score{end}"] * ratio for end in ("", *NULL)}
            figures.setdefault(method, {})[attack.name] = values
    for method, values_of in figures.items():
        AcrossRecord(values_of, [str(run) for run in methods[method]]).write(method / ACROSS)
        say(f"Single rows over the runs of {method.name}: {method / ACROSS}; the command report shows them.")
    return figures


def _kept(results: Sequence[Results]) -> float | None:
    """Accuracies on retain and test images as ratios to the retrained models', multiplied; ``None``: one is missing."""
    ratio = 1.0
    for name in ("RA", "TA"):
        ours = [r.metrics.get(name, {}).get("value") for r in results]
        theirs = [r.reference.metrics.get(name, {}).get("value") for r in results if r.reference is not None]
        if len(theirs) < len(ours) or not all(isinstance(x, int | float) for x in [*ours, *theirs]):
            return None
        ratio *= sum(float(x or 0) for x in ours) / sum(float(x or 0) for x in theirs)
    return ratio
