"""The schema of what runs, benchmarks, jobs and exported models leave: writers and readers share these classes.

A file has its ``schema``. One that has none was written before there were schemas; what it lacks is filled in.
"""

from __future__ import annotations

from lazy_loader import attach_stub

__getattr__, __dir__, __all__ = attach_stub(__name__, __file__)
