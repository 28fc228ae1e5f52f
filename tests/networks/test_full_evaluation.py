"""The whole suite on real TOFU against what open-unlearning wrote for the same models (minutes long)."""

import json

import pytest
from transformers import AutoModelForCausalLM

from ofmu_pl.data import TOFU
from ofmu_pl.metrics import tofu_metrics
from ofmu_pl.networks.scoring import score_rows


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_tiny_models_score_as_open_unlearning_scored_them(shared):
    data = TOFU(str(shared / "data/tofu"), tokenizer=str(shared / "models/tofu-tiny-full"))
    data.setup()
    scores = {}
    for name in ("full", "retain90"):
        model = AutoModelForCausalLM.from_pretrained(shared / f"models/tofu-tiny-{name}").eval()
        scores[name], _ = score_rows(model, data.encoder, data.evaluation_sets, max_new_tokens=200)
    for name in scores:
        ours = tofu_metrics(scores[name], scores["retain90"])
        theirs = json.loads((shared / f"reference/open-unlearning-tiny/{name}/TOFU_SUMMARY.json").read_text())
        for metric in ("forget_Q_A_Prob", "forget_Q_A_ROUGE", "forget_truth_ratio", "model_utility"):
            assert ours[metric].value == pytest.approx(theirs[metric], rel=1e-3), (name, metric)
        expected = theirs["forget_quality"] if name == "full" else 1.0
        assert ours["forget_quality"].value == pytest.approx(expected, rel=1e-6), "the same step of the KS lattice"
