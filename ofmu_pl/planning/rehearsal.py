"""One iteration of a configuration by Lightning's own trainer, without weights and devices: faults, memory and work.

The trainer, its strategy (DDP, FSDP2), the precision, the method, the optimizers and the data are those of the run.
Fake tensors stand for the network's (``unreal.py``), torch's process group ``fake`` for the other ranks, and the CPU
for GPUs. Blank rows stand for data that would have to be downloaded. A ledger counts the storages of the fake
tensors, so that no formula of a method's memory is needed here.
"""

import math
from typing import Any

import lightning.pytorch as pl
from lightning.pytorch.plugins.environments import LightningEnvironment
from lightning.pytorch.strategies import ModelParallelStrategy, Strategy
from torch import nn

from ofmu_pl.core.derivatives import trainable
from ofmu_pl.core.preflight import check_precision
from ofmu_pl.core.ranks import Ranks
from ofmu_pl.data.base import PairedDataModule
from ofmu_pl.evaluation.base import Evaluation
from ofmu_pl.evaluation.prompts import continue_prompts, read_prompts, score_answers
from ofmu_pl.losses import IGNORED
from ofmu_pl.modules.base import UnlearningModule
from ofmu_pl.modules.ending import LOOK_EVERY
from ofmu_pl.networks.adapters import is_adapted, merged, plain_tensors
from ofmu_pl.networks.base import Batch, evaluating
from ofmu_pl.planning.ledger import Ledger
from ofmu_pl.planning.needs import Course, Needs, count, host, quantized
from ofmu_pl.planning.processes import AUTO, Settings, ranks_in
from ofmu_pl.planning.unreal import Weightless, pretended
from ofmu_pl.support.errors import NotAtHand
from ofmu_pl.training.noise import SILENT
from ofmu_pl.training.run import precision_name

Batches = dict[str, list[Batch]]
"""Of each stream the batches of an iteration."""
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

    module: UnlearningModule
    data: PairedDataModule
    weightless: Weightless
    needs: Needs
    whole: Batches

    def __init__(
        self,
        settings: Settings,
        strategy: str | Strategy | None = None,
        evaluation: Evaluation | None = None,
        exports: bool = False,
    ) -> None:
        self.settings, self.strategy, self.evaluation, self.exports = settings, strategy, evaluation, exports
        self.course, self.ledger = Course(), Ledger()

    def fit(self, module: UnlearningModule, data: PairedDataModule) -> Course:
        """Try everything, up to the first fault; without an evaluation rows stand in that are as large as can be.

        Args:
            module: The method; of no use afterwards.
            data: Its data module, not set up; likewise.
        """
        self.module, self.data, course = module, data, self.course
        with course.watched():
            course.begin("data")
            course.tell(_set_up(data, blank=self.evaluation is None))
            course.begin("ranks")
            ranks = ranks_in(self.settings)
            precision = precision_name(self.settings.get("precision"))
            shared = f"{ranks.size} processes by {'FSDP2' if ranks.sharded else 'DDP'}"
            processes = shared if ranks.size > 1 else "one process"
            course.tell(f"{processes}, {precision}")
            self.needs = Needs(f"{_name(module)}, {processes}", _assumed(module, data, ranks, self.settings))
            check_precision(precision)  # before the trainer, which turns 16-mixed into bf16-mixed on a CPU
            if ranks.sharded:
                data.check_shares(module.streams, ranks.size)
            self._shorten_sets(FEW)
            if module.micro_batch_size is not None:  # two parts on each rank: further ones are like the second
                data.batch_size = min(data.batch_size, 2 * ranks.size * module.micro_batch_size)
            self.weightless = Weightless(module.recipe, self.ledger, exact=module.exact)
            module.recipe = self.weightless.stand_in
            trainer = self._trainer(ranks, precision)
            with pretended(self.ledger, ranks.size):
                trainer.fit(module, datamodule=data)
        return course

    def _trainer(self, ranks: Ranks, precision: str) -> pl.Trainer:
        """A trainer on the CPU that shows and writes nothing, whose other processes are never started."""
        nodes, strategy = int(self.settings.get("num_nodes") or 1), self.strategy
        if strategy is None and ranks.sharded:
            strategy = ModelParallelStrategy(data_parallel_size=ranks.size, tensor_parallel_size=1)
        return pl.Trainer(
            accelerator="cpu",
            devices=ranks.size // nodes,
            num_nodes=nodes,
            strategy=strategy or "auto",
            precision=precision,  # type: ignore[arg-type]
            callbacks=[self],
            max_steps=int(self.settings.get("max_steps") or -1),
            plugins=[_Nowhere()],
            enable_progress_bar=False,
            **SILENT,
        )

    def _shorten_sets(self, rows: int) -> None:
        """Leave so many rows of each evaluation set."""
        sets = self.data.evaluation_sets
        for name in sets:
            sets[name] = sets[name][:rows]

    def setup(self, trainer: pl.Trainer, pl_module: pl.LightningModule, stage: str) -> None:
        """The ranks stand; the model is made next."""
        if self.evaluation is not None:
            self.evaluation.setup(trainer, pl_module, stage)
        self.course.begin("model")

    def on_fit_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Model and optimizers are made; the method's checks are next."""
        module, ledger, network = self.module, self.ledger, self.module.trained
        on_gpus = self.settings.get("accelerator") != "cpu"
        sharded = module.run.ranks.sharded
        recipe, needs = self.weightless.recipe, self.needs
        needs.parameters = sum(p.numel() for p in network.parameters())
        needs.trained = sum(p.numel() for p in trainable(network))
        every, trained = count(needs.parameters), count(needs.trained)
        self.course.tell(f"{type(recipe).__name__}: {every} parameters, {trained} trained")
        self.course.begin("method", _name(module))
        module.run.checks_itself = False  # numbers are made up
        module.before_rehearsal()
        ledger.live["parameters"] -= quantized(recipe, network) / (module.run.ranks.size if sharded else 1)
        needs.host = host(recipe, network, ledger.live["parameters"], sharded)
        for optimizer in module.run.optimizers:
            if hasattr(optimizer, "is_paged"):
                optimizer.is_paged = False  # paged state is on the GPU when it is needed
            for group in optimizer.param_groups:
                if on_gpus and "foreach" in group and not group.get("fused"):
                    group["foreach"] = True
            optimizer.register_step_pre_hook(lambda *_: ledger.count_as("optimizer"))
            optimizer.register_step_post_hook(lambda *_: ledger.count_as("vectors"))
        ledger.begin()

    def on_train_batch_start(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, batch: Batches, batch_idx: int
    ) -> None:
        """The iteration is next."""
        rows = {f"{len(parts[0]['labels'])} {stream}" for stream, parts in batch.items()}
        self.course.begin("iteration", f"batches of {', '.join(sorted(rows))} rows")
        self.whole = {stream: list(parts) for stream, parts in batch.items()}
        if self.module.exact:  # graphs of graphs take long: the late iteration has them
            self.weightless.compute(False)
            for parts in batch.values():
                del parts[:-PAIRS]

    def on_train_batch_end(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, outputs: object, batch: Batches, batch_idx: int
    ) -> None:
        """Go through a late iteration, too, try what follows it, and end."""
        self.needs.gradients, self.needs.memory = self._late(batch), dict(self.ledger.peak)
        if self.evaluation is not None:
            self._checkpoint(trainer)
            network = self.module.network
            assert network is not None, "configure_model has run"
            self._evaluate(trainer, self.evaluation, network, next(iter(batch.values()))[0])
            self._export(network)
        self.module.run.stop()

    def _late(self, batch: Batches) -> float | None:
        """A second-order iteration after the run's last, with every part in use, and a look; returns the mean work."""
        module = self.module
        number = module.period * math.ceil(max(module.run.steps, 0) / module.period) + 1
        before = module.gradient_evaluations
        module.skip_to_late()
        self.weightless.compute(True)
        module.outer_step(batch, number)
        self.weightless.compute(False)  # from here on only to count the work
        if module.exact and module.num_batches > PAIRS:
            before = module.gradient_evaluations
            module.outer_step(self.whole, number)
        work = module.gradient_evaluations - before
        if module.period > 1:  # those between two of second order are alike, and smaller
            module.outer_step(self.whole, number + 1)
            light = module.gradient_evaluations - before - work
            work = (work + (module.period - 1) * light) / module.period
        self.weightless.compute(True)
        before = module.gradient_evaluations
        module.reached()
        looks = (module.gradient_evaluations - before) / LOOK_EVERY
        return None if module.works_by_data and work else work + looks

    def _checkpoint(self, trainer: pl.Trainer) -> None:
        """Collect what a checkpoint holds."""
        self.course.begin("checkpoint")
        tensors = trainer.strategy.lightning_module_state_dict()
        states = [trainer.strategy.optimizer_state(optimizer) for optimizer in trainer.optimizers]
        self.module.on_save_checkpoint({"state_dict": tensors, "optimizer_states": states})
        self.course.tell(f"{len(tensors)} tensors, {len(states)} optimizer(s)")

    def _evaluate(self, trainer: pl.Trainer, evaluation: Evaluation, network: nn.Module, batch: Batch) -> None:
        """Measure a little."""
        self.course.begin("evaluation", type(evaluation).__name__)
        told = []
        if self.data.evaluation_sets:  # blank texts have none
            self._shorten_sets(1)
            told.append(f"one row each of {', '.join(evaluation.score(trainer, network, cheap=True))}")
        if self.data.modality == "text":
            _answer(network, batch)
            told.append(f"an answer scored, {GENERATED} tokens generated")
        self.course.tell(f"{type(evaluation).__name__}: {'; '.join(told)}")

    def _export(self, network: Any) -> None:
        """Gather the network, or find what each rank writes its rows of."""
        self.course.begin("export")
        if not self.exports:
            self.course.tell("none is asked for")
        elif self.module.run.ranks.sharded and self.weightless.recipe.reads_rows:
            self.course.tell(f"{len(plain_tensors(network)[0])} tensors, of which each rank writes its rows")
        else:
            gathered: Any = self.module.whole_network()
            gathered = merged(gathered) if is_adapted(gathered) else gathered
            self.course.tell(f"{len(gathered.state_dict())} tensors, whole")

    def on_train_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Let go of the networks: the trainer's end moves them, which torch refuses where fake tensors are in use."""
        for name, _ in list(pl_module.named_children()):
            setattr(pl_module, name, None)

    def on_exception(self, trainer: pl.Trainer, pl_module: pl.LightningModule, exception: BaseException) -> None:
        """Do the same, so that no other error takes the place of the first."""
        self.on_train_end(trainer, pl_module)


class _Nowhere(LightningEnvironment):
    """Lightning's own environment, whose first process is this one and whose others are not there."""

    creates_processes_externally = True  # so that none is started


def _set_up(data: PairedDataModule, *, blank: bool) -> str:
    """Set data up, or blank rows in its place where it would have to be downloaded; returns what it is."""
    try:
        if blank:
            raise NotAtHand("they are not read")
        data.setup("fit")
    except NotAtHand as missing:
        data.blank()
        tokens = getattr(data, "max_length", None)
        rows = f"rows of {tokens} tokens" if tokens else "images of its size"
        return f"{data.name}: STAND-IN, blank {rows} ({missing})"
    sizes = ", ".join(f"{len(data.splits[name])} {name}" for name in data.streams)
    return f"{data.name}: {sizes} rows"


def _assumed(module: UnlearningModule, data: PairedDataModule, ranks: Ranks, settings: Settings) -> str:
    """What sizes are taken for rows and devices that nobody has seen yet."""
    rows = -(-data.batch_size // ranks.size)
    rows = min(rows, module.micro_batch_size or rows)
    tokens = getattr(data, "max_length", None)
    kind = f"rows of {tokens} tokens, all with a loss" if tokens else "images"
    text = f"Assumes batches of {data.batch_size} {kind}; {rows} at a time on each process."
    if settings.get("devices") in AUTO and str(settings.get("strategy")).lower().startswith("ddp"):
        text += " Devices are auto, taken as one: say with --trainer.devices how many the run has."
    return text


def _name(module: UnlearningModule) -> str:
    engine = getattr(module, "engine_name", None)
    return type(module).__name__ + (f" ({engine})" if engine else "")


def _answer(network: Any, batch: Batch) -> None:
    """Score a row's answer and generate one, as evaluations do."""
    ids, labels = batch["input_ids"][0].tolist(), batch["labels"][0].tolist()
    begins = max(1, next(i for i, label in enumerate(labels) if label != IGNORED))
    with evaluating(network):
        prompts = read_prompts(network, [ids[:begins]])
        score_answers(network, prompts, [ids[begins:]], detailed=True)
        continue_prompts(network, read_prompts(network, [ids[:begins]]), [], GENERATED)
