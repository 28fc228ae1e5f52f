"""The three models of a finished run, and its data, as attacks take them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from huggingface_hub import snapshot_download
from torch import nn

from ofmu_pl.attacks.base import RETRAINED, TARGET, UNLEARNED
from ofmu_pl.data.base import PairedDataModule
from ofmu_pl.data.of_run import data_of_run, part_of_run, said_of_run
from ofmu_pl.data.text_base import TextDataModule
from ofmu_pl.data.tokenizers import refuse_other_tokens
from ofmu_pl.networks.base import Network
from ofmu_pl.networks.language import CausalLM
from ofmu_pl.networks.pretrained import OwnCodeError
from ofmu_pl.networks.vision import ImageNetwork
from ofmu_pl.support.errors import UserError
from ofmu_pl.support.hub import offline
from ofmu_pl.support.provenance import STARTED_IN
from ofmu_pl.support.records import RESULTS, Results

CONFIG = "config.yaml"


@dataclass
class Attacked:
    """Models of the same rows, of which one has forgotten some.

    Attributes:
        place: Folder that takes the findings.
        recipes: Recipes by model: ``unlearned``, and ``retrained`` and ``target`` where they are at hand.
        data: Their data, set up.
        missing: Why a model is not at hand, as a sentence.
    """

    place: Path
    recipes: dict[str, Network]
    data: PairedDataModule
    missing: list[str]

    def build(self, name: str) -> nn.Module:
        """Make one of the models.

        Raises:
            UserError: Its folder holds no model that can be read, or one that needs Python code of its own.
        """
        try:
            return self.recipes[name].build(self.data, exact=False)
        except OwnCodeError as error:
            path = getattr(self.recipes[name], "path", "")
            raise UserError(
                f"The {name} model in '{path}' needs Python code of its own, which the command attack never runs: read "
                f"the code, then make the attacks from Python, on Subject(CausalLM('{path}', trust_remote_code=True), "
                "data) (docs/attacks.md)."
            ) from error


def runs_below(folders: list[Path]) -> list[Path]:
    """The finished runs that unlearned something, in folders of runs or of several; of each method the latest.

    Raises:
        UserError: There is none in a folder.
    """
    found: dict[Path, None] = {}
    for folder in folders:
        if not folder.is_dir():
            raise UserError(f"'{folder}' is no folder: give --runs the folder of a run, or one above it.")
        inside = list(_finished(folder))
        if not inside:
            raise UserError(
                f"There is no run below '{folder}' that unlearned and has finished ({RESULTS} and its model): give "
                "another folder."
            )
        found |= dict.fromkeys(inside)
    return list(found)


def _finished(folder: Path) -> Iterator[Path]:
    """The run that a folder is, or those below it that ``latest`` names."""
    if (folder / RESULTS).is_file():
        if Results.read(folder / RESULTS).before and _exported(folder) is not None:
            yield folder
        return
    if (folder / "latest").exists():
        yield from _finished(folder / "latest")
        return
    for below in sorted(p for p in folder.iterdir() if p.is_dir()):
        yield from _finished(below)


def of_run(folder: Path) -> Attacked:
    """The models of a run, read from what it left.

    Raises:
        UserError: The folder is no run's, its data or its model is no longer there, or the data has changed since.
    """
    results = Results.read(folder / RESULTS)
    exported = _exported(folder)
    if exported is None:
        raise UserError(
            f"'{folder}' has no exported model, so there is nothing to attack: run it with --export.folder."
        )
    network = _network(folder / CONFIG)
    images = isinstance(network, ImageNetwork)
    recipe: Callable[[str], Network] = network.at if isinstance(network, ImageNetwork) else CausalLM
    target = results.provenance.get("target") or getattr(network, "path", None)
    paths: dict[str, Any] = {UNLEARNED: str(exported), TARGET: target}
    if results.reference is not None and Path(results.reference.source).suffix != ".json":
        paths[RETRAINED] = results.reference.source
    home = folder / str(results.provenance.get(STARTED_IN, "."))  # relative paths lead from where the run was started
    for name in (TARGET, RETRAINED):
        if paths.get(name) and (home / Path(paths[name]).expanduser()).exists():
            paths[name] = str(home / Path(paths[name]).expanduser())
    data: Any = data_of_run(folder / CONFIG, None if images else str(exported))
    if images:
        data.augment = False  # what is asked for are the forgotten images, not crops and mirror images of them
    try:
        data.setup("fit")
    except UserError as error:
        raise UserError(
            f"The data of the run '{folder}' cannot be had as it was ({str(error).partition(': ')[0]}): put it back, "
            "and give the command where the run was started, from where its relative paths lead."
        ) from error
    then = results.provenance.get("hashes") or {}
    changed = next((name for name, now in data.hashes.items() if then.get(name, now) != now), None)
    if changed is not None:
        raise UserError(
            f"The rows of {changed} are no longer those that the run '{folder}' had (hash {then[changed]}, here "
            f"{data.hashes[changed]}), so attacks would ask for others: put its files and its configuration back."
        )
    return _attacked(folder, {name: path for name, path in paths.items() if path}, recipe, data)


def of_models(place: Path, unlearned: str, retrained: str | None, target: str | None, data: Any) -> Attacked:
    """Language models in folders (or on the hub) that no run of ours left; data without a tokenizer take the model's.

    Raises:
        UserError: The data holds images.
    """
    if data.modality != "text":
        raise UserError("Image classifiers are attacked by their run: give --runs its folder.")
    data.tokenizer_source = data.tokenizer_source or unlearned
    data.setup("fit")
    paths = {UNLEARNED: unlearned, RETRAINED: retrained, TARGET: target}
    return _attacked(place, {name: path for name, path in paths.items() if path}, CausalLM, data)


def _attacked(place: Path, paths: dict[str, str], recipe: Callable[[str], Network], data: PairedDataModule) -> Attacked:
    """The models that are there, and what is missing for want of the others."""
    missing = []
    for name, lack in (
        (RETRAINED, "what returns cannot be told from what the attack teaches"),
        (TARGET, "what returns has no upper end"),
    ):
        if name not in paths:
            missing.append(f"There is no {name} model at hand, so {lack}.")
        elif _gone(paths[name], data.modality):
            missing.append(f"The {name} model '{paths[name]}' is no longer there, so {lack}.")
            del paths[name]
        elif isinstance(data, TextDataModule):
            try:
                refuse_other_tokens(f"{name} model", paths[name], data.encoder)
            except UserError as error:
                missing.append(f"{str(error).rpartition(': give')[0]}, so {lack}.")
                del paths[name]
    return Attacked(place, {name: recipe(path) for name, path in paths.items()}, data, missing)


def _gone(path: str, modality: str) -> bool:
    """Whether a path leads nowhere from here, and is no language model's name on the hub either."""
    if Path(path).expanduser().exists():
        return False
    if modality != "text":
        return True
    try:
        snapshot_download(path, allow_patterns="*config.json", local_files_only=offline())
    except (OSError, ValueError):  # no such model, or no name that the hub could have
        return True
    return False


def _exported(folder: Path) -> Path | None:
    export = said_of_run(folder / CONFIG).get("export")
    name = export.get("folder") if isinstance(export, dict) else None
    return folder / str(name) if name and (folder / str(name)).is_dir() else None


def _network(config: Path) -> Network:
    """The recipe that the run's method had."""
    way = ("model", "init_args", "network")
    wanted = said_of_run(config, *way)
    if str(wanted.get("class_path")).endswith("CausalLM"):  # its fields fit no other model; one is all that matters
        return CausalLM(path=said_of_run(config, *way, "init_args").get("path") or "none")
    network: Network = part_of_run(config, Network, "network", wanted)
    return network
