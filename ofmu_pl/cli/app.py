"""The command ``fit``, and those that measure: LightningCLI with our callbacks, run folders and links."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, Literal

import lightning.pytorch as pl
from lightning.fabric.utilities.exceptions import MisconfigurationException
from lightning.pytorch.callbacks import ModelCheckpoint
from lightning.pytorch.cli import ArgsType, LightningArgumentParser, LightningCLI
from lightning.pytorch.loggers import Logger
from lightning.pytorch.utilities import rank_zero_info

import ofmu_pl.evaluation.images
import ofmu_pl.evaluation.validation
import ofmu_pl.training.budget  # noqa: F401  makes the short class names known
from ofmu_pl.cli.errors import refused
from ofmu_pl.cli.options import check_devices, check_loggers, check_schedule, check_trainer, check_writers
from ofmu_pl.cli.originals import begin_from_base, train_originals
from ofmu_pl.cli.words import DRY_RUN
from ofmu_pl.evaluation.base import Evaluation
from ofmu_pl.evaluation.originals import Original, original
from ofmu_pl.support.classes import check_classes, import_all
from ofmu_pl.support.errors import MAX_SEED, UserError, check_range, reason
from ofmu_pl.support.escapes import say
from ofmu_pl.support.files import below
from ofmu_pl.support.records.results import RESULTS, Results
from ofmu_pl.training.checkpoints import LAST, WholeFiles, require_same_data, require_sound
from ofmu_pl.training.export import ModelExport
from ofmu_pl.training.progress import IterationProgressBar
from ofmu_pl.training.record import logger_of
from ofmu_pl.training.resumable import Ended, Resumable
from ofmu_pl.training.run_folders import Start, begun, choose, discard, number, point_latest, warn_of_other_scores
from ofmu_pl.training.settings import length, settings, shown
from ofmu_pl.training.shards import shard_errors

import_all(["ofmu_pl.data", "ofmu_pl.modules", "ofmu_pl.networks"])  # and theirs


class UnlearningCLI(LightningCLI):
    """LightningCLI with our callbacks, log folders and links from the method to its data."""

    dry: ClassVar[bool] = False
    """Whether the command only tries the configuration."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self._command = kwargs["args"][0]
        super().__init__(*args, **kwargs)

    def subcommands(self) -> dict[str, set[str]]:  # type: ignore[override]  # Lightning asks the instance
        """The command that is given alone, since each takes half a second to set up; no choice of ``weights_only``."""
        return {self._command: LightningCLI.subcommands()[self._command] | {"weights_only"}}

    def setup_parser(self, *args: Any) -> None:
        """Set up Lightning's parser, with the name of the command as a user types it."""
        super().setup_parser(*args)
        for parser in self._subcommand_parsers.values():
            parser.prog = self.parser.prog

    def parse_arguments(self, parser: LightningArgumentParser, args: ArgsType) -> None:
        """Look at the seed and at a checkpoint before Lightning takes anything from them."""
        super().parse_arguments(parser, args)
        config = self.config[self.config["subcommand"]]
        if config.pop("dry_run", False) is not self.dry:
            raise UserError(f"{DRY_RUN} is a word of the command line alone: take it out of the configuration.")
        check_range(0, MAX_SEED, whole=True, seed_everything=config["seed_everything"])
        check_trainer(config["trainer"])
        check_writers(config)
        check_loggers(config["trainer"]["logger"])
        check_schedule(config)
        path = config["ckpt_path"]
        if path not in (None, LAST):
            require_sound(Path(path))

    def before_instantiate_classes(self) -> None:
        """Check the configuration before anything is made of it."""
        check_classes(self.config)
        begin_from_base(self.config[self.config["subcommand"]])

    def instantiate_classes(self) -> None:
        """Make the classes of the configuration; one that refuses its arguments is the user's to mend."""
        try:
            super().instantiate_classes()
        except (ValueError, TypeError, MisconfigurationException) as error:
            raise refused(error) from error

    def fit(self, ckpt_path: str | None = None, **_: object) -> None:
        """Train, evaluate and export, or what of that is missing; nothing but tensors and plain values is unpickled."""
        with self._begun(ckpt_path) as start:
            if start.done:
                assert start.folder is not None, "a finished run has a folder"
                self.datamodule.setup("fit")
                then = Results.read(start.folder / RESULTS).provenance["hashes"]
                require_same_data(self.datamodule.hashes, then)
                if self.trainer.is_global_zero:
                    say(f"finished: see {start.folder}")
                    warn_of_other_scores(start.folder, self.config["fit"].as_dict())
                    if ckpt_path == LAST:  # the process may have been killed before it did so
                        point_latest(start.folder)
                return
            if ckpt_path:
                told = f"Going on from '{start.checkpoint}'." if start.checkpoint else "No checkpoint yet: a new run."
                rank_zero_info(told)
            if start.ended:
                self.trainer.callbacks.insert(0, Ended())  # type: ignore[attr-defined]
            with shard_errors(self.method_folder):
                self._run_from(start.checkpoint, self.trainer.fit)
            if start.folder is not None:
                tried = self.trainer.fast_dev_run or not self.trainer.is_global_zero  # type: ignore[attr-defined]
                if not (tried or (start.folder / RESULTS).is_file()):
                    raise UserError(
                        "The run ended before its first iteration: raise trainer.max_time or trainer.max_epochs."
                    )
                point_latest(start.folder)

    def validate(self, ckpt_path: str | None = None, **_: object) -> None:
        """Measure a model, or a checkpoint, in a folder of its own."""
        with self._begun(ckpt_path) as start:
            self._run_from(start.checkpoint, self.trainer.validate)

    test = validate
    """The same."""

    def _run_from(self, checkpoint: Path | None, run: Callable[..., object]) -> None:
        self._train_originals()
        self.trainer.ckpt_path = checkpoint  # known before it is loaded, so that the network can be compared
        run(self.model, datamodule=self.datamodule, weights_only=True)

    @contextmanager
    def _begun(self, words: str | None) -> Iterator[Start]:
        """Yield where the command begins; its folder is held and logged to, and removed if nothing came of it."""
        folder, command = self.method_folder, str(self.subcommand)
        self._get(self.config_init, "evaluation").prints = self._get(self.config_init, "table")
        resolved = self.config[command].as_dict()
        if command == "fit":
            self.config[command]["ckpt_path"] = None  # the saved configuration is that of a whole run
        if self._get(self.config_init, "trainer")["fast_dev_run"]:
            yield replace(choose(folder, command, words, resolved), folder=None, done=False)
            return
        first = self.trainer.is_global_zero  # the others write nothing, and are told the folder by rank 0
        placed = begun if first else lambda *place: nullcontext(choose(*place))
        with placed(folder, command, words, resolved) as start:
            try:
                if not start.done:
                    version = number(start.folder) if first and start.folder else None
                    # Ours comes first: by it Lightning tells where a run's files go.
                    self.trainer.loggers = [logger_of(folder, version), *self._others]
                    self._begin_logs()
                yield start
            except BaseException:
                if start.new and start.folder is not None and self.trainer.global_step <= start.step:
                    discard(start.folder)
                raise

    def _begin_logs(self) -> None:
        """Tell loggers the settings; one that cannot be had is the user's to mend, before any work."""
        for logger in self.trainer.loggers:
            try:
                logger.log_hyperparams(shown(self.settings))
            except Exception as error:
                told = f"{type(logger).__name__} cannot be had here ({reason(error):.200})"
                raise UserError(f"{told}: mend what it needs, or leave it out of trainer.logger.") from error

    def add_arguments_to_parser(self, parser: LightningArgumentParser) -> None:
        """Our arguments, forced callbacks and links."""
        if self._command == "fit":
            parser.add_argument(
                DRY_RUN,
                action="store_true",
                help="Only try one iteration, evaluation and checkpoint, without weights and devices.",
            )
        parser.add_argument("--logs", default="logs", help="Root of all outputs.")
        for name, text in (("benchmark", "under logs; null: the data's"), ("method", "under that; null: the method's")):
            parser.add_argument(f"--{name}", type=str | None, default=None, help=f"Folder {text} name.")
        parser.add_argument(
            "--table", type=Literal["short", "all"], default="short", help="Metrics of the table at the end."
        )
        parser.add_lightning_class_args(ModelExport, "export")  # before the evaluation, which writes results.json last
        parser.add_lightning_class_args(Evaluation, "evaluation", subclass_mode=True)
        parser.add_argument(
            "--original",
            type=Original | None,
            default=None,
            help="How target and retrained model are trained, where there are none; null: not at all.",
        )
        parser.add_lightning_class_args(ModelCheckpoint, "checkpoint")
        parser.set_defaults(
            {
                "evaluation": {"class_path": "ofmu_pl.evaluation.text.TextEvaluation"},
                "checkpoint.filename": "{step}",
                "checkpoint.monitor": "step",
                "checkpoint.mode": "max",
                "checkpoint.save_top_k": 2,
                "checkpoint.every_n_train_steps": 10,
                "checkpoint.enable_version_counter": False,  # an iteration made again has the same weights
            }
        )
        parser.link_arguments("seed_everything", "data.init_args.seed", compute_fn=int)
        link = partial(parser.link_arguments, "model", apply_on="instantiate")
        link("data.init_args.streams", compute_fn=lambda model: model.streams)
        link("data.init_args.num_batches", compute_fn=lambda model: model.num_batches)
        link("data.init_args.tokenizer", compute_fn=lambda model: model.recipe.tokenizer_source)

    def instantiate_trainer(self, **kwargs: Any) -> pl.Trainer:
        """The trainer; its loggers follow when the command has a folder."""
        trainer_config = self._get(self.config_init, "trainer", default={})
        check_devices(trainer_config)
        given = trainer_config.get("logger")
        self._others = given if isinstance(given, list) else [given] if isinstance(given, Logger) else []
        kwargs["logger"] = False
        kwargs["plugins"] = [*(trainer_config.get("plugins") or []), WholeFiles()]
        if self.subcommand == "fit":
            kwargs["limit_val_batches"] = 0  # the evaluation callback measures
            bar = [IterationProgressBar()] if trainer_config.get("enable_progress_bar") is not False else []
            # First, so that a checkpoint of its own is written before anything else looks at the iteration.
            resumable = Resumable(self.settings, length(self.config[self.subcommand].as_dict()))
            kwargs["callbacks"] = [resumable, *(trainer_config.get("callbacks") or []), *bar]
        return super().instantiate_trainer(**kwargs)

    @property
    def method_folder(self) -> Path:
        """``logs/<benchmark>/<method>``, which holds the versions of a run."""
        benchmark = self._get(self.config_init, "benchmark") or self.datamodule.name
        method = self._get(self.config_init, "method") or type(self.model).__name__.lower()
        return below(below(Path(self._get(self.config_init, "logs")), benchmark, "benchmark"), method, "method")

    @property
    def settings(self) -> dict[str, str]:
        """What a run that goes on must have in common with the one before."""
        return settings(self.config[self.subcommand].as_dict())

    def _train_originals(self) -> None:
        """Train the target and the retrained model, where there are none."""
        how, evaluation = self._get(self.config_init, "original"), self._get(self.config_init, "evaluation")
        if how is not None:
            self.datamodule.setup()
            evaluation.check(self.datamodule)
        train = partial(
            original,
            how,
            self.model.recipe,
            self.datamodule,
            seed=int(self._get(self.config_init, "seed_everything")),
            folder=Path(self._get(self.config_init, "logs")),
            accelerator=self.trainer.accelerator,
            progress=self.trainer.progress_bar_callback is not None,
        )
        train_originals(self.model, how, evaluation, train)
