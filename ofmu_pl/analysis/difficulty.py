"""Finds hard forget samples, and how near models' embeddings of easy and hard ones are to the retrained model's."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from torch import nn

from ofmu_pl.analysis.embeddings import cosine, embed
from ofmu_pl.analysis.gradients import mean_gradient, sample_gradients
from ofmu_pl.analysis.udi import easiest_and_hardest, unlearning_difficulty
from ofmu_pl.metrics.bootstrap import interval
from ofmu_pl.networks import CausalLM, ResNet18, SmallCNN
from ofmu_pl.networks.base import Batch, Network
from ofmu_pl.support.errors import UserError, check_range
from ofmu_pl.support.files import read_json
from ofmu_pl.support.records.results import PROVENANCE, ModelRecord

TARGET = "target"
BATCH = 16  # number of samples at a time, where no sample's own gradient is wanted


def analyse(
    data: Any,
    target: str | Path,
    retrained: str | Path,
    unlearned: Mapping[str, str | Path],
    threshold: float | None = None,
    retain_items: int = 400,
    device: str = "cpu",
) -> dict[str, Any]:
    """Compute the difficulty of forget samples, and the alignment of easy and hard ones with the retrained model.

    The index is that of the target, where forgetting starts (see ``analysis.udi`` for what the paper leaves open); the
    models are loaded one after another. It costs one training step per forget sample for any number of methods.

    Args:
        data: A ``TextDataModule`` with the models' tokenizer, or an ``ImageDataModule``; set up here if it is not.
        target: Folder (``hf``) of the target.
        retrained: Folder of the retrained model.
        unlearned: Folders of the models that methods made of the target, by name.
        threshold: Loss at which a sample counts as forgotten, nats; ``None``: the loss of a blind guess, ln V or ln C.
        retain_items: Largest number of evenly spaced retain samples that the retain gradient is the mean of.
        device: Torch's name of the device to compute on.

    Returns:
        Numbers and lists for JSON: ``n``, ``threshold``, ``retain_items``; ``samples``: one entry per
        forget sample with ``id``, ``loss``, ``gradient_norm``, ``similarity``, ``margin``, ``udi``, ``cosine``
        (with the retrained model, by model: ``target`` and the methods); ``all``, ``easiest`` and ``hardest`` (a
        third each): ``n``, means ``udi`` and ``loss``, and ``cosine`` by model with ``value`` and ``interval`` (95 %).
    """
    if TARGET in unlearned:
        raise UserError(f"A method cannot be called '{TARGET}', which is the model it starts from: rename it.")
    check_range(1, whole=True, retain_items=retain_items)
    data.setup()
    forget = list(range(len(data.splits["forget"])))
    retain = list(range(0, len(data.splits["retain"]), max(1, -(-len(data.splits["retain"]) // retain_items))))

    recipe, module = _load(retrained, data, device)
    goal = embed(recipe, module, _batches(data, "forget", forget, BATCH, device))
    recipe, module = _load(target, data, device, ("full", "template"))  # what is forgotten later, it need not know
    direction = mean_gradient(recipe, module, _batches(data, "retain", retain, BATCH, device))
    found = sample_gradients(recipe, module, _batches(data, "forget", forget, 1, device), direction)
    level = recipe.uniform_loss(module) if threshold is None else threshold
    index = unlearning_difficulty(found.norms, found.similarities, found.losses, level)
    cosines = {}
    for name, folder in {TARGET: target, **unlearned}.items():
        if name != TARGET:
            recipe, module = _load(folder, data, device)
        cosines[name] = cosine(embed(recipe, module, _batches(data, "forget", forget, BATCH, device)), goal)

    samples = []
    for i in forget:
        samples.append(
            {
                "id": i,
                "loss": float(found.losses[i]),
                "gradient_norm": float(found.norms[i]),
                "similarity": float(found.similarities[i]),
                "margin": float(index.margin[i]),
                "udi": float(index.value[i]),
                "cosine": {name: float(values[i]) for name, values in cosines.items()},
            }
        )
    easy, hard = easiest_and_hardest(index.value)
    result = {"n": len(forget), "threshold": level, "retain_items": len(retain), "samples": samples}
    for name, members in (("all", np.arange(len(forget))), ("easiest", easy), ("hardest", hard)):
        alike = {}
        for model, values in cosines.items():
            ends = list(interval([values[members]]))
            alike[model] = {"value": float(values[members].mean()), "interval": ends}
        udi, loss = float(index.value[members].mean()), float(found.losses[members].mean())
        result[name] = {"n": len(members), "udi": udi, "loss": loss, "cosine": alike}
    return result


def _batches(data: Any, split: str, index: list[int], size: int, device: str) -> Iterator[Batch]:
    """Batches of a split in order, as they are."""
    for start in range(0, len(index), size):
        batch = data.plain(split, index[start : start + size])
        yield {name: x.to(device) for name, x in batch.items()}


def _load(
    source: str | Path, data: Any, device: str, shared: tuple[str, ...] = ("forget", "retain", "template")
) -> tuple[Network, nn.Module]:
    """Load a model from its folder; refuse it if the folder says that its data differs in what must be shared."""
    folder = Path(source).expanduser()
    recipe = _recipe(folder, str(source), data)
    module = recipe.build(data, exact=False).to(device)
    path = folder / PROVENANCE
    if not path.is_file():
        return recipe, module
    known = ModelRecord.read(path)
    theirs = {**known.hashes, "template": known.facts.get("template_hash")}
    ours = {**data.hashes, "template": data.facts.get("template_hash")}
    for name in shared:
        if theirs.get(name) != ours[name]:
            raise UserError(
                f"The model in '{source}' belongs to another {name} ({theirs.get(name)}, here {ours[name]}): give the "
                "data module the options and the tokenizer that its models were made with."
            )
    return recipe, module


def _recipe(folder: Path, source: str, data: Any) -> Network:
    if data.modality == "text":
        return CausalLM.plain(source)
    try:
        config = read_json(folder / "config.json")
        make = {"ResNet18": ResNet18, "SmallCNN": SmallCNN}[config["network"]]
        shape = {name: value for name, value in config.items() if name not in ("network", "channels", "classes")}
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UserError(
            f"'{source}' holds no ResNet18 or SmallCNN (its config.json names the network), and no other classifier is "
            "analysed: give the folder that a run of one of these left."
        ) from error
    network: Network = make(path=source, **shape)
    return network
