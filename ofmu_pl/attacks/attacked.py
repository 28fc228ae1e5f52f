"""The three models of a finished run, and its data, as attacks take them."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from huggingface_hub import snapshot_download
from torch import nn

from ofmu_pl.data.base import PairedDataModule
from ofmu_pl.data.of_run import data_of_run, part_of_run, said_of_run
from ofmu_pl.data.text_base import TextDataModule
from ofmu_pl.data.tokenizers import refuse_other_tokens
from ofmu_pl.evaluation.reference import check_model, read_model_facts
from ofmu_pl.networks.base import Network
from ofmu_pl.networks.language import CausalLM
from ofmu_pl.networks.pretrained import OwnCodeError
from ofmu_pl.networks.vision import ImageNetwork
from ofmu_pl.support.errors import UserError
from ofmu_pl.support.hub import offline
from ofmu_pl.support.provenance import STARTED_IN
from ofmu_pl.support.records.manifest import MANIFEST, SEARCH
from ofmu_pl.support.records.models import RETRAINED, SECOND, TARGET, UNLEARNED
from ofmu_pl.support.records.results import RESULTS, Results

CONFIG = "config.yaml"
LACKS = {
    RETRAINED: "only held-out rows, where there are any, tell what is recovered from what the attack teaches",
    TARGET: "what is recovered has no upper end",
    SECOND: "two retrained models are not compared",
}
"""What follows where one of these models is not at hand."""


@dataclass
class Attacked:
    """Models of the same rows, of which one has forgotten some.

    Attributes:
        place: Folder that takes the findings.
        recipes: Recipes by model: ``unlearned``, and those of ``Subject.others`` that are at hand.
        data: Their data, set up.
        missing: Why a model is not at hand, as a sentence.
        held_out: Without a retrained model the data with its held-out rows to forget; ``None``: there are none.
    """

    place: Path
    recipes: dict[str, Network]
    data: PairedDataModule
    missing: list[str]
    held_out: PairedDataModule | None = None

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
                f"There is no finished run that unlearned below '{folder}' ({RESULTS} and its model): give another."
            )
        found |= dict.fromkeys(inside)
    return list(found)


def _finished(folder: Path) -> Iterator[Path]:
    """The run that a folder is, or those below it; where a folder has ``latest``, that run alone."""
    if (folder / RESULTS).is_file():
        if Results.read(folder / RESULTS).before and _exported(folder) is not None:
            yield folder
        return
    if (folder / "latest").exists():
        yield from _finished(folder / "latest")
        return
    searched = [folder / SEARCH] if (folder / MANIFEST).is_file() else []  # what a benchmark does not report
    for below in sorted(p for p in folder.iterdir() if p.is_dir() and p not in searched):
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
    recipe: Callable[[str], Network] = network.at if isinstance(network, ImageNetwork) else CausalLM.plain
    target = results.provenance.get("target") or getattr(network, "path", None)
    retrained = results.reference.source if results.reference is not None else None
    if retrained is not None and Path(retrained).suffix == ".json":
        retrained = None
    home = folder / str(results.provenance.get(STARTED_IN, "."))  # relative paths lead from where the run was started
    paths = {UNLEARNED: str(exported), RETRAINED: _from(home, retrained), TARGET: _from(home, target)}
    second = results.provenance.get("second_reference")
    paths |= {SECOND: _from(home, second)} if second and Path(second).suffix != ".json" else {}
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
    return _attacked(folder, paths, recipe, data)


def _from(home: Path, path: str | None) -> str | None:
    """A path as it leads from a folder, or as it is if nothing is there."""
    there = home / Path(path).expanduser() if path else home
    return str(there) if path and there.exists() else path


def of_models(place: Path, unlearned: str, retrained: str | None, target: str | None, data: Any) -> Attacked:
    """Language models in folders (or on the hub) that no run of ours left; data without a tokenizer take the model's.

    Raises:
        UserError: There is no data, or it holds images; or the retrained model was trained otherwise.
    """
    if data is None:
        raise UserError("A model without a run needs its rows: give --data, for example --data TOFU.")
    if data.modality != "text":
        raise UserError("Image classifiers are attacked by their run: give --runs its folder.")
    data.tokenizer_source = data.tokenizer_source or unlearned
    data.setup("fit")
    if retrained is not None:
        check_model(retrained, read_model_facts(retrained), data)
    return _attacked(place, {UNLEARNED: unlearned, RETRAINED: retrained, TARGET: target}, CausalLM.plain, data)


def _attacked(
    place: Path, paths: Mapping[str, str | None], recipe: Callable[[str], Network], data: PairedDataModule
) -> Attacked:
    """The models that are there, and what is missing for want of the others."""
    missing, there = [], {}
    for name, path in paths.items():
        lack = _lack(f"{name} model", path, data) if name in LACKS else None
        if lack is not None:
            missing.append(f"{lack}, so {LACKS[name]}.")
        elif path:
            there[name] = recipe(path)
    held_out = data.with_held_out() if RETRAINED not in there and isinstance(data, TextDataModule) else None
    return Attacked(place, there, data, missing, held_out)


def _lack(model: str, path: str | None, data: PairedDataModule) -> str | None:
    """Why a model cannot be had or compared with; ``None``: it can."""
    if not path:
        return f"There is no {model} at hand"
    if _gone(path, data.modality):
        return f"The {model} '{path}' is no longer there"
    if isinstance(data, TextDataModule):
        try:
            refuse_other_tokens(model, path, data.encoder)
        except UserError as error:
            return str(error).rpartition(": give")[0]
    return None


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
