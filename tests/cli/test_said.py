"""What is wrong is said once, however many ranks find it."""

from __future__ import annotations

import contextlib
import os

import pytest
import torch.distributed

from ofmu_pl.cli.said import fail
from tests.helpers.process import on_ranks


def refuse(output, sentences, meets):
    with output.open("a") as file, contextlib.redirect_stderr(file):
        if meets:
            torch.distributed.init_process_group("gloo")
        fail(sentences[int(os.environ["RANK"])], 2)


@pytest.mark.parametrize(
    ("sentences", "meets", "said"),
    [
        (["Mend it.", "Mend it."], True, ["Mend it."]),
        (["Mend it.", "Mend this."], True, ["Mend it.", "Mend this."]),
        (["Mend it.", "Mend it."], False, ["Mend it.", "Mend it."]),
    ],
    ids=["alike", "each its own", "before the ranks can meet"],
)
def test_a_sentence_of_several_ranks(tmp_path, sentences, meets, said):
    output = tmp_path / "said.txt"
    assert on_ranks(2, refuse, output, sentences, meets) == [2, 2]
    assert sorted(output.read_text().splitlines()) == [f"ofmu_pl: error: {sentence}" for sentence in said]
