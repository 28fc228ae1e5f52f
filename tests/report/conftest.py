"""One synthetic benchmark with its report, which several tests look at."""

import pytest

from ofmu_pl.report import report
from tests.helpers import folders


@pytest.fixture(scope="session")
def page(tmp_path_factory):
    """The page of a benchmark that has every kind of experiment."""
    folder = tmp_path_factory.mktemp("logs") / "synthetic"
    folders.everything(folder)
    return report(folder)


@pytest.fixture
def bench(tmp_path):
    """A benchmark to fill."""
    return folders.Benchmark(tmp_path / "bench")
