"""The tiny target and retrained model of the command line's tests."""

from tests.cli.conftest import models  # noqa: F401
