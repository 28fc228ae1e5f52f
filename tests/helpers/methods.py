"""Every method at test size: the one list from which tests take methods.

A new method is a line in ``SETTINGS``; tests/modules/test_every_method.py names a public one that has none.
"""

from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any

import pytest
import torch
import yaml

from ofmu_pl.modules import (
    BLUR,
    CATNIP,
    CEU,
    DPO,
    GRU,
    HAMU,
    MASC,
    NPO,
    OFMU,
    PDU,
    RMU,
    SAUL,
    SCRUB,
    SSD,
    UNDIAL,
    UNDO,
    BadTeacher,
    BatchNormOnly,
    DoNothing,
    FineTune,
    Fisher,
    GradDiff,
    Influence,
    JensUn,
    L1Sparse,
    Negation,
    PCGrad,
    RandomLabels,
    SalUn,
    SimNPO,
    WeightedAscent,
)
from ofmu_pl.modules.one_shot import OneShot
from tests.helpers.parts import FIRST_ORDER, plain

SGD = {"optimizer": lambda p: torch.optim.SGD(p, lr=0.1), "gradient_clip": None}


@dataclass(frozen=True)
class Setting:
    """A method at test size.

    Args:
        name: Of its overlay, where one has this setting.
        method: The class.
        options: Of the class; each module that is made has its own copies of rectifiers and constraints.
        on: What it is tested on, "text", "images" or "both".
        network: Options of the network for images.
        slow: Tests that other settings pass through in the same way, so that this one is slow there: "batches" (all
            rows at once and in parts), "plan", "resume".
        keeps: It keeps something between iterations, so that it is stopped and resumed.
        ranks: Two ranks are compared with one.
        hooks: Hooks see all that its networks multiply (not what ``torch.func`` does row by row).
        unforeseen: A plan does not know all of its work: some comes before its iterations, or the data decide.
        planned: The gradients an iteration that a plan names where work is ``unforeseen``; None where it names none.
    """

    name: str
    method: type
    options: dict[str, Any] = field(default_factory=dict)
    on: str = "text"
    network: dict[str, Any] = field(default_factory=dict)
    slow: tuple[str, ...] = ()
    keeps: bool = False
    ranks: bool = False
    hooks: bool = True
    unforeseen: bool = False
    planned: float | None = None

    def __call__(self, network, **options):
        """A module; more ``options``, such as an optimizer, go over those of the table."""
        return self.method(network, **deepcopy(self.options) | options)

    @property
    def steps(self):
        """It takes steps of an optimizer."""
        return not issubclass(self.method, OneShot | BatchNormOnly)

    @property
    def names(self):
        """Public names that it shows: its class, and what rectifies or constrains its steps."""
        return {self.method.__name__, *(type(x).__name__ for x in self.options.values())}


SHORT = {"inner_steps": 2, "stepper": plain(0.01), "engine": "finite_difference"} | FIRST_ORDER
"""Of differences, since a product with an exact Hessian makes no pass that hooks could see."""
LAYER = "model.layers.1"
EVERY = ("batches", "plan")

SETTINGS = [
    Setting("grad_ascent", GradDiff, {"alpha": 0.0}, slow=EVERY),
    Setting("grad_diff", GradDiff, on="both"),
    Setting("kl", GradDiff, {"retain_loss": "kl"}, on="both", slow=("plan",), ranks=True),
    Setting("embedding", GradDiff, {"retain_loss": "embedding", "layer": LAYER}),
    Setting("jensun", JensUn),
    Setting("npo", NPO, slow=("batches", "resume"), keeps=True, ranks=True),
    Setting("simnpo", SimNPO, {"gamma": 0.125}, slow=EVERY),
    Setting("catnip", CATNIP),
    Setting("masc", MASC, {"rho": 0.05}),
    Setting("dpo", DPO, keeps=True),
    Setting("undial", UNDIAL, slow=EVERY),
    Setting("undo", UNDO, {"noise": 0.3}, ranks=True),
    Setting("wga", WeightedAscent),
    Setting("satimp", WeightedAscent, {"beta_1": 5.0, "beta_2": 1.0}, slow=EVERY),
    Setting("ce_u", CEU, slow=("plan",)),
    Setting("pdu", PDU, {"epsilon": 5.0, "alpha": 1.0}, keeps=True),
    Setting("rmu", RMU, {"layer": LAYER, "coefficient": 2.0, "alpha": 1.0}, keeps=True),
    Setting("blur", NPO, {"rectify": BLUR()}, slow=EVERY),
    Setting("gru", NPO, {"alpha": 0.0, "rectify": GRU()}, keeps=True),
    Setting("gru_sam", NPO, {"alpha": 0.5, "rectify": GRU(), "sam_rho": 0.1}, slow=EVERY, ranks=True),
    Setting("hamu", GradDiff, {"rectify": HAMU(gain=0.5, per_tensor=True)}),
    Setting("saul", GradDiff, {"constrain": SAUL(level=-9.0, step=0.1), "sam_rho": 0.05}, keeps=True),
    Setting("pcgrad", GradDiff, {"rectify": PCGrad()}, slow=("batches",)),
    Setting("npo_sam", NPO, {"sam_rho": 0.05}, slow=(*EVERY, "resume"), keeps=True),
    Setting(
        "undial_sam_blur",
        UNDIAL,
        {"alpha": 1.0, "retain_loss": "kl", "rectify": BLUR(), "sam_rho": 0.05},
        keeps=True,
    ),
    Setting("negation", Negation, {"steps": 2, "lr": 0.05}, unforeseen=True),
    Setting("finetune", FineTune, {"split": "retain"}, on="both"),
    Setting("ofmu", OFMU, SHORT, on="both"),
    Setting("fisher", Fisher, on="images", hooks=False, unforeseen=True),
    Setting("influence", Influence, on="images", slow=("plan",), hooks=False, unforeseen=True),
    Setting("random_labels", RandomLabels, on="images"),
    Setting("salun", SalUn, on="images", unforeseen=True, planned=2),
    Setting("scrub", SCRUB, on="images"),
    Setting("scrub_without_forget_term", SCRUB, {"max_epochs": 0}, on="images"),
    Setting("bad_teacher", BadTeacher, on="images"),
    Setting("ssd", SSD, {"alpha": 2.0, "group_size": 30}, on="images", unforeseen=True),
    Setting("l1_sparse", L1Sparse, on="images"),
    Setting("do_nothing", DoNothing, on="images"),
    Setting("batchnorm_only", BatchNormOnly, on="images", network={"norm": "batch", "bn_mode": "both"}),
]
TEXTS = {s.name: s for s in SETTINGS if s.on in ("text", "both")}
IMAGES = {s.name: s for s in SETTINGS if s.on in ("images", "both")}


def chosen(settings: dict[str, Setting], test: str, which: Callable[[Setting], bool] = lambda s: True):
    """Names of settings as parameters of a test, those that are slow there marked."""
    found = []
    for name, setting in settings.items():
        if which(setting):
            found.append(pytest.param(name, marks=pytest.mark.slow) if test in setting.slow else name)
    return found


def is_for_images(overlay):
    """Whether the method of an overlay, a path, is tested on images alone."""
    method = yaml.safe_load(overlay.read_text(encoding="utf-8")).get("model", {}).get("class_path")
    images, texts = ({s.method.__name__ for s in table.values()} for table in (IMAGES, TEXTS))
    return method in images - texts
