"""MUSE's sustainability: its folds one after another, by the shipped list, on Authors as running texts."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
import yaml
from transformers import LlamaConfig, LlamaForCausalLM

from ofmu_pl.cli import main
from ofmu_pl.data.own_tokenizer import train_tokenizer
from ofmu_pl.support.records import Results
from tests.helpers.muse_files import parts, written
from tests.helpers.texts import SHAPE

ROOT = Path(__file__).parent.parent.parent


@pytest.mark.slow
def test_every_measurement_is_made_after_each_fold(tmp_path, monkeypatch):
    files = parts() | {"sust/forget_2": parts()["raw/forget"][1:]}
    tokenizer = train_tokenizer([json.dumps(files)])
    torch.manual_seed(0)
    shape = {**SHAPE, "vocab_size": len(tokenizer), "initializer_range": 0.02, "max_position_embeddings": 4096}
    for saved in (LlamaForCausalLM(LlamaConfig(**shape)), tokenizer):
        saved.save_pretrained(tmp_path / "target")
    monkeypatch.setenv("OFMU_MUSE", written(tmp_path / "muse", files))
    monkeypatch.setenv("OFMU_MUSE_TARGET", str(tmp_path / "target"))
    asked = yaml.safe_load((ROOT / "configs/requests/muse.yaml").read_text())
    asked["options"] |= {"trainer.max_steps": 2, "trainer.accelerator": "cpu", "evaluation.max_new_tokens": 4}
    asked["options"] |= {"data.batch_size": 1, "checkpoint.save_top_k": 0}
    asked |= {"methods": {"npo": asked["methods"]["npo"]}, "requests": asked["requests"][:2]}
    (tmp_path / "list.yaml").write_text(yaml.safe_dump(asked))
    main(["requests", "--config", str(tmp_path / "list.yaml"), "--logs", str(tmp_path / "logs"), "--workers", "1"])
    folds = sorted((tmp_path / "logs/requests_muse/npo/seed_0").glob("request_*/latest/results.json"))
    assert len(folds) == 2
    for path in folds:
        found = Results.read(path).metrics
        assert {"verbmem_forget", "knowmem_forget", "knowmem_retain", "privleak"} <= set(found)
        assert found["verbmem_forget"]["n"] == 2, "the published forget set, whatever the fold"
