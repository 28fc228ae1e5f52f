"""Forget, retain and evaluation data of the benchmarks; reusable without the rest of the package."""

from ofmu_pl.data.authors import Authors
from ofmu_pl.data.base import PairedDataModule
from ofmu_pl.data.text import ChatEncoder, collate
from ofmu_pl.data.tofu import TOFU

__all__ = ["TOFU", "Authors", "ChatEncoder", "PairedDataModule", "collate"]
