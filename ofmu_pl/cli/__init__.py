"""The command line: ``python -m ofmu_pl COMMAND``; what each command needs is imported when it is given."""

from ofmu_pl.cli.commands import main

__all__ = ["main"]
