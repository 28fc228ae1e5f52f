"""TOFU (Maini et al. 2024): question-answer pairs about 200 fictitious authors."""

from pathlib import Path
from typing import Any, Literal

from lightning.pytorch.utilities import rank_zero_warn

from ofmu_pl.data.alternatives import other_answers
from ofmu_pl.data.base import ALTERNATIVE
from ofmu_pl.data.encoded import Row
from ofmu_pl.data.own_files import Rows, check_numbers, is_text, read_part, sound
from ofmu_pl.data.probes import SIDES, Probes, probe_sets
from ofmu_pl.data.text_base import TextDataModule
from ofmu_pl.support.errors import UserError
from ofmu_pl.support.sets import HOLDOUT

RETAIN = {"forget01": "retain99", "forget05": "retain95", "forget10": "retain90"}
PARAPHRASED = {"forget": True, "retain": True, "real_authors": False, "world_facts": False}
"""Whether truth ratios need paraphrased answers, too, by evaluation set."""


class TOFU(TextDataModule):
    """TOFU's forget01, forget05 or forget10 with its complement.

    Args:
        data: Hub id, or a local folder with the data set's files (full.json, forget10.json, ... as JSON lines).
        forget_split: Which authors to forget: 1, 5 or 10 per cent.
        forget_authors: Only these authors of the split, by their numbers in it, from 0 (forget10 has 20, of 20 rows
            each); the others are retained. ``null``: all.
        probes: Evaluate on other questions about the same facts, too, on both sides: ``true`` for TOFU's paraphrased
            questions, or files with more probes (``{multi_hop: FILE, cross_lingual: FILE}``; docs/evaluation.md,
            Probes).
        alternatives: Other answers, for methods that prefer them: a text file with a refusal in each line, of which
            every question gets one, or a JSON-lines file of rows with a question of the forget set and another answer;
            ``null``: TOFU's idontknow.jsonl beside the data.
        kwargs: See ``TextDataModule``.

    Example:
        >>> data = TOFU("~/data/TOFU", forget_split="forget05", tokenizer="meta-llama/Llama-3.2-1B-Instruct")
        >>> data.setup()  # doctest: +SKIP
        >>> len(data.splits["forget"])  # doctest: +SKIP
        200
    """

    name = "tofu"
    rows_per_author = 20

    def __init__(
        self,
        data: str = "locuslab/TOFU",
        forget_split: Literal["forget01", "forget05", "forget10"] = "forget10",
        forget_authors: list[int] | None = None,
        probes: Probes = False,
        alternatives: str | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        if forget_split not in RETAIN:
            raise UserError(f"TOFU has no split '{forget_split}' to forget: choose from {', '.join(RETAIN)}.")
        self.data, self.forget_split, self.forget_authors = data, forget_split, forget_authors
        self.alternatives, self.probes = alternatives, probes

    def load(self) -> tuple[dict[str, list[Row]], dict[str, list[Row]]]:
        """Read the files; the holdout rows of membership attacks may be absent, but not broken."""
        splits = {"forget": self.forget_split, "retain": RETAIN[self.forget_split], "full": "full"}
        evaluation = {name: f"{name}_perturbed" for name in PARAPHRASED}
        evaluation["forget"] = f"{self.forget_split}_perturbed"
        rows = {name: self._read(config).rows for name, config in splits.items()}
        named, others = self._named(len(rows["forget"]))
        rows["retain"] += [rows["forget"][i] for i in others]
        published, rows["forget"] = len(rows["forget"]), [rows["forget"][i] for i in named]
        if ALTERNATIVE in self.streams:
            path = Path(self.alternatives or Path(self.data) / "idontknow.jsonl").expanduser()
            rows[ALTERNATIVE] = other_answers(rows["forget"], path, self.seed, {})
        sets = {name: self._perturbed(config, PARAPHRASED[name]) for name, config in evaluation.items()}
        if published and len(sets["forget"]) != published:
            raise UserError(
                f"TOFU's '{evaluation['forget']}' has {len(sets['forget'])} rows and '{self.forget_split}' "
                f"{published}, so forgetting would be measured on other rows than are forgotten: take both files of "
                "the published data set (for a quick look at fewer rows set evaluation.rows)."
            )
        sets["forget"] = [sets["forget"][i] for i in named] if sets["forget"] else []
        if self.probes:
            sets |= probe_sets(self.probes, self._own_probes(sets))
        try:
            sets[HOLDOUT] = self._read(self._holdout).rows
        except UserError:
            if (Path(self.data).expanduser() / f"{self._holdout}.json").exists():
                raise
            rank_zero_warn(f"{self.why_no_never_seen}: membership attacks and privacy leakage are left out.")
        return rows, sets

    @property
    def _holdout(self) -> str:
        return self.forget_split.replace("forget", "holdout")

    @property
    def why_no_never_seen(self) -> str:
        """Which of TOFU's files is missing."""
        return f"'{self.data}' has no {self._holdout}"

    def blank(self) -> None:
        """Stand in for ``setup`` with held-out rows, too: TOFU has some of its own."""
        super().blank()
        self.splits[HOLDOUT], self._encoded[HOLDOUT] = self.splits["forget"], self._encoded["forget"]

    def _named(self, n: int) -> tuple[list[int], list[int]]:
        """Numbers of the rows of the split that are forgotten, and of those that are not."""
        if self.forget_authors is None:
            return list(range(n)), []
        check_numbers(self.forget_authors, n // self.rows_per_author, "data.forget_authors")
        named = [i for i in range(n) if i // self.rows_per_author in self.forget_authors]
        return named, sorted(set(range(n)) - set(named))

    def _own_probes(self, sets: dict[str, list[Row]]) -> dict[str, list[Row]]:
        """TOFU's paraphrased questions, unless a file takes their place."""
        if isinstance(self.probes, dict) and "paraphrase" in self.probes:
            return {}
        paraphrases = []
        for side in SIDES:
            asked = sound(f"{side} of {self.data}", "data.data", sets[side]).texts("paraphrased_question")
            for row, (question,) in zip(sets[side], asked, strict=True):
                paraphrases.append({**row, "question": question, "side": side})
        return {"paraphrase": paraphrases}

    def _read(self, config: str, *columns: str) -> Rows:
        found = read_part(self.data, f"{config}.json", config, "train", "data.data")
        found.texts("question", "answer", *columns)
        return found

    def _perturbed(self, config: str, paraphrased: bool) -> list[Row]:
        """The rows of an evaluation set, with the answers that truth ratios need."""
        found = self._read(config, *["paraphrased_answer"] * paraphrased)
        for i, row in enumerate(found.rows):
            wrong = row.get("perturbed_answer")
            if not isinstance(wrong, list) or not wrong or not all(map(is_text, wrong)):
                raise UserError(f"{found.place(i)} has no list of texts in 'perturbed_answer': take the published one.")
        return found.rows
