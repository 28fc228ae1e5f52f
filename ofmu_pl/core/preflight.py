"""Refuses, in one sentence and before the first step, a network that an engine cannot differentiate.

Third derivatives of torch's fused layer norm, fused weight norm and batch normalisation in train mode come out wrong by
tens of per cent without a word (torch 2.11 to 2.15; 2.15 raises for BatchNorm), and a difference of gradients sees
kinks that the Hessian does not. So a network that calls such an operator is refused, not tried. What it calls is seen
in a pass over a sample or two (``core.calls``), since the classes of modules do not tell.
"""

from torch import nn

from ofmu_pl.core.calls import Calls
from ofmu_pl.support.errors import UserError

LOSSY = ("16-mixed", "16-true", "bf16-true", "16", "transformer-engine-float16")
"""Lightning's names of precisions that are refused."""
_KINKS = ("relu", "leaky_relu", "_prelu_kernel", "hardtanh", "hardswish", "hardsigmoid", "threshold", "clamp_min")
"""Operators with kinks: those of ReLU, LeakyReLU, PReLU, Hardtanh (ReLU6 too), Hardswish, Threshold and their like."""
_SILENTLY_WRONG = {
    "native_layer_norm": ("LayerNorm", "use RMSNorm or GroupNorm"),
    "_weight_norm_interface": ("weight norm", "remove the weight norm"),
}
"""Fused operators whose third derivatives torch gets wrong: their names, and what else would help."""


class NoDerivativeError(UserError):
    """An operator of the network has no right derivatives by the engine at hand; its gradients are right."""


def preflight(network: nn.Module, *, first_order: bool) -> None:
    """Refuse a network that the engine would differentiate wrongly or not at all, before it has run.

    Raises:
        UserError: The first thing found, with its remedy.
    """
    for name, m in () if first_order else network.named_modules():
        if problem := _no_double_backward(m):
            raise UserError(f"{type(m).__name__} at '{name or 'the root'}' {problem}")


def check_precision(precision: str) -> None:
    """Refuse a precision, by Lightning's name, in which no method's steps are what they should be.

    Raises:
        UserError: Weights are kept in 16 bits, or gradients of losses that are not scaled are taken in float16: small
            ones vanish.
    """
    if precision in LOSSY:
        raise UserError(
            f"Precision {precision} loses updates and derivatives (loss scaling bypassed, weights rounded): "
            "set trainer.precision 32-true, or bf16-mixed where its error is acceptable."
        )


def _no_double_backward(m: nn.Module) -> str | None:
    """The reason why autograd cannot differentiate a module's gradients, as the end of a sentence."""
    if type(m).__name__ == "OptimizedModule":
        return (
            "is compiled, and torch.compile has no double backward: remove the compile, or set model.engine "
            "finite_difference."
        )
    attention = getattr(getattr(m, "config", None), "_attn_implementation", None)
    if attention not in (None, "eager"):
        return (
            f"uses the fused attention kernel '{attention}', which has no second derivative: "
            "set model.network.attention eager, or model.engine finite_difference."
        )
    how = getattr(getattr(m, "_gradient_checkpointing_func", None), "keywords", {})
    if getattr(m, "gradient_checkpointing", False) and how.get("use_reentrant"):
        return "checkpoints activations reentrantly, which has no double backward: use use_reentrant=False."
    return None


def check_calls(seen: Calls, *, first_order: bool) -> None:
    """Refuse a network by what it called in a pass over samples, in the mode (train or eval) of its training.

    An engine of ``first_order`` takes gradients only (``FiniteDifference``), another one graphs of graphs.

    Raises:
        UserError: The first thing found, with its remedy; ``NoDerivativeError`` where gradients alone are right.
    """
    for where in seen.random.values():
        raise UserError(
            f"{where} has dropout on, so every gradient would be of another function: put it in eval mode, "
            "or set its probability to 0 if activation checkpointing needs train mode."
        )
    for where, updates in seen.of_batches.values():
        if first_order and updates:
            raise UserError(
                f"{where} is a BatchNorm in train mode, whose statistics every displaced pass would change: "
                "put it in eval mode (frozen)."
            )
        if not first_order:
            raise UserError(
                f"{where} normalises by batch statistics, whose third derivative torch gets silently wrong: "
                "put it in eval mode (frozen), or set model.engine finite_difference."
            )
    for name, where in seen.differentiated.items():
        problem = _kink(name) if first_order else _wrong_beyond_gradients(name)
        if problem:
            raise NoDerivativeError(f"{where} {problem}")


def _kink(operator: str) -> str | None:
    if operator.removesuffix("_") not in _KINKS:
        return None
    return (
        "has kinks, which differences of gradients see and the Hessian does not: "
        "set model.engine autograd, or use a smooth activation."
    )


def _wrong_beyond_gradients(operator: str) -> str | None:
    if operator in _SILENTLY_WRONG:
        what, remedy = _SILENTLY_WRONG[operator]
        return (
            f"calls torch's fused {what}, whose third derivative torch gets silently wrong: "
            f"set model.engine finite_difference, or {remedy}."
        )
    if "flash" in operator or operator.endswith(("_efficient_attention", "_cudnn_attention", "_fused_attention")):
        return (
            f"calls the fused attention kernel {operator}, which has no second derivative: "
            "set model.network.attention eager, or model.engine finite_difference."
        )
    return None
