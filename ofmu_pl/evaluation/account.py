"""The account of a run: what was asked, done, found and not tested, for its model card and the page that is signed."""

import json
import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from inspect import signature
from pathlib import Path
from typing import Any, NamedTuple

import lightning.pytorch as pl

from ofmu_pl.data.base import PairedDataModule, data_of
from ofmu_pl.data.of_run import said_of_run
from ofmu_pl.data.text_files import NO_HOLDOUT
from ofmu_pl.evaluation.plain import HEADINGS, KNOWN, Statement, one_sided, shown, statements
from ofmu_pl.evaluation.reference import Facts, Scored
from ofmu_pl.evaluation.table import Metrics
from ofmu_pl.metrics.nearness import in_words
from ofmu_pl.metrics.verdicts import ONE_RETRAINED
from ofmu_pl.modules.base import UnlearningModule
from ofmu_pl.support.errors import UserError
from ofmu_pl.support.sets import is_probe
from ofmu_pl.training.export import export_of, exported

SIZED = 5  # metrics whose change the summary gives by its size


class Part(NamedTuple):
    """Rows of one side: what became of them, their number, and their content hash; ``None``: there is none."""

    role: str
    n: int
    hash: str | None


class Example(NamedTuple):
    """A forgotten row with the true answer and what each model said; ``None`` is not known."""

    question: str
    truth: str
    before: str | None
    after: str | None
    retrained: str | None = None


@dataclass(frozen=True)
class Account:
    """What a run was asked, did, found and did not test.

    Attributes:
        target: The model that had to forget, as the run was given it.
        base_model: Id of that model on the hub; ``None``: it is a local one.
        in_words: What the method did, in plain words.
        options: The method's options by name; empty where there is no configuration.
        gradients: Number of gradients of one batch's loss.
        before: Metrics of the model before the run, with verdicts.
        after: Metrics of the model after it, with verdicts and changes.
        model: Folder of the exported model; ``None``: it was not exported.
        examples: Forgotten rows to read; empty unless texts were asked for.
        untested: What the run did not test, beside what ``attacked`` says.
        caveats: What must be read before any number.
        date: When the account was written, in UTC.
    """

    data: str
    modality: str
    parts: list[Part]
    target: str
    base_model: str | None
    method: str
    in_words: str
    options: dict[str, str]
    steps: int
    gradients: float
    before: Metrics
    after: Metrics
    retrained: Metrics
    untested: list[str]
    model: Path | None
    examples: list[Example]
    provenance: Facts
    date: str
    caveats: list[str]

    @property
    def statements(self) -> dict[str, list[Statement]]:
        """What each test says, by the question that it answers."""
        return statements(self.after, self.before, self.retrained)

    @property
    def goals(self) -> str | None:
        """What numbers are compared with; ``None``: with nothing."""
        if self.retrained:
            return "what a model has that was trained without what is forgotten, or chance"
        if any(r.target is not None for r in self.after.values()):
            return "what this model itself has on what it has never seen, or chance"
        return None

    @property
    def summary(self) -> list[str]:
        """What the tests say taken together, counted and not weighed."""
        than = "by a model that was trained without them" if self.retrained else "in held-out rows"
        near, alone = in_words(self.after, self.before), all(r.apart is None for r in self.after.values())
        found = [one_sided(self.after, than), *self._counted(), *near, self._strongest(), self._kept()]
        found += [ONE_RETRAINED] if self.retrained and alone else []
        return [sentence for sentence in found if sentence]

    @property
    def headline(self) -> str:
        """What was found, before all numbers: of what is forgotten, and of what must stay."""
        tests, _, _ = self._tested()
        found = "Nothing could be tested of what is forgotten"
        if "more is left" in tests:
            found = "Something of what was to be forgotten is left"
        elif "less is left" in tests:
            found = "What was forgotten is avoided, so that it stands out"
        elif tests:
            found = "No test tells what was forgotten from what was never seen"
        changes = [r.change for r in self.after.values() if r.change]
        kept = "what must stay became worse" if "worse" in changes else "no harm to what must stay was found"
        return f"{found}, and {kept}." if changes else f"{found}."

    def _tested(self) -> tuple[list[str], int, int]:
        """Verdicts of tests of what is forgotten; how many had too few rows; how many passed before the run, too."""
        told = {name: r.verdict for name, r in self.after.items() if r.verdict and r.group in ("forgotten", "attacks")}
        few = [name for name, verdict in told.items() if verdict == "too few"]
        passed = [name for name, r in self.before.items() if r.verdict == "no difference"]
        alike = [name for name, verdict in told.items() if verdict == "no difference" and name in passed]
        return [verdict for name, verdict in told.items() if name not in few + alike], len(few), len(alike)

    def _counted(self) -> list[str]:
        """How many tests of what is forgotten found what; those that passed before the run, too, are not counted."""
        tests, few, alike = self._tested()
        said = ["No test of what is forgotten can be counted: none has a goal and told it from the model before."]
        if tests:
            counts = [f"{tests.count('no difference') or 'none'} found no difference from the goal"]
            counts += [f"{tests.count(v)} found that {v} than there should be" for v in KNOWN if v in tests]
            said = [f"Of {len(tests)} tests of what is forgotten, {', '.join(counts)}."]
        if few or alike:
            said.append(
                f"Not counted: {few or 'none'} with too few rows, {alike or 'none'} that found no difference "
                "before the run either."
            )
        return said

    @property
    def left(self) -> str | None:
        """How much is left of what is forgotten, by the first share that has a goal."""
        for statement in self.statements.get(HEADINGS["forgotten"], []):
            if statement.goal and "%" in statement.goal:
                was = f"before {statement.before}, " if statement.before else ""
                return f"{statement.text.rstrip('.')}: {was}goal {statement.goal}."
        return None

    def _strongest(self) -> str | None:
        """The attack that is farthest from its goal, of those that find that more is left if there are any."""
        far: dict[float, str] = {}
        attacks = self.statements.get(HEADINGS["attacks"], [])
        for statement in [x for x in attacks if x.verdict == "more is left"] or attacks:
            r = self.after[statement.name]
            if r.target is not None:
                far.setdefault(abs(r.value - r.target), statement.text)
        if not far:
            return None
        found = far[max(far)]
        return f"The attack that finds most: {found[0].lower()}{found[1:]}"

    def _kept(self) -> str | None:
        """What became worse of what must stay, and by how much."""
        kept = {name: r.change for name, r in self.after.items() if r.change}
        fallen = [name for name, change in kept.items() if change == "worse"]
        sizes = []
        for name in fallen[:SIZED]:
            was, now = (shown(columns[name].value, columns[name]) for columns in (self.before, self.after))
            sizes.append(f"{name} from {was} to {now}")
        more = f" and {len(fallen) - len(sizes)} more" if len(fallen) > len(sizes) else ""
        named = f": {', '.join(sizes)}{more}" if fallen else ""
        says = f"Of {len(kept)} measures of what must stay, {len(fallen) or 'none'} became worse{named}."
        return says if kept else None


class Measured(NamedTuple):
    """A run whose model has just been measured: ``columns`` of metrics, of which ``judged`` is this model's.

    ``weights`` and ``weights_before``, hashes of the network's weights after and before the run, were computed before:
    that takes all ranks, and the first one writes.
    """

    trainer: pl.Trainer
    module: UnlearningModule
    weights: str
    weights_before: str | None
    folder: Path
    scores: Scored
    columns: dict[str, Metrics]
    judged: str


def account(run: Measured, facts: Facts, examples: list[Example], limit: int | None, caveats: list[str]) -> Account:
    """Give account of a run that had a model before, with at most ``limit`` rows of a set."""
    data, module, retrained = data_of(run.trainer), run.module, run.columns.get("retrained", {})
    config, after = getattr(module.network, "config", None), run.columns[run.judged]
    path = getattr(module.recipe, "path", None) or getattr(config, "_name_or_path", None) or None
    return Account(
        data=data.name,
        modality=data.modality,
        parts=list(_parts(data)),
        target=path or "a model that no folder was named of",
        base_model=base_model(path),
        method=type(module).__name__,
        in_words=f"{module.what_was_done()}{_end(run)}",
        options=_options(run),
        steps=run.trainer.global_step,
        gradients=float(module.gradient_evaluations),
        before=run.columns["before"],
        after=after,
        retrained=retrained,
        untested=_untested(run, limit),
        model=exported(run.trainer, run.folder),
        examples=examples,
        provenance=facts,
        caveats=caveats,
        date=datetime.now(UTC).strftime("%d %B %Y, %H:%M UTC").lstrip("0"),
    )


def _end(run: Measured) -> str:
    """Why the run ended, as a sentence behind others; empty where nothing but its length was to end it."""
    if why := run.module.run.why:
        return f" The run ended since {why}."
    limit = f" It ended at its limit of {run.trainer.max_steps} iterations, before its goal was reached."
    return limit if run.module.ran_out else ""


def base_model(path: str | None) -> str | None:
    """The hub's id of a model; ``None``: it is a local folder's, or not known.

    >>> base_model("gpt2"), base_model("/a/folder"), base_model(None)
    ('gpt2', None, None)
    """
    if path is None or Path(path).expanduser().exists():
        return None
    return path if re.fullmatch(r"\w[\w.-]{0,95}(/\w[\w.-]{0,95})?", path) else None


def _parts(data: PairedDataModule) -> Iterator[Part]:
    for name, role in (("forget", "to be forgotten"), ("retain", "to be kept")):
        yield Part(role, len(data.splits[name]), data.hashes.get(name))
    for name in ("holdout", "holdout_doc", "test"):
        if name in data.evaluation_sets:
            rows, key = len(data.evaluation_sets[name]), f"{name}_eval"
            yield Part("given as never seen by the model", rows, data.hashes.get(key, data.hashes.get(name)))


def _options(run: Measured) -> dict[str, str]:
    """The method's options, without the network's and those that are off as by default."""
    try:
        given = said_of_run(run.folder / "config.yaml", "model", "init_args")
    except UserError:
        return {}
    usual: dict[str, Any] = {}
    for owner in type(run.module).__mro__:
        with suppress(ValueError):  # a class of C may have no signature
            usual = {name: p.default for name, p in signature(owner).parameters.items()} | usual
    off = [name for name, x in given.items() if (x is None or x is False) and x is usual.get(name)]
    shown = {name: x for name, x in given.items() if name not in ("network", *off)}
    return {name: json.dumps(x) if x is None or isinstance(x, bool) else str(x) for name, x in shown.items()}


def remark_of(data: PairedDataModule, compared: bool) -> str | None:
    """The remark of a data module, without what a retrained model, if one is at hand, can tell; ``None``: none."""
    told = data.remark or ""
    return (told.replace(NO_HOLDOUT, "").strip() if compared else told) or None


def _untested(run: Measured, limit: int | None) -> list[str]:
    """Say what was not tested and no attack tests, the most important first, as a person who signs must know it.

    ``limit``: most rows of a set that were scored.
    """
    data, export, compared = data_of(run.trainer), export_of(run.trainer), bool(run.columns.get("retrained"))
    text, remark, sets = data.modality == "text", remark_of(data, compared), data.evaluation_sets
    attacked = any(r.group == "attacks" for r in run.columns[run.judged].values())
    cut = any(limit is not None and len(sets.get(name, ())) > limit for name in ("forget", "forget_doc"))
    asked = any(is_probe(name) or name == "forget_paraphrased" for name in sets)
    told = {
        "What is said once the adapters are taken off again, or the old ones put back: that model still knows what is "
        "forgotten here.": export is not None and export.adapters is not None,  # which alone were exported
        f"How the tests end on held-out {'rows' if text else 'images'} that the run did not look at: it went by some "
        "that are in the tests.": run.module.watches_held_out,
        "What a model would do that was trained without the forgotten rows: there was no retrained model to compare "
        "with.": not compared,
        "Whether an attacker can tell the forgotten rows from rows that no model has seen: no such rows (holdout) were "
        "given.": text and not attacked and "holdout" not in (remark or ""),
        remark or "": bool(remark),
        f"All forgotten rows: {limit} of each set were scored.": cut,
        "Whether the model tells when asked in other words, in another language, or in steps.": text and not asked,
        "Whether cropped, recoloured or otherwise altered images of the forgotten ones are still recognised.": not text,
    }
    return [sentence for sentence, missing in told.items() if missing]
