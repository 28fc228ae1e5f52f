"""Unlearning metrics: pure functions, and their state across ranks. Needs neither lightning nor transformers.

A name is imported when it is asked for, so that one metric does not import what others need (torch, sklearn).
"""

from lazy_loader import attach_stub

__getattr__, __dir__, __all__ = attach_stub(__name__, __file__)
