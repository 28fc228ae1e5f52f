"""The account of a run that nobody made."""

from dataclasses import replace

import numpy as np

from ofmu_pl.evaluation.account import Account, Part
from ofmu_pl.metrics.own_rows import LOSS
from ofmu_pl.metrics.result import Metric, by_name
from ofmu_pl.metrics.tofu import ATTACKS, PRIVACY_SCORE
from ofmu_pl.metrics.tofu_items import KEPT_PROBABILITY, PROBABILITY
from ofmu_pl.metrics.verdicts import with_verdicts

UNSEEN = Metric("holdout_Q_A_Prob", higher_is_better=True, group="unseen", says=PROBABILITY.says)


def rows(metric, mean, deviation, n, goal=None):
    """A result of values that are evenly spread about their mean."""
    return metric.of_items(mean + deviation * np.sqrt(3) * np.linspace(-1, 1, n), goal)


def account(exported, **changes):
    attack = ATTACKS["mia_loss"]
    before = by_name(
        rows(LOSS, 0.05, 0.02, 20, 1.2),
        rows(PROBABILITY, 0.94, 0.02, 20, 0.31),
        rows(UNSEEN, 0.3, 0.2, 20),
        rows(KEPT_PROBABILITY, 0.95, 0.04, 60),
        rows(attack, 0.98, 0.05, 40, 0.5),
    )
    after = by_name(
        rows(LOSS, 2.5, 0.6, 20, 1.2),
        rows(PROBABILITY, 0.35, 0.15, 20, 0.31),
        rows(UNSEEN, 0.31, 0.2, 20),
        rows(KEPT_PROBABILITY, 0.9, 0.08, 60),
        rows(attack, 0.52, 0.16, 40, 0.5),
        PRIVACY_SCORE.result(0.93, 40, 1.0),
    )
    versions = {"torch": "2.13.0", "datasets": None}
    told = Account(
        data="text",
        modality="text",
        parts=[Part("to be forgotten", 20, "3bceec41"), Part("to be kept", 1060, "87b2da63")],
        target="models/target",
        base_model="owner/base",
        method="OFMU",
        in_words="It was made to forget.",
        options={"beta": "0.1"},
        steps=30,
        gradients=139.0,
        before=before,
        after=after,
        retrained={},
        caveats=[],
        untested=["Whether it comes back."],
        model=exported,
        examples=[],
        provenance={
            "ofmu_pl": "0.2.0",
            "git": None,
            "weights_before": "0e1d",
            "weights": "f52c",
            "seed": 0,
            "versions": versions,
        },
        date="22 November 2026, 11:19 UTC",
    )
    told = replace(told, **changes)
    before = with_verdicts(told.before, {})
    return replace(told, before=before, after=with_verdicts(told.after, before))
