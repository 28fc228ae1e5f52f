"""The command ``purge``: takes from runs what holds or rebuilds the rows that they forgot."""

import json
import os
import re
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import yaml
from markupsafe import escape

from ofmu_pl.support.errors import UserError
from ofmu_pl.support.escapes import say
from ofmu_pl.support.files import erase, leads_out, sweep, texts_in, write_text
from ofmu_pl.support.pages import AUDIT, REPORT, without_rows
from ofmu_pl.support.records.manifest import MANIFEST
from ofmu_pl.support.records.reading import NewerError
from ofmu_pl.support.records.requests import REQUESTS
from ofmu_pl.support.records.results import BEGUN, FAILED, FINISHED, LINEAGE, LOG, REFERENCE, RESULTS, Results
from ofmu_pl.support.yaml_files import read_yaml
from ofmu_pl.training.run_folders import require_idle

Config = dict[str, Any]
HOLDERS = {
    "samples.jsonl": "questions and answers, or their hashes",
    "samples.key": "the key of those hashes",
    LINEAGE: "hashes of the rows it was trained on",
    "TOFU_EVAL.json": "questions and answers, or their hashes",
    "forgotten.png": "pictures of what was forgotten",
    "checkpoints": "the model on its way, from before it forgot",
    REFERENCE: "scores of each row under the retrained model",
}
"""What a run may leave that holds rows, or from which a model that knows them can be rebuilt."""


def purge(runs: list[Path]) -> None:
    """Remove from runs what holds or rebuilds the rows that they forgot, and say what remains."""
    runs = [folder.resolve() for folder in runs]
    for folder in runs:
        require_idle(folder, "then purge it (nothing was removed anywhere)")
    configs = [_config(folder) for folder in runs]
    for folder, config in zip(runs, configs, strict=True):
        _rewrite(folder / AUDIT, without_rows, "questions and answers")
        named = _clean_config(folder / "config.yaml", config)
        for path in _lists(folder) if named else []:
            sweep(path.parent, rest=0)
            _rewrite(path, partial(_without, named), "rows that stood there, and names that chose rows")
        for path in filter(os.path.lexists, (folder / name for name in HOLDERS)):
            if path.is_symlink():
                say(f"Remove {path.resolve()} yourself: {HOLDERS[path.name]}. Only the link to it is removed here.")
            else:
                say(f"Removed {path}: {HOLDERS[path.name]}.")
            erase(path)
        for path in sorted(folder.glob(".*.partial")):
            erase(path)
            say(f"Removed {path}: what a process wrote that was killed.")
        say(_remaining(folder, config))


def _config(folder: Path) -> Config:
    """The configuration of a run, finished or killed, whose checkpoints know the rows, too."""
    try:
        config = read_yaml(folder / "config.yaml")
        results = folder / RESULTS
        ours = not results.exists() or "ofmu_pl" in Results.read(results).provenance
        if ours and {"model", "data"} <= config.keys() and "class_path" in config["data"]:
            return dict(config)
    except NewerError:
        raise
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        pass
    raise UserError(
        f"'{folder}' is no run of ofmu_pl (it has no config.yaml of one, or {RESULTS} of something else), so nothing "
        "was removed anywhere: give the folders of runs, such as logs/tofu/ofmu/version_0."
    )


def _rewrite(path: Path, change: Callable[[str], str], what: str) -> None:
    """Change a text, and say what was taken out of it; never through a link."""
    if not path.is_file() or path.is_symlink():
        return
    text = path.read_text(encoding="utf-8", errors="replace")
    cleaned = change(text)
    if cleaned != text:
        write_text(path, cleaned)
        say(f"Removed from {path}: {what}.")


def _clean_config(path: Path, config: Config) -> dict[str, str]:
    """Take rows, and what chose them (``author=NAME``), out of a configuration; never through a link.

    Returns what was there, rows text by text in quotes, and what takes its place.
    """
    given = config["data"].get("init_args")
    others = given.get("other_requests") if isinstance(given, dict) else None
    parts = [given, *(others.values() if isinstance(others, dict) else [])]
    named: dict[str, str] = {}
    for part in parts:
        if not isinstance(part, dict) or path.is_symlink():
            continue
        for name in ("forget", "full"):
            if isinstance(part.get(name), list):  # rows themselves, not a file of them
                for text in filter(None, texts_in(part[name])):
                    named |= dict.fromkeys((json.dumps(text), json.dumps(text, ensure_ascii=False)), '"PURGED"')
                part[name] = None
        if isinstance(part.get("forget_where"), str) and "=" in part["forget_where"]:
            chosen = part["forget_where"]
            named[chosen] = part["forget_where"] = f"{chosen.partition('=')[0]}=PURGED"
    if not named:
        return named
    write_text(path, yaml.safe_dump(config, sort_keys=False, allow_unicode=True))
    say(f"Removed from {path}: rows that stood there, and names that chose rows.")
    return named


def _lists(folder: Path) -> Iterator[Path]:
    """Files of the list of requests or the benchmark that a run belongs to, which repeat its options."""
    yield from (folder.parent / name for name in (BEGUN, FINISHED, FAILED, LOG))
    for place in list(folder.parents)[:6]:
        if (place / REQUESTS).is_file() or (place / MANIFEST).is_file():
            yield from (place / REQUESTS, place / MANIFEST)
            pages = (path for path in (place / REPORT).rglob("*.*") if path.suffix != ".png")
            yield from (path for path in pages if not leads_out(place, path))


def _without(named: dict[str, str], text: str) -> str:
    """Replace each text by its counterpart, in every form that the files of a list write it in."""
    for words, instead in sorted(named.items(), key=lambda x: -len(x[0])):  # one may begin another
        ends = r"(?!\s*:)" if words.startswith('"') else r"(?!\w|[-'’]\w)"  # a field's name may be a row's text, too
        for form, other in zip(_forms(words), _forms(instead), strict=True):
            text = re.sub(re.escape(form) + ends, other.replace("\\", r"\\"), text)
    return text


def _forms(words: str) -> list[str]:
    """A text as it is, and as JSON, JSON in JSON, the shell and pages write it."""
    forms = [words]
    for plain in (True, False):
        once = json.dumps(words, ensure_ascii=plain)[1:-1]
        forms += [once, json.dumps(once, ensure_ascii=plain)[1:-1]]
    forms += [form.replace("'", "'\"'\"'") for form in forms]
    return forms + [str(escape(form)) for form in forms]


def _remaining(folder: Path, config: Config) -> str:
    """What still knows the rows."""
    target = _first(config, "path") or "the cache"
    named = (_first(config["data"], option) for option in ("data", "full", "forget"))
    data = next(filter(None, named), None) or config["data"].get("class_path", "its source")
    others = [p.name for p in sorted(folder.parent.glob("version_*")) if p != folder and (p / "checkpoints").is_dir()]
    beside = f", checkpoints of {', '.join(others)} beside it" if others else ""
    return (
        f"What remains of {folder}: the exported model, {RESULTS} and what attacks found (numbers). What still holds "
        f"the rows: the model before unlearning ({target}), the data ({data}){beside}, other runs, backups and copies."
    )


def _first(x: object, key: str) -> str | None:
    """The first text under a key, at any depth."""
    if not isinstance(x, dict):
        return None
    if isinstance(x.get(key), str):
        return str(x[key])
    return next(filter(None, (_first(value, key) for value in x.values())), None)
