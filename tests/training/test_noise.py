"""What others say of things that nobody asked for is not shown; our warnings are sentences; all else is as it was."""

import logging
import warnings

import pytest
from lightning.pytorch.utilities import rank_zero_info

import ofmu_pl.modules.goal
from ofmu_pl.training.noise import as_sentence, ignore_noise


@pytest.mark.parametrize(
    ("said", "shown"),
    [
        ("TPU available: False, using: 0 TPU cores", False),
        ("💡 Tip: For seamless cloud logging and experiment tracking, try installing", False),
        ("GPU available: True (cuda), used: True", True),
        ("Results: logs/results.json", True),
    ],
)
def test_an_idle_word_of_lightnings_is_not_shown(said, shown, caplog):
    ignore_noise()
    with caplog.at_level(logging.INFO, logger="lightning.pytorch"):
        rank_zero_info(said)
    assert (said in caplog.messages) == shown


def test_only_a_plain_name_that_jsonargparse_cannot_write_is_passed_over():
    with warnings.catch_warnings(record=True) as shown:
        warnings.simplefilter("always")
        ignore_noise()
        warnings.warn("\n    Unable to serialize instance resnet18\n", stacklevel=1)
        warnings.warn("\n    Unable to serialize instance <object at 0x7f>\n", stacklevel=1)
    assert len(shown) == 1


def test_a_warning_of_ours_is_a_sentence_and_another_is_as_it_was():
    ours = as_sentence("Too few rows.", UserWarning, ofmu_pl.modules.goal.__file__, 3, "rank_zero_warn(")
    assert ours == "ofmu_pl: warning: Too few rows.\n"
    theirs = as_sentence("Old.", FutureWarning, "/usr/lib/python/other.py", 7, "old()")
    assert "other.py:7" in theirs
