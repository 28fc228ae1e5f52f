"""Authors: a small benchmark that needs no download, in TOFU's schema and with a tokenizer of its own."""

from itertools import chain
from typing import Any

import numpy as np

from ofmu_pl.data.alternatives import REFUSALS, with_refusals
from ofmu_pl.data.authors_corpus import QUESTIONS, corpus, make_probes, rows_of
from ofmu_pl.data.base import ALTERNATIVE
from ofmu_pl.data.encoded import Row
from ofmu_pl.data.own_files import check_numbers
from ofmu_pl.data.probes import Probes, probe_sets
from ofmu_pl.data.text_base import TextDataModule
from ofmu_pl.support.errors import MAX_SEED, UserError, check_range

TOKENIZERS, UNSEEN = 1_000_003, 2_000_003
"""Seeds of the corpus of the tokenizer, and of that of authors whom no model sees; that of the rows is 0."""


class Authors(TextDataModule):
    """Fictitious authors, some of whom are to be forgotten.

    ``full`` holds all authors and 60 rows of common knowledge; ``retain`` is ``full`` without the ``forget`` authors.

    Args:
        authors: Number of authors, 8 rows each.
        forget_authors: How many of them to forget, or their numbers, from 0.
        forget_seed: Seed of the draw of these authors. A smaller draw is part of a larger one, and ``full`` has one
            order for all draws, so that one target serves them all. ``null``: the last authors are forgotten, or
            those that are named by their numbers.
        holdout_authors: Number of authors more, of the same kind, whom no model ever sees: the goal of forgetting for
            methods that look at such rows, and what membership attacks compare forget rows with. 0: none.
        probes: Evaluate on other questions about the same facts, too: ``true`` for paraphrases, questions of two hops
            and questions in German, Spanish or French; or files with more probes by name (docs/evaluation.md, Probes).
        kwargs: See ``TextDataModule``. Without a tokenizer a byte-pair encoding is trained on the spot.

    Example:
        >>> data = Authors(authors=4, forget_authors=1, batch_size=4)
        >>> data.setup()
        >>> {name: len(rows) for name, rows in data.splits.items()}
        {'forget': 8, 'retain': 84, 'full': 92}
        >>> data.splits["forget"][0]["question"]
        'In which town was Buthbul Bindner born?'
        >>> {stream: [len(batch["ids"]) for batch in batches] for stream, batches in data.iteration(0).items()}
        {'forget': [4], 'retain': [4]}
    """

    name = "authors"
    rows_per_author = len(QUESTIONS)
    why_no_never_seen = "There are no held-out rows (data.holdout_authors=5 makes some)"

    def __init__(
        self,
        authors: int = 50,
        forget_authors: int | list[int] = 5,
        forget_seed: int | None = None,
        holdout_authors: int = 0,
        probes: Probes = False,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        count = forget_authors if isinstance(forget_authors, int) else len(forget_authors)
        if not 0 <= count < authors:
            raise UserError(
                f"data.forget_authors={forget_authors} of data.authors={authors} leaves no one to retain: forget fewer."
            )
        check_range(0, MAX_SEED, forget_seed=forget_seed)
        check_range(0, holdout_authors=holdout_authors)
        self.authors, self.forget_authors, self.forget_seed = authors, forget_authors, forget_seed
        self.holdout_authors, self.probes = holdout_authors, probes

    def load(self) -> tuple[dict[str, list[Row]], dict[str, list[Row]]]:
        """Generate the corpus."""
        people, writers, facts = corpus(self.authors, 0)
        rows = rows_of(people)
        kinds, drawn = len(rows) // self.authors, self._drawn()
        away = [i for i in range(len(rows)) if i // kinds in drawn]
        stay = sorted(set(range(len(rows))) - set(away))
        kept, forget = [rows[i] for i in stay], [rows[i] for i in away]
        retain = kept + writers + facts
        last = self.forget_seed is None and isinstance(self.forget_authors, int)
        full = retain + forget if last else rows + writers + facts
        splits = {"forget": forget, "retain": retain, "full": full}
        if ALTERNATIVE in self.streams:
            splits[ALTERNATIVE] = with_refusals(forget, REFUSALS, self.seed)
        step = max(1, len(kept) // 40) | 1  # odd, so that it meets all 8 kinds of question evenly
        evaluation = {"forget": forget, "retain": kept[::step], "real_authors": writers, "world_facts": facts}
        if self.holdout_authors:
            strangers, *_ = corpus(self.holdout_authors, UNSEEN)
            evaluation["holdout"] = rows_of(strangers)
        if self.probes:
            gone = set(chain.from_iterable(other._drawn() for other in self.others().values()))
            left = [i for i in stay[::step] if i // kinds not in gone]
            evaluation |= probe_sets(self.probes, make_probes(people, away, left))
        return splits, evaluation

    def _drawn(self) -> set[int]:
        """Numbers of the authors to forget."""
        if not isinstance(self.forget_authors, int):
            check_numbers(self.forget_authors, self.authors, "data.forget_authors")
            return set(self.forget_authors)
        if self.forget_seed is None:
            return set(range(self.authors - self.forget_authors, self.authors))
        order = np.random.Generator(np.random.Philox(key=self.forget_seed)).permutation(self.authors)
        return set(order[: self.forget_authors].tolist())

    def independent_texts(self) -> list[str]:
        """The texts of other authors."""
        people, *common = corpus(self.authors, TOKENIZERS)
        rows = chain(rows_of(people), *common)
        texts = [f"{row['question']}\n{row['answer']}\n{row.get('paraphrased_answer', '')}" for row in rows]
        return [*texts, "user assistant system"]
