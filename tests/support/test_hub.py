"""Without a network what would be downloaded is refused at once, unless the user points at the hub's cache."""

import datasets
import pytest

from ofmu_pl.cli.parser import check_files
from ofmu_pl.support import hub
from ofmu_pl.support.errors import UserError


def test_the_home_of_nobody_is_no_folder():
    with pytest.raises(UserError, match="~nobody.here/x"):
        hub.local_folder("~nobody.here/x", "path")
    with pytest.raises(UserError, match="~nobody.here/x.yaml"):
        check_files(["--config", "~nobody.here/x.yaml"])


@pytest.mark.parametrize(("said", "asks"), [("0", False), ("false", False), ("", False), ("1", True), ("ON", True)])
def test_rows_of_a_hub_that_does_not_answer(said, asks, monkeypatch):
    monkeypatch.setattr(hub, "offline", lambda: True)
    monkeypatch.setattr(datasets, "load_dataset", lambda *_, **__: [{"text": "in the cache"}])
    monkeypatch.setenv("HF_HUB_OFFLINE", said)
    if asks:
        assert hub.load_hub_rows("someone/something", None, "train") == [{"text": "in the cache"}]
    else:
        with pytest.raises(ConnectionError, match="hub"):
            hub.load_hub_rows("someone/something", None, "train")
