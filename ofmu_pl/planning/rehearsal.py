"""One iteration of a configuration by Lightning's own trainer, without weights and devices: faults, memory and work.

The trainer, its strategy (DDP, FSDP2), the precision, the method, the optimizers and the data are those of the run. In
the places of others stand fake tensors (the network's, ``unreal.py``), torch's process group ``fake`` (the other
ranks), the CPU (GPUs), and blank rows (data that would have to be downloaded). A ledger counts the storages of the fake
tensors, so that nothing here knows a method's memory by a formula.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import lightning.pytorch as pl
import torch
from torch import nn

from ofmu_pl.core.derivatives import trainable
from ofmu_pl.core.preflight import check_precision
from ofmu_pl.core.ranks import Ranks
from ofmu_pl.data.base import PairedDataModule, data_of
from ofmu_pl.evaluation.prompts import Detail, continue_prompts, read_prompts, score_answers
from ofmu_pl.losses import IGNORED
from ofmu_pl.modules.base import UnlearningModule
from ofmu_pl.modules.one_shot import OneShot
from ofmu_pl.modules.two_terms import TwoTerms
from ofmu_pl.networks.adapters import merged
from ofmu_pl.planning.course import Course
from ofmu_pl.planning.ledger import Ledger
from ofmu_pl.planning.needs import Needs, assumed, count
from ofmu_pl.planning.processes import processes_of
from ofmu_pl.planning.stage import set_up, trainer_of
from ofmu_pl.planning.unreal import Unreal, pretended
from ofmu_pl.planning.weightless import Weightless
from ofmu_pl.training.parallel import check_rows
from ofmu_pl.training.run import precision_name

FEW = 32
"""Rows of each evaluation set, which methods of one iteration read whole."""
PAIRS = 2
"""One inner step and the outer one, where graphs of graphs are taken: further inner steps are like the first."""
GENERATED = 2
"""Tokens that the evaluation generates, one of which reads the other."""


class Rehearsal(pl.Callback):
    """Notes how far a trainer has come, tries what follows an iteration, and ends the run after the first one.

    Args:
        settings: The trainer's configuration, its strategy not made into an object.
        strategy: The strategy, made into an object where it is a class; ``None``: as the configuration has it.
        evaluation: The evaluation of the run, to try it too; ``None``: the rehearsal ends with the iteration.
        exports: Whether the run exports its model.

    Attributes:
        course: What was tried, and the first fault.
        needs: Memory and work of an iteration.
    """

    weightless: Weightless

    def __init__(
        self, settings: Mapping[str, Any], strategy: Any = None, evaluation: Any = None, exports: bool = False
    ) -> None:
        self.settings, self.strategy, self.evaluation, self.exports = settings, strategy, evaluation, exports
        self.course, self.needs, self.ledger = Course(), Needs(), Ledger()
        self.whole: dict[str, list[Any]] = {}

    def fit(self, module: UnlearningModule, data: PairedDataModule, *, blank: bool = False) -> Course:
        """Try everything, up to the first fault.

        Args:
            module: The method; of no use afterwards.
            data: Its data module, not set up; likewise.
            blank: Whether rows stand in that are as large as rows can be, and the data are not read.
        """
        course = self.course
        with course.watched():
            course.begin("data")
            course.tell(set_up(data, blank=blank))
            course.begin("ranks")
            processes = processes_of(self.settings)
            precision = precision_name(self.settings.get("precision"))
            course.tell(f"{processes}, {precision}")
            self.needs.title = f"{_name(module)}, {processes}"
            self.needs.assumption = assumed(module, data, processes, self.settings)
            check_precision(precision)  # before the trainer, which turns 16-mixed into bf16-mixed on a CPU
            if processes.sharded:
                check_rows(data, module.streams, Ranks(0, processes.size, sharded=True))
            data.evaluation_sets = {name: rows[:FEW] for name, rows in data.evaluation_sets.items()}
            if module.micro_batch_size is not None:  # two parts on each rank: further ones are like the second
                data.batch_size = min(data.batch_size, 2 * processes.size * module.micro_batch_size)
            self.weightless = Weightless(module.recipe, self.ledger, exact=module.exact)
            module.recipe = self.weightless.stand_in
            trainer = trainer_of(self.settings, self.strategy, processes, precision=precision, callbacks=[self])
            with pretended(processes.size), Unreal(self.ledger, shared=processes.size > 1):
                trainer.fit(module, datamodule=data)
        return course

    def setup(self, trainer: pl.Trainer, pl_module: Any, stage: str) -> None:
        """The ranks stand; the model is made next."""
        if self.evaluation is not None:
            self.evaluation.setup(trainer, pl_module, stage)
        self.course.begin("model")

    def on_fit_start(self, trainer: pl.Trainer, pl_module: Any) -> None:
        """Model and optimizers are made; the method's checks are next."""
        network, recipe, ledger = pl_module.trained, self.weightless.recipe, self.ledger
        on_gpus = self.settings.get("accelerator") != "cpu"
        self.needs.parameters = sum(p.numel() for p in network.parameters())
        self.needs.trained = sum(p.numel() for p in trainable(network))
        sizes = f"{count(self.needs.parameters)} parameters, {count(self.needs.trained)} trained"
        self.course.tell(f"{type(recipe).__name__}: {sizes}")
        self.course.begin("method", _name(pl_module))
        pl_module.run.checks_itself = False  # numbers are made up
        if isinstance(pl_module, TwoTerms):  # losses of rows under the target, which are kept on disk
            rows = {stream: len(data_of(trainer).splits[stream]) for stream in pl_module.per_item_reference}
            pl_module.reference_nll |= {stream: torch.zeros(n) for stream, n in rows.items()}
        ledger.live["parameters"] -= quantized(recipe, network)
        for optimizer in pl_module.run.optimizers:
            if hasattr(optimizer, "is_paged"):
                optimizer.is_paged = False  # paged state is on the GPU when it is needed
            for group in optimizer.param_groups:
                if on_gpus and "foreach" in group and not group.get("fused"):
                    group["foreach"] = True
            optimizer.register_step_pre_hook(lambda *_: setattr(ledger, "kind", "optimizer"))
            optimizer.register_step_post_hook(lambda *_: setattr(ledger, "kind", "vectors"))
        ledger.begin()

    def on_train_batch_start(self, trainer: pl.Trainer, pl_module: Any, batch: Any, batch_idx: int) -> None:
        """The iteration is next."""
        rows = {f"{len(part['labels'])} {stream}" for stream, parts in batch.items() for part in parts}
        self.course.begin("iteration", f"batches of {', '.join(sorted(rows))} rows")
        self.whole = {stream: list(parts) for stream, parts in batch.items()}
        if pl_module.exact:  # graphs of graphs take long: the late iteration has them
            self.weightless.real = False
            for parts in batch.values():
                del parts[:-PAIRS]

    def on_train_batch_end(self, trainer: pl.Trainer, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        """Go through a late iteration, too, try what follows it, and end."""
        self._late(pl_module, batch)
        self.needs.memory = dict(self.ledger.peak)
        if self.evaluation is not None:
            self._checkpoint(trainer, pl_module)
        network = pl_module.whole_network()
        if pl_module.replica is not None and not pl_module.exact:
            self.needs.evaluation = sum(self.ledger.live.values())
        if self.evaluation is not None:
            self._evaluate(trainer, self.evaluation, network, next(iter(batch.values()))[0])
            self._export(network)
        trainer.should_stop = True

    def _late(self, module: Any, batch: dict[str, list[Any]]) -> None:
        """A whole iteration after the run's last, in which every part is in use, and the work of all like it."""
        number = module.period * math.ceil(max(module.run.steps, 0) / module.period) + 1
        before, self.weightless.real = module.gradient_evaluations, True
        module.outer_step(batch, number)
        self.weightless.real = False  # from here on only to count the work
        if module.exact and module.num_batches > PAIRS:
            before = module.gradient_evaluations
            module.outer_step(self.whole, number)
        work = module.gradient_evaluations - before
        if module.period > 1:  # the iterations between two whole ones are alike, and smaller
            module.outer_step(self.whole, number + 1)
            light = module.gradient_evaluations - before - work
            work = (work + (module.period - 1) * light) / module.period
        self.weightless.real = True
        self.needs.gradients = None if isinstance(module, OneShot) and work else work

    def _checkpoint(self, trainer: pl.Trainer, module: Any) -> None:
        """Collect what a checkpoint holds."""
        strategy = trainer.strategy
        self.course.begin("checkpoint")
        state: dict[str, Any] = {"state_dict": strategy.lightning_module_state_dict()}
        state["optimizer_states"] = [strategy.optimizer_state(optimizer) for optimizer in trainer.optimizers]
        module.on_save_checkpoint(state)
        self.course.tell(f"{len(state['state_dict'])} tensors, {len(trainer.optimizers)} optimizer(s)")

    def _evaluate(self, trainer: pl.Trainer, evaluation: Any, network: nn.Module, batch: Mapping[str, Any]) -> None:
        """Measure a little."""
        self.course.begin("evaluation", type(evaluation).__name__)
        data, told = data_of(trainer), []
        if data.evaluation_sets:  # blank texts have none
            evaluation.interim_items = 1
            told.append(f"one row each of {', '.join(evaluation.score(trainer, network, cheap=True))}")
        if data.modality == "text":
            _answer(network, batch)
            told.append(f"an answer scored, {GENERATED} tokens generated")
        self.course.tell(f"{type(evaluation).__name__}: {'; '.join(told)}")

    def _export(self, network: Any) -> None:
        """Gather the network."""
        self.course.begin("export")
        if self.exports:
            gathered = merged(network) if hasattr(network, "peft_config") else network
            self.course.tell(f"{len(gathered.state_dict())} tensors, whole")
        else:
            self.course.tell("none is asked for")

    def on_train_end(self, trainer: pl.Trainer, pl_module: Any) -> None:
        """Let go of the networks: the trainer's end moves them, which torch refuses where fake tensors are in use."""
        for name, _ in list(pl_module.named_children()):
            setattr(pl_module, name, None)

    def on_exception(self, trainer: pl.Trainer, pl_module: Any, exception: BaseException) -> None:
        """Do the same, so that no other error takes the place of the first."""
        self.on_train_end(trainer, pl_module)


def _name(module: Any) -> str:
    engine = getattr(module, "engine_name", None)
    return type(module).__name__ + (f" ({engine})" if engine else "")


def _answer(network: Any, batch: Mapping[str, Any]) -> None:
    """Score a row's answer and generate one, as evaluations do."""
    ids, labels = batch["input_ids"][0].tolist(), batch["labels"][0].tolist()
    begins = max(1, next(i for i, label in enumerate(labels) if label != IGNORED))
    training = network.training
    network.eval()
    prompts = read_prompts(network, [ids[:begins]])
    score_answers(network, prompts, [ids[begins:]], Detail.MOMENTS)
    continue_prompts(network, read_prompts(network, [ids[:begins]]), [], GENERATED)
    network.train(training)


def quantized(recipe: Any, network: nn.Module) -> float:
    """Bytes that 4-bit weights save: 4 bits and, for every 64 of them, a float32 instead of float32 each."""
    if not getattr(recipe, "load_in_4bit", False):
        return 0.0
    frozen = [
        m.weight
        for name, m in network.named_modules()
        if isinstance(m, nn.Linear) and not m.weight.requires_grad and not name.endswith("lm_head")
    ]
    return sum(w.numel() * (4 - 0.5 - 4 / 64) for w in frozen)
