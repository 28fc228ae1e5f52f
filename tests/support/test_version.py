"""RESULTS_VERSION is in every key, and has to be raised when the numbers change."""

import subprocess
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from ofmu_pl import losses
from ofmu_pl.benchmark.comparison import Comparisons
from ofmu_pl.benchmark.grid import Cell
from ofmu_pl.core.autograd import Autograd
from ofmu_pl.core.objective import Phi
from ofmu_pl.core.vectors import norm
from ofmu_pl.data import Authors
from ofmu_pl.data.sampler import batch_indices
from ofmu_pl.data.split import draw_split
from ofmu_pl.evaluation.scoring import score_rows
from ofmu_pl.metrics import SetScores, tofu_metrics
from ofmu_pl.modules import OFMU
from ofmu_pl.networks import CausalLM
from ofmu_pl.support import version
from ofmu_pl.support.kept import content_path
from ofmu_pl.support.provenance import provenance
from tests.helpers.cases import BETA, FLOOR, direction, mlp
from tests.helpers.training import TINY, train, within_a_budget


def cell():
    return Cell("e/s/m/seed_0", (), {"model.network.path": "a", "evaluation.reference": "b"}, {})


KEYS = {
    "a run of a benchmark": lambda folder: cell().key,
    "a comparison of models": lambda folder: Comparisons(folder, {})._job("e", "s", 0, {"m": cell()}).key,
    "everything kept by content": lambda folder: content_path(folder, "scores", {"a": 1}),
}


@pytest.mark.parametrize("what", KEYS)
def test_keys_follow_the_version(what, tmp_path, monkeypatch):
    before = KEYS[what](tmp_path)
    assert KEYS[what](tmp_path) == before
    monkeypatch.setattr(version, "RESULTS_VERSION", version.RESULTS_VERSION + 1)
    assert KEYS[what](tmp_path) != before


def test_a_commit_of_somebody_else_s_is_not_ours(tmp_path, monkeypatch):
    """Installed below a user's own repository, where git would answer for that one."""
    installed = tmp_path / ".venv/ofmu_pl/support"
    installed.mkdir(parents=True)
    (tmp_path / "paper.tex").touch()
    for words in (["init"], ["add", "paper.tex"], ["commit", "-m", "theirs"]):
        who = ["-c", "user.name=A", "-c", "user.email=a@b.c"]
        subprocess.run(["git", "-C", tmp_path, *who, *words], check=True, capture_output=True)
    monkeypatch.setattr("ofmu_pl.support.provenance.__file__", str(installed / "provenance.py"))
    facts = provenance(SimpleNamespace(name="authors", hashes={}, facts={}))
    assert (facts["git"], facts["results_version"]) == (None, version.RESULTS_VERSION)


def numbers_of_now():
    """One number from each part of the code whose change must raise ``RESULTS_VERSION``, whatever the machine."""
    case = mlp()
    phi = Phi(Autograd(case.parameters), case.loss("forget"), case.loss("retain"), BETA, FLOOR, 3)
    nll = torch.tensor([1.0, 2.5], dtype=torch.float64)
    split = draw_split(np.arange(40) % 4, np.arange(8) % 4, forget_fraction=0.25, seed=3)
    axis = np.linspace(0.1, 2, 12)
    one = SetScores(np.arange(12), axis, axis[::-1] + 0.3, np.stack([axis + 1, 3 - axis], 1), rouge=axis / 2)
    other = SetScores(np.arange(12), axis + 0.7, axis[::-1], np.stack([axis + 2, 2.5 - axis], 1), rouge=axis / 3)
    sets = {name: one for name in ("forget", "retain", "real_authors", "world_facts")}
    metrics = tofu_metrics(sets, {name: other for name in sets})
    torch.manual_seed(0)
    method = OFMU(CausalLM(config=TINY), inner_steps=2)
    last = train(method, steps=2).callback_metrics
    data = Authors(authors=4, forget_authors=1)
    data.setup()
    rows = {"forget": data.evaluation_sets["forget"][:4]}
    scores = score_rows(method.network, data.encoder, rows, max_new_tokens=4)
    return {
        "core: |grad Phi|": norm(phi.gradient()),
        "core: |Hess(Phi) v|": norm(phi.hessian_vector(direction(case))),
        "losses: NPO": losses.npo(nll, nll + 0.5, 0.1).sum().item(),
        "data: a batch": float(np.dot(batch_indices(9, 4, 5, "forget", 3), [1, 10, 100, 1000])),
        "data: a split": float(split.forget @ np.arange(len(split.forget))),
        "metrics: forget_quality": metrics["forget_quality"].value,
        "metrics: model_utility": metrics["model_utility"].value,
        "modules: L_f": float(last["L_f"]),
        "modules: penalty": float(last["penalty"]),
        "networks: a score": float(scores["forget"].answer_loss.sum()),
        "training: iterations within a budget": float(within_a_budget([30, 6, 6, 6, 6] * 3, 5, 60)),
    }


NUMBERS = {
    22: {
        "core: |grad Phi|": 0.6302921608474482,
        "core: |Hess(Phi) v|": 0.2581580851775867,
        "losses: NPO": 28.738385920531453,
        "data: a batch": 3612.0,
        "data: a split": 978.0,
        "metrics: forget_quality": 0.5360977695073805,
        "metrics: model_utility": 0.47190650352467534,
        "modules: L_f": 6.936988353729248,
        "modules: penalty": 0.2935395836830139,
        "networks: a score": 27.752227006020483,
        "training: iterations within a budget": 5.0,
    }
}
"""By version: in the place of the old ones put what ``numbers_of_now`` gives."""


def test_whoever_changes_a_number_raises_the_version():
    assert version.RESULTS_VERSION in NUMBERS, "add the numbers of the new version to NUMBERS"
    now, then = numbers_of_now(), NUMBERS[version.RESULTS_VERSION]
    assert now == pytest.approx(then, rel=1e-4), (
        f"raise RESULTS_VERSION in ofmu_pl/support/version.py and put this here: {now}"
    )
