"""Models that were attacked by hand, one that knows the forgotten rows and one that never saw them; models of runs."""

from functools import partial

import pytest

from tests.cli.conftest import models  # noqa: F401
from tests.helpers.memorised_models import FREE, memorise, subjects_in
from tests.helpers.workers import made_once


@pytest.fixture(scope="session")
def subjects(tmp_path_factory):
    """Subjects ``target`` and ``retrained``, and ``unlearned``, which has forgotten nothing."""
    return subjects_in(made_once(tmp_path_factory, "memorised", memorise))


@pytest.fixture(scope="session")
def free(tmp_path_factory):
    """Subjects like these, whose rows' answers have no words in common."""
    return subjects_in(made_once(tmp_path_factory, "free", partial(memorise, sides=FREE)), FREE)
