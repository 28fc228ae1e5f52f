"""MUSE (Shi et al. 2024): running texts, passages to continue, and questions after ten answered ones."""

from itertools import chain
from typing import Any, Literal

from ofmu_pl.data.encoded import Row
from ofmu_pl.data.own_files import Rows, read_part
from ofmu_pl.data.pieces import pieces_of
from ofmu_pl.data.text_base import TextDataModule
from ofmu_pl.data.tokenizers import Tokenizer
from ofmu_pl.support.sets import HOLDOUT, PROBE

PASSAGE = {"tokens": 128, "before": ()}  # what of a generation counts as the continuation of a passage
REPLY = {"tokens": 32, "before": ("\n\n", "\nQuestion", "Question:")}
"""What of a generation counts as the reply to a question: so many tokens, up to where the model asks the next."""


class MUSE(TextDataModule):
    """MUSE's texts to forget and to keep, and its three measurements of each.

    Texts are cut into pieces of ``max_length`` tokens that lose none. The evaluation sets are ``forget_doc``,
    ``retain_doc`` and ``holdout_doc``, the texts of its membership attack, of which what is beyond ``max_length`` is
    not read; ``probe_verbmem_forget``, beginnings of passages to be continued; ``probe_knowmem_forget`` and
    ``probe_knowmem_retain``, questions that come after ten others with their answers, line by line as ``Question:`` and
    ``Answer:``.

    Args:
        data: Folder of a corpus as MUSE's ``load_data.py`` writes it (``raw``, ``verbmem``, ``knowmem``, ``privleak``,
            for instance muse_bench/data/news), or its hub id, ``muse-bench/MUSE-News``. Nothing of it is shipped here:
            its texts are copyrighted. Texts of your own in the same form will do.
        corpus: The published corpus that this is, for which MUSE stored what its attack achieves on its own retrained
            model (``privleak_released``); ``null``: another.
        forget: Texts to forget: ``raw/forget``; ``scal/forget_1`` to ``scal/forget_4``, of growing number; or one of
            the requests ``sust/forget_1`` to ``sust/forget_4``.
        retain: Texts to keep (the published runs: ``raw/retain1``).
        max_length: Longest piece, in tokens.
        kwargs: See ``TextDataModule``.

    Example:
        >>> data = MUSE("muse_bench/data/news", corpus="news", tokenizer="meta-llama/Llama-2-7b-hf")
        >>> data.setup()  # doctest: +SKIP
        >>> sorted(data.evaluation_sets)[-2:]  # doctest: +SKIP
        ['probe_verbmem_forget', 'retain_doc']
        >>> data.suite
        'ofmu_pl.metrics.muse.muse_news_metrics'
    """

    name = "muse"
    suite = "ofmu_pl.metrics.muse.muse_metrics"
    cuts_rows = False

    def __init__(
        self,
        data: str,
        corpus: Literal["news", "books"] | None = None,
        forget: str = "raw/forget",
        retain: str = "raw/retain1",
        max_length: int | None = 2048,
        **kwargs: Any,
    ) -> None:
        super().__init__(max_length=max_length, **kwargs)
        self.data, self.corpus, self.forget, self.retain = data, corpus, forget, retain
        if corpus is not None:
            self.suite = f"ofmu_pl.metrics.muse.muse_{corpus}_metrics"  # type: ignore[misc]  # of this corpus alone

    def load(self) -> tuple[dict[str, list[Row]], dict[str, list[Row]]]:
        """Read the texts and cut them, read passages and questions."""
        tokenizer = self.make_tokenizer()
        sides = {"forget": self.forget, "retain": self.retain}

        def cut(part: str) -> list[list[Row]]:
            return pieces_of(tokenizer, self._read(part), self.max_length)

        splits = {side: list(chain.from_iterable(cut(part))) for side, part in sides.items()}
        sets: dict[str, list[Row]] = {}
        for side in (*sides, HOLDOUT):
            sets[f"{side}_doc"] = [rows[0] for rows in cut(f"privleak/{side}")]
        passages = self._read("verbmem/forget").texts("prompt", "gt")
        sets[f"{PROBE}verbmem_forget"] = [_passage(tokenizer, opening, rest) for opening, rest in passages]
        for side in sides:
            shown, asked = (self._read(f"knowmem/{side}_qa{end}").texts("question", "answer") for end in ("_icl", ""))
            before = "".join(f"Question: {q}\nAnswer: {a}\n\n" for q, a in shown)
            for q, a in asked:
                row = {"question": f"{before}Question: {q}\nAnswer: ", "answer": a, "raw": True, "counts": REPLY}
                sets.setdefault(f"{PROBE}knowmem_{side}", []).append(row)
        return splits | {"full": splits["forget"] + splits["retain"], HOLDOUT: sets[f"{HOLDOUT}_doc"]}, sets

    def _read(self, part: str) -> Rows:
        """The rows in a part's file, or on the hub; of texts alone each has ``text``."""
        config, split = part.split("/", 1) if "/" in part else ("raw", part)
        return read_part(self.data, f"{config}/{split}.json", config, split, "data.data")


def _passage(tokenizer: Tokenizer, opening: str, rest: str) -> Row:
    """A passage to be continued, with as much of its rest as is generated."""
    tokens = tokenizer(rest)["input_ids"][: PASSAGE["tokens"]]
    answer = tokenizer.decode(tokens, skip_special_tokens=True)
    space = "" if opening[-1].isspace() or answer[0].isspace() else " "
    return {"question": opening, "answer": space + answer, "raw": True, "counts": PASSAGE}
