"""What differs from one machine to another in paths of configurations: variables, and where the package lies."""

import os
import re
from typing import Any

from ofmu_pl.support.errors import UserError
from ofmu_pl.support.shipped import located


def expanded(value: Any) -> Any:
    """A value with the environment's variable for ``${NAME}`` and the file for ``ofmu_pl:NAME``, in all texts it holds.

    Args:
        value: A text, or a list or a mapping of values; what is none of them stays.

    Raises:
        UserError: It is not set, or no configuration has this name.
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

    return located(re.sub(r"\$\{(\w+)\}", variable, value))
