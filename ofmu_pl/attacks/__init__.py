"""Attacks on models that have forgotten: what comes back, beside what comes back of the retrained model."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ofmu_pl.support.lazy import lazy

if TYPE_CHECKING:  # all there is to say of a public name: ofmu_pl.support.lazy reads these lines
    from ofmu_pl.attacks.base import Attack as Attack
    from ofmu_pl.attacks.base import Finding as Finding
    from ofmu_pl.attacks.confidence import Confidence as Confidence
    from ofmu_pl.attacks.depth_score import DepthScore as DepthScore
    from ofmu_pl.attacks.linear_probe import LinearProbe as LinearProbe
    from ofmu_pl.attacks.logit_lens import LogitLens as LogitLens
    from ofmu_pl.attacks.prompts import Prompts as Prompts
    from ofmu_pl.attacks.quantise import Quantise as Quantise
    from ofmu_pl.attacks.relearn import Relearn as Relearn
    from ofmu_pl.attacks.rtt import RTT as RTT
    from ofmu_pl.attacks.sample import Sample as Sample
    from ofmu_pl.attacks.subject import Subject as Subject
else:
    __getattr__, __dir__, __all__ = lazy(__name__)
