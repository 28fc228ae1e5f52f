"""What an engine cannot differentiate, found before the first step and refused in one sentence.

Facts behind each rule: research/feasibility.md sections 2 and 5. Third derivatives of fused ``nn.LayerNorm`` and
of BatchNorm in train mode come out wrong by tens of per cent without a word (torch 2.11 to 2.13; 2.15 raises for
BatchNorm), so a network that holds them is refused, not tried.
"""

from __future__ import annotations

from typing import Any

from torch import nn

from ofmu_pl.errors import UserError

_BATCH_NORMS = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d, nn.SyncBatchNorm)
_INSTANCE_NORMS = (nn.InstanceNorm1d, nn.InstanceNorm2d, nn.InstanceNorm3d)
_KINKS = (nn.ReLU, nn.ReLU6, nn.LeakyReLU, nn.PReLU, nn.Hardtanh)
_DROPOUTS = (nn.Dropout, nn.Dropout1d, nn.Dropout2d, nn.Dropout3d, nn.AlphaDropout, nn.FeatureAlphaDropout)


def preflight(network: nn.Module, *, first_order: bool, precision: str = "32-true", penalised: bool = True) -> None:
    """Refuse a network or precision that the engine would differentiate wrongly or not at all.

    Args:
        network: The network as it will be differentiated, in the mode (train or eval) it will have then.
        first_order: Whether the engine takes gradients only (``FiniteDifference``) or graphs of graphs.
        precision: Lightning's name of the precision.
        penalised: Whether Hess(Phi) grad Phi will be asked for.

    Raises:
        UserError: The first thing found, with its remedy.
    """
    if precision in ("16-mixed", "16-true", "bf16-true", "16", "transformer-engine-float16"):
        raise UserError(
            f"Precision {precision} loses OFMU's updates and derivatives (loss scaling bypassed, weights rounded): "
            "set --trainer.precision to 32-true, or to bf16-mixed where its error is acceptable."
        )
    if precision == "bf16-mixed" and first_order and penalised:
        raise UserError(
            "Precision bf16-mixed leaves nothing of the penalty by finite differences (cosine 0.2 at best): set "
            "--trainer.precision 32-true, --model.engine autograd (cosine 0.998), or --model.rho_0 0."
        )
    for name, m in network.named_modules():
        problem = _problem(m, first_order)
        if problem:
            raise UserError(f"{type(m).__name__} at '{name or 'the root'}' {problem}")


def _problem(m: nn.Module, first_order: bool) -> str | None:
    """What is wrong with one module, as the end of a sentence."""
    if m.training and ((isinstance(m, _DROPOUTS) and m.p > 0) or _config_dropout(m) > 0):
        return (
            "has dropout on, so every gradient would be of another function: put it in eval mode, "
            "or set its probability to 0 if activation checkpointing needs train mode."
        )
    if first_order:
        if isinstance(m, _KINKS):
            return (
                "has kinks, which differences of gradients see and the Hessian does not: "
                "set --model.engine autograd, or use a smooth activation."
            )
        if isinstance(m, _BATCH_NORMS) and m.training:
            return (
                "is a BatchNorm in train mode, whose statistics every displaced pass would change: "
                "put it in eval mode (frozen)."
            )
        return None
    if isinstance(m, nn.LayerNorm):
        return (
            "is a fused LayerNorm, whose third derivative torch gets silently wrong: "
            "set --model.engine finite_difference, or use RMSNorm or GroupNorm."
        )
    if (m.training and isinstance(m, _BATCH_NORMS)) or (isinstance(m, _INSTANCE_NORMS) and not m.track_running_stats):
        return (
            "normalises by batch statistics, whose third derivative torch gets silently wrong: "
            "put it in eval mode (frozen), or set --model.engine finite_difference."
        )
    if type(m).__name__ == "OptimizedModule":
        return (
            "is compiled, and torch.compile has no double backward: remove the compile, or set "
            "--model.engine finite_difference."
        )
    attention = getattr(getattr(m, "config", None), "_attn_implementation", None)
    if attention not in (None, "eager"):
        return (
            f"uses the fused attention kernel '{attention}', which has no second derivative: "
            "set --model.network.attention eager, or --model.engine finite_difference."
        )
    checkpoint_function: Any = getattr(m, "_gradient_checkpointing_func", None)
    if getattr(m, "gradient_checkpointing", False) and getattr(checkpoint_function, "keywords", {}).get(
        "use_reentrant"
    ):
        return "checkpoints activations reentrantly, which has no double backward: use use_reentrant=False."
    return None


def _config_dropout(m: nn.Module) -> float:
    """The largest dropout probability in a Hugging Face configuration (applied as a function, not as a module)."""
    config = getattr(m, "config", None)
    names = ("attention_dropout", "hidden_dropout", "resid_pdrop", "embd_pdrop", "attn_pdrop", "hidden_dropout_prob")
    return max((float(getattr(config, n, 0.0) or 0.0) for n in names), default=0.0)
