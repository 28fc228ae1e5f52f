"""The command ``attack``: the same attacks on a run's model, on the retrained one and on the target."""

import re
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from tqdm.auto import tqdm

from ofmu_pl.attacks.across import Found, across
from ofmu_pl.attacks.attacked import Attacked, of_models, of_run, runs_below
from ofmu_pl.attacks.base import Attack, Finding
from ofmu_pl.attacks.subject import Subject, usable_device
from ofmu_pl.attacks.summary import summary
from ofmu_pl.data.base import PairedDataModule
from ofmu_pl.evaluation.attacked import parts, print_attacks
from ofmu_pl.support.errors import UserError
from ofmu_pl.support.escapes import say, visible
from ofmu_pl.support.files import file_hash, leads_out, write_text
from ofmu_pl.support.kept import cache_folder, content_path, keep, read_kept, read_record, renew_sum
from ofmu_pl.support.pages import AUDIT, CARD, renewed
from ofmu_pl.support.provenance import PACKAGES, code_of, config_hash, provenance, versions, weights_hash
from ofmu_pl.support.records.models import HELD_OUT, MODELS, SECOND, UNLEARNED
from ofmu_pl.support.records.results import ATTACKS, AttacksRecord
from ofmu_pl.support.shipped import expanded

ASKING = 20  # steps of training that take about as long as to build a model and to ask it
FOLDER = "attacks"  # folder in a run's, with one file a model, attack and seed


def attack(
    attacks: list[Attack],
    runs: list[Path] | None = None,
    unlearned: str | None = None,
    retrained: str | None = None,
    target: str | None = None,
    data: PairedDataModule | None = None,
    seeds: Sequence[int] = (0,),
    place: Path = Path("logs/attacks"),
    device: str | None = None,
) -> None:
    """Attack models, and write ``attacks.json`` beside each one's results; what was found before is not sought again.

    Args:
        attacks: The attacks.
        runs: Folders of finished runs, or folders above them: the latest run of each method that unlearned.
        unlearned: In the place of runs, a model's folder or hub id.
        retrained: Beside it the model that never saw the forgotten rows; ``null``: none is at hand.
        target: Beside it the model that forgot nothing; ``null``: none is at hand.
        data: Beside it the rows.
        seeds: Seeds of what attacks draw.
        place: Folder of the findings where there is no run.
        device: Torch's name of the device; ``null``: a GPU if there is one.

    Raises:
        UserError: There is nothing to attack, or two attacks have one name.
    """
    names = [a.name for a in attacks]
    if odd := [name for name in names if not re.fullmatch(r"\w[\w.-]*", name)]:
        raise UserError(f"An attack is called '{odd[0]}', and names are parts of files: take letters and digits.")
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise UserError(f"Two attacks are called '{twice}': leave one out (Relearn takes a `name` of its own).")
    if bool(runs) == (unlearned is not None):
        raise UserError(
            "Say what to attack: --runs with folders of runs, or a model by --model.network.path, not both."
        )
    if not attacks or not seeds:
        raise UserError(
            "There is no attack, or no seed for it: give a configuration, for example configs/attacks.yaml."
        )
    if unlearned is not None:
        _attack(of_models(place, unlearned, retrained, target, data), attacks, seeds, device)
        return
    found = {}
    for on in map(of_run, runs_below(runs or [])):
        found[on.place] = _attack(on, attacks, seeds, device)
        tell(on)
        if (on.place / AUDIT).is_file():
            say(f"Page to sign: {on.place / AUDIT}")
    across(attacks, found)


def tell(on: Attacked) -> None:
    """Write what ``attacks.json`` of a run has into its audit page and its model's card; what users added stays."""
    record, unmarked = AttacksRecord.read(on.place / ATTACKS), []
    paths = (on.place / AUDIT, Path(str(on.recipes[UNLEARNED].path)) / CARD)
    for path in (p for p in paths if p.is_file() and not p.is_symlink() and not leads_out(on.place, p)):
        text: str | None = path.read_text(encoding="utf-8", errors="surrogateescape")
        for part, new in parts(path.name, on.data.modality, record).items():
            text = text and renewed(text, part, new)
        if text:
            write_text(path, text, errors="surrogateescape")
            renew_sum(path)
        else:
            unmarked.append(str(path))
    if unmarked:
        say(f"Written by an earlier version and left as they are, without the attacks: {', '.join(unmarked)}.")


@dataclass
class Attempt:
    """One attack on one model with one seed; ``paths``, of run and cache, keep what it found."""

    attack: Attack
    model: str
    seed: int
    subject: Subject
    paths: list[Path]

    @cached_property
    def steps(self) -> int:
        """Steps that it will take about, by which the time left is told; 0 if it has been made before."""
        return 0 if any(path.is_file() for path in self.paths) else ASKING + self.attack.gradients

    def finding(self) -> Finding:
        """What the attack finds; read, if it has been found before on the same model."""
        for path in self.paths:
            stored: Any = read_kept(path)
            if stored is not None:
                if path is not self.paths[0]:
                    keep(self.paths[0], stored)
                return Finding(**stored)
        started = time.perf_counter()
        finding = self.attack.run(self.subject, self.seed)
        finding = replace(finding, seconds=time.perf_counter() - started)
        if np.isfinite([*finding.figures.values(), *finding.y]).all():  # JSON has no other numbers
            for path in self.paths:
                keep(path, asdict(finding))
        return finding


def _attempts(
    on: Attacked, attacks: list[Attack], seeds: Sequence[int], device: str
) -> tuple[list[Attempt], dict[str, str]]:
    """All attempts on the models of one run, and hashes of the models' weights."""
    fitting = [a for a in attacks if on.data.modality in a.modalities]
    if not fitting:
        raise UserError(
            f"None of the attacks is for {on.data.modality}, which '{on.place}' holds: give another configuration."
        )
    models = [name for name in (*MODELS, SECOND) if name in on.recipes]
    networks = ((name, on.build(name)) for name in models)
    both = {name: (weights_hash(network), config_hash(network, generates=True)) for name, network in networks}
    subjects = {name: Subject(on.recipes[name], on.data, device, on.recipes) for name in models}
    if on.held_out is not None:
        subjects[HELD_OUT] = Subject(on.recipes[UNLEARNED], on.held_out, device, on.recipes)
    folders = [folder for folder in (on.place / FOLDER, cache_folder()) if folder is not None]
    attempts = []
    for a in fitting:
        read = {"read": _sums(a.reads)} if a.reads else {}
        for name, seed in product(subjects, seeds):
            facts = {
                "attack": [type(a).__name__, a.settings, code_of(a)],
                "versions": versions(*PACKAGES, "peft", "nltk"),
                "seed": seed,
                "model": name,
                "weights": both if a.compares else both[UNLEARNED if name == HELD_OUT else name],
                "rows": on.data.hashes,
                "facts": on.data.facts,
                "device": device,
                **read,
            }
            paths = [content_path(folder, f"{a.name}-{name}-seed{seed}", facts) for folder in folders]
            attempts.append(Attempt(a, name, seed, subjects[name], paths))
    return attempts, {name: weights for name, (weights, _) in both.items()}


def _sums(places: Sequence[str]) -> list[str]:
    """Sums of the files that an attack reads; it says itself what of them is missing."""
    found: list[str] = []
    for place in places:
        with suppress(UserError):
            path = Path(expanded(place)).expanduser()
            found += map(file_hash, sorted(p for p in (path, *path.rglob("*")) if p.is_file()))
    return found


def _attack(on: Attacked, attacks: list[Attack], seeds: Sequence[int], device: str | None) -> Found:
    """All attacks on the models of one run; returns what they found."""
    device = usable_device(device)
    if leads_out(on.place, on.place / FOLDER):
        raise UserError(f"'{on.place / FOLDER}' is a link out of the run, where nothing is written: remove the link.")
    before = read_record(AttacksRecord, on.place / ATTACKS)
    attempts, hashes = _attempts(on, attacks, seeds, device)
    _announce(on.place, attempts)
    whole = sum(attempt.steps for attempt in attempts)
    told = {"desc": visible(f"attacks on {on.place}"), "disable": not whole}
    bar = tqdm(total=whole, unit="step", leave=False, dynamic_ncols=True, **told)
    found: dict[str, dict[str, list[Finding]]] = {}
    left_out: set[str] = set()
    not_made: dict[str, str] = {}
    for attempt in attempts:
        name, steps = attempt.attack.name, attempt.steps
        if name in left_out:
            continue
        bar.set_postfix_str(f"{name} on {attempt.model}, seed {attempt.seed}")
        try:
            finding = attempt.finding()
        except UserError as error:  # the data lack what this attack needs, and others may not need it
            if attempt.model == HELD_OUT:  # their like may be lacking, and the attack stands without its control
                not_made[name] = f"{name} was not made on held-out rows: {error}"
                continue
            if len(attacks) == 1:
                raise
            left_out.add(name)
            not_made[name] = f"{name} was left out: {error}"
            found.pop(name, None)
            continue
        finally:
            bar.update(steps)
        found.setdefault(name, {}).setdefault(attempt.model, []).append(finding)
    bar.close()
    if not found:
        raise UserError(f"No attack fits '{on.place}': {' '.join(not_made.values())}")
    record = AttacksRecord(
        attacks={a.name: summary(a, found[a.name], list(seeds)) for a in attacks if a.name in found},
        models={name: str(getattr(on.recipes[name], "path", "")) for name in hashes},
        remarks=list(on.missing),
        not_made=not_made,
        provenance=provenance(on.data, weights=hashes, device=device),
    )
    if before is not None:
        record = _merged(before, record, hashes)
    record.write(on.place / ATTACKS)
    print_attacks(str(on.place), record)
    say(f"Results: {on.place / ATTACKS}")
    return found


def _merged(before: AttacksRecord, record: AttacksRecord, hashes: dict[str, str]) -> AttacksRecord:
    """A record with the attacks made before on the same models, of which some may not be at hand now."""
    then: dict[str, str] = before.provenance.get("weights") or {}
    rows, rows_then = (x.provenance.get("hashes") for x in (record, before))
    if rows != rows_then or any(then.get(name, weights) != weights for name, weights in hashes.items()):
        told = ", ".join(before.attacks)
        remark = f"Attacks made before ({told}) were on other models or rows, so their figures were taken out."
        return replace(record, remarks=[*record.remarks, remark])
    made = set(record.attacks)
    for name, known in before.attacks.items():
        new = record.attacks.get(name)
        models, models_then = ({*a.metrics} - {HELD_OUT} if a else set() for a in (new, known))
        if new is None or (known.settings == new.settings and models_then > models):
            record.attacks[name] = known
    record.provenance["weights"] = then | hashes
    not_made = {name: why for name, why in before.not_made.items() if name not in made} | record.not_made
    return replace(record, models=before.models | record.models, not_made=not_made)


def _announce(place: Path, attempts: list[Attempt]) -> None:
    """Say how many attacks on a run's models are to be made, and the gradients that they take."""
    left: Counter[str] = Counter()
    for attempt in attempts:
        if attempt.steps:
            left[attempt.attack.name] += attempt.attack.gradients
    counts = [f"{name} {gradients:,}" for name, gradients in left.items() if gradients]
    new = sum(attempt.steps > 0 for attempt in attempts)
    say(f"Attacks on {place}: {new} to make, {len(attempts) - new} known. Gradients: {', '.join(counts) or 'none'}.")
