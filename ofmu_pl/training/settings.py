"""What of a configuration two runs must have in common for one to go on from the other's checkpoint."""

import json
import re
from collections.abc import Iterator
from typing import Any

from ofmu_pl.support.files import text_hash
from ofmu_pl.training.run import precision_name

Resolved = dict[str, Any]  # a command's configuration with every default filled in
_PRECISION, _DIGEST = "trainer.precision", "sha256:"

_MAY_DIFFER = {
    "model.init_args.micro_batch_size",  # the same result
    "model.init_args.audit",
    "model.init_args.network.init_args.activation_checkpointing",
    "data.init_args.data",  # hashes are compared instead
    "data.init_args.num_batches",  # follows from the method's own settings
    "model.init_args.rollbacks",  # an option of 0.2.0 and before
}


def settings(resolved: Resolved) -> dict[str, str]:
    """The part of a resolved configuration that decides where the run goes: dotted keys and JSON values.

    Options that may change on the way (devices, logging, the number of iterations, most of evaluation) are not in it.
    """
    decides: dict[str, Any] = {k: resolved[k] for k in ("model", "data", "seed_everything") if k in resolved}
    if "trainer" in resolved:
        decides[_PRECISION] = precision_name(resolved["trainer"].get("precision"))
    return {k: _kept(k, v) for k, v in _flat(decides) if k not in _MAY_DIFFER}


def shown(decides: dict[str, str]) -> dict[str, Any]:
    """The ``settings`` that runs are compared by, as plain values; what rows there are, and by whom, is left out."""
    kept = {k: v for k, v in decides.items() if not k.startswith("data.") or k.endswith(".batch_size")}
    return {k.replace(".init_args", ""): json.loads(v) for k, v in kept.items()}


def differences(then: dict[str, str], now: dict[str, str]) -> list[str]:
    """What differs between a checkpoint's ``settings`` and the present ones, each as ``KEY was VALUE, is VALUE``.

    Example:
        >>> differences({"model.init_args.beta": "0.5"}, {"model.init_args.beta": "1.0"})
        ['model.init_args.beta was 0.5, is 1.0']
    """
    then = {k: _kept(k, v) for k, v in then.items() if k not in _MAY_DIFFER}  # older ones hold whole paths
    if _PRECISION in now:
        then.setdefault(_PRECISION, now[_PRECISION])  # older ones do not say
    differing = [k for k in sorted({*then, *now}) if then.get(k) != now.get(k)]
    return [f"{k} was {then.get(k, 'not set')}, is {now.get(k, 'not set')}" for k in differing]


def length(resolved: Resolved) -> str:
    """The part of a resolved configuration that, beside ``settings``, decides when a run stops, as JSON."""
    names = ("max_steps", "max_epochs", "min_steps", "min_epochs", "max_time", "callbacks")
    trainer = resolved.get("trainer") or {}
    return short(json.dumps({name: trainer.get(name) for name in names}, sort_keys=True, default=str))


def short(asked: str) -> str:
    """A ``length`` whose classes of ours go by their names alone, as in ``settings``."""
    return re.sub(r'("class_path": ")ofmu_pl\.(?:\w+\.)*', r"\1", asked)


def _kept(key: str, value: str) -> str:
    """The value as checkpoints keep it.

    A class of ours goes by its name alone, which stays when modules move. Rows, and the name that chose some, go by
    their digests, so that a checkpoint that is copied elsewhere holds neither.
    """
    if key.endswith("class_path") and value.startswith('"ofmu_pl.'):
        return '"' + value.rpartition(".")[2]
    if key.startswith("data.") and value.startswith("[") and '"' in value:
        return f'"{_DIGEST}{text_hash(value)}"'
    column, equals, chosen = value.strip('"').partition("=")
    if key.endswith(".forget_where") and equals and not chosen.startswith(_DIGEST):
        return f'"{column}={_DIGEST}{text_hash(chosen)}"'
    return value


def _flat(x: Any, prefix: str = "") -> Iterator[tuple[str, str]]:
    if isinstance(x, dict) and x:
        for key, value in x.items():
            yield from _flat(value, f"{prefix}.{key}" if prefix else str(key))
    else:
        yield prefix, json.dumps(x, sort_keys=True, default=str)
