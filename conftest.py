"""For the examples in docstrings, which pytest runs beside the tests."""

from typing import Any

import pytest


@pytest.fixture(autouse=True, scope="session")
def _a_readers_module(doctest_namespace: dict[str, Any]) -> None:
    """Classes that an example defines are the reader's: no choices of ours on the command line of later tests."""
    doctest_namespace["__name__"] = "__main__"
