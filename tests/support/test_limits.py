"""Expressions and templates of others end in time."""

import copy
import signal
import threading

import pytest
from torch import nn

from ofmu_pl.data.own_tokenizer import train_tokenizer
from ofmu_pl.data.tokenizers import rendered
from ofmu_pl.networks.adapters import add_adapters, train_only
from ofmu_pl.support import limits
from ofmu_pl.support.errors import UserError

SLOW = "^(([a-z0-9_])+.?)+!$"  # of two to the length of a name


@pytest.fixture(autouse=True)
def soon(monkeypatch):
    monkeypatch.setattr(limits, "LONGEST", 0.2)


def test_names_of_parameters_and_modules():
    network = nn.ModuleDict({"b": nn.ModuleDict({"a" * 40: nn.Linear(2, 2)})})
    with pytest.raises(UserError, match="model.network.trainable"):
        train_only(network, SLOW)
    patterns = {"layers_pattern": "((.+)+)+#", "layers_to_transform": [0]}
    others = [{"exclude_modules": SLOW}, {"rank_pattern": {SLOW: 2}}, {"alpha_pattern": {SLOW: 2}}]
    for slow in ({"target_modules": SLOW}, patterns, *others):
        given = {"target_modules": ["a" * 40], "task_type": None, **slow}
        with pytest.raises(UserError, match=r"model.network.lora .*\d seconds"):
            add_adapters(network, given)


def test_templates():
    tokenizer = copy.deepcopy(train_tokenizer(["one two"]))
    tokenizer.chat_template = "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}"
    with pytest.raises(UserError, match="seconds"):
        rendered(tokenizer, [{"role": "user", "content": "one"}], True, {"date_string": ""})


def test_an_alarm_of_another_goes_on_and_threads_have_none():
    before, seen = signal.getsignal(signal.SIGALRM), []

    def work():
        with limits.within("It"):
            seen.append(signal.getitimer(signal.ITIMER_REAL)[0])

    left, _ = signal.setitimer(signal.ITIMER_REAL, 100.0)
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    work()
    kept, _ = signal.setitimer(signal.ITIMER_REAL, left)
    assert 0.0 < seen[1] <= 0.2 < 90.0 < seen[0]
    assert kept > 90.0
    assert signal.getsignal(signal.SIGALRM) == before
