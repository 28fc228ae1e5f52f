"""Writes docs/results/ofmu.md, from stored results: `python scripts/where_ofmu_stands.py`."""

from collections.abc import Iterator

from results import RESULTS, Stored, csv_files, write_below, write_csv

from ofmu_pl.report.attacks import attacks_of, made, returned
from ofmu_pl.report.runs import Replicate, Study, words
from ofmu_pl.report.statistics import Spread, ahead, differences, spread, spread_in, trade_off
from ofmu_pl.report.tables import Entry, Table, measured, to_markdown

PAGES = ("front", "field", "smollm2", "smollm2_facts", "own-data", "quickstart", "attacks_images")
"""Pages whose `ofmu` is the form that ships."""
OURS = "ofmu"
WITHOUT = ("ofmu_first_order", "no_similarity", "no_penalty")
"""Methods that lack one or both of the paper's parts."""
PARTS = ("model_utility", "retain_Q_A_Prob", "mia_loss", "TA")
"""Metrics that the parts may change, beside what is forgotten and what returns."""
MOST = 150
"""Per cent that return beyond which a share is not shown."""


def places() -> Iterator[tuple[str, Study]]:
    """Where `ofmu` ran: page and experiment by name, and the scenarios that are one sample."""
    for name in PAGES:
        for e in Stored.read(RESULTS / f"data/{name}.json").experiments:
            for group, part in e.groups.items():
                if OURS in part.ran:
                    yield f"{name}: {e.name}, {group}", part


def seeds(e: Study) -> Entry:
    """How many seeds `ofmu` ran with."""
    return Entry(str(len({seed for _, seed in e.of(OURS)})))


def shown(share: Spread) -> Entry:
    """A share that returns; not where target and retrained model differ by so little that it says nothing."""
    return measured(share) if abs(share.mean) <= MOST else Entry("–")


def returns(e: Study, method: str, attack: str) -> dict[Replicate, float]:
    """What an attack brings back, in per cent, by replicate."""
    found = made(e, method, attack).items()
    return {key: 100 * record.returns["value"] for key, record in found if record.returns}


def parts() -> Iterator[Table]:
    """What the parts change: `ofmu` less the same without them, seed by seed."""
    for title, e in places():
        others = [m for m in WITHOUT if m in e.ran]
        if not others:
            continue
        forgotten, _ = trade_off(e) or ("", "")
        metrics = [m for m in dict.fromkeys((forgotten, *PARTS)) if e.values(OURS, m)]
        attacks = attacks_of(e)
        heads = ["ofmu less", "seeds", *(words(m) for m in metrics), "gradients", *(f"{words(a)} (%)" for a in attacks)]
        table = Table("", title, heads)
        for other in others:
            line = [Entry(other), seeds(e)]
            for metric in metrics:
                ours, theirs = (e.values(m, metric) for m in (OURS, other))
                line.append(measured(spread(differences(ours, theirs))))
            work = [
                {key: run.cost("gradient_evaluations") or 0.0 for key, run in e.of(m).items()} for m in (OURS, other)
            ]
            line.append(measured(spread(differences(*work))))
            for attack in attacks:
                ours, theirs = (returns(e, m, attack) for m in (OURS, other))
                line.append(shown(spread(differences(ours, theirs))))
            table.add(line)
        yield table


def standing() -> Table:
    """Who forgets and keeps as well as `ofmu` and one of them better, and after whom less returns."""
    heads = ["page", "seeds", "forgotten, kept", "as good in both, better in one", "relearning, ofmu (%)"]
    table = Table("standing", "Beside the other methods", [*heads, "less comes back after"])
    for title, e in places():
        pair = trade_off(e)
        if pair is None:
            continue
        better = ahead(e, pair)[OURS]
        back = {m: returned(e, m, "relearn_forget") for m in e.ran}
        less = [m for m, share in back.items() if share.n and share.mean < back[OURS].mean <= MOST]
        values = [f"{words(x)} {spread_in(e, OURS, x).mean:.3g}" for x in pair]
        line = [title, seeds(e), ", ".join(values), ", ".join(better) or "none"]
        line += [shown(back[OURS]), ", ".join(less) or ("none" if back[OURS].n else "–")]
        table.add([x if isinstance(x, Entry) else Entry(x) for x in line])
    return table


def page() -> str:
    """What stands below the mark."""
    more = (
        "What the paper's parts change, seed by seed, is on [a page of the site](../generated/tables), and in CSV "
        "files in `docs/results/data/ofmu`."
    )
    return f"{to_markdown(standing()).rstrip()}\n\n{more}\n"


def every_table() -> list[tuple[str, Table]]:
    """All tables of the page, each with a title of its place."""
    found = [("", standing())]
    for i, table in enumerate(parts()):
        table.name = f"parts-{i}"
        found.append(("What similarity and penalty change", table))
    return found


if __name__ == "__main__":
    write_csv(csv_files("ofmu", every_table()))
    write_below("ofmu", page())
