"""Evaluation sets scored in one pass, against slow and independent ways and against open-unlearning's log."""

import json
import zlib

import numpy as np
import pytest
import torch

from ofmu_pl.data.encoded import Encoded, answers_of
from ofmu_pl.data.text import Encoder
from ofmu_pl.evaluation import prompts, questions
from ofmu_pl.evaluation.scoring import score_rows
from ofmu_pl.metrics import min_k
from ofmu_pl.support.errors import UserError
from tests.helpers.forked_ranks import on_two_ranks
from tests.helpers.texts import VOCABULARY, greedy, log_probabilities, make_model, token_losses

SETS = {"forget": "forget", "retain": "retain", "real_authors": "ra", "world_facts": "wf"}
ROWS = [
    {"question": "q?", "answer": "yes", "paraphrased_answer": "yeah", "perturbed_answer": ["no", "never mind"]},
    {"question": "who is it", "answer": "me", "paraphrased_answer": "I am", "perturbed_answer": ["you", "she"]},
    {"question": "q?", "answer": "yes", "paraphrased_answer": "no", "perturbed_answer": ["yeah", "yes"]},
]
"""The first and the last share a question, and most answers."""


class Numbers:
    """The part of a tokenizer that generation needs: tokens as numbers."""

    eos_token_id: int | None = None

    def decode(self, tokens, skip_special_tokens):
        return " ".join(map(str, tokens))


class Letters(Encoder):
    """Encodes text by letters; no Hugging Face tokenizer needed."""

    stops = ()
    template_hash = "letters"
    written = _special = ()
    most: int | None = None
    """Letters of an answer after which it is cut."""

    def __init__(self):
        self.tokenizer = Numbers()

    def row_prompt(self, row):
        return [ord(c) % VOCABULARY for c in row["question"]]

    def encode_answers(self, rows):
        return [[self.answered(self.prompt(row["question"]), answer) for answer in answers_of(row)] for row in rows]

    def answered(self, prompt, answer):
        ids = self.prompt(answer)[: self.most]
        return Encoded(prompt + ids, [-100] * len(prompt) + ids, len(prompt), len(answer) - len(ids))

    def ends(self, tokens):
        """The last letter stands for the end mark."""
        return 1


def tokens(question, answer):
    encoded = Letters().encode(question, answer)
    return encoded.input_ids[: encoded.prompt_length], encoded.input_ids[encoded.prompt_length :]


@pytest.fixture
def model():
    return make_model()


def loss_of(model, question, answer):
    return token_losses(model.eval(), *tokens(question, answer)).mean()


@pytest.mark.parametrize(("budget", "chunk"), [(1, 1), (6, 2), (10_000, 64)])
def test_everything_equals_one_answer_at_a_time(model, budget, chunk, monkeypatch):
    monkeypatch.setitem(questions.TOKENS_PER_BATCH, "cpu", budget)
    monkeypatch.setitem(questions.PROMPTS_PER_CHUNK, "cpu", chunk)
    monkeypatch.setitem(prompts.CHUNK_ELEMENTS, "cpu", budget * VOCABULARY)  # logits are cut inside answers
    scores = score_rows(model, Letters(), {"forget": ROWS, "holdout": ROWS[1:2]}, max_new_tokens=5)
    s = scores["forget"]
    for k, row in enumerate(ROWS):
        loss = lambda answer, q=row["question"]: loss_of(model, q, answer)  # noqa: E731
        assert s.answer_loss[k] == pytest.approx(loss(row["answer"]), rel=1e-10)
        assert s.paraphrase_loss[k] == pytest.approx(loss(row["paraphrased_answer"]), rel=1e-10)
        assert s.wrong_losses[k] == pytest.approx([loss(x) for x in row["perturbed_answer"]], rel=1e-10)
        prompt, answer = tokens(row["question"], row["answer"])
        logp = log_probabilities(model, prompt, answer)[:-1]  # not the end token
        own, n = logp[range(len(answer) - 1), answer[:-1]], len(answer) - 1
        right = logp.argmax(1) == answer[:-1]
        mean = (np.exp(logp) * logp).sum(1)
        z = (own - mean) / np.sqrt((np.exp(logp) * logp**2).sum(1) - mean**2)
        assert (s.tokens[k], s.correct[k]) == (n, right.sum())
        assert s.suffix[k] == max(m for m in range(n + 1) if right[n - m :].all())
        assert (s.min_k[k], s.min_k_plus_plus[k]) == pytest.approx((min_k(own), min_k(z)), rel=1e-8)
        assert s.zlib_bytes[k] == len(zlib.compress(row["answer"].encode()))
        assert s.generations[k] == " ".join(map(str, greedy(model, prompt, (), 5)))
    assert scores["holdout"].min_k[0] == s.min_k[1]
    assert scores["holdout"].generations is None


def test_the_text_of_a_cut_answer_is_what_is_scored(model):
    letters = Letters()
    letters.most = 2
    row = ROWS[1] | {"answer": "me too"}
    found = score_rows(model, letters, {"holdout": [row]}, max_new_tokens=None)["holdout"]
    scored = letters.tokenizer.decode(letters.prompt("me"), skip_special_tokens=True)
    assert found.zlib_bytes.tolist() == [len(zlib.compress(scored.encode()))]


def test_no_prompt_and_no_answer_is_read_twice(model, monkeypatch):
    monkeypatch.setitem(questions.COST_OF_CALL, "cpu", 0)  # no padding at all
    read = []
    model.base_model.register_forward_pre_hook(lambda m, a, kw: read.append(kw["input_ids"].numel()), with_kwargs=True)
    score_rows(model, Letters(), {"forget": ROWS, "retain": ROWS}, max_new_tokens=None)
    prompts = sum(len(question) - 1 for question in ("q?", "who is it"))
    answers = len("yes" + "yeah" + "no" + "never mind") + len("me" + "I am" + "you" + "she")
    assert sum(read) == prompts + answers


def test_state_is_restored_and_training_settings_do_not_matter(model):
    before = score_rows(model.eval(), Letters(), {"forget": ROWS}, max_new_tokens=4)["forget"].as_dict()
    assert not model.training
    for layer in model.model.layers:
        layer.self_attn.attention_dropout = 0.5
    model.config.use_cache = False
    model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    model.train()
    assert score_rows(model, Letters(), {"forget": ROWS}, max_new_tokens=4)["forget"].as_dict() == before
    assert all(layer.training for layer in model.model.layers)
    assert model.model.gradient_checkpointing
    assert model.config.use_cache is False
    assert torch.is_grad_enabled()


def test_a_broken_model_is_refused(model):
    with torch.no_grad():
        model.model.norm.weight[0] = float("nan")
    with pytest.raises(UserError, match=r"\(3 of 3 .*forget\)"):
        score_rows(model, Letters(), {"forget": ROWS}, max_new_tokens=None)


def test_ranks_share_the_work_and_all_get_everything(tmp_path):
    def scored(_=0):
        scores = score_rows(make_model(), Letters(), {"forget": ROWS, "holdout": ROWS[:1]}, max_new_tokens=4)
        return {name: s.as_dict() for name, s in scores.items()}

    for found in on_two_ranks(scored, tmp_path):
        for name, fields in scored().items():
            for key, value in fields.items():
                assert found[name][key] == (value if value is None else pytest.approx(np.array(value), rel=1e-9)), key


def test_each_answer_goes_to_its_field(model):
    """A row without a paraphrase counts with its answer."""
    rows = [ROWS[0], {name: x for name, x in ROWS[1].items() if name != "paraphrased_answer"}]
    sets = {"retain": rows, "world_facts": [{"question": "where", "answer": "there"}], "forget": []}
    scores = score_rows(model, Letters(), sets, max_new_tokens=None)
    paraphrases = [loss_of(model, "q?", "yeah"), loss_of(model, "who is it", "me")]
    assert scores["retain"].paraphrase_loss == pytest.approx(paraphrases)
    facts = scores["world_facts"]
    assert facts.answer_loss == pytest.approx([loss_of(model, "where", "there")])
    assert (facts.paraphrase_loss, facts.wrong_losses, facts.rouge) == (None, None, None)
    assert len(scores["forget"].answer_loss) == 0
    assert all(s.generations is None for s in scores.values())


@pytest.mark.parametrize(("n", "items"), [(10, 4), (10, 7), (10, 10), (3, 4), (10, 2)])
def test_a_limit_takes_so_many_evenly_spaced_rows_under_their_own_ids(model, n, items):
    rows = [{"question": "q" * (i + 1), "answer": "a" * (i + 1)} for i in range(n)]
    everything = score_rows(model, Letters(), {"forget": rows}, max_new_tokens=None)
    some = score_rows(model, Letters(), {"forget": rows}, max_new_tokens=3, items=items)
    ids = some["forget"].ids
    assert len(ids) == min(n, items)
    assert np.ptp(np.diff([*ids, n + ids[0]])) <= 1, "also from the last to where the first comes again"
    assert some["forget"].answer_loss == pytest.approx(everything["forget"].answer_loss[ids])
    assert len(some["forget"].generations) == len(some["forget"].rouge) == len(ids)


def test_rows_with_unequal_numbers_of_wrong_answers_are_refused(model):
    rows = [{"question": "q", "answer": "a", "perturbed_answer": wrong} for wrong in (["b"], ["b", "c"])]
    with pytest.raises(UserError, match="'retain' .*perturbed_answer"):
        score_rows(model, Letters(), {"retain": rows}, max_new_tokens=None)


def test_real_rows_score_as_open_unlearning_scored_them(shared, tiny):
    scores = score_rows(*tiny, max_new_tokens=200, items=24)
    log = json.loads((shared / "reference/open-unlearning-tiny/full/TOFU_EVAL.json").read_text())
    # The stored losses lie about 1e-5 nats below float64's, whatever their size: 0.01 cannot be met to 1e-4 relative.
    close = {"rtol": 1e-4, "atol": 2.5e-5}
    for name, p in SETS.items():
        s = scores[name]
        assert 20 <= len(s.ids) <= 24

        def stored(key, field, prefix=p, ids=s.ids):
            return [log[f"{prefix}_{key}"]["value_by_index"][str(i)][field] for i in ids]

        np.testing.assert_allclose(s.answer_loss, stored("Q_A_Prob", "avg_loss"), **close)
        np.testing.assert_allclose(s.wrong_losses, stored("Q_A_PERT_Prob", "avg_loss"), **close)
        if name in ("forget", "retain"):
            np.testing.assert_allclose(s.paraphrase_loss, stored("Q_A_PARA_Prob", "avg_loss"), **close)
        # All but a greedy token that ties within float32's rounding.
        same = [a == b for a, b in zip(s.generations, stored("Q_A_ROUGE", "generation"), strict=True)]
        assert sum(same) >= len(same) - 1
        np.testing.assert_allclose(s.rouge[same], np.array(stored("Q_A_ROUGE", "rougeL_recall"))[same], atol=1e-12)
