"""Without a network what would be downloaded is refused at once, unless the user points at the hub's cache."""

import datasets
import pytest

from ofmu_pl.support import hub


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
