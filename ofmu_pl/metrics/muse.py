"""MUSE's metrics: passages that are continued, questions that are answered, and what its attack still finds."""

from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from ofmu_pl.metrics.membership import privacy_leakage
from ofmu_pl.metrics.own_rows import asked_metrics
from ofmu_pl.metrics.result import Metric, MetricResult, by_name
from ofmu_pl.metrics.scores import Scores
from ofmu_pl.support.sets import PROBE

STORED_AUC = {"news": 0.4772, "books": 0.5393}
"""Share of pairs in which MUSE's attack took the held-out text for the known one, on MUSE's own retrained models."""
_forgotten = partial(Metric, higher_is_better=False, group="muse", column=1)
VERBATIM = _forgotten(
    "verbmem_forget",
    says="Given the beginning of {rows}, the model goes on as the text does by {value}, where 1 is word for word.",
)
KNOWN = _forgotten(
    "knowmem_forget",
    says="Asked about {rows}, the model answers as it should by {value}, where 1 is word for word.",
)
KEPT = replace(KNOWN, name="knowmem_retain", higher_is_better=True)
RELEASED = Metric("privleak_released", higher_is_better=True, unit="%", group="muse")
ASKED = {f"{PROBE}{metric.name}": metric for metric in (VERBATIM, KNOWN, KEPT)}


def muse_metrics(
    scores: Scores, reference: Scores | None = None, *, stored_auc: float | None = None, **options: Any
) -> dict[str, MetricResult]:
    """VerbMem, KnowMem and PrivLeak (MUSE's C1 to C4), and the metrics of your documents.

    ``verbmem_forget``, ``knowmem_forget`` and ``knowmem_retain`` are means of ROUGE-L's F1 without stemming, from 0 to
    1 (the paper prints a hundred times as much). ``privleak`` compares the Min-40 % attack's AUC with the retrained
    model's. ``privleak_released`` compares it, as the released program does for every model, with the AUC that was
    stored for MUSE's own retrained Llama (``stored_auc``). The other arguments are those of ``asked_metrics``.
    """
    results = asked_metrics(_answered, scores, reference, **options)
    if stored_auc is not None and "mia_min_k" in results:
        found = results["mia_min_k"]
        leak = privacy_leakage(found.value, 1 - stored_auc)
        results |= by_name(RELEASED.result(leak, found.n, 0.0, found.definition))
    return results


muse_news_metrics = partial(muse_metrics, stored_auc=STORED_AUC["news"])
muse_books_metrics = partial(muse_metrics, stored_auc=STORED_AUC["books"])


def _answered(scores: Scores) -> dict[Metric, np.ndarray | None]:
    return {metric: scores[name].rouge_f1 for name, metric in ASKED.items() if name in scores}
