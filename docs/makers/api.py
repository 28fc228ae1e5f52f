"""The API reference, room by room."""

import importlib
import inspect
from collections.abc import Iterator

import ofmu_pl
from makers.metrics import catalogue
from makers.rst import heading, tree
from ofmu_pl import losses, metrics

ROOMS = {
    "data": "Data", "networks": "Networks", "analysis": "Analyses",
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


def api_pages() -> Iterator[tuple[str, str]]:
    """The public names, room by room; methods and metrics have pages of their own."""
    rooms = {title: list(importlib.import_module(f"ofmu_pl.{room}").__all__) for room, title in ROOMS.items()}
    prefix = {title: f"ofmu_pl.{room}" if room == "analysis" else "ofmu_pl" for room, title in ROOMS.items()}
    rooms["Attacks"] = [
        n for n in ofmu_pl.__all__ if "ofmu_pl.attacks." in getattr(getattr(ofmu_pl, n), "__module__", "")
    ]
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
