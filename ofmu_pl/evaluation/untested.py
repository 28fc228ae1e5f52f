"""What a run did not test, said aloud: a person who signs must know it."""

from __future__ import annotations

from ofmu_pl.data.base import PairedDataModule
from ofmu_pl.data.text_files import NO_HOLDOUT
from ofmu_pl.evaluation.table import Metrics
from ofmu_pl.support.sets import is_probe

ALWAYS = (
    "Whether a little further training, on other data or on a part of what is forgotten, brings the rest back "
    "(relearning).",
    "Whether it comes back when the weights are stored in fewer bits (quantisation), pruned or merged with another "
    "model's.",
    "Whether it can be read from what the model computes inside, rather than from what it puts out.",
    "Whether another run with another seed ends alike: this is one run.",
    "Whether anything else was harmed than the tests look at.",
)
TEXT = (
    "Whether a skilful or automated prompt makes the model tell: each question was put in one way, and one answer "
    "was taken, the likeliest word each time.",
)
IMAGES = ("Whether cropped, recoloured or otherwise altered images of the forgotten ones are still recognised.",)


def remark_of(data: PairedDataModule, compared: bool) -> str | None:
    """The remark of a data module, without what a retrained model, if one is at hand, can tell; ``None``: none."""
    told = data.remark or ""
    return (told.replace(NO_HOLDOUT, "").strip() if compared else told) or None


def untested(
    data: PairedDataModule, after: Metrics, compared: bool, limit: int | None = None, *, watched: bool = False
) -> list[str]:
    """Say what was not tested, the most important first.

    ``compared``: there was a retrained model; ``limit``: most rows of a set that were scored; ``watched``: the method
    looked at held-out rows to say how far to forget.
    """
    text, remark, sets = data.modality == "text", remark_of(data, compared), data.evaluation_sets
    attacked = any(r.group == "attacks" for r in after.values())
    cut = any(limit is not None and len(sets.get(name, ())) > limit for name in ("forget", "forget_doc"))
    asked = any(is_probe(name) or name == "forget_paraphrased" for name in sets)
    told = {
        f"How the tests end on held-out {'rows' if text else 'images'} that the run did not look at: it said how far "
        "to forget by some of those that the tests compare with.": watched,
        "What a model would do that was trained without the forgotten rows: there was no retrained model to compare "
        "with.": not compared,
        "Whether an attacker can tell the forgotten rows from rows that no model has seen: no such rows (holdout) were "
        "given.": text and not attacked and "holdout" not in (remark or ""),
        remark or "": bool(remark),
        f"All forgotten rows: {limit} of each set were scored.": cut,
        "Whether the model tells when asked in other words, in another language, or in steps.": text and not asked,
    }
    return [*(sentence for sentence, missing in told.items() if missing), *(TEXT if text else IMAGES), *ALWAYS]
