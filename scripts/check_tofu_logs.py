"""Recompute TOFU's stored logs of Llama-2-7B runs and print them beside the reference values.

    python scripts/check_tofu_logs.py FOLDER      (with *_wd0.01.eval_log_aggregated.json and reference-values.json)

Exit code 1 if a value is off by more than 1e-9.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from rich.console import Console
from rich.table import Table
from tofu_logs import read_log

from ofmu_pl.metrics import tofu_metrics
from ofmu_pl.support.sets import SETS

SUFFIX = "_wd0.01.eval_log_aggregated.json"


def rows(name: str, expected: dict, folder: Path) -> list[tuple[str, float, float]]:
    """(metric, stored, ours) of one model, under both means."""
    scores = read_log(json.loads((folder / f"{name}{SUFFIX}").read_text()))
    found = []
    for definition, ending in (("exact", ""), ("tofu_arithmetic", "_arith_mean_variant")):
        got = tofu_metrics(scores, definition=definition)
        found.append((f"model_utility{ending}", expected[f"model_utility{ending}"], got["model_utility"].value))
        for set_name, p in SETS.items():
            if set_name not in scores:
                continue
            ratio = "forget_truth_ratio" if set_name == "forget" else f"{p}_Truth_Ratio"
            found.append((f"{ratio}{ending}", expected[set_name][f"truth_ratio{ending}"], got[ratio].value))
            if not ending:
                normalised = "_normalised" if p in ("ra", "wf") else ""
                for metric, field in ((f"{p}_Q_A_Prob{normalised}", "prob"), (f"{p}_Q_A_ROUGE", "rougeL_recall")):
                    found.append((metric, expected[set_name][field], got[metric].value))
    if "forget_quality_vs_retain90" in expected:
        reference = read_log(json.loads((folder / f"llama2-7b_retain90{SUFFIX}").read_text()))
        got, stored = tofu_metrics(scores, reference), expected["forget_quality_vs_retain90"]
        found.append(("forget_quality_D", stored["ks_stat"], got["forget_quality_D"].value))
        found.append(("forget_quality", stored["pvalue"], got["forget_quality"].value))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    folder = parser.parse_args().folder
    values = json.loads((folder / "reference-values.json").read_text())["values"]
    worst = 0.0
    for name, expected in values.items():
        table = Table("metric", "stored", "ours", "difference", title=name)
        for metric, stored, ours in rows(name, expected, folder):
            worst = max(worst, abs(ours - stored))
            table.add_row(metric, f"{stored:.12g}", f"{ours:.12g}", f"{ours - stored:.1e}")
        Console(width=110).print(table)
    sys.stdout.write(f"Largest difference: {worst:.1e}\n")
    sys.exit(worst > 1e-9)


if __name__ == "__main__":
    main()
