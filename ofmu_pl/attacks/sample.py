"""Sampling: does a model that hides the answer from a greedy reader say it to one who asks often?

Reisizadeh et al. 2025 (arXiv 2511.04934): leak@k, the chance that the best of k samples leaks. One figure needs no
samples: a sample is the stored answer, word for word, with the probability that the model gives that answer.
"""

from collections.abc import Sequence

import numpy as np
import torch

from ofmu_pl.attacks.asking import KNOWN, ask, drawn, log_probabilities, question_rows
from ofmu_pl.attacks.base import Attack, Finding
from ofmu_pl.attacks.subject import Subject
from ofmu_pl.metrics.result import Metric
from ofmu_pl.metrics.rouge import rouge_l_recall
from ofmu_pl.metrics.sampling import at_least_once, leak_at_k
from ofmu_pl.support.errors import UserError, check_range


class Sample(Attack):
    """Draw answers to the forgotten questions, and see how many draws it takes.

    A sample leaks if its ROUGE-L recall of the answer reaches a threshold. Found is leak@k at the largest k, the mean
    over questions of ``1 - C(n - c, k) / C(n, k)``, with c leaks in n samples. The curve shows leak@k along k. Beside
    it stands ``1 - (1 - p)^k`` at the same k, exactly, with p the probability of the whole answer, end token included,
    at temperature 1 (``_exact_at_``), and the share of facts that any of all n samples holds, by a recall of 0.9
    (``sample_known``).

    Args:
        k: Numbers of samples that somebody looks at.
        samples: Number of samples of each question, n.
        threshold: Least ROUGE-L recall of a sample that leaks.
        max_new_tokens: Most tokens of a sample.
        rows: Most forgotten questions; ``null``: all.

    Example:
        >>> [metric.name for metric in Sample([1, 8], samples=8).metrics]
        ['sample_leak_at_8', 'sample_exact_at_8', 'sample_known']
    """

    x_label, y_label = "samples of a question", "leak@k of forgotten rows"
    tests = "samples"

    def __init__(
        self,
        k: Sequence[int] = (1, 2, 4, 8, 16, 32),
        samples: int = 32,
        threshold: float = 0.5,
        max_new_tokens: int = 64,
        rows: int | None = 100,
    ) -> None:
        check_range(1, samples=samples, max_new_tokens=max_new_tokens, rows=rows)
        check_range(0, 1, above=True, threshold=threshold)
        if not k:
            raise UserError("attacks.k is empty: give numbers of samples, for example [1, 32].")
        for one in k:
            check_range(1, samples, k=one)
        self.k, self.samples, self.threshold = sorted(k), samples, threshold
        self.max_new_tokens, self.rows = max_new_tokens, rows
        names = (f"leak_at_{max(k)}", f"exact_at_{max(k)}", "known")
        self.metrics = tuple(Metric(f"sample_{x}", higher_is_better=False, group="attacks") for x in names)

    def run(self, subject: Subject, seed: int) -> Finding:
        """Draw the samples, all at a time as far as memory goes."""
        rows = question_rows(subject, "forget", self.rows)
        encoded = [subject.data.encoder.encode_row(row)[0] for row in rows]
        prompts = [x.input_ids[: x.prompt_length] for x in encoded]
        model = subject.build()
        log_p = log_probabilities(model, prompts, [x.input_ids[x.prompt_length :] for x in encoded])
        if np.isnan(log_p).any():
            return Finding.of_rows(self.metrics[0], [0.0] * len(rows), broken="The model's losses are not finite.")
        choose = drawn(torch.Generator(subject.device).manual_seed(seed))
        said = ask(model, subject.data.encoder, prompts, self.max_new_tokens, choose, self.samples)
        true = [subject.data.encoder.words(row["answer"]) for row in rows]
        recalls = [rouge_l_recall([a] * len(texts), texts) for a, texts in zip(true, said, strict=True)]
        hits = [int((recall >= self.threshold).sum()) for recall in recalls]
        leaks = {k: leak_at_k(hits, self.samples, k) for k in self.k}
        curve = [float(leak.mean()) for leak in leaks.values()]
        found = Finding.of_rows(self.metrics[0], leaks[self.k[-1]].tolist(), x=list(leaks), y=curve)
        known = np.array([recall.max() >= KNOWN for recall in recalls], dtype=float)
        for metric, values in zip(self.metrics[1:], (at_least_once(log_p, self.k[-1]), known), strict=True):
            found.figures[metric.name] = float(values.mean())
            found.rows[metric.name] = values.tolist()
        return found
