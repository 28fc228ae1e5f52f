"""Fixtures of all tests."""

import gc
import os
import signal
from functools import cache
from pathlib import Path

import pytest

from tests.helpers.workers import ByFile, longest_first

signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell ignores it for what it starts in the background
ROOT = Path(__file__).parent.parent


def pytest_configure(config):
    """Load what nearly every test needs, but not where only the workers are looked after, which begin after this."""
    if config.getoption("numprocesses", None):
        return
    gc.disable()  # until all is imported: nothing of that is garbage
    import lightning.pytorch  # noqa: F401  its log keeps the stream of its first import, which must not be a test's
    import torch

    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "2")))


def pytest_collection_finish():
    """Collect garbage less often than Python: its rounds over all that is loaded take a seventh of all seconds."""
    gc.set_threshold(20_000, 20, 20)
    gc.enable()


@pytest.hookimpl(tryfirst=True)
def pytest_warning_recorded(warning_message):
    """Send no class of a library, which the process that looks after the workers would import to show it."""
    if "PYTEST_XDIST_WORKER" in os.environ:
        name = warning_message.category.__name__
        warning_message.message = UserWarning(f"{name}: {warning_message.message}")
        warning_message.category = UserWarning


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config, log):
    """Share the tests among workers by file."""
    return ByFile(config, log)


def pytest_collection_modifyitems(items):
    """Begin with the longest files."""
    longest_first(items)


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder with real data and reference outputs; absent on a user's machine."""
    folder = Path(os.environ.get("OFMU_SHARED", ROOT.parent / "shared"))
    if not folder.is_dir():
        pytest.skip(f"no shared data at {folder} (set OFMU_SHARED)")
    return folder


@pytest.fixture(autouse=True, scope="session")
def _callbacks_of_packages_once():
    """Each of Lightning's trainers looks through all installed packages for callbacks of theirs."""
    from lightning.pytorch.trainer.connectors import callback_connector

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            callback_connector, "_load_external_callbacks", cache(callback_connector._load_external_callbacks)
        )
        yield


@pytest.fixture(autouse=True, scope="session")
def _own_cache(tmp_path_factory):
    """Results of other runs, and of other code, are not to be found."""
    os.environ["OFMU_CACHE"] = str(tmp_path_factory.mktemp("cache"))
