"""What attacks would have found, with known numbers: curves along steps, samples and names, and none."""

import numpy as np

from ofmu_pl.support.records.results import AttackRecord

KINDS = {
    "relearn_retain": ("steps of training", list(range(0, 70, 10)), lambda x: np.minimum(1.0, np.array(x) / 100)),
    "leak": ("samples", [1, 2, 4, 8, 16, 32, 64], lambda x: np.log2(x) / 12),
    "quantised": ("precision", ["8_bit", "4_bit", "3_bit", "NF4"], lambda x: np.array([0.0, 0.1, 0.3, 0.1])),
    "lira": ("", [], lambda x: np.array([])),
}
"""Attacks: what their curves run along, places, and how much more they find there."""


def attack(name, far, noise, control=0.02, whole=0.95):
    """What an attack found on a model that is ``far`` from the retrained one."""
    x_label, places, more = KINDS[name]
    own = control + far * (whole - control) + noise.normal(0, 0.01)
    ends = {"unlearned": own, "retrained": control, "target": whole}
    curves = {m: np.minimum(1.0, y * 0.5 + more(places) * (0.2 + y)).tolist() for m, y in ends.items()}
    found = {m: {f"{name}_prob": {"value": y, "n": 40, "higher_is_better": False}} for m, y in ends.items()}
    share = (own - control) / (whole - control)
    return AttackRecord(
        settings={"class": name.title(), "steps": 60}, seeds=[0], x_label=x_label, y_label="probability",
        found=f"{name}_prob", metrics=found, x=places, curves=curves,
        returns={"value": share, "interval": [share - 0.05, share + 0.05]},
    )  # fmt: skip


def attacked(runs, methods, names):
    """What attacks found on runs of methods by their distance; rmu is left out, simnpo in part, npo broke."""
    noise, found = np.random.default_rng(2), {}
    for key in runs:
        _, method, _ = key
        if method == "rmu":
            continue
        found[key] = {name: attack(name, methods[method] / 2, noise) for name in names}
        if method == "simnpo" and len(names) > 1:
            found[key].pop("leak", None)
        if method == "npo" and "relearn_retain" in names:
            found[key]["relearn_retain"].broken = {"unlearned": "The loss was no longer finite at the rate 0.001."}
    return found
