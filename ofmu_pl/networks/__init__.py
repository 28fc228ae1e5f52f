"""The networks that are unlearned."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ofmu_pl.support.lazy import lazy

if TYPE_CHECKING:
    from ofmu_pl.networks.classifier import Classifier as Classifier
    from ofmu_pl.networks.language import CausalLM as CausalLM
    from ofmu_pl.networks.loaded import LoadedLM as LoadedLM
    from ofmu_pl.networks.vision import ResNet18 as ResNet18
    from ofmu_pl.networks.vision import SmallCNN as SmallCNN
else:
    __getattr__, __dir__, __all__ = lazy(__name__)
