"""Forget, retain and evaluation data of the benchmarks; reusable without the rest of the package."""

from lazy_loader import attach_stub

__getattr__, __dir__, __all__ = attach_stub(__name__, __file__)
