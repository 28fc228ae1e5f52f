"""Models on disk that several files of tests begin with."""

import pytest

from tests.helpers.workers import made_once
from tests.modules.test_baselines import save_random
from tests.modules.test_goal import eight_authors, memorise


@pytest.fixture(scope="session")
def folder(tmp_path_factory):
    """A random network: methods with a frozen copy load it twice."""
    return save_random(tmp_path_factory.mktemp("random"))


@pytest.fixture(scope="session")
def known(tmp_path_factory):
    """A folder whose model knows rows, and the rows."""
    return made_once(tmp_path_factory, "known", memorise), eight_authors()
