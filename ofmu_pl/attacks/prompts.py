"""Prompts: the same facts asked for in other ways than they were unlearned in."""

import re
from collections.abc import Mapping, Sequence
from functools import partial
from itertools import chain, product
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ofmu_pl.attacks.asking import KNOWN, ask, question_rows
from ofmu_pl.attacks.base import Attack, Finding, unless_finite
from ofmu_pl.attacks.subject import Subject
from ofmu_pl.data.encoded import Row
from ofmu_pl.data.sampler import evenly
from ofmu_pl.data.text import Encoder
from ofmu_pl.data.text_base import TextDataModule
from ofmu_pl.data.turns import thought_of
from ofmu_pl.metrics.result import Metric
from ofmu_pl.metrics.rouge import rouge_l_recall
from ofmu_pl.networks.positions import positions_of
from ofmu_pl.support.errors import UserError, check_range
from ofmu_pl.support.sets import PROBE
from ofmu_pl.support.shipped import expanded

FORGET, RETAIN = SIDES = ("forget", "retain")
PARAPHRASE = "paraphrase"
PROBES = (PARAPHRASE, "multi_hop", "cross_lingual")
WAYS = ("question", "retain_examples", "forget_examples", "prefix", "paired", *PROBES)
"""Ways to ask: as it is; after other rows with their answers, of the one side or the other; with half of the answer;
beside a question of the retain side; in other words; by another fact of whom it is about; in another language."""
EXAMPLES = 3  # number of rows before the question; fewer where the model has no room for them
ROUGE, WORST_CASE, ANY_WAY = (
    Metric(f"prompts_{name}", higher_is_better=False, group="attacks") for name in ("rouge", "worst_case", "known")
)
BY_WAY = {
    (way, side): Metric(f"prompts_{way}_{side}", higher_is_better=side == RETAIN, group="attacks")
    for way, side in product(WAYS, SIDES)
}
PAIR = re.compile(r"1\. (.+?) 2\. (.+)")  # two questions, or two answers, in one line
Pair = tuple[Row, Row]  # a forgotten row and one to be kept


class Asked(NamedTuple):
    """The tokens of one prompt; the answer, or what of it the prompt does not give; and the whole answer, its fact."""

    prompt: list[int]
    answer: str
    fact: str


class Prompts(Attack):
    """Ask for the forgotten rows in other ways, and let the best one count.

    The ways are the question as it is, after examples from the retain rows or from other forgotten rows, with the first
    half of the answer (only the rest is compared), in one prompt with a retain question (``1. ... 2. ...``), and, where
    the data has probes of these names (``Authors`` with ``probes``) or, for the first, ``paraphrased_question``, as
    ``paraphrase``, ``multi_hop`` and ``cross_lingual``. Found is the mean ROUGE-L recall of the forgotten answers in
    the way that is best for the attacker, of those that ask for the run's own rows. Beside it stand, with r_w(i) the
    recall of row i in the way w,

        prompts_worst_case = mean_i max_w r_w(i),    prompts_known = mean_i [max_w r_w(i) >= 0.9],

    over the ways that ask for the same facts in the same order, so not BLUR's pairs; then the recall of each way, and
    that of retain rows asked likewise. A maximum rises for every model, so read both beside the retrained model's.

    Args:
        pairs: Folder of BLUR's pairs for the data (``paired_forget_retain_questions.txt`` and ``..._answers.txt``);
            ``null``: each forgotten question is paired with a retain question by chance.
        max_new_tokens: Most tokens of an answer, and half of those of an answer to a pair.
        rows: Most rows of a side in each way; ``null``: all.

    Example:
        >>> [metric.name for metric in Prompts().metrics][:4]
        ['prompts_rouge', 'prompts_worst_case', 'prompts_known', 'prompts_question_forget']
    """

    metrics = (ROUGE, WORST_CASE, ANY_WAY, *BY_WAY.values())
    x_label, y_label = "way to ask", "ROUGE-L recall of forgotten rows"
    tests = "wording"
    untouched_at = 0  # the question as it is

    def __init__(self, pairs: str | None = None, max_new_tokens: int = 64, rows: int | None = 100) -> None:
        check_range(1, max_new_tokens=max_new_tokens, rows=rows)
        self.pairs, self.max_new_tokens, self.rows = pairs, max_new_tokens, rows
        self.reads = [pairs] if pairs else []

    def run(self, subject: Subject, seed: int) -> Finding:
        """Ask in every way that the data has; examples and partners are drawn by the seed."""
        model: Any = subject.build()
        positions = positions_of(model.config)
        asked = self._asked(subject, positions - self.max_new_tokens, seed)
        prompts: dict[str, list[tuple[int, ...]]] = {}  # of both sides, each once
        for way, sides in asked.items():
            prompts[way] = list(dict.fromkeys(tuple(x.prompt) for x in chain.from_iterable(sides.values())))
        longest = max(map(len, chain.from_iterable(prompts.values())))
        if longest >= positions:
            raise UserError(
                f"A prompt of the attack '{self.name}' has {longest} tokens, and the model has {positions} positions: "
                "leave the attack out for this model."
            )
        rows: dict[str, list[float]] = {}
        for way, sides in asked.items():
            length = self.max_new_tokens * (2 if way == "paired" else 1)
            said = ask(model, subject.data.encoder, [list(p) for p in prompts[way]], length)
            texts = {prompt: answers[0] for prompt, answers in zip(prompts[way], said, strict=True)}
            for side, xs in sides.items():
                true = [subject.data.encoder.words(x.answer) for x in xs]
                recall = rouge_l_recall(true, [texts[tuple(x.prompt)] for x in xs])
                rows[BY_WAY[way, side].name] = recall.tolist()
        gone = {way: sides[FORGET] for way, sides in asked.items()}
        rows |= worst_case(gone, rows)
        figures = {name: float(np.mean(values)) for name, values in rows.items()}
        forgotten = {way: figures[BY_WAY[way, FORGET].name] for way in asked}
        best = max(ways_to_the_same(gone), key=forgotten.__getitem__)  # so any two models' rows are of the same facts
        figures[ROUGE.name], rows[ROUGE.name] = forgotten[best], rows[BY_WAY[best, FORGET].name]
        broken = unless_finite(subject.probabilities(model, FORGET, [0]))
        return Finding(figures, rows, list(forgotten), list(forgotten.values()), broken=broken)

    def _asked(self, subject: Subject, room: int, seed: int) -> dict[str, dict[str, list[Asked]]]:
        """Prompts by way and side."""
        data, encoder = subject.data, subject.data.encoder
        rows = {side: question_rows(subject, side, self.rows) for side in SIDES}
        both = [paired(encoder, pair) for pair in self._pairs(data, rows[FORGET], seed)]
        ways: dict[str, dict[str, list[Asked]]] = {way: {} for way in WAYS}
        for i, side in enumerate(SIDES):
            ways["question"][side] = [plain(encoder, row) for row in rows[side]]
            for source in (RETAIN, FORGET):
                shown = partial(with_examples, encoder, pool=data.splits[source], number=EXAMPLES, room=room)
                ways[f"{source}_examples"][side] = [shown(row, seed=n) for n, row in enumerate(rows[side], start=seed)]
            ways["prefix"][side] = [with_prefix(encoder, row) for row in rows[side]]
            ways["paired"][side] = [two[i] for two in both]
            for way in PROBES:
                probes = probes_of(data, way, side)
                some = evenly(probes, self.rows or len(probes))
                ways[way] |= {side: [plain(encoder, row) for row in some]} if some else {}
        return {way: sides for way, sides in ways.items() if FORGET in sides}

    def _pairs(self, data: TextDataModule, forget: list[Row], seed: int) -> list[Pair]:
        """Forgotten rows, each with a row to be kept."""
        if not self.pairs:
            places = np.random.default_rng(seed).integers(len(data.splits[RETAIN]), size=len(forget))
            return [(row, data.splits[RETAIN][i]) for row, i in zip(forget, places, strict=True)]
        gone = {" ".join(row["question"].split()) for row in data.splits[FORGET]}
        folder = Path(expanded(self.pairs)).expanduser()
        pairs = [x for x in read_pairs(folder) if " ".join(x[0]["question"].split()) in gone]
        if not pairs:
            raise UserError(
                f"No pair in '{self.pairs}' has a forgotten question of '{data.name}': leave attacks.pairs out."
            )
        return list(evenly(pairs, self.rows or len(pairs)))


def ways_to_the_same(asked: Mapping[str, Sequence[Asked]]) -> list[str]:
    """The ways that ask for the facts of the way ``question``, row by row."""

    def facts(way: str) -> list[str]:
        return [x.fact for x in asked[way]]

    return [way for way in asked if facts(way) == facts(WAYS[0])]


def worst_case(asked: Mapping[str, Sequence[Asked]], recalls: Mapping[str, list[float]]) -> dict[str, list[float]]:
    """Each forgotten row's best recall, and whether it is known, from what was asked and the recalls of all ways.

    The ways of ``ways_to_the_same`` count.
    """
    best = np.zeros(len(asked[WAYS[0]]))
    for way in ways_to_the_same(asked):
        best = np.maximum(best, recalls[BY_WAY[way, FORGET].name])
    return {WORST_CASE.name: best.tolist(), ANY_WAY.name: (best >= KNOWN).astype(float).tolist()}


def probes_of(data: TextDataModule, way: str, side: str) -> list[Row]:
    """Rows of a side asked in a way; where there is no probe of paraphrases, evaluated rows that have one."""
    found: list[Row] = data.evaluation_sets.get(f"{PROBE}{way}_{side}", [])
    if found or way != PARAPHRASE:
        return found
    rows = [row for row in data.evaluation_sets.get(side, []) if row.get("paraphrased_question")]
    return [{**row, "question": row["paraphrased_question"]} for row in rows]


def plain(encoder: Encoder, row: Row) -> Asked:
    """The question as it is."""
    return Asked(encoder.row_prompt(row), row["answer"], row["answer"])


def with_examples(encoder: Encoder, row: Row, pool: Sequence[Row], number: int, room: int, seed: int) -> Asked:
    """The question after others of a pool with their answers; the first of them go where there is too little room."""
    drawn = [pool[i] for i in np.random.default_rng(seed).permutation(len(pool))[: number + 1]]
    others = [other for other in drawn if other["question"] != row["question"]][:number]
    for first in range(len(others) + 1):
        shown = [f"{other['question']}\n{other['answer']}\n\n" for other in others[first:]]
        prompt = encoder.row_prompt({**row, "question": "".join([*shown, row["question"]])})
        if len(prompt) <= room:
            break
    return Asked(prompt, row["answer"], row["answer"])


def with_prefix(encoder: Encoder, row: Row) -> Asked:
    """The question and the first half of the answer's words; an answer of one word, or with a thought, is not begun."""
    answer = row["answer"]
    space, words = answer[: len(answer) - len(answer.lstrip())], answer.split()
    half = len(words) // 2
    if not half or thought_of(answer)[0]:
        return plain(encoder, row)
    begun = encoder.encode_row({**row, "answer": space + " ".join(words[:half])})[0].input_ids
    return Asked(begun[: len(begun) - encoder.ends(begun)], " ".join(words[half:]), row["answer"])


def paired(encoder: Encoder, pair: Pair) -> list[Asked]:
    """Both questions in one prompt, ``1. ... 2. ...``, and the answer to each of them."""
    one, two = pair
    prompt = encoder.row_prompt({**one, "question": f"1. {one['question']} 2. {two['question']}"})
    return [Asked(prompt, row["answer"], row["answer"]) for row in pair]


def read_pairs(folder: Path) -> list[Pair]:
    """Pairs of a forget and a retain question, as BLUR has them (Hu et al., s-huu/BLUR), in two files of lines.

    They are ``paired_forget_retain_questions.txt`` and ``paired_forget_retain_answers.txt``.

    Raises:
        UserError: A file cannot be read, a line is no pair, or the files have not the same number of lines.
    """
    pairs = []
    try:
        asked, said = (_lines(folder / f"paired_forget_retain_{what}.txt") for what in ("questions", "answers"))
        for (q1, q2), (a1, a2) in zip(asked, said, strict=True):
            pairs.append(({"question": q1, "answer": a1}, {"question": q2, "answer": a2}))
    except (OSError, ValueError) as error:
        raise UserError(f"'{folder}' holds no pairs ({error}): give attacks.pairs BLUR's folder of them.") from error
    return pairs


def _lines(path: Path) -> list[tuple[str, ...]]:
    pairs = []
    for number, line in enumerate(path.read_text(encoding="utf-8").replace("\\'", "'").splitlines(), start=1):
        match = PAIR.fullmatch(line.strip())  # without BLUR's stray escapes
        if match is None:
            raise ValueError(f"line {number} of {path.name} is not '1. ... 2. ...'")
        pairs.append(match.groups())
    return pairs
