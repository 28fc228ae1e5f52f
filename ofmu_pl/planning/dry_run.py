"""One iteration, evaluation and checkpoint of a configuration, by Lightning's own trainer, without weights and devices.

The trainer, its strategy (DDP, FSDP2), the precision, the method, the optimizers and the data are those of the run. In
the places of others stand fake tensors (the network's, ``unreal.py``), torch's process group ``fake`` (the other
ranks), the CPU (GPUs), and blank rows (data that would have to be downloaded).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import lightning.pytorch as pl
from lightning.pytorch.plugins.environments import ClusterEnvironment

from ofmu_pl.core.derivatives import trainable
from ofmu_pl.core.preflight import check_precision
from ofmu_pl.core.ranks import Ranks
from ofmu_pl.data.base import PairedDataModule, data_of
from ofmu_pl.evaluation.base import Evaluation
from ofmu_pl.evaluation.prompts import Detail, continue_greedily, read_prompts, score_answers
from ofmu_pl.losses import IGNORED
from ofmu_pl.modules.base import UnlearningModule
from ofmu_pl.networks.adapters import merged
from ofmu_pl.planning.course import Course
from ofmu_pl.planning.plan import count, processes_of
from ofmu_pl.planning.stand_ins import know_losses
from ofmu_pl.planning.unreal import Unreal, pretended
from ofmu_pl.planning.weightless import Weightless
from ofmu_pl.support.errors import NotAtHand
from ofmu_pl.training.parallel import check_rows
from ofmu_pl.training.run import precision_name

PAIRS = 2
"""One inner step and the outer one: further inner steps are like the first."""
FEW = 32
"""Rows of each evaluation set, which methods of one iteration read whole."""
GENERATED = 2
"""Tokens that the evaluation generates, one of which reads the other."""


@dataclass
class Rehearsal:
    """A configuration that is tried.

    Attributes:
        module: The method; of no use afterwards.
        data: Its data module, not set up; likewise.
        evaluation: The evaluation of the run.
        trainer: The trainer's configuration, its strategy not made into an object.
        strategy: The strategy, made into an object where it is a class.
        exports: Whether the run exports its model.
    """

    module: UnlearningModule
    data: PairedDataModule
    evaluation: Evaluation
    trainer: Mapping[str, Any]
    strategy: Any
    exports: bool

    def run(self) -> Course:
        """Try everything, up to the first fault."""
        course = Course()
        with course.watched():
            course.begin("data")
            course.tell(set_up(self.data))
            course.begin("ranks")
            processes = processes_of(self.trainer)
            precision = precision_name(self.trainer.get("precision"))
            how = "FSDP2" if processes.sharded else "DDP"
            told = f"{processes.size} by {how}" if processes.size > 1 else "one process"
            course.tell(f"{told}, {precision}")
            check_precision(precision)  # before the trainer, which turns 16-mixed into bf16-mixed on a CPU
            if processes.sharded:
                check_rows(self.data, self.module.streams, Ranks(0, processes.size, sharded=True))
            nodes = int(self.trainer.get("num_nodes", 1))
            trainer = pl.Trainer(
                accelerator="cpu",
                devices=processes.size // nodes,
                num_nodes=nodes,
                strategy=self.strategy,
                precision=precision,  # type: ignore[arg-type]
                max_steps=int(self.trainer.get("max_steps") or -1),
                max_epochs=-1,
                limit_val_batches=0,
                callbacks=[_Watch(course, self.evaluation, self.exports)],
                plugins=[_Nowhere(processes.size)],
                logger=False,
                enable_checkpointing=False,
                enable_progress_bar=False,
                enable_model_summary=False,
                use_distributed_sampler=False,
            )
            module, data = self.module, self.data
            data.num_batches = min(data.num_batches, PAIRS)
            data.evaluation_sets = {name: rows[:FEW] for name, rows in data.evaluation_sets.items()}
            if module.micro_batch_size is not None:  # two parts on each rank: further ones are like the second
                data.batch_size = min(data.batch_size, 2 * processes.size * module.micro_batch_size)
            module.recipe = Weightless(module.recipe, exact=module.exact)
            with pretended(processes.size), Unreal():
                trainer.fit(module, datamodule=data)
        return course


def set_up(data: PairedDataModule) -> str:
    """Set data up, or blank rows in its place where it would have to be downloaded; returns what it is.

    Raises:
        UserError: The data is at hand and wrong.
    """
    try:
        data.setup("fit")
    except NotAtHand as missing:
        data.blank()
        tokens = getattr(data, "row_tokens", None)
        rows = f"rows of {tokens} tokens" if tokens else "images of its size"
        return f"{data.name}: STAND-IN, blank {rows} ({missing})"
    sizes = ", ".join(f"{len(data.splits[name])} {name}" for name in data.streams)
    return f"{data.name}: {sizes} rows"


class _Watch(pl.Callback):
    """Notes how far a trainer has come, tries what follows an iteration, and ends the run after the first one."""

    def __init__(self, course: Course, evaluation: Evaluation, exports: bool) -> None:
        self.course, self.evaluation, self.exports = course, evaluation, exports

    def setup(self, trainer: pl.Trainer, pl_module: Any, stage: str) -> None:
        """The ranks stand; the model is made next."""
        self.evaluation.setup(trainer, pl_module, stage)
        self.course.begin("model")

    def on_fit_start(self, trainer: pl.Trainer, pl_module: Any) -> None:
        """Model and optimizers are made; the method's checks are next."""
        parameters = list(pl_module.trained.parameters())
        all_of_them, trained = (count(sum(p.numel() for p in ps)) for ps in (parameters, trainable(pl_module.trained)))
        self.course.tell(f"{type(pl_module.recipe.recipe).__name__}: {all_of_them} parameters, {trained} trained")
        engine = getattr(pl_module, "engine_name", None)
        self.course.begin("method", type(pl_module).__name__ + (f" ({engine})" if engine else ""))
        pl_module.run.checks_itself = False  # numbers are made up
        know_losses(pl_module, data_of(trainer))  # and not to be kept on disk

    def on_train_batch_start(self, trainer: pl.Trainer, pl_module: Any, batch: Any, batch_idx: int) -> None:
        """The iteration is next."""
        rows = {f"{len(part['labels'])} {stream}" for stream, parts in batch.items() for part in parts}
        self.course.begin("iteration", f"batches of {', '.join(sorted(rows))} rows")

    def on_train_batch_end(self, trainer: pl.Trainer, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        """Collect what a checkpoint holds, measure a little, gather the network, and end."""
        strategy = trainer.strategy
        self.course.begin("checkpoint")
        state: dict[str, Any] = {"state_dict": strategy.lightning_module_state_dict()}
        state["optimizer_states"] = [strategy.optimizer_state(optimizer) for optimizer in trainer.optimizers]
        pl_module.on_save_checkpoint(state)
        self.course.tell(f"{len(state['state_dict'])} tensors, {len(trainer.optimizers)} optimizer(s)")
        self.course.begin("evaluation", type(self.evaluation).__name__)
        network = pl_module.whole_network()
        data, told = data_of(trainer), []
        if data.evaluation_sets:  # blank texts have none
            self.evaluation.interim_items = 1  # type: ignore[attr-defined]
            told.append(f"one row each of {', '.join(self.evaluation.score(trainer, network, cheap=True))}")
        if data.modality == "text":
            _answer(network, next(iter(batch.values()))[0])
            told.append(f"an answer scored, {GENERATED} tokens generated")
        self.course.tell(f"{type(self.evaluation).__name__}: {'; '.join(told)}")
        self.course.begin("export")
        if self.exports:
            gathered = merged(network) if hasattr(network, "peft_config") else network
            self.course.tell(f"{len(gathered.state_dict())} tensors, whole")
        else:
            self.course.tell("none is asked for")
        trainer.should_stop = True

    def on_train_end(self, trainer: pl.Trainer, pl_module: Any) -> None:
        """Let go of the networks: the trainer's end moves them, which torch refuses where fake tensors are in use."""
        for name, _ in list(pl_module.named_children()):
            setattr(pl_module, name, None)

    def on_exception(self, trainer: pl.Trainer, pl_module: Any, exception: BaseException) -> None:
        """Do the same, so that no other error takes the place of the first."""
        self.on_train_end(trainer, pl_module)


def _answer(network: Any, batch: Mapping[str, Any]) -> None:
    """Score a row's answer and generate one, as evaluations do."""
    ids, labels = batch["input_ids"][0].tolist(), batch["labels"][0].tolist()
    begins = max(1, next(i for i, label in enumerate(labels) if label != IGNORED))
    training = network.training
    network.eval()
    prompts = read_prompts(network, [ids[:begins]])
    score_answers(network, prompts, [ids[begins:]], Detail.MOMENTS)
    continue_greedily(network, read_prompts(network, [ids[:begins]]), [], GENERATED)
    network.train(training)


class _Nowhere(ClusterEnvironment):
    """A cluster whose first process is this one and whose others are not there, so that none is started."""

    creates_processes_externally = True
    main_address = "localhost"
    main_port = 0

    def __init__(self, size: int) -> None:
        self.size = size

    @staticmethod
    def detect() -> bool:
        return False

    def world_size(self) -> int:
        return self.size

    def set_world_size(self, size: int) -> None:
        self.size = size

    def global_rank(self) -> int:
        return 0

    def set_global_rank(self, rank: int) -> None:
        pass

    def local_rank(self) -> int:
        return 0

    def node_rank(self) -> int:
        return 0
