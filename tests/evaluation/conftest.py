"""What tests of the account and of the pages that tell it share."""

from functools import partial

import pytest

from ofmu_pl.evaluation.account import Example
from tests.helpers.accounts import account

EXAMPLES = [
    Example("Where does Falbro live?", "In Oslo, near the mill.", "In Oslo, near the mill.", "In Rome.", "In Pisa."),
    Example("Who is Falbro's wife?", "Cleo.", "Cleo.", None),
]


@pytest.fixture
def told(tmp_path):
    """Makes an account, with changes."""
    (tmp_path / "hf").mkdir()
    return partial(account, tmp_path / "hf")
