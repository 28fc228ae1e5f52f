"""Parsers of the commands: what is wrong with the words is said in one line."""

from __future__ import annotations

import re
import sys
from typing import Any

from lightning.pytorch.cli import LightningArgumentParser


class Parser(LightningArgumentParser):
    """A parser whose errors are one line, without pages of usage."""

    command = "fit"

    def error(self, message: str, ex: Exception | None = None) -> Any:
        """Print the message and exit with code 2 (or raise, where jsonargparse asks for that to try alternatives)."""
        if not self.exit_on_error:
            super().error(message, ex)
        text = " ".join(message.split())
        # jsonargparse lists every alternative of a union; what a user wants to know is which word was wrong.
        unknown = re.search(r"class_path '[\w.]*?(\w+)'[^']*Option '([^']+)' is not accepted", text)
        if unknown:
            text = f"{unknown[1]} has no option '{unknown[2]}'"
        denied = re.search(r"Importing '([\w.]+)' is not allowed", text)
        if denied:
            text = f"'{denied[1]}' can run any code, so no option may name it: take it out of the configuration"
        classes = ", or --model.help CLASS" if self.command == "fit" else ""
        sys.stderr.write(f"ofmu_pl: error: {text} (options: python -m ofmu_pl {self.command} --help{classes}).\n")
        sys.exit(2)


class BenchmarkParser(Parser):
    """The same for the command ``benchmark``."""

    command = "benchmark"


class ReportParser(Parser):
    """The same for the command ``report``."""

    command = "report"
