"""OFMU: penalty-based bi-level machine unlearning, and the bench around it (see README.md)."""

__version__ = "0.1.0"
