"""The table at the end of ``attack``."""

from collections.abc import Sequence

from ofmu_pl.evaluation.table import between, figure, models_table
from ofmu_pl.support.records.models import HELD_OUT, MODELS
from ofmu_pl.support.records.results import AttacksRecord
from ofmu_pl.support.terminal import console


def print_attacks(title: str, record: AttacksRecord) -> None:
    """Print what attacks found, model by model."""
    notes = record.all_remarks
    for name, a in record.attacks.items():
        notes += [f"{name}, {model}: {why}" for model, why in a.broken.items()]
    shares = {name: a.returns["value"] for name, a in record.attacks.items() if a.returns.get("interval")}
    if shares:
        worst = max(shares, key=shares.__getitem__)
        notes.append(f"Most comes back by {worst}: {shares[worst]:z.0%} of the way to the target.")
    notes.append("returns: 0, as the retrained model (or held-out rows); 1, as if nothing had been forgotten.")
    held_out = [HELD_OUT] if any(HELD_OUT in a.metrics for a in record.attacks.values()) else []
    models = {model: model == MODELS[0] for model in (*MODELS, *held_out)}
    table = models_table(f"Attacks on {title}", "\n".join(notes), "found by", models)
    table.add_column("95 % interval", justify="right", style="dim", min_width=9)
    table.add_column("returns", justify="right", style="bold")
    table.add_column("seconds", justify="right", style="dim", no_wrap=True)
    for a in record.attacks.values():
        for name, entry in a.metrics[MODELS[0]].items():
            values = [a.metrics.get(model, {}).get(name, {}).get("value") for model in models]
            first = name == a.found
            arrow = "↑" if entry["higher_is_better"] else "↓"
            table.add_row(
                name,
                f"{arrow} to retrained" if entry.get("target") is not None else arrow,
                *("" if value is None else figure(value) for value in values),
                between(entry.get("interval")),
                f"{a.returns['value']:z.0%}" + _share(a.returns.get("interval")) if first and a.returns else "",
                f"{sum(a.seconds.values()):.0f}" if first else "",
            )
        table.add_section()
    console().print(table)


def _share(ends: Sequence[float] | None) -> str:
    return "" if ends is None else f" ({ends[0]:z.0%} to {ends[1]:z.0%})"
