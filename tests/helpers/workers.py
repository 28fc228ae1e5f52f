"""How pytest-xdist's workers share the tests: by file, and what takes a minute to make is made by one of them."""

import os

from xdist.scheduler import LoadFileScheduling

from ofmu_pl.support.files import locked

TOGETHER = dict.fromkeys(
    ("benchmark/test_benchmark.py", "benchmark/test_text.py", "cli/test_faults.py", "requests/test_requests.py"),
    "server",
)
"""Files that one worker gets together: their processes are forked from one server, which takes long to start."""

LONGEST = (
    *TOGETHER,
    "distributed/test_equivalence.py",
    "cli/test_ranks.py",
    "modules/test_image_methods.py",
)
"""Files that begin first, so that at the end no worker is alone with one of them; xdist begins with many tests."""


class ByFile(LoadFileScheduling):
    """One file after the other to whichever worker is idle, but for those that belong together."""

    def _split_scope(self, nodeid: str) -> str:
        file = super()._split_scope(nodeid).removeprefix("tests/")
        return "report" if file.startswith("report/") else TOGETHER.get(file, file)


def longest_first(items):
    """Sort tests of the longest files to the front; the others stay in their order."""
    place = {f"tests/{file}": number for number, file in enumerate(LONGEST)}
    items.sort(key=lambda item: place.get(item.nodeid.partition("::")[0], len(place)))


def made_once(factory, name, make):
    """The folder of this name, which the first worker that asks for it fills by ``make``, given its path."""
    root = factory.getbasetemp()
    folder = (root.parent if "PYTEST_XDIST_WORKER" in os.environ else root) / name
    made = folder.with_suffix(".made")
    with locked(folder.with_suffix(".lock"), wait=True):
        if not made.exists():
            make(folder)
            made.touch()
    return folder
