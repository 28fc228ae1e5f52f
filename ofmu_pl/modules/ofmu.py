r"""OFMU (paper, Algorithm 1): T ascent steps on Phi, then one penalised descent step on the retain loss.

    inner    theta <- theta + eta_in clip(grad Phi), or Adam's step      T times, fresh (B_f, B_r) each
    outer    theta <- optimizer(theta, g_r + clip(2 rho_k Hess(Phi) grad Phi))     fresh (B_f', B_r')
    rho_{k+1} = min(gamma rho_k, rho_max)

Run as printed the algorithm diverges (``configs/methods/ofmu_literal.yaml``): with plain steps of 1e-3 on a memorised
Llama of 40 questions, L_f was 5e9 in iteration 8 and L_r not a number in iteration 10. Six arguments keep it stable,
and ``null`` switches each off: ``rho_max``, ``penalty_clip``, ``forget_ceiling``, ``norm_floor``, ``inner_clip`` and
``gradient_clip``. A seventh, ``concave_only``, keeps the penalty from undoing the ascent, and ``higher_order_every``
computes what needs second and third derivatives in some iterations only.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Literal

import torch
from lightning.pytorch.utilities import rank_zero_info
from torch.optim import Optimizer

from ofmu_pl.core.algorithm import outer_iteration
from ofmu_pl.core.autograd import Autograd
from ofmu_pl.core.derivatives import Engine, trainable
from ofmu_pl.core.finite_difference import BF16_STEP, FiniteDifference
from ofmu_pl.core.penalty import Penalty
from ofmu_pl.core.polyak import Polyak
from ofmu_pl.core.preflight import preflight
from ofmu_pl.core.price import Price
from ofmu_pl.core.shared_adam import SharedAdam
from ofmu_pl.core.vectors import Vector
from ofmu_pl.modules.base import UnlearningModule
from ofmu_pl.modules.lower_level import LowerLevel
from ofmu_pl.modules.scrutiny import Scrutiny
from ofmu_pl.modules.two_terms import SAM_IN_WORDS, TwoTerms
from ofmu_pl.networks.base import Batch, Network
from ofmu_pl.support.errors import UserError, check_range

INNER_BETAS = (0.9, 0.99)
"""Adam's betas in the inner loop, so that its second moments settle within a run of a hundred steps."""

BETA_IN_WORDS = "The first step is turned to where it does least harm to rows that must stay."
RHO_IN_WORDS = "A penalty keeps the second step from undoing the first."
NGRAM_IN_WORDS = (
    "In the place of the forgotten answers the model learned to guess as someone who knows the other rows alone would."
)


class OFMU(UnlearningModule):
    """Penalty-based bi-level unlearning.

    Args:
        network: Recipe of the network that shall forget.
        inner_steps: T, the ascent steps of one outer iteration (paper: 5).
        inner_lr: eta_in, the ascent's rate (the paper is silent; 0.02 with unit steps, 3e-4 with Adam worked on tiny
            Llamas).
        inner_optimizer: ``sgd``, the step as printed; ``adam``, which keeps two vectors as its state (the paper runs
            everything with AdamW; where the weights' gradients differ in scale, a plain step of a given length
            changes few weights and harms more of what is to be kept, docs/ofmu.md); or ``shared``:
            the ``optimizer`` is a ``SharedAdam``, which ascends too, in the metric of both loops and at the rate that
            the scheduler gives both, times ``inner_lr``.
        beta: Weight of the gradients' similarity in Phi (the paper is silent; 0.5 as in our prototype).
        rho_0: First penalty parameter (paper: 0.3); 0 switches the penalty off.
        gamma: Growth of rho (paper: between 1.5 and 2).
        rho_unit: What gamma counts, an outer ``iteration`` (paper) or an ``epoch`` of the forget set.
        rho_rule: ``geometric`` (paper), or ``adaptive``: rho grows only while |grad Phi| stalls.
        engine: ``autograd`` (exact) or ``finite_difference`` (first-order gradients only: half the time, a fifteenth of
            the memory, any attention kernel). Its steps are checked on 4 samples in the whole iterations 0, 1, 4, 16,
            64 ..., and sought anew where two of them disagree; a part that stays noise is left out with a warning.
        scheme: Scheme of the finite differences, ``forward`` (28 gradients per outer iteration at T=5) or ``central``
            (48).
        similarity_every: Inner steps between two computations of the decorrelation direction (1: the paper; 5 saves
            nearly half of the time at T=5).
        higher_order_every: One of so many outer iterations is whole (1: the paper). The others ascend on L_f and
            descend on L_r alone, at T + 1 gradients; the whole one's penalty counts for all of them, with this number
            times rho ("lazy regularisation": a regulariser need not be computed as often as the loss). An adaptive rho
            grows in whole iterations only.
        stationarity_tol: Stop once |grad Phi| is at most this (Algorithm 1's criterion); ``null``: run all iterations.
        audit: Compare the engine with an independent one before the first iteration, on 4 samples of each split.
        rho_max: Cap of rho; ``null`` as printed (then rho overflows).
        penalty_clip: Cap of the penalty's norm as a multiple of |g_r|; ``null`` as printed (then the penalty outgrows
            the retain gradient a hundredfold at once).
        ceiling_by: What the ceiling bends: a ``sample``'s mean loss, or each ``token``'s loss, so that no token is
            pushed on for the sake of others that are still low.
        forget_ceiling: Value at which a sample's forget loss is bent to a constant, in nats: ``uniform`` is the loss ln
            V of a guess, beyond which nothing is left to forget; ``holdout``: each row rises to the loss of a
            never-seen row, on a path of 15 % of the run (``modules.goal``); ``null`` as printed (then L_f grows
            without bound).
        norm_floor: Floor eps in the norms sqrt(|g|^2 + eps^2) inside the similarity; ``null`` as printed.
        inner_clip: Largest norm of an ascent direction; ``null`` as printed.
        concave_only: Leave the penalty out where Phi curves upwards along grad Phi; ``false`` as printed (then it pulls
            back to where Phi is stationary because nothing is forgotten yet).
        rates: ``auto``: both loops step as far as it takes to follow a path that means the same on every model
            (``modules.goal``, ``core.polyak``): ascents towards never-seen rows' losses, descents back to each retain
            row's own. Then ``inner_lr``, ``inner_optimizer``, ``forget_ceiling``, ``optimizer``, ``scheduler``,
            ``inner_clip`` and ``gradient_clip`` are not used. Costs one forward pass over the forget rows and the
            retain rows that will be drawn, and one over 128 rows every ten iterations.
        stop_at: ``holdout``: end where forgotten rows can no longer be told from never-seen ones and retain rows are
            kept, and bend each forget row's loss there instead of at ``forget_ceiling``; ``null``: run all iterations.
        outer_at: Where the outer gradient is taken: at the ``end`` of the ascents (theta_in, the paper's), or at their
            ``start`` (theta), so that the descent does not take back what its own iteration's ascents have done
            (docs/methods.md).
        sam_rho: Sharpness-aware ascent: g_f of an ascent is that at ``theta - sam_rho g_f / |g_f|``, where, nearby,
            least is forgotten (Fan et al. 2025 wrap other methods' losses so, with 0.01), at one more gradient an
            ascent; ``null``: the gradient at theta, the paper's.
        question_noise: Probability with which each token of a forget question is replaced by a random one, so that an
            answer is forgotten however it is asked for (docs/methods.md says what this costs).
        ngram_weight: Weight of ``KL(q || p)``, the mean over an answer's tokens, which is taken off Phi: q is what
            someone would answer who knows the retain rows alone, by an n-gram model of these (``modules.guess``), so
            that forgotten answers become no less likely than a guess. It needs never-seen rows; 0: no pull.
        objective: Makes the first-order method whose forget term takes the place of the loss in Phi, with its sign
            turned, such as NPO or PDU; ``null``: the loss, the paper's.
        price: The retain loss's weight as the price of keeping it below a bound (``core.price``); ``null``: 1.
        optimizer: Makes the optimizer of the outer step (paper: AdamW at 1e-5).
        scheduler: Makes the scheduler of the outer learning rate, stepped once per outer iteration.
        gradient_clip: Largest norm of the outer gradient; ``null`` as printed.
        micro_batch_size: Samples differentiated at a time; ``null``: all.
        rollbacks: How often a diverged iteration is taken back, with inner and outer steps halved from there on.

    Example:
        Two outer iterations on the generated benchmark, with Lightning's own trainer.

        >>> from lightning.pytorch import Trainer
        >>> from ofmu_pl import Authors, CausalLM
        >>> shape = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
        >>> network = CausalLM(config={"model_type": "llama", **shape})
        >>> method = OFMU(network, inner_steps=2, rho_0=0.25, gamma=2)
        >>> drawn = {"streams": method.streams, "num_batches": method.num_batches}
        >>> data = Authors(authors=4, forget_authors=1, batch_size=4, **drawn)
        >>> quiet = {"logger": False, "enable_progress_bar": False, "enable_model_summary": False}
        >>> trainer = Trainer(accelerator="cpu", devices=1, max_steps=2, enable_checkpointing=False, **quiet)
        >>> trainer.fit(method, datamodule=data)
        >>> method.run.step, method.penalty.rho
        (2, 1.0)
    """

    in_words = (
        "In turns, the model was moved to do worse on the forgotten rows and then trained to do well again on rows "
        "that must stay."
    )
    moves_parameters = True

    def __init__(
        self,
        network: Network,
        inner_steps: int = 5,
        inner_lr: float = 0.02,
        inner_optimizer: Literal["sgd", "adam", "shared"] = "sgd",
        beta: float = 0.5,
        rho_0: float = 0.3,
        gamma: float = 1.5,
        rho_unit: Literal["iteration", "epoch"] = "iteration",
        rho_rule: Literal["geometric", "adaptive"] = "geometric",
        engine: Literal["autograd", "finite_difference"] = "autograd",
        scheme: Literal["forward", "central"] = "forward",
        similarity_every: int = 1,
        higher_order_every: int = 1,
        stationarity_tol: float | None = None,
        audit: bool = False,
        rho_max: float | None = 1.0,
        penalty_clip: float | None = 0.1,
        forget_ceiling: float | Literal["uniform", "holdout"] | None = "uniform",
        ceiling_by: Literal["sample", "token"] = "sample",
        norm_floor: float | None = 1e-4,
        inner_clip: float | None = 1.0,
        concave_only: bool = True,
        rates: Literal["auto"] | None = None,
        stop_at: Literal["holdout"] | None = None,
        outer_at: Literal["end", "start"] = "end",
        sam_rho: float | None = None,
        question_noise: float = 0.0,
        ngram_weight: float = 0.0,
        objective: Callable[[Network], TwoTerms] | None = None,
        price: Price | None = None,
        **kwargs: Any,
    ) -> None:
        if rates not in (None, "auto") or stop_at not in (None, "holdout"):
            raise UserError(f"rates={rates} and stop_at={stop_at}: rates can be auto, stop_at can be holdout, or null.")
        if outer_at not in ("end", "start"):
            raise UserError(f"outer_at={outer_at} is unknown: set --model.outer_at end or start.")
        if rates == "auto" and ngram_weight:
            raise UserError(
                "rates=auto steps by the distance to the goal alone: set --model.ngram_weight 0, or, to choose rates "
                "yourself, --model.rates null and --model.stop_at null."
            )
        if rates == "auto":
            kwargs |= {"optimizer": partial(Polyak, lr=2.0), "scheduler": None, "gradient_clip": None}
            inner_lr, inner_clip = 1.0, None
        super().__init__(network, **kwargs)
        check_range(
            1, inner_steps=inner_steps, similarity_every=similarity_every, higher_order_every=higher_order_every
        )
        check_range(
            0,
            inner_lr=inner_lr,
            beta=beta,
            stationarity_tol=stationarity_tol,
            penalty_clip=penalty_clip,
            norm_floor=norm_floor,
            sam_rho=sam_rho,
        )
        check_range(0, above=True, inner_clip=inner_clip)
        self.inner_steps, self.inner_lr, self.inner_clip = inner_steps, inner_lr, inner_clip
        self.inner_optimizer = inner_optimizer
        self.beta, self.norm_floor = beta, norm_floor or 0.0
        self.penalty = Penalty(rho_0, gamma, rho_unit, rho_max, rho_rule)
        self.penalty_clip, self.concave_only = penalty_clip, concave_only
        self.engine_name, self.scheme = engine, scheme
        self.similarity_every, self.higher_order_every = similarity_every, higher_order_every
        self.stationarity_tol = stationarity_tol
        self.forget_ceiling, self.price = forget_ceiling, price
        self.rates, self.stop_at, self.sam_rho, self.outer_at = rates, stop_at, sam_rho, outer_at
        other = objective and objective(network)
        seeks_goal = rates is not None or stop_at is not None
        bound = None if rates else forget_ceiling
        self.lower = LowerLevel(bound, ceiling_by, question_noise, other, ngram_weight, seeks_goal=seeks_goal)
        parts = {
            BETA_IN_WORDS: beta,
            RHO_IN_WORDS: rho_0,
            SAM_IN_WORDS: sam_rho,
            NGRAM_IN_WORDS: ngram_weight,
        }
        self.in_words = " ".join([self.in_words, *(words for words, size in parts.items() if size)])
        self.engine: Engine | None = None
        self.scrutiny = Scrutiny(beta, self.norm_floor, audit=audit)

    def configure_model(self) -> None:
        """Make the network; another method's forget term may need it once more as it is now."""
        if self.network is None and self.lower.objective is not None:
            self.lower.objective.remember_random_state()
        super().configure_model()

    @property
    def streams(self) -> tuple[str, ...]:
        """Forget and retain batches in pairs; an epoch is one pass over the forget set."""
        return ("forget", "retain")

    @property
    def watches_never_seen(self) -> bool:
        """Whether never-seen rows give the forget rows their goal, or the guess its weights."""
        return (self.lower.seeks_goal or self.lower.ngram_weight > 0) and self.run.data.never_seen is not None

    @property
    def num_batches(self) -> int:
        """T batches of the ascent and one of the outer step."""
        return self.inner_steps + 1

    @property
    def period(self) -> int:
        """A whole iteration and those of first order after it, after which the work repeats."""
        return self.higher_order_every

    @property
    def exact(self) -> bool:
        """Whether graphs of graphs are needed."""
        return self.engine_name == "autograd"

    @property
    def gradient_evaluations(self) -> float:
        """Work so far in gradients (``core.derivatives.Engine``), over all resumed parts of the run."""
        return self._gradient_evaluations + (self.engine.gradient_evaluations if self.engine else 0.0)

    @property
    def remedy(self) -> str:
        """Advice after a divergence, which names the safeguards that are switched off."""
        safeguards: dict[str, Any] = {
            "rho_max": self.penalty.cap,
            "penalty_clip": self.penalty_clip,
            "forget_ceiling": self.forget_ceiling,
            "norm_floor": self.norm_floor or None,
            "inner_clip": self.inner_clip,
            "gradient_clip": self.gradient_clip,
            "concave_only": self.concave_only or None,
        }
        replaced = ("forget_ceiling", "inner_clip", "gradient_clip") if self.rates else ()
        off = [name for name, value in safeguards.items() if value is None and name not in replaced]
        if off:
            return f"switch the safeguards on that are off here ({', '.join(off)})"
        if self.rates:
            return "set `rollbacks=3`, by which steps are halved, or choose rates yourself by `rates=null`"
        return "lower `inner_lr` or the optimizer's rate"

    def own_optimizers(self) -> list[Optimizer]:
        """Make the ascent's Adam, if it has one.

        Raises:
            UserError: Adam's ascent is asked for on whole copies of a network of which ranks hold shards.
        """
        outer = self.run.optimizers[0]
        if self.inner_optimizer == "shared" and not self.rates and not isinstance(outer, SharedAdam):
            raise UserError(
                f"With inner_optimizer=shared the ascent steps by the outer optimizer, and {type(outer).__name__} has "
                "no second momentum for it: set --model.optimizer SharedAdam."
            )
        if self.inner_optimizer == "sgd" and not self.rates:
            return []
        if self.exact and self.run.ranks.sharded:
            raise UserError(
                "The exact engine ascends on whole copies of FSDP2's shards, for which no Adam keeps state: set "
                "--model.engine finite_difference, --model.inner_optimizer sgd, or --trainer.strategy ddp."
            )
        if self.inner_optimizer == "shared" and not self.rates:
            return []
        if self.rates:
            return [Polyak(trainable(self.trained))]
        return [torch.optim.Adam(trainable(self.trained), lr=self.inner_lr, betas=INNER_BETAS)]

    def on_train_start(self) -> None:
        """Refuse what the engine cannot differentiate, then make it."""
        precision = self.run.precision
        preflight(self.trained, first_order=not self.exact, precision=precision, penalised=self.penalty.rho > 0)
        parameters = trainable(self.trained)
        if self.exact:
            self.engine = Autograd(parameters, self.run.ranks)
        else:
            step = BF16_STEP if precision == "bf16-mixed" else None
            self.engine = FiniteDifference(parameters, self.scheme, step, ranks=self.run.ranks)
        outer_batches = range(self.inner_steps, self.run.steps * self.num_batches, self.num_batches)
        self.lower.begin(self, self.engine, outer_batches)

    def iterate(self, batch: dict[str, list[Batch]]) -> tuple[Vector, dict[str, float]]:
        """Run Algorithm 1 (``core.algorithm``) up to the outer optimizer's step; the parameters are then theta_in."""
        assert self.engine is not None, "on_train_start has not run"
        batch = batch | {"forget": self.lower.noised(batch["forget"], self.run.step)}
        goal = self.lower.goal
        rounds, rest = divmod(self.run.step - 1, self.period)
        penalised = self.penalty.rho > 0
        lean = self.rates is not None or self.inner_optimizer == "shared"
        needed = self.beta > 0 or penalised or self.stationarity_tol is not None or not lean
        whole = rest == 0 and needed
        scalars = self.scrutiny.look(
            self, self.engine, self.lower.loss, batch, whole=rounds if whole else None, penalised=penalised
        )
        # One pair of losses at a time: the terms hold their batches, not graphs.
        losses = [(self.lower.loss(f), self.loss(r)) for f, r in zip(batch["forget"], batch["retain"], strict=True)]
        order = self.scrutiny.order
        found = outer_iteration(
            self.engine,
            losses,
            eta_in=self._inner_rate * self.recovery.step_scale,
            rho=self.penalty.rho * self.higher_order_every if order > 2 else 0.0,
            beta=self.beta if order > 1 else 0.0,
            floor=self.norm_floor,
            inner_clip=self.inner_clip,
            penalty_clip=self.penalty_clip,
            concave_only=self.concave_only,
            similarity_every=self.similarity_every,
            inner_optimizer=next(iter(self.inner_optimizers), None),
            gap=partial(goal.gap, batch["forget"], self.inner_steps) if goal else None,
            first_order=not whole,
            sam_rho=self.sam_rho,
            retain_weight=1.0 if self.price is None else self.price.value,
            outer_at_start=self.outer_at == "start",
        )
        if self.price is not None:
            scalars["price"] = self.price.value
            self.price.move(found.loss_r)
        scalars |= {"rho": self.penalty.rho} | found.scalars()
        if goal is not None:
            rise = scalars["retain_rise"] = goal.excess(batch["retain"][-1]["ids"], found.loss_r)
            if self.rates:
                self.run.optimizers[0].gap = rise  # type: ignore[attr-defined]  # a Polyak, as __init__ sees to
        size = None if found.parts is None else found.parts.grad_phi_norm
        self.penalty.update(size, epoch_ends=self.run.epoch_ends)
        if size is not None and self.stationarity_tol is not None and size <= self.stationarity_tol:
            rank_zero_info(f"Stopping: |grad Phi| = {size:.3g} <= stationarity_tol = {self.stationarity_tol}.")
            self.run.stop()
        return found.gradient, scalars

    @property
    def inner_optimizers(self) -> list[Optimizer]:
        """The optimizer that takes the ascent steps, if they are not plain."""
        outer, *own = self.run.optimizers
        return [outer] if self.inner_optimizer == "shared" and not own else own

    @property
    def _inner_rate(self) -> float:
        """eta_in; in one metric in units of the outer rate of now."""
        outer = self.run.optimizers[0]
        return self.inner_lr * (outer.param_groups[0]["lr"] if outer in self.inner_optimizers else 1.0)

    def outer_step(self, batch: dict[str, list[Batch]], number: int, *, epoch_ends: bool = False) -> dict[str, float]:
        """One outer iteration; then, if it is due, a look at whether the goal is reached."""
        scalars = super().outer_step(batch, number, epoch_ends=epoch_ends)
        reached, seen = self.lower.reached(number)
        if reached and self.stop_at is not None:
            told = ", ".join(f"{name.removeprefix('goal/')} {value:.3g}" for name, value in seen.items())
            rank_zero_info(f"Stopping at the goal after {number} iterations: {told}.")
            self.run.stop()
        return scalars | seen

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Add the penalty schedule's state, and the steps of differences."""
        super().on_save_checkpoint(checkpoint)
        checkpoint["ofmu"] = {
            "penalty": self.penalty.state_dict(),
            "lower": self.lower.state_dict(),
            "price": self.price and self.price.value,
            **self.scrutiny.state_dict(),
        }

    def go_on_from(self, checkpoint: dict[str, Any]) -> None:
        """Go on with the penalty schedule and the steps of differences where the checkpoint left them."""
        self.penalty.load_state_dict(checkpoint["ofmu"]["penalty"])
        self.scrutiny.load_state_dict(checkpoint["ofmu"])
        older = {"goal": checkpoint["goal"]} if "goal" in checkpoint else {}
        self.lower.load_state_dict(checkpoint["ofmu"].get("lower", older))
        if self.price is not None:
            self.price.value = checkpoint["ofmu"]["price"]
        spent = self.engine.gradient_evaluations if self.engine else 0.0
        self._gradient_evaluations = checkpoint["ofmu"].get("gradient_evaluations", self._gradient_evaluations) - spent
