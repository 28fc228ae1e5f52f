"""Forget, retain and evaluation data of the benchmarks; reusable without the rest of the package."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ofmu_pl.support.lazy import lazy

if TYPE_CHECKING:
    from ofmu_pl.data.authors import Authors as Authors
    from ofmu_pl.data.base import PairedDataModule as PairedDataModule
    from ofmu_pl.data.encoded import collate as collate
    from ofmu_pl.data.image_datasets import ImageDatasets as ImageDatasets
    from ofmu_pl.data.image_folders import ImageFolders as ImageFolders
    from ofmu_pl.data.images import CIFAR10 as CIFAR10
    from ofmu_pl.data.images import CIFAR100 as CIFAR100
    from ofmu_pl.data.images import Digits as Digits
    from ofmu_pl.data.images import ImageDataModule as ImageDataModule
    from ofmu_pl.data.knowundo import KnowUnDo as KnowUnDo
    from ofmu_pl.data.lume import LUME as LUME
    from ofmu_pl.data.muse import MUSE as MUSE
    from ofmu_pl.data.row_encoder import RowEncoder as RowEncoder
    from ofmu_pl.data.rwku import RWKU as RWKU
    from ofmu_pl.data.text import ChatEncoder as ChatEncoder
    from ofmu_pl.data.text import PlainEncoder as PlainEncoder
    from ofmu_pl.data.text_base import TextDataModule as TextDataModule
    from ofmu_pl.data.text_files import TextFiles as TextFiles
    from ofmu_pl.data.tofu import TOFU as TOFU
    from ofmu_pl.data.trivia import Trivia as Trivia
    from ofmu_pl.data.wmdp import WMDP as WMDP
else:
    __getattr__, __dir__, __all__ = lazy(__name__)
