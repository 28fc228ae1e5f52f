"""Forget, retain and evaluation data of the benchmarks; reusable without the rest of the package."""

from ofmu_pl.data.authors import Authors
from ofmu_pl.data.base import PairedDataModule
from ofmu_pl.data.images import CIFAR10, CIFAR100, Digits, ImageDataModule
from ofmu_pl.data.text import ChatEncoder, PlainEncoder, collate
from ofmu_pl.data.text_base import TextDataModule
from ofmu_pl.data.tofu import TOFU
from ofmu_pl.data.trivia import Trivia
from ofmu_pl.data.wmdp import WMDP

__all__ = [
    "CIFAR10",
    "CIFAR100",
    "TOFU",
    "WMDP",
    "Authors",
    "ChatEncoder",
    "Digits",
    "ImageDataModule",
    "PairedDataModule",
    "PlainEncoder",
    "TextDataModule",
    "Trivia",
    "collate",
]
