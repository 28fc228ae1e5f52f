"""OFMU: penalty-based bi-level machine unlearning, and the bench around it.

Everything public can be had from here, and nothing is imported before it is asked for:

>>> from ofmu_pl import forget_quality
>>> forget_quality.__module__
'ofmu_pl.metrics.functional'
"""

from __future__ import annotations

from lazy_loader import attach_stub

__getattr__, __dir__, __all__ = attach_stub(__name__, __file__)
__all__ += ["__version__"]

__version__ = "0.2.0"
