"""Writes the pages about single methods and metrics, and the API reference, from docstrings, declarations and results.

Sphinx calls ``write`` before it reads (docs/conf.py); nothing that is written here is kept in the repository.
"""

from __future__ import annotations

import importlib
import inspect
import json
import pkgutil
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path
from statistics import mean, stdev
from typing import Any

import numpy as np
import yaml

from ofmu_pl import losses, metrics, modules
from ofmu_pl.metrics import DEFINITIONS, Metric, functional, privacy_leakage

HERE = Path(__file__).parent
ROOT = HERE.parent
OVERLAYS = ROOT / "configs/methods"
DATA = HERE / "results/data"
STORED = {"attacks": "Fictitious authors", "attacks_tofu": "Real TOFU, forget10", "attacks_images": "Images"}
"""Files of stored results that hold runs of methods, and what they are about."""
KNOWN = {"np": np, "F": functional, "privacy_leakage": privacy_leakage}
"""Names in the worked examples of metrics.yaml."""
COLUMNS = {
    "forget_Q_A_Prob": "forget probability",
    "retain_Q_A_Prob": "retain probability",
    "model_utility": "model utility",
    "UA": "UA (%)",
    "RA": "RA (%)",
}
ABOVE = ("CONTRIBUTING", "CHANGELOG")
"""Pages of the repository that are on the site as they are."""
ROOMS = {
    "data": "Data", "networks": "Networks", "attacks": "Attacks", "analysis": "Analyses",
}  # fmt: skip
REST = {
    "Unlearning from Python": ["unlearn", "Unlearned", "UserError", "DivergedError"],
    "The paper's loop": [
        "outer_iteration", "OuterIteration", "ascend", "Phi", "outer_gradient", "OuterGradient", "Cosine", "Penalty",
        "Autograd", "FiniteDifference", "SharedAdam",
    ],
    "Training and evaluation": [
        "UnlearningModule", "GradientBudget", "ModelExport", "Evaluation", "TextEvaluation", "ImageEvaluation",
        "ValidationRows", "Network",
    ],
}  # fmt: skip


def write(into: Path) -> None:
    """Write all generated pages.

    Args:
        into: Folder for them, inside the folder that Sphinx reads.
    """
    texts = {f"{name}.rst": text for name, text in (*method_pages(), *metric_pages(), *api_pages())}
    texts |= {f"{name.lower()}.md": as_on_the_site(ROOT / f"{name}.md") for name in ABOVE}
    for name, text in texts.items():
        path = into / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if not path.is_file() or path.read_text(encoding="utf-8") != text:  # what is as it was is not read again
            path.write_text(text, encoding="utf-8")


def as_on_the_site(path: Path) -> str:
    """A page of the repository's root, with its links to docs/ as they are from the generated pages."""
    return path.read_text(encoding="utf-8").replace("](docs/", "](../")


def heading(text: str, line: str = "-") -> str:
    """A heading of reStructuredText."""
    return f"{text}\n{line * len(text)}\n\n"


def table(header: list[str], rows: list[list[str]]) -> str:
    """A table of reStructuredText; cells are Markdown's neither."""
    lines = [".. list-table::", "   :header-rows: 1", ""]
    for row in [header, *rows]:
        lines += [f"   {'* -' if i == 0 else '  -'} {cell}" for i, cell in enumerate(row)]
    return "\n".join(lines) + "\n\n"


def tree(title: str, about: str, names: list[str]) -> str:
    """A page that lists others."""
    pages = "\n".join(f"   {name}" for name in names)
    return f"{heading(title, '=')}{about}\n\n.. toctree::\n   :maxdepth: 1\n\n{pages}\n"


# Methods


def method_pages() -> Iterator[tuple[str, str]]:
    """A page for each method, by the name of its class."""
    overlays = defaultdict(list)
    for path in sorted(OVERLAYS.glob("*.yaml")):
        config = yaml.safe_load(path.read_text(encoding="utf-8"))
        for name in {config["model"].get("class_path"), *rectifiers(config)} - {None}:
            overlays[name.rpartition(".")[2]].append(path)
    names = sorted(modules.__all__, key=str.lower)
    for name in names:  # the overlay of the method's own name first
        own = sorted(overlays[name], key=lambda path: path.stem != name.lower())
        yield f"methods/{name}", method_page(name, own)
    about = (
        "One page a method, made from its docstring, its overlays and the stored results. "
        ":doc:`/choosing` compares them in words, :doc:`/results/index` in numbers."
    )
    yield "methods/index", tree("Methods, one by one", about, names)


def rectifiers(config: Mapping[str, Any]) -> set[str]:
    """What an overlay rectifies a method's steps with."""
    rectify = config["model"].get("init_args", {}).get("rectify")
    return {rectify["class_path"]} if isinstance(rectify, dict) else {rectify} if rectify else set()


def method_page(name: str, overlays: list[Path]) -> str:
    """The page of one method."""
    cls = getattr(modules, name)
    text = heading(name, "=")
    if words := getattr(cls, "in_words", ""):
        text += f"*In plain words:* {words}\n\n"
    if name in ("OFMU", "BLUR", "GRU"):  # whose formula stands where the file begins
        text += f".. automodule:: {cls.__module__}\n   :no-members:\n   :no-index:\n\n"
    text += f".. autoclass:: ofmu_pl.{name}\n   :no-members:\n\n"
    used = [f for f in vars(losses).values() if inspect.isfunction(f) and f.__name__ in names_in(cls)]
    used = [f for f in used if f.__module__ == losses.__name__ and not f.__name__.startswith("_")]
    if used:
        text += heading("Its loss")
        text += "".join(f".. autofunction:: ofmu_pl.losses.{f.__name__}\n   :no-index:\n\n" for f in used)
    if overlays:
        text += heading("Overlays, and where their values come from")
        kind = "digits" if getattr(cls, "modality", None) == "images" else "tofu"
        for path in overlays:
            place = path.relative_to(ROOT)
            text += f"``{place}``:\n\n.. literalinclude:: /../{place}\n   :language: yaml\n\n"
        text += (
            ".. code-block:: bash\n\n"
            f"   python -m ofmu_pl fit --config configs/{kind}.yaml -c {overlays[0].relative_to(ROOT)} ...\n\n"
        )
    if found := stored({name.lower(), *(path.stem for path in overlays)}):
        text += heading("How it did here") + found
    return text


def names_in(cls: type) -> set[str]:
    """Names that the code of a class and of its own bases in the package's method files uses."""
    names: set[str] = set()
    for base in cls.__mro__:
        if base.__module__.startswith("ofmu_pl.modules") and base.__module__ not in SHARED:
            for function in vars(base).values():
                names |= set(getattr(getattr(function, "__code__", None), "co_names", ()))
    return names


SHARED = (
    "ofmu_pl.modules.two_terms",
    "ofmu_pl.modules.base",
    "ofmu_pl.modules.lower_level",
    "ofmu_pl.modules.scrutiny",
)
"""Files whose classes are no method."""


def stored(methods: set[str]) -> str:
    """What stored runs of methods forgot and kept, beside their targets and retrained models; nothing: no runs."""
    text = ""
    for file, about in STORED.items():
        data = json.loads((DATA / f"{file}.json").read_text(encoding="utf-8"))
        shown = [run for run in data["runs"] if run["method"] in methods]
        if not shown:
            continue
        sides = {"before": ("target", shown), "retrained": ("retrained", shown)}
        each = sorted({run["method"] for run in shown})
        sides |= {name: ("after", [run for run in shown if run["method"] == name]) for name in each}
        columns = [metric for metric in COLUMNS if metric in shown[0]["sides"]["after"]]
        rows = [
            [name, *(spread([run["sides"][side][metric] for run in runs]) for metric in columns)]
            for name, (side, runs) in sides.items()
        ]
        spent = spread([run["gradients"] for run in shown])
        text += (
            f"**{about}**, {data['date']}, {data['machine']}, {spent} gradients a run, {len(shown)} run(s); "
            f":doc:`all methods and attacks </results/{file}>`.\n\n"
        )
        text += table(["", *(COLUMNS[c] for c in columns)], rows)
    return text


def spread(values: list[float]) -> str:
    """Mean and standard deviation of what runs gave."""
    around = f" ± {stdev(values):.2g}" if len(values) > 1 and len(set(values)) > 1 else ""
    return f"{mean(values):.3g}{around}"


# Metrics


def declared() -> dict[str, Metric]:
    """Every metric that a file of ``ofmu_pl.metrics`` declares, by name."""
    found: dict[str, Metric] = {}
    for info in pkgutil.iter_modules(metrics.__path__):
        for value in vars(importlib.import_module(f"ofmu_pl.metrics.{info.name}")).values():
            found |= {metric.name: metric for metric in declarations(value)}
    return found


def declarations(value: object) -> Iterator[Metric]:
    """Declarations in a value: itself, or what a dictionary or sequence holds."""
    if isinstance(value, Metric):
        yield value
    elif isinstance(value, Mapping):
        for pair in value.items():
            yield from declarations(pair)
    elif isinstance(value, tuple | list | set):
        for entry in value:
            yield from declarations(entry)


def catalogue() -> dict[str, dict[str, Any]]:
    """What docs/metrics.yaml says, by page."""
    return yaml.safe_load((HERE / "metrics.yaml").read_text(encoding="utf-8"))


def metric_pages() -> Iterator[tuple[str, str]]:
    """A page for each metric."""
    known, indexed, entries = declared(), set(), catalogue()
    told = {metric for entry in entries.values() for metric in entry["declared"]}
    if left := sorted(known.keys() - told):
        entries["more"] = {"title": "More metrics", "declared": left, "functions": [], "blind": []}
    for name, entry in entries.items():
        yield f"metrics/{name}", metric_page(entry, known, indexed)
    about = (
        "One page a metric: formula, goal, definitions side by side, a worked number, and what it does not see. "
        "Every value comes with its number of rows, its interval and the name of its definition; "
        ":doc:`/evaluation` says how to get them."
    )
    yield "metrics/index", tree("Metrics, one by one", about, list(entries))


def metric_page(entry: Mapping[str, Any], known: Mapping[str, Metric], indexed: set[str]) -> str:
    """The page of one metric."""
    text = heading(entry["title"], "=")
    if "goal" in entry:
        text += f"**Goal.** {entry['goal']}\n\n"
    if entry["declared"]:
        text += heading("In ``results.json``")
        rows = []
        for name in entry["declared"]:
            metric = known[name]
            says = (metric.says or "").format(value="…", rows="the rows") or "–"
            rows.append([f"``{name}``", metric.unit, "higher" if metric.higher_is_better else "lower", says])
        text += table(["name", "unit", "better without a goal", "in plain words"], rows)
    if entry["functions"]:
        text += heading("How it is computed")
        for name in entry["functions"]:
            again = "   :no-index:\n" if name in indexed else ""
            indexed.add(name)
            text += f".. autofunction:: ofmu_pl.{name}\n{again}\n"
    if worked := entry.get("worked"):
        text += heading("Definitions side by side") + f"For {worked['says']}:\n\n"
        values = {name: eval(worked["value"], KNOWN | {"d": d}) for name, d in DEFINITIONS.items()}
        text += table(["definition", "value"], [[f"``{n}``", shown(v)] for n, v in values.items()])
    if entry["blind"]:
        text += heading("What it does not see") + "".join(f"- {said}\n" for said in entry["blind"]) + "\n"
    return text + stored_metric(entry["declared"])


def shown(value: float) -> str:
    """A number of a worked example; what a definition leaves out is said so."""
    return "left out" if np.isnan(value) else f"{value:.4g}"


def stored_metric(names: list[str]) -> str:
    """What methods had of a metric in the stored runs; nothing: no runs."""
    text = ""
    for file, about in STORED.items():
        data = json.loads((DATA / f"{file}.json").read_text(encoding="utf-8"))
        columns = [name for name in names if name in data["runs"][0]["sides"]["after"]]
        if not columns:
            continue
        methods = dict.fromkeys(run["method"] for run in data["runs"])
        sides = {name: ("after", [r for r in data["runs"] if r["method"] == name]) for name in methods}
        sides |= {"*before*": ("target", data["runs"]), "*retrained*": ("retrained", data["runs"])}
        rows = [
            [name, *(spread([run["sides"][side][c] for run in runs]) for c in columns)]
            for name, (side, runs) in sides.items()
        ]
        text += f"**{about}**, {data['date']} (:doc:`more </results/{file}>`):\n\n" + table(["", *columns], rows)
    return heading("Stored results") + text if text else ""


# API reference


def api_pages() -> Iterator[tuple[str, str]]:
    """The public names, room by room; methods and metrics have pages of their own."""
    rooms = {title: list(importlib.import_module(f"ofmu_pl.{room}").__all__) for room, title in ROOMS.items()}
    prefix = {title: f"ofmu_pl.{room}" if room == "analysis" else "ofmu_pl" for room, title in ROOMS.items()}
    rooms = {**REST, **rooms, "Metrics": [n for n in metrics.__all__ if n not in on_pages()]}
    pages = []
    for title, names in rooms.items():
        page = title.lower().replace(" ", "-").replace("'", "")
        pages.append(page)
        text = heading(title, "=")
        yield f"api/{page}", text + "".join(described(prefix.get(title, "ofmu_pl"), name) for name in names)
    functions = [n for n, f in vars(losses).items() if inspect.isfunction(f) and f.__module__ == losses.__name__]
    public = [n for n in functions if not n.startswith("_")]
    yield "api/losses", heading("Losses", "=") + "".join(f".. autofunction:: ofmu_pl.losses.{n}\n\n" for n in public)
    about = (
        "Everything here can be imported from ``ofmu_pl`` itself, unless its name says otherwise. "
        "Methods and metrics have pages of their own: :doc:`/generated/methods/index`, :doc:`/generated/metrics/index`."
    )
    yield "api/index", tree("API reference", about, [*pages, "losses"])


def on_pages() -> set[str]:
    """Names of functions that pages about metrics describe."""
    return {name for entry in catalogue().values() for name in entry["functions"]}


def described(place: str, name: str) -> str:
    """The directive that describes a class or function; nothing for other values, which have no docstring."""
    value = getattr(importlib.import_module(place), name)
    kind = "autoclass" if inspect.isclass(value) else "autofunction" if inspect.isfunction(value) else None
    return f".. {kind}:: {place}.{name}\n\n" if kind else ""
