"""The end of ``quickstart``: a short table of both methods, and what was forgotten, kept and brought back."""

from pathlib import Path

from ofmu_pl.evaluation.table import Metrics, figure, print_table
from ofmu_pl.metrics.result import MetricResult
from ofmu_pl.support.escapes import say
from ofmu_pl.support.records.models import RETRAINED, TARGET, UNLEARNED
from ofmu_pl.support.records.reading import Entries
from ofmu_pl.support.records.results import ATTACKS, RESULTS, AttacksRecord, Results

ATTACK, RETURNED = "relearn_forget", "relearn_forget_prob"
"""The attack of ``configs/attacks_quickstart.yaml``, and what it finds; to import its class takes seconds."""
ROWS = ("forget_Q_A_Prob", "forget_quality", "model_utility", "retain_Q_A_Prob", "mia_loss", RETURNED)
"""Metrics of the table."""
SAID = {
    "Forgotten": ("forget_Q_A_Prob", "probability of the forgotten answers"),
    "Kept": ("model_utility", "utility of the model"),
    "Came back": (RETURNED, "probability of forgotten answers that relearning did not show, at its peak"),
}
"""Metrics of the lines below it, in words."""


def closing(runs: Path, methods: list[str]) -> None:
    """Print what the runs ``METHOD/latest`` of methods with one target and one retrained model came to."""
    columns: dict[str, Metrics] = {"before": {}}
    goal: Metrics = {}
    for method in methods:
        results = Results.read(runs / method / "latest" / RESULTS)
        record = AttacksRecord.read(runs / method / "latest" / ATTACKS).attacks.get(ATTACK)
        attacked = record.metrics if record else {}
        columns[method] = _chosen(results.metrics | attacked.get(UNLEARNED, {}))
        columns["before"] = _chosen(results.before | attacked.get(TARGET, {}))
        if results.reference is not None:
            goal = _chosen(results.reference.metrics | attacked.get(RETRAINED, {}))
    columns["retrained"] = goal
    print_table("What came of it", columns)
    for head, (metric, what) in SAID.items():
        values = [f"{name} {figure(c[metric].value)}" for name, c in columns.items() if metric in c]
        say(f"{head}: {what}: {', '.join(values)}.")


def _chosen(entries: Entries) -> Metrics:
    return {name: MetricResult.from_dict(name, entries[name]) for name in ROWS if name in entries}
