"""TOFU's quantities item by item, and the metrics that are means of them."""

from functools import partial

import numpy as np

from ofmu_pl.metrics import functional as F
from ofmu_pl.metrics.definitions import Definition
from ofmu_pl.metrics.fluency import FLUENCY
from ofmu_pl.metrics.result import Metric
from ofmu_pl.metrics.scores import Scores, SetScores
from ofmu_pl.support.sets import SETS, forgets, is_document, is_probe, is_request, prefix_of

_forgotten = partial(Metric, higher_is_better=False, group="forgotten")
_LIKELY = "On {rows}, the model gives a word of the right answer a probability of {value} on average."
_SAID = "On {rows}, the model's own answers have {value} of the right answer's words, in their order."
PROBABILITY = _forgotten("forget_Q_A_Prob", column=5, says=_LIKELY)
PARAPHRASE_PROBABILITY = _forgotten(
    "forget_Q_A_PARA_Prob", says=_LIKELY.replace("the right answer", "the right answer, put otherwise,")
)
FACTS_PROBABILITY = _forgotten(
    "forget_facts_Prob",
    says="On {rows}, the model gives a word of the facts in the right answer a probability of {value} on average.",
)
FACTS_LOSS = _forgotten(
    "forget_facts_loss",
    higher_is_better=True,
    unit="nats",
    says="On {rows}, the facts in the right answer, words that neither the question nor retained answers tell, "
    "surprise the model by {value} a token.",
)
ROUGE = _forgotten("forget_Q_A_ROUGE", column=6, says=_SAID)
EXTRACTION_STRENGTH = _forgotten(
    "extraction_strength",
    column=8,
    says="On {rows}, given the beginning of the right answer, the model completes the last {value} of it without a "
    "mistake.",
)
EXACT_MEMORIZATION = _forgotten(
    "exact_memorization",
    says="On {rows}, shown the right answer up to a word, the model's first guess at that word is right in {value} of "
    "cases.",
)
TRUTH_RATIO = _forgotten(  # nearer to an even chance
    "forget_truth_ratio",
    higher_is_better=True,
    column=4,
    says="On {rows}, right answers and wrong ones are equally likely to the model to {value}, 100 % being an even "
    "chance.",
)
TRUTH_PROBABILITY = _forgotten("forget_truth_probability")

_kept = partial(Metric, higher_is_better=True, group="kept")
KEPT_PROBABILITY = _kept("retain_Q_A_Prob", column=7, says=_LIKELY)
KEPT_ROUGE = _kept("retain_Q_A_ROUGE", says=_SAID)
KEPT_NORMALISED = _kept(
    "retain_Q_A_Prob_normalised",
    says="On {rows}, the model chooses the right answer among wrong ones with a probability of {value}, on average.",
)
KEPT_TRUTH_RATIO = _kept(
    "retain_Truth_Ratio",
    says="On {rows}, the model holds the right answer for likelier than wrong ones to {value} (TOFU's truth ratio).",
)


def of_set(metric: Metric, name: str) -> Metric:
    """Declare a metric of the forget or retain side for an evaluation set of that side.

    >>> of_set(KEPT_ROUGE, "real_authors").name, of_set(ROUGE, "probe_x_forget").name
    ('ra_Q_A_ROUGE', 'probe_x_forget_Q_A_ROUGE')
    """
    if name in ("forget", "retain"):
        return metric
    side = "forget" if forgets(name) else "retain"
    if is_probe(name):
        return metric.of(name, side, group="probes", column=None, family=name.rpartition("_")[0])
    if is_request(name):
        return metric.of(name, side, group="requests", column=None, family=name)
    return metric.of(str(prefix_of(name)), side, column=None, rows=name)


def item_values(scores: Scores, d: Definition) -> dict[str, dict[Metric, np.ndarray]]:
    """Values by evaluation set and metric, item by item, from which means, intervals and logs are made."""
    judged = [name for name in SETS if name in scores]
    judged += [name for name in scores if is_probe(name) or (is_request(name) and not is_document(name))]
    found = {}
    for name in judged:
        values = of_forget(scores[name], d) if forgets(name) else _of_kept(name, scores[name], d)
        found[name] = {of_set(metric, name): x for metric, x in values.items()}
        for metric, x in zip(FLUENCY.get(name, ()), (scores[name].repetition, scores[name].entropy), strict=False):
            found[name] |= {} if x is None else {metric: x}
    return found


def log_truth_ratio(s: SetScores, d: Definition) -> np.ndarray | None:
    """Log truth ratios, (N,); ``None`` for a set without wrong answers."""
    return (
        None if s.wrong_losses is None else F.log_truth_ratio(s.correct_loss, s.wrong_losses, d.wrong_mean, d.epsilon)
    )


def of_forget(s: SetScores, d: Definition) -> dict[Metric, np.ndarray]:
    """Per-item values of a set that must be forgotten, of those that the scores allow."""
    values = {PROBABILITY: F.probability(s.answer_loss)}
    if s.facts_loss is not None:
        values |= {FACTS_LOSS: s.facts_loss, FACTS_PROBABILITY: F.probability(s.facts_loss)}
    if s.paraphrase_loss is not None:
        values[PARAPHRASE_PROBABILITY] = F.probability(s.paraphrase_loss)
    if s.rouge is not None:
        values[ROUGE] = s.rouge
    if s.tokens is not None and s.suffix is not None and s.correct is not None:
        values[EXTRACTION_STRENGTH] = F.extraction_strength(s.suffix, s.tokens, d.extraction_floor)
        some = s.tokens > 0  # an answer of no tokens cannot be memorised: it is left out, as in open-unlearning
        values[EXACT_MEMORIZATION] = s.correct[some] / s.tokens[some]
    ratio = log_truth_ratio(s, d)
    if ratio is not None:
        values[TRUTH_RATIO] = F.closer_to_one(ratio, d.epsilon)
        values[TRUTH_PROBABILITY] = F.truth_probability(ratio)
    return values


def _of_kept(name: str, s: SetScores, d: Definition) -> dict[Metric, np.ndarray]:
    values = {KEPT_PROBABILITY: F.probability(s.answer_loss)}
    if s.rouge is not None:
        values[KEPT_ROUGE] = s.rouge
    ratio = log_truth_ratio(s, d)
    if ratio is None or s.wrong_losses is None:
        return values
    if name != "retain" and not is_probe(name):  # whose probability counts as it is: retain rows were trained on
        values[KEPT_NORMALISED] = F.normalised_probability(s.answer_loss, s.wrong_losses, d.epsilon)
    return values | {KEPT_TRUTH_RATIO: F.true_better(ratio)}
