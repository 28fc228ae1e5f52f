"""Options of OFMU that ofmu_pl 0.3 had, and where each of them is now."""

from collections.abc import Iterable

from ofmu_pl.support.errors import UserError

MOVED = {
    "inner_lr": "model.stepper.lr (of SharedSteps: lr_ratio)",
    "inner_optimizer": "model.stepper (sgd: PlainSteps, adam: AdamSteps, shared: SharedSteps)",
    "rho_0": "model.upper.rho_0 (with rates auto: model.upper.share of FlatteningStep)",
    "gamma": "model.upper.gamma",
    "higher_order_every": "model.upper.every",
    "higher_order_from": "model.upper.start",
    "higher_order_until": "model.upper.until, of FlatteningStep",
    "forget_ceiling": "model.lower.bound (holdout: model.lower HeldOutLevels)",
    "ngram_weight": "model.lower.ngram_weight",
    "rates": "three parts (auto: model.stepper PathSteps, model.upper FlatteningStep, model.lower HeldOutLevels with "
    "call_back true)",
}
"""What an option of OFMU is called now."""


def refuse_moved(given: Iterable[str]) -> None:
    """Refuse the first option that is elsewhere now.

    Raises:
        UserError: There is one.
    """
    for name in given:
        if name in MOVED:
            raise UserError(f"OFMU has no option model.{name}: it is {MOVED[name]} now.")
