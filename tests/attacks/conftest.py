"""Models that were attacked by hand, one that knows the forgotten rows and one that never saw them; models of runs."""

import pytest

from tests.cli.conftest import models  # noqa: F401
from tests.helpers.memorised_models import FREE, memorised


@pytest.fixture(scope="session")
def subjects(tmp_path_factory):
    """Subjects ``target`` and ``retrained``, and ``unlearned``, which has forgotten nothing."""
    return memorised(tmp_path_factory.mktemp("memorised"))


@pytest.fixture(scope="session")
def free(tmp_path_factory):
    """Subjects like these, whose rows' answers have no words in common."""
    return memorised(tmp_path_factory.mktemp("free"), FREE)
