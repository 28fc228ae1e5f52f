"""Variables of the environment in paths of configurations, which differ from one machine to another."""

from __future__ import annotations

import os
import re
from typing import Any

from ofmu_pl.support.errors import UserError


def expanded(value: Any) -> Any:
    """A value with ``${NAME}`` replaced by the environment's variable, in all texts that it holds.

    Args:
        value: A text, or a list or a mapping of values; what is none of them stays.

    Raises:
        UserError: It is not set.
    """
    if isinstance(value, dict):
        return {k: expanded(v) for k, v in value.items()}
    if isinstance(value, list):
        return [expanded(v) for v in value]
    if not isinstance(value, str):
        return value

    def variable(match: re.Match[str]) -> str:
        if match[1] not in os.environ:
            raise UserError(f"'{value}' needs the environment variable {match[1]}, which is not set: export it first.")
        return os.environ[match[1]]

    return re.sub(r"\$\{(\w+)\}", variable, value)
