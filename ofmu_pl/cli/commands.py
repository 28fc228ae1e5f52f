"""The commands: ``python -m ofmu_pl fit --config configs/tofu.yaml [-c overlay.yaml] [--key value]``, and others.

What a user can mend is one sentence on stderr and exit code 1 (options: 2). Nothing heavy is imported here: help and
reports come at once.
"""

import argparse
import os
import sys
from collections.abc import Callable
from difflib import get_close_matches
from multiprocessing import forkserver
from pathlib import Path
from typing import NoReturn

from ofmu_pl import __version__
from ofmu_pl.cli.sentences import one_sentence
from ofmu_pl.cli.words import DRY_RUN, WordsParser, fail
from ofmu_pl.support.escapes import command, say
from ofmu_pl.support.shipped import about, names

COMMANDS = {
    "fit": "Unlearn or train, measure before and after, and write results.json, the model and a table.",
    "validate": "Measure a model as it is.",
    "test": "The same as validate.",
    "plan": "Say what memory and work a run of fit with the same options would take, without loading anything.",
    "benchmark": "Run every method in every scenario with every seed, and report.",
    "attack": "Try to bring back what runs have forgotten, and the same on the retrained model and on the target.",
    "requests": "Unlearn requests one after another, each from the model that the last one left, and report.",
    "report": "Make a page, tables and figures of the runs below a folder: FOLDER/report/index.html.",
    "quickstart": "Make a small model, let it forget by two methods, relearn, and make the report, in some minutes.",
    "configs": "List the configurations that come with the package; name one as --config ofmu_pl:NAME.",
    "find": "Find the rows that name persons: numbers for data.forget_rows, and a page to check by eye.",
    "lineage": "Find the models that were trained on some rows, by what their runs keep.",
    "purge": "Remove from runs what holds or rebuilds the rows that they forgot (docs/privacy.md).",
}
"""What each does, in the order of the help."""
SPINS = "10000"
"""Turns that a waiting thread takes before it sleeps: they cost an idle machine nothing (docs/hardware.md)."""

PRELOADED = ["ofmu_pl.support.guarded", "ofmu_pl.cli.configured", "torch.utils.tensorboard", "nltk.stem.porter"]
"""What the server imports, the guard first, from which a benchmark's runs are forked: starting one takes no time."""


def main(args: list[str] | None = None) -> None:
    """Run a command by the words after the program's name; ``None``: those of the process."""
    words = sys.argv[1:] if args is None else args
    if "OMP_WAIT_POLICY" not in os.environ:  # before torch is imported: its threads spin for long while they wait
        os.environ.setdefault("GOMP_SPINCOUNT", SPINS)
    with one_sentence(words):
        _run(words)


def _run(words: list[str]) -> None:
    command, *options = words or ["--help"]
    if command not in COMMANDS:
        _general(command)
    if command in OTHERS:
        OTHERS[command](options)
    else:
        if DRY_RUN in options:
            os.environ["HF_HUB_OFFLINE"] = "1"  # before the hub's packages are imported, which read it then
        from ofmu_pl.cli.trust import without_trust

        options = without_trust(options)  # before libraries are imported, which look for others in the working folder
        if command in ("benchmark", "requests"):  # their server imports while this process does
            forkserver.set_forkserver_preload(PRELOADED)
            forkserver.ensure_running()
        from ofmu_pl.cli.configured import configured

        configured(command, options, COMMANDS[command])


def _general(word: str) -> NoReturn:
    """Answer what is no command: a wish for help or for the version, or a mistake."""
    parser = argparse.ArgumentParser("ofmu_pl", description="Machine unlearning that shows its work.")
    parser.add_argument("--version", action="version", version=f"ofmu_pl {__version__}")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", description="COMMAND --help tells more.")
    for name, line in COMMANDS.items():
        commands.add_parser(name, help=line)
    if word in ("-h", "--help", "--version"):
        parser.parse_args([word])
    near = get_close_matches(word, COMMANDS, n=1)
    hint = f" (did you mean {near[0]}?)" if near else ""
    fail(f"The first word is a command, and '{word}' is none{hint}: give one of {', '.join(COMMANDS)}.", 2)


def _report(words: list[str]) -> None:
    parser = WordsParser("report", COMMANDS["report"])
    parser.add_argument("folder", type=Path, help="A benchmark's, for example logs/quickstart.")
    parser.add_argument(
        "--foreign",
        type=Path,
        nargs="+",
        default=[],
        help="Folders with open-unlearning's TOFU_SUMMARY.json or TOFU_EVAL.json, each a row of its own.",
    )
    options = parser.parse_args(words)
    from ofmu_pl.report import report

    report(options.folder, options.foreign)


def _purge(words: list[str]) -> None:
    parser = WordsParser(
        "purge",
        "Remove from runs what holds or rebuilds the rows that they forgot (samples, logs with texts, "
        "checkpoints); results.json and the exported model stay. docs/privacy.md says what else there is.",
    )
    parser.add_argument("runs", type=Path, nargs="+", help="Folders of runs, for example logs/tofu/ofmu/version_0.")
    options = parser.parse_args(words)
    from ofmu_pl.cli.purge import purge

    purge(options.runs)


def _find(words: list[str]) -> None:
    parser = WordsParser("find", COMMANDS["find"])
    forms = "Files in the forms that fit reads: JSON lines, JSON, CSV, parquet, texts."
    parser.add_argument("--rows", nargs="+", required=True, help=forms)
    parser.add_argument("--names", type=Path, required=True, help="A text file with a name a line, given names first.")
    parser.add_argument("--out", type=Path, default=Path("found"), help="Folder of the outputs (default: found).")
    parser.add_argument("--least", type=float, default=70.0, help="Least score of a row that is written (default: 70).")
    options = parser.parse_args(words)
    from ofmu_pl.finder.command import search

    search(options.rows, options.names, options.out, options.least)


def _lineage(words: list[str]) -> None:
    parser = WordsParser("lineage", COMMANDS["lineage"])
    forms = "Files of questions and answers or conversations, in the forms that fit reads."
    parser.add_argument("--rows", nargs="+", required=True, help=forms)
    parser.add_argument("--models", type=Path, nargs="+", required=True, help="Folders of runs, or of many: logs.")
    options = parser.parse_args(words)
    from ofmu_pl.finder.lineage import trace

    trace(options.rows, options.models)


def _quickstart(words: list[str]) -> None:
    parser = WordsParser("quickstart", COMMANDS["quickstart"])
    parser.add_argument("--seed", type=int, default=0, help="Seed of the models and of the run (default: 0).")
    parser.add_argument("--logs", type=Path, default=Path("logs"), help="Root of all outputs (default: logs).")
    options = parser.parse_args(words)
    name = "quickstart" if options.seed == 0 else f"quickstart-seed{options.seed}"
    place = ["--logs", str(options.logs), "--name", name, f"--experiments.authors.seeds=[{options.seed}]"]
    _run(["benchmark", "--config", "ofmu_pl:benchmarks/quickstart.yaml", *place])
    attack = command("attack", "--config", "ofmu_pl:attacks.yaml", "--runs", str(options.logs / name))
    say(f"Next, all attacks: {attack}")


def _configs(words: list[str]) -> None:
    WordsParser("configs", COMMANDS["configs"]).parse_args(words)
    width = max(map(len, names())) + 2
    for name in names():
        print(f"{name:{width}}{about(name)}")


OTHERS: dict[str, Callable[[list[str]], None]] = {
    "report": _report,
    "quickstart": _quickstart,
    "configs": _configs,
    "find": _find,
    "lineage": _lineage,
    "purge": _purge,
}
"""Commands that take no configuration."""
