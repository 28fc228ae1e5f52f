"""The account of a run that nobody made."""

from dataclasses import replace

from ofmu_pl.evaluation.account import Account, Part
from ofmu_pl.metrics.own_rows import LOSS
from ofmu_pl.metrics.result import Metric, by_name
from ofmu_pl.metrics.tofu import ATTACKS, PRIVACY_SCORE
from ofmu_pl.metrics.tofu_items import KEPT_PROBABILITY, PROBABILITY

UNSEEN = Metric("holdout_Q_A_Prob", higher_is_better=True, group="unseen", says=PROBABILITY.says)


def account(exported, **changes):
    """An account, with changes."""
    attack = ATTACKS["mia_loss"]
    before = by_name(
        LOSS.result(0.05, 20, 1.2, interval=(0.04, 0.06)),
        PROBABILITY.result(0.94, 20, 0.31, interval=(0.93, 0.95)),
        UNSEEN.result(0.3, 20, interval=(0.2, 0.4)),
        KEPT_PROBABILITY.result(0.95, 60, interval=(0.94, 0.96)),
        attack.result(0.98, 40, 0.5, interval=(0.94, 1.0)),
    )
    after = by_name(
        LOSS.result(2.5, 20, 1.2, interval=(2.2, 2.8)),
        PROBABILITY.result(0.35, 20, 0.31, interval=(0.28, 0.42)),
        UNSEEN.result(0.31, 20, interval=(0.2, 0.4)),
        KEPT_PROBABILITY.result(0.9, 60, interval=(0.88, 0.92)),
        attack.result(0.52, 40, 0.5, interval=(0.47, 0.57)),
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
        untested=["Whether it comes back."],
        model=exported,
        examples=[],
        provenance={"ofmu_pl": "0.2.0", "git": None, "weights": "f52c", "seed": 0, "versions": versions},
        date="22 November 2026, 11:19 UTC",
    )
    return replace(told, **changes)
