"""A folder of runs as a page, tables and figures. Nothing is computed from models here: what runs left is read."""

from ofmu_pl.report.command import report

__all__ = ["report"]
