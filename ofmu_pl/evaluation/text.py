"""Evaluation of language models: answers are scored and generated, and the data's suite computes metrics from them."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from pkgutil import resolve_name
from typing import Any

import lightning.pytorch as pl
import numpy as np
from lightning.pytorch.utilities import rank_zero_warn
from torch import nn
from transformers import PreTrainedModel

from ofmu_pl.data.base import data_of
from ofmu_pl.data.lineage import write_lineage
from ofmu_pl.evaluation.account import Example, Measured
from ofmu_pl.evaluation.base import Evaluation
from ofmu_pl.evaluation.caveats import like_held_out, like_retained
from ofmu_pl.evaluation.reference import (
    Facts,
    Reference,
    check_comparable,
    evaluation_facts,
    load_retrained,
    read_model_facts,
    read_reference,
)
from ofmu_pl.evaluation.results import SamplesName, write_open_unlearning_logs, write_samples
from ofmu_pl.evaluation.scoring import cached_scores, score_rows
from ofmu_pl.evaluation.table import Metrics
from ofmu_pl.evaluation.tasks import Tasks
from ofmu_pl.metrics import DEFINITIONS, DefinitionName, Scores, SetScores
from ofmu_pl.metrics.alignment import ALIGNMENT
from ofmu_pl.metrics.nearness import ROWS, nearness
from ofmu_pl.metrics.own import OwnMetric
from ofmu_pl.support.errors import UserError, check_range
from ofmu_pl.support.provenance import provenance, weights_hash
from ofmu_pl.support.records.results import REFERENCE
from ofmu_pl.support.sets import forgets, is_probe, is_request
from ofmu_pl.support.version import RESULTS_VERSION

Suite = Callable[..., Metrics]
"""A function of the model's scores by evaluation set, the retrained model's or ``None``, and ``definition``,
``reference_values`` and ``intervals`` as in ``tofu_metrics``; it gives every metric that the scores allow."""
EXAMPLES = 10  # most rows that the audit page shows


class TextEvaluation(Evaluation):
    """The metrics of the data's suite before, along and after a run; ``validate`` and ``test`` only measure.

    Args:
        reference: Retrained model that forgetting is compared with: its folder or hub id, the ``reference.json``
            that an earlier run wrote, open-unlearning's ``TOFU_EVAL.json``, or ``retrain`` for one trained as the
            configuration's ``original`` says (once; kept by content); ``null``: no forget quality, no goals from it.
        second_reference: One more retrained model, of another seed, given like ``reference`` but not as ``retrain``.
            What counts is then how far the unlearned model is beyond what the two differ by; ``null``: none.
        definition: How metrics are computed: ``exact``, ``open_unlearning`` (that program's numbers, quirks included,
            and its files TOFU_EVAL.json and TOFU_SUMMARY.json) or ``tofu_arithmetic`` (the truth ratio of TOFU's
            paper).
        every_n_steps: Outer iterations between two cheap measurements (probabilities and truth ratios of at most
            100 rows of each set, nothing generated); ``null``: none.
        rows: Number of evenly spaced rows of each set in every measurement, for a quick look; ``null``: all.
        max_new_tokens: Length of generated answers.
        own_metrics: Metrics of your own, computed from the same scores; ``null``: none.
        tasks: What else must stay: names of lm-eval's tasks (``[arc_easy, piqa]``), which are run before and after,
            with ``rows`` their first ones alone; needs the package lm-eval. ``null``: none.
        tasks_folder: Folder with YAML files of tasks of your own; ``null``: lm-eval's alone.
        samples: How much files and checkpoints hold of texts: ``hashes``, only hashes of rows in ``samples.jsonl``,
            beside the numbers; ``full``, the rows and what the model said; ``none``, no ``samples.jsonl``
            (docs/privacy.md).
    """

    modality = "text"
    scores_class = SetScores
    interim_items = 100
    """Number of rows of each set in a cheap measurement."""

    def __init__(
        self,
        reference: str | None = None,
        definition: DefinitionName = "exact",
        every_n_steps: int | None = None,
        rows: int | None = None,
        max_new_tokens: int = 200,
        samples: SamplesName = "hashes",
        own_metrics: list[OwnMetric] | None = None,
        tasks: list[str] | None = None,
        tasks_folder: str | None = None,
        second_reference: str | None = None,
    ) -> None:
        super().__init__(reference, every_n_steps, own_metrics)
        self.task_names, self.tasks_folder = tasks or [], tasks_folder
        self.tasks: Tasks | None = None
        check_range(1, rows=rows, max_new_tokens=max_new_tokens)
        self.definition, self.rows, self.second_source = definition, rows, second_reference
        self.max_new_tokens, self.samples = max_new_tokens, samples

    def setup(self, trainer: pl.Trainer, pl_module: pl.LightningModule, stage: str) -> None:
        """Refuse data of the other modality, a second reference without a first, and tasks that cannot be run."""
        super().setup(trainer, pl_module, stage)
        if self.second_source is not None and self.source is None:
            raise UserError("evaluation.second_reference needs a first: give evaluation.reference, too.")
        if self.task_names:
            self.tasks = Tasks(self.task_names, self.tasks_folder, self.rows)

    def score(self, trainer: pl.Trainer, model: PreTrainedModel, cheap: bool = False) -> Scores:
        """Score a model; a cheap measurement scores some rows, no probes, no other requests, and generates nothing."""
        data, settings = data_of(trainer), self._settings(trainer)
        progress = trainer.is_global_zero and trainer.progress_bar_callback is not None
        if cheap:
            left_out = [name for name in data.evaluation_sets if is_probe(name) or is_request(name)]
            sets = {name: rows for name, rows in data.evaluation_sets.items() if name not in left_out}
            items = min(self.rows or self.interim_items, self.interim_items)
            settings |= {"items": items, "max_new_tokens": None, "kinds": data.kinds}
            return score_rows(model, data.encoder, sets, **settings, thorough=data.thorough, progress=progress)
        texts = self.samples == "full" or self.definition == "open_unlearning"
        return cached_scores(model, data, **settings, texts=texts, progress=progress)

    def more_metrics(self, trainer: pl.Trainer, model: PreTrainedModel) -> Metrics:
        """What lm-eval's tasks say of the model."""
        return self.tasks(model, data_of(trainer).tokenizer) if self.tasks else {}

    def metrics(self, trainer: pl.Trainer, scores: Scores, column: str) -> Metrics:
        """The metrics of the data's suite, with intervals."""
        r = self.reference
        theirs, values = (None, None) if r is None else (r.scores, r.values)
        options = {"definition": self.definition, "reference_values": values, "intervals": True}
        found = self._suite(trainer)(scores, theirs, **options)
        if column == "retrained":
            return found
        if self.second is not None:
            second = self._suite(trainer)(self.second.scores, theirs, **options | {"intervals": False})
            found = {name: result.beside(second.get(name)) for name, result in found.items()}
        return found | self._nearness(scores, theirs or {}, column)

    def _nearness(self, scores: Scores, retrained: Scores, column: str) -> Metrics:
        """How near the model's losses are to the retrained model's; retain rows only beside a second one's."""
        found: Metrics = {}
        target, second = self.before if column == "after" else {}, self.second.scores if self.second else {}
        for name in ROWS:
            sides = scores, retrained, target, second
            ours, theirs, was, noise = losses = [side[name].answer_loss if name in side else None for side in sides]
            alike = len({len(x) for x in losses if x is not None}) == 1  # another program's log has all rows
            if ours is not None and theirs is not None and alike and (forgets(name) or noise is not None):
                found |= nearness(ours, theirs, was, noise, name, self.definition)
        return found

    def unknown(self, trainer: pl.Trainer, model: nn.Module, scores: Scores) -> str | None:
        """Hold its rows against random guesses, and its forget rows against held-out rows."""
        seen = like_retained(scores) if self.source is None else None  # else the retrained model is the goal
        return super().unknown(trainer, model, scores) or seen or like_held_out(scores)

    def interim_metrics(self, trainer: pl.Trainer, scores: Scores) -> Metrics:
        """The metrics of the data's suite without the reference, which has other items."""
        return self._suite(trainer)(scores, definition=self.definition)

    @staticmethod
    def _suite(trainer: pl.Trainer) -> Suite:
        """The function that the data names."""
        return resolve_name(data_of(trainer).suite)

    def scoring_facts(self, trainer: pl.Trainer, model: PreTrainedModel) -> Facts:
        """Number format, length of generations and hidden token."""
        settings = self._settings(trainer)
        return {
            "dtype": str(model.dtype).removeprefix("torch."),
            "rows": settings["items"],
            "max_new_tokens": settings["max_new_tokens"],
            "hidden_token": settings["hidden"],
            "results_version": RESULTS_VERSION,
        }

    def load_reference(self, trainer: pl.Trainer, pl_module: Any, source: str) -> Reference:
        """Read or score the reference, and the second one."""
        found = self._load(trainer, pl_module, source, partial(self.measured, trainer, column="retrained"))
        if self.second_source is not None:
            self.second = self._load(trainer, pl_module, self.second_source, partial(self.score, trainer))
            self._book("evaluation")
            weights = {(r.evaluation or {}).get("weights", r.source) for r in (found, self.second)}
            if len(weights) == 1:
                raise UserError(
                    f"evaluation.second_reference '{self.second_source}' is the first one: give one of another seed."
                )
        return found

    def _load(self, trainer: pl.Trainer, pl_module: Any, source: str, score: Callable[..., Scores]) -> Reference:
        data = data_of(trainer)
        path = None if isinstance(source, nn.Module) else Path(source).expanduser()
        if path is not None and path.suffix == ".json":
            found = read_reference(path, data)
        else:
            name, model, trained_on = load_retrained(source, data, pl_module.run)
            model = model.to(device=pl_module.device, dtype=pl_module.network.dtype)
            facts = evaluation_facts(model, data, self.scoring_facts(trainer, model), weights_hash(model))
            found = Reference(name, trained_on, facts, score(model))
        if found.evaluation is not None:
            remedy = "give the retrained model's folder, or change the run's setting"
            ours = self.scoring_facts(trainer, pl_module.network)
            check_comparable(f"The reference '{found.source}'", found.evaluation, ours, remedy)
        if found.model is None:
            rank_zero_warn(f"The reference '{found.source}' does not say what its model was trained on: unchecked.")
        return found

    def write_files(self, run: Measured) -> None:
        """Write reference and samples, and under its definition open-unlearning's logs."""
        data, r, metrics = data_of(run.trainer), self.reference, run.columns[run.judged]
        if r is not None:
            r.write(run.folder / REFERENCE)
        elif not run.module.unlearns or run.trainer.state.fn != "fit":  # it can be another run's reference
            network = run.module.network
            facts = evaluation_facts(network, data, self.scoring_facts(run.trainer, network), run.weights)
            fits, source = run.trainer.state.fn == "fit", getattr(run.module.recipe, "path", None)
            model = provenance(data, streams=list(run.module.streams)) if fits else read_model_facts(str(source))
            aligned = metrics.get(ALIGNMENT.name)
            values = {ALIGNMENT.name: aligned.value} if aligned else {}
            Reference(str(run.folder), model, facts, run.scores, values).write(run.folder / REFERENCE)
        if self.samples != "none":
            path, full = run.folder / "samples.jsonl", self.samples == "full"
            write_samples(path, data.evaluation_sets, self.before, run.scores, full)
            if run.trainer.state.fn == "fit":
                write_lineage(run.folder, data.splits, run.module.streams)
        if "forget" in run.scores and self.definition == "open_unlearning":
            write_open_unlearning_logs(run.folder, data, run.scores, metrics, self.samples)

    def examples(self, trainer: pl.Trainer, scores: Scores) -> list[Example]:
        """Evenly spaced forgotten rows with the models' answers, where ``samples`` is ``full``."""
        if self.samples != "full" or "forget" not in scores:
            return []
        models = self.before, scores, self.reference.scores if self.reference else {}
        ids, rows = scores["forget"].ids, data_of(trainer).evaluation_sets["forget"]
        sides = []
        for model in models:  # another program's reference may have other rows
            alike = "forget" in model and np.array_equal(model["forget"].ids, ids)
            sides.append(model["forget"].generations if alike else None)
        found = []
        for k in np.unique(np.linspace(0, len(ids) - 1, min(len(ids), EXAMPLES)).round().astype(int)):
            said = [None if texts is None else str(texts[k]) for texts in sides]
            found.append(Example(str(rows[ids[k]]["question"]), str(rows[ids[k]]["answer"]), *said))
        return found

    def state_dict(self) -> dict[str, Any]:
        """The scores and times that a resumed run cannot measure again, with texts if files show them."""
        full = self.samples == "full"
        said = {name: s.generations.tolist() for name, s in self.before.items() if full and s.generations is not None}
        return super().state_dict() | {"said": said}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restore what ``state_dict`` gave."""
        super().load_state_dict(state_dict)
        for name, texts in state_dict["said"].items():
            self.before[name] = replace(self.before[name], generations=np.array(texts, dtype=object))

    def _settings(self, trainer: pl.Trainer) -> Facts:
        """How rows are scored; ``hidden`` is the prompt token that open-unlearning's mask hides."""
        hides = DEFINITIONS[self.definition].hides_padding_tokens
        hidden = data_of(trainer).tokenizer.pad_token_id if hides else None
        return {"items": self.rows, "max_new_tokens": self.max_new_tokens, "hidden": hidden}
