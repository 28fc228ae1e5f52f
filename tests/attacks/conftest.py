"""Models that were attacked by hand: one that knows the forgotten rows, and one that never saw them."""

import pytest

from tests.helpers.memorised import memorised


@pytest.fixture(scope="session")
def subjects(tmp_path_factory):
    """Subjects ``target`` and ``retrained``, and ``unlearned``, which has forgotten nothing."""
    return memorised(tmp_path_factory.mktemp("memorised"))
