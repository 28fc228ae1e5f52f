"""Traces: does a model that has forgotten answer other questions otherwise than one that was retrained?

Chen et al. 2025 (arXiv 2506.14003) tell unlearned models from their originals; here it is from the retrained model.
Two retrained models can be told apart, too, which is what the figure stands beside.
"""

import numpy as np

from ofmu_pl.attacks.asking import ask, log_probabilities, question_rows
from ofmu_pl.attacks.base import Attack, Finding, unless_finite
from ofmu_pl.attacks.subject import Subject
from ofmu_pl.metrics.result import Metric
from ofmu_pl.support.errors import UserError, check_range
from ofmu_pl.support.records.models import RETRAINED, SECOND

AUC = Metric("traces_auc", higher_is_better=False, group="attacks")
NULL = Metric("traces_null", higher_is_better=False, group="attacks")
DIFFER = Metric("traces_differ", higher_is_better=False, group="attacks")
FOLDS, FLIPS = 5, 100


class Traces(Attack):
    """Tell a model's answers to retain prompts from the retrained model's.

    Features of an answer are its runs of one to three characters (tf-idf). A logistic regression without intercept is
    fitted on the differences between the two answers to a prompt, and asked of prompts that it was not fitted on which
    answer is whose. Found is the AUC within prompts, the share that it gets right: 0.5 is chance. Beside it stand its
    null, below which 95 of 100 values lie when the two answers to each prompt change places at random, and the share of
    prompts whose answers differ at all: where both models know the rows by heart, there is little to tell.

    On the retrained model it is asked of that and a second one, which ``evaluation.second_reference`` of the run names;
    without such a model it is 0.5, since a model cannot be told from itself.

    Args:
        rows: Most retain prompts; ``null``: all.
        max_new_tokens: Most tokens of an answer.

    Example:
        >>> [metric.name for metric in Traces(rows=50).metrics]
        ['traces_auc', 'traces_null', 'traces_differ']
    """

    metrics = (AUC, NULL, DIFFER)
    x_label, y_label = "", ""
    compares, brings_back = True, False

    def __init__(self, rows: int | None = 200, max_new_tokens: int = 64) -> None:
        check_range(1, rows=rows, max_new_tokens=max_new_tokens)
        self.rows, self.max_new_tokens = rows, max_new_tokens

    def run(self, subject: Subject, seed: int) -> Finding:
        """Ask both models, and fit and test the classifier; nothing is drawn by the seed."""
        if RETRAINED not in subject.others:
            raise UserError(
                f"The attack '{self.name}' needs the retrained model: give it, or take the attack out of the list."
            )
        other = SECOND if subject.recipe is subject.others[RETRAINED] else RETRAINED
        rows = question_rows(subject, "retain", self.rows)
        encoded = [subject.data.encoder.encode_row(row)[0] for row in rows]
        prompts = [x.input_ids[: x.prompt_length] for x in encoded]
        model = subject.build()
        broken = unless_finite(log_probabilities(model, prompts, [x.input_ids[x.prompt_length :] for x in encoded]))
        if other not in subject.others or broken or len(rows) < FOLDS:
            return Finding.of_rows(AUC, [0.5] * len(rows), broken=broken)
        texts: list[str] = []
        for one in (model, subject.build(other)):
            texts += [said for (said,) in ask(one, subject.data.encoder, prompts, self.max_new_tokens)]
        right, null, differ = told_apart(texts)
        found = Finding.of_rows(AUC, right.tolist())
        found.figures |= {NULL.name: null, DIFFER.name: differ}
        return found


def told_apart(texts: list[str]) -> tuple[np.ndarray, float, float]:
    """Tell n texts from n others, each the pair of the one n places further on.

    Returns:
        (n,) 1 where the pair is told right, 0 where it is told wrong and 0.5 where nothing tells it; the 95 % quantile
        of their mean when the two texts of each pair change places at random; and the share of pairs that differ.
    """
    from sklearn.feature_extraction.text import TfidfVectorizer  # takes a second: only where it is used

    n = len(texts) // 2
    if texts[:n] == texts[n:]:
        return np.full(n, 0.5), 0.5, 0.0
    features = TfidfVectorizer(analyzer="char", ngram_range=(1, 3), lowercase=False).fit_transform(texts)
    # A penalised fit sees products of rows alone, which are the same in n coordinates.
    differences = np.linalg.qr((features[:n] - features[n:]).toarray().T).R.T
    flips = np.random.default_rng(0).choice([-1.0, 1.0], size=(FLIPS, n, 1))
    null = [_right(signs * differences).mean() for signs in flips]
    differ = np.mean(np.array(texts[:n], dtype=object) != np.array(texts[n:], dtype=object))
    return _right(differences), float(np.quantile(null, 0.95)), float(differ)


def _right(differences: np.ndarray) -> np.ndarray:
    """Which pairs are told right by a classifier that was fitted on the others, (n,)."""
    from sklearn.linear_model import LogisticRegression

    right, folds = np.zeros(len(differences)), np.arange(len(differences)) % FOLDS
    for fold in range(FOLDS):
        x = differences[folds != fold]
        both, labels = np.concatenate([x, -x]), np.repeat([1, 0], len(x))
        probe = LogisticRegression(fit_intercept=False, solver="liblinear").fit(both, labels)
        right[folds == fold] = (1 + np.sign((differences[folds == fold] @ probe.coef_[0]).round(12))) / 2
    return right
