"""Commands that take configuration files: everything that they may name is imported here."""

import threading
from collections.abc import Callable
from pathlib import Path

from jsonargparse import ActionConfigFile
from lightning.fabric.utilities.exceptions import MisconfigurationException
from transformers.utils.logging import disable_progress_bar

from ofmu_pl.attacks.command import attack
from ofmu_pl.benchmark.command import benchmark
from ofmu_pl.cli.app import UnlearningCLI
from ofmu_pl.cli.errors import refused
from ofmu_pl.cli.parser import Parser, check_files
from ofmu_pl.cli.rehearsed import DryRunCLI, PlanCLI
from ofmu_pl.cli.sentences import one_sentence
from ofmu_pl.cli.words import DRY_RUN, fail
from ofmu_pl.data.base import PairedDataModule
from ofmu_pl.modules.base import UnlearningModule
from ofmu_pl.requests.command import in_turn
from ofmu_pl.support.classes import check_classes, import_all
from ofmu_pl.support.errors import UserError
from ofmu_pl.support.shipped import located
from ofmu_pl.training.noise import ignore_noise, said_again

MANY_RUNS: dict[str, Callable[..., Path]] = {"benchmark": benchmark, "requests": in_turn}
"""Commands that make runs of ``fit``."""


def configured(command: str, words: list[str], description: str) -> None:
    """Run a command that takes a configuration: its name, the words after it, and what its help says."""
    ignore_noise()
    threading.excepthook = said_again
    disable_progress_bar()  # of files that transformers reads and writes
    try:
        words = [_with_file(word) for word in words]
        check_files(words)
    except UserError as error:
        fail(str(error), 2)
    try:
        if command in MANY_RUNS:
            _many(command, words, description)
        elif command == "attack":
            _attack(words, description)
        else:
            _run(command, words, description)
    except MisconfigurationException as error:
        raise refused(error) from error


def _with_file(word: str) -> str:
    """A word with the file of a configuration that it names, alone or after an option and ``=``."""
    option, equals, value = word.rpartition("=")
    return option + equals + located(value)


def fit(words: list[str]) -> None:
    """A run of ``fit`` (or ``attack``) in a process of its own, as the command line does it; files gave its words."""
    command, *options = words
    with one_sentence(words):
        configured(command, options, "")


def _many(command: str, words: list[str], description: str) -> None:
    parser = Parser(prog=f"ofmu_pl {command}", description=description)
    parser.add_argument("--config", action=ActionConfigFile, help="A YAML file with these options.")
    parser.add_function_arguments(MANY_RUNS[command], skip={"fit"})
    options = parser.instantiate(parser.parse_args(words))
    MANY_RUNS[command](**{name: options[name] for name in vars(options) if name != "config"}, fit=fit)


def _attack(words: list[str], description: str) -> None:
    parser = Parser(prog="ofmu_pl attack", description=description)
    parser.add_argument("--config", action=ActionConfigFile, help="A YAML file with these options.")
    import_all(["ofmu_pl.attacks", "ofmu_pl.data", "ofmu_pl.networks"])  # so that short class names are known
    parser.add_function_arguments(attack, skip={"runs", "unlearned", "retrained", "data"})
    parser.add_argument(
        "--runs",
        nargs="+",
        type=Path,
        default=None,
        help="Folders of finished runs, or folders above them: the latest run of each method that unlearned.",
    )
    parser.add_argument("--model.network.path", type=str | None, default=None, help="Instead of runs: a model.")
    parser.add_argument("--evaluation.reference", type=str | None, default=None, help="Its retrained model.")
    parser.add_subclass_arguments(PairedDataModule, "data", required=False, help="Its rows.")
    values = parser.parse_args(words)
    check_classes(values)
    options = parser.instantiate(values)
    attack(
        options.attacks,
        options.runs,
        options.model.network.path,
        options.evaluation.reference,
        data=options.get("data"),
        **{name: options[name] for name in ("target", "seeds", "place", "device")},
    )


def _run(command: str, words: list[str], description: str) -> None:
    word = "fit" if command == "plan" else command
    cli: type[UnlearningCLI] = PlanCLI if command == "plan" else DryRunCLI if DRY_RUN in words else UnlearningCLI
    cli(
        UnlearningModule,
        PairedDataModule,
        subclass_mode_model=True,
        subclass_mode_data=True,
        auto_configure_optimizers=False,
        seed_everything_default=0,
        save_config_kwargs={"overwrite": True},
        trainer_defaults={
            "use_distributed_sampler": False,
            "log_every_n_steps": 1,
            "num_sanity_val_steps": 0,
            "enable_model_summary": False,
            "max_epochs": -1,
        },
        parser_class=Parser,
        parser_kwargs={"prog": f"ofmu_pl {command}", word: {"description": description}},
        args=[word, *words],
    )
