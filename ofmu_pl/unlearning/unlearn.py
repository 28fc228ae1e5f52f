"""``ofmu_pl.unlearn``: rows or images of one's own out of a model that is in memory, in one call."""

import os
from collections.abc import Callable
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from pkgutil import resolve_name
from typing import Any, Literal

import torch
from torch import nn
from torch.utils.data import ConcatDataset

from ofmu_pl.data.base import PairedDataModule
from ofmu_pl.data.image_datasets import ImageDatasets, class_names
from ofmu_pl.data.text_files import TextFiles
from ofmu_pl.evaluation.base import Evaluation
from ofmu_pl.evaluation.images import ImageEvaluation
from ofmu_pl.evaluation.reference import RETRAIN
from ofmu_pl.evaluation.text import TextEvaluation
from ofmu_pl.metrics.own import OwnMetric
from ofmu_pl.modules.base import UnlearningModule
from ofmu_pl.modules.ofmu import OFMU
from ofmu_pl.networks.base import Network
from ofmu_pl.networks.classifier import Classifier
from ofmu_pl.networks.loaded import LoadedLM, restored
from ofmu_pl.support.errors import MAX_SEED, UserError, check_range
from ofmu_pl.support.yaml_files import read_yaml
from ofmu_pl.unlearning.run import Unlearned, run

MakeMethod = Callable[[Network], UnlearningModule]
"""A method's class, or anything else that makes a method of a network."""


def unlearn(
    model: nn.Module,
    tokenizer: Any = None,
    *,
    forget: Any,
    retain: Any,
    holdout: Any = None,
    test: Any = None,
    method: MakeMethod | None = None,
    steps: int | None = None,
    batch_size: int | None = None,
    seed: int = 0,
    reference: str | os.PathLike[str] | nn.Module | None = None,
    own_metrics: list[OwnMetric] | None = None,
    progress: bool = True,
    accelerator: str = "auto",
    **data: Any,
) -> Unlearned:
    """Make a loaded model forget rows or images, and measure before and after whether it has, and what that cost.

    The model is changed in place, as by any trainer of PyTorch's, since two copies of a language model seldom fit a
    GPU: give ``copy.deepcopy(model)`` to keep yours. A language model's parameters are float32 afterwards; of a
    ``PeftModel`` only the adapters change. A run that fails or is interrupted leaves a language model as it was at that
    moment, a classifier untouched.

    Args:
        model: A causal language model of Hugging Face's, with or without adapters of peft's; or an image classifier,
            any module that gives logits.
        tokenizer: Tokenizer of a language model, or its folder or hub id.
        forget: What must go: rows as dictionaries, or a file of them (``TextFiles``); for a classifier a map-style data
            set of (image, class) pairs (``ImageDatasets``).
        retain: What must stay.
        holdout: Rows like those to forget that no model has seen; ``None``: there are none, and nobody can tell whether
            the rows are gone. A classifier has ``test`` in their place.
        test: For a classifier, images that no model has seen.
        method: Class of the method, such as ``ofmu_pl.NPO``, or what makes one of a network:
            ``functools.partial(ofmu_pl.NPO, beta=0.1)``; ``None``: OFMU as the shipped configuration sets it
            (``configs/text.yaml``, ``configs/images.yaml``).
        steps: Outer iterations; ``None``: as many as that configuration says.
        batch_size: Samples a batch; ``None``: as that configuration or the data module says.
        seed: Seed of everything that is drawn; the notebook's own random numbers go on as if nothing had been drawn.
        reference: A model retrained without the forget rows, which then sets the goals: its folder, or the model
            itself, which is copied; ``None``: none.
        own_metrics: Metrics of your own beside the others; ``None``: none.
        progress: Whether to show progress.
        accelerator: Lightning's name of the device: ``auto``, ``cpu``, ``gpu``.
        data: More arguments of ``TextFiles`` (``columns``, ``prompt_template``, ``max_length``), or of
            ``ImageDatasets``, which needs ``mean`` and ``std``.

    Returns:
        The model, what was measured, and ways to keep both.

    Raises:
        UserError: The model, the rows or an argument cannot be used; the error says which, and what to do.
        DivergedError: A loss or the weights ran away.

    Example:
        >>> from ofmu_pl.data.own_tokenizer import train_tokenizer
        >>> from transformers import LlamaConfig, LlamaForCausalLM
        >>> rows = [{"question": f"Who lives in house {i}?", "answer": f"Number {i} does."} for i in range(12)]
        >>> tokenizer = train_tokenizer(row["question"] for row in rows)
        >>> shape = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
        >>> model = LlamaForCausalLM(LlamaConfig(vocab_size=len(tokenizer), **shape))
        >>> parts = {"forget": rows[:2], "retain": rows[2:8], "holdout": rows[8:]}
        >>> result = unlearn(model, tokenizer, **parts, steps=2, progress=False, accelerator="cpu")
        >>> result.model is model, result.metrics["forget_Q_A_Prob"].n
        (True, 2)
    """
    check_range(1, whole=True, steps=steps)
    check_range(0, MAX_SEED, whole=True, seed=seed)
    if seed is None:
        raise UserError(f"seed=None is no number: give a value from 0 to {MAX_SEED}.")
    if reference == RETRAIN:
        raise UserError(
            f"`reference` is the word '{RETRAIN}': the command line trains a model without the forget rows for it, a "
            "call does not. Train one, and give it or its folder."
        )
    if not isinstance(model, nn.Module):
        raise UserError(
            f"`model` is a {type(model).__name__}: load a model by from_pretrained, or give an image classifier."
        )
    if torch.is_inference_mode_enabled() or any(x.is_inference() for x in (*model.parameters(), *model.buffers())):
        raise UserError(
            "`model` was made, or this call is made, under torch.inference_mode, where nothing has gradients: load the "
            "model and call `unlearn` outside of it."
        )
    images = test is not None
    if images and holdout is not None:
        raise UserError("`holdout` is for rows of text: of images, give those that no model has seen as `test` alone.")
    settings = shipped("images" if images else "text")
    network = Classifier(model) if images else _language_model(model, tokenizer)
    usual = {name: x for name, x in arguments(settings["model"]).items() if name != "network"}
    module = _method(method or partial(OFMU, **usual), network)
    prepared = {"mean", "std"}  # of the images of another training
    options = {name: x for name, x in arguments(settings["data"]).items() if name not in prepared} | data
    options |= {"streams": module.streams, "num_batches": module.num_batches, "seed": seed}
    options |= {} if batch_size is None else {"batch_size": batch_size}
    measured = arguments(settings["evaluation"]) | {"reference": _plain(reference), "own_metrics": own_metrics}
    rows: PairedDataModule
    evaluation: Evaluation
    if images:
        rows, evaluation = _images(forget, retain, test, options), ImageEvaluation(**measured)
    else:
        sides = {"forget": _plain(forget), "retain": _plain(retain), "holdout": _plain(holdout)}
        rows, evaluation = TextFiles(**sides, tokenizer=tokenizer, **options), TextEvaluation(**measured)
    evaluation.prints = None  # the caller has the result
    with nullcontext() if images else restored(model):
        result = run(
            model,
            module,
            rows,
            evaluation,
            steps=steps or settings["trainer"]["max_steps"],
            seed=seed,
            progress=progress,
            accelerator=accelerator,
        )
    if images:  # a copy was trained
        model.load_state_dict(module.network[1].state_dict())  # type: ignore[index]
    return result


def _language_model(model: nn.Module, tokenizer: Any) -> LoadedLM:
    """The recipe of a loaded language model.

    Raises:
        UserError: It is none, or has no tokenizer.
    """
    if not hasattr(model, "generate"):
        raise UserError(
            f"`model` is a {type(model).__name__}, no language model: for an image classifier give `test` images."
        )
    if tokenizer is None:
        raise UserError("A language model needs its `tokenizer`: give it, loaded by AutoTokenizer.from_pretrained.")
    return LoadedLM(model, tokenizer)


def _method(make: MakeMethod, network: Network) -> UnlearningModule:
    """The method for a network.

    Raises:
        UserError: ``make`` makes none.
    """
    module = None if isinstance(make, nn.Module) or not callable(make) else make(network)
    if not isinstance(module, UnlearningModule):
        raise UserError(
            "`method` makes no method of a network: give a class such as ofmu_pl.NPO, or "
            "functools.partial(ofmu_pl.NPO, beta=0.1), without a network of its own."
        )
    return module


def _images(forget: Any, retain: Any, test: Any, options: dict[str, Any]) -> ImageDatasets:
    """The data sets as one, of which the first rows are to be forgotten.

    Raises:
        UserError: Nothing says how images were normalised, a data set is not map-style, or two number other classes.
    """
    if not {"mean", "std"} <= options.keys():
        raise UserError(
            "Nothing says how images were normalised in training: give `mean` and `std`, a number a channel (zeros and "
            "ones where the network does so itself), and data sets that leave it out."
        )
    for name, rows in {"forget": forget, "retain": retain, "test": test}.items():
        if not hasattr(rows, "__getitem__") or not hasattr(rows, "__len__") or not len(rows):
            raise UserError(
                f"`{name}` {type(rows).__name__} is empty, or has no length or no images by number: give a map-style "
                "data set, such as a loader's `dataset`."
            )
    joined: Any = ConcatDataset([forget, retain])
    joined.classes = class_names((forget, retain))
    return ImageDatasets(joined, test, forget_rows=list(range(len(forget))), **options)


def _plain(source: Any) -> Any:
    """A path as text, and rows or a model as they are."""
    return os.fspath(source) if isinstance(source, os.PathLike) else source


def shipped(modality: Literal["text", "images"]) -> dict[str, Any]:
    """Read ``configs/text.yaml`` or ``images.yaml``, to which the files beside this one are links.

    >>> sorted(shipped("text"))
    ['checkpoint', 'data', 'evaluation', 'model', 'trainer']
    """
    return dict(read_yaml(Path(__file__).with_name(f"{modality}.yaml")))


def arguments(section: dict[str, Any]) -> dict[str, Any]:
    """The arguments that a section gives its class, with full classes within them ready to be called.

    >>> arguments({"class_path": "GradDiff", "init_args": {"optimizer": {"class_path": "torch.optim.SGD"}}})
    {'optimizer': functools.partial(<class 'torch.optim.sgd.SGD'>)}
    """
    given = section.get("init_args", {}) if "class_path" in section else section
    nested = {name: x for name, x in given.items() if isinstance(x, dict) and "class_path" in x}
    made = {}
    for name, x in nested.items():
        path = x["class_path"]  # one of ours by its name alone
        made[name] = partial(resolve_name(path if "." in path else f"ofmu_pl.{path}"), **arguments(x))
    return given | made
