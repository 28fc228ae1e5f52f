"""Multiple choice against lm-eval itself, on real MMLU questions and a model trained here (pip install lm-eval)."""

import numpy as np
import pytest
from transformers import AutoModelForCausalLM, AutoTokenizer

from ofmu_pl.data.own_files import read_file
from ofmu_pl.data.text import PlainEncoder
from ofmu_pl.data.wmdp import choice_rows
from ofmu_pl.evaluation.scoring import score_rows
from ofmu_pl.metrics.choice import correct_choices


@pytest.mark.slow
def test_likelihoods_and_choices_equal_lm_eval_s(shared):
    huggingface = pytest.importorskip("lm_eval.models.huggingface", reason="lm-eval is not installed")
    instance = pytest.importorskip("lm_eval.api.instance")
    folder = shared / "models/tofu-tiny-full"
    model, tokenizer = AutoModelForCausalLM.from_pretrained(folder).eval(), AutoTokenizer.from_pretrained(folder)
    rows = read_file(shared / "data/mmlu/test_sample.jsonl", "data.mmlu")
    questions = [q for q in choice_rows(rows, None) if len(q["question"]) < 500][:100]
    encoder = PlainEncoder(tokenizer)
    assert not encoder.mark
    scores = score_rows(model, encoder, {"mmlu": questions}, max_new_tokens=None)["mmlu"]
    ours = np.column_stack([scores.answer_loss, scores.wrong_losses])

    judge = huggingface.HFLM(pretrained=model, tokenizer=tokenizer, batch_size=8, device="cpu")
    asked = [(q["question"], letter) for q in questions for letter in (q["answer"], *q["perturbed_answer"])]
    requests = [instance.Instance("loglikelihood", {}, pair, i) for i, pair in enumerate(asked)]
    theirs = -np.array([likelihood for likelihood, _ in judge.loglikelihood(requests)]).reshape(-1, 4)
    np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-4)
    assert ((theirs.argmin(axis=1) == 0) == correct_choices(scores)).mean() == 1
