r"""OFMU (paper, Algorithm 1): T ascent steps on Phi, then one penalised descent step on the retain loss.

    inner    theta <- theta + eta_in clip(grad Phi), or Adam's step      T times, fresh (B_f, B_r) each
    outer    theta <- optimizer(theta, g_r + clip(2 rho_k Hess(Phi) grad Phi))     fresh (B_f', B_r')
    rho_{k+1} = min(gamma rho_k, rho_max)

Run as printed the algorithm diverges (``configs/methods/ofmu_literal.yaml``): with plain steps of 1e-3 on a memorised
Llama of 40 questions, L_f was 5e9 in iteration 8 and L_r not a number in iteration 10. ``Safeguards``, a ceiling on the
forget loss and ``gradient_clip`` keep it stable. The defaults are the paper's form (T = 5, every iteration whole); the
form that ships is in the configurations (docs/ofmu.md).
"""

from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from typing import Any, Literal

from lightning.pytorch.utilities import rank_zero_info, rank_zero_warn
from torch.optim import Optimizer

from ofmu_pl.core.algorithm import OuterIteration
from ofmu_pl.core.autograd import Autograd
from ofmu_pl.core.derivatives import Engine, trainable
from ofmu_pl.core.finite_difference import FiniteDifference
from ofmu_pl.core.penalty import Penalty
from ofmu_pl.core.polyak import Polyak
from ofmu_pl.core.preflight import preflight
from ofmu_pl.core.safeguards import SAFE, Safeguards
from ofmu_pl.core.slope import flatten
from ofmu_pl.core.variants import (
    first_order_from_start,
    first_order_iteration,
    guarded_iteration,
    iteration_from_start,
)
from ofmu_pl.core.vectors import Vector
from ofmu_pl.modules.ascent import Ascent
from ofmu_pl.modules.base import Checkpoint, UnlearningModule
from ofmu_pl.modules.lower_level import LowerLevel
from ofmu_pl.modules.scrutiny import Scrutiny
from ofmu_pl.networks.base import Batch, Network
from ofmu_pl.support.errors import UserError, check_range

BETA_IN_WORDS = "Some steps are meant to prevent that training on rows that must stay brings the forgotten ones back."
RHO_IN_WORDS = "A penalty is meant to make what was forgotten harder to bring back."
NGRAM_IN_WORDS = (
    "Instead of the forgotten answers the model learned to guess as someone who knows the other rows alone would."
)


class OFMU(UnlearningModule):
    """Penalty-based bi-level unlearning.

    Args:
        network: Recipe of the network that shall forget.
        inner_steps: T, the ascent steps of one outer iteration (paper: 5).
        inner_lr: eta_in, the ascent's rate (the paper is silent; 0.02 with unit steps, 3e-4 with Adam worked on tiny
            Llamas). With ``inner_optimizer: shared`` in units of the outer rate.
        inner_optimizer: ``sgd``, the step as printed; ``adam``, with two vectors as its state (the paper runs all with
            AdamW); or ``shared``: the ``optimizer`` is a ``SharedAdam``, which ascends, too, in the metric of both
            loops and at the rate that the scheduler gives both.
        beta: Weight of the gradients' similarity in Phi (the paper is silent; 0.5 as in our prototype).
        rho_0: First penalty parameter (paper: 0.3); 0 switches the penalty off. With ``rates: auto`` the share of
            |grad Phi| that a whole iteration takes away.
        gamma: Growth of rho an outer iteration (paper: between 1.5 and 2).
        engine: ``autograd`` (exact) or ``finite_difference`` (first-order gradients only: half the time, a fifteenth of
            the memory, any attention kernel). Its steps are checked on 4 samples in the whole iterations 0, 1, 4, 16,
            64 ..., and sought anew where two of them disagree; a part that stays noise is left out with a warning.
        higher_order_every: One of so many outer iterations is whole (1: the paper). The others ascend on L_f and
            descend on L_r alone, at T + 1 gradients. The whole one's penalty counts for all of them: rho and the
            penalty's clip are multiplied by this number.
        higher_order_from: Share of the run (with ``rates: auto`` of the path) from which whole iterations use
            similarity and penalty (0: the paper). Before anything is forgotten the penalty pulls back to the minimum of
            L_f where the run begins.
        higher_order_until: With ``rates: auto`` and a penalty: lengths of the path that are gone before ``stop_at`` may
            end the run (1: the path's end, however early rows are at their goal). At the goal the penalty makes the
            slope flatter. Penalty and similarity pause while retain rows have yet to come back.
        stationarity_tol: Stop once |grad Phi| is at most this (Algorithm 1's criterion); ``null``: run all iterations.
        forget_ceiling: Value at which a sample's forget loss is bent to a constant in the ascent, in nats: ``uniform``
            is the loss ln V of a guess, beyond which nothing is left to forget; ``holdout``: each token rises to the
            loss of a held-out token of its kind, on a path of 15 % of the run (``modules.goal``); ``null`` as printed
            (then L_f grows without bound). The penalty is that of the plain loss.
        rates: ``auto``: both loops step as far as it takes to follow a path that means the same on every model
            (``modules.goal``, ``core.polyak``): ascents towards held-out rows' losses, descents back to each retain
            row's own. The similarity then acts in the penalty alone. Unused are ``inner_lr``, ``inner_optimizer``,
            ``forget_ceiling``, ``optimizer``, ``scheduler``, ``gamma``, ``stationarity_tol`` and clips.
        stop_at: See ``UnlearningModule``; the tokens of forget rows then rise to held-out tokens' losses.
        outer_at: Where the outer gradient is taken: at the ``end`` of the ascents (theta_in, the paper's), or at their
            ``start`` (theta), so that the descent does not take back what its own iteration's ascents have done.
        ngram_weight: Weight of ``KL(q || p)``, the mean over an answer's tokens, which is taken off the ascent's loss:
            q is what someone would answer who knows the retain rows alone, by an n-gram model of these
            (``modules.guess``). It needs held-out rows; 0: no pull.
        safeguards: Bounds on the parts of an iteration.
        kwargs: See ``UnlearningModule``.

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
        "In turns, the model was moved to do worse on the forgotten rows and trained to do well on those that stay."
    )
    streams = ("forget", "retain")  # in pairs; an epoch is one pass over the forget set

    def __init__(
        self,
        network: Network,
        inner_steps: int = 5,
        inner_lr: float = 0.02,
        inner_optimizer: Literal["sgd", "adam", "shared"] = "sgd",
        beta: float = 0.5,
        rho_0: float = 0.3,
        gamma: float = 1.5,
        engine: Literal["autograd", "finite_difference"] = "autograd",
        higher_order_every: int = 1,
        higher_order_from: float = 0.0,
        higher_order_until: float = 1.0,
        stationarity_tol: float | None = None,
        forget_ceiling: float | Literal["uniform", "holdout"] | None = "uniform",
        rates: Literal["auto"] | None = None,
        stop_at: Literal["holdout"] | None = None,
        outer_at: Literal["end", "start"] = "end",
        ngram_weight: float = 0.0,
        safeguards: Safeguards = SAFE,
        **kwargs: Any,
    ) -> None:
        if rates not in (None, "auto") or outer_at not in ("end", "start"):
            raise UserError(
                f"There is no model.rates {rates} or model.outer_at {outer_at}: give auto or null, and end or start."
            )
        if rates and ngram_weight:
            raise UserError(
                "With model.rates auto steps go by the distance to the goal alone: set model.ngram_weight 0, or, to "
                "choose rates yourself, model.rates null and model.stop_at null."
            )
        if rates:
            kwargs |= {"optimizer": partial(Polyak, lr=2.0), "scheduler": None, "gradient_clip": None}
            safeguards = replace(safeguards, inner_clip=None)
        super().__init__(network, stop_at=stop_at, **kwargs)
        check_range(1, inner_steps=inner_steps, higher_order_every=higher_order_every)
        check_range(0, inner_lr=inner_lr, beta=beta, stationarity_tol=stationarity_tol)
        check_range(0, 1, higher_order_from=higher_order_from)
        check_range(1, higher_order_until=higher_order_until)
        self.num_batches = inner_steps + 1  # of the ascents, and one of the outer step
        self.period, self.exact = higher_order_every, engine == "autograd"
        self.beta = beta
        self.ascent = Ascent("polyak", 1.0) if rates else Ascent(inner_optimizer, inner_lr)
        self.penalty = Penalty(rho_0, 1.0 if rates else gamma, safeguards.rho_max)
        self.engine_name, self.safeguards, self.higher_order_from = engine, safeguards, higher_order_from
        self.stationarity_tol, self.rates, self.outer_at = stationarity_tol, rates, outer_at
        self.until = higher_order_until if rates and rho_0 else 0.0
        seeks_goal = rates is not None or stop_at is not None
        self.lower = LowerLevel(None if rates else forget_ceiling, ngram_weight, seeks_goal=seeks_goal)
        self.engine: Engine | None = None
        self.scrutiny = Scrutiny(beta, safeguards.floor)

    def what_was_done(self) -> str:
        """Sentences for the audit page; those of parts that no iteration used are left out."""
        order = self.scrutiny.reached
        penalised = self.penalty.rho > 0 and order > 2
        similar = self.beta > 0 and order > 1 and (penalised or self.rates is None)
        parts = {BETA_IN_WORDS: similar, RHO_IN_WORDS: penalised, NGRAM_IN_WORDS: self.lower.ngram_weight > 0}
        return " ".join([self.in_words, *(words for words, used in parts.items() if used)])

    @property
    def watches_held_out(self) -> bool:
        """Whether held-out rows give the forget rows their goal, or the guess its weights."""
        seen = self.lower.seeks_goal or self.lower.ngram_weight > 0 or super().watches_held_out
        return seen and self.run.data.never_seen is not None

    @property
    def needs_parts(self) -> bool:
        """Whether any iteration takes more than gradients."""
        return self.beta > 0 or self.penalty.rho > 0 or self.stationarity_tol is not None

    @property
    def length(self) -> int:
        """Outer iterations in all, at most (one of first order takes T + 1 gradients); -1: no number ends the run."""
        steps, budget = self.run.steps, self.run.budget
        most = steps if budget is None else int(budget // self.num_batches)
        return most if steps < 0 else min(steps, most)

    @property
    def gradient_evaluations(self) -> float:
        """Work so far, with the engine's (``core.derivatives.Engine``)."""
        return super().gradient_evaluations + (self.engine.gradient_evaluations if self.engine else 0.0)

    @property
    def remedy(self) -> str:
        """Advice after a divergence, which names the safeguards that are switched off."""
        if self.rates:
            return "choose rates yourself by model.rates null"
        safeguards = {f"safeguards.{name}": value for name, value in vars(self.safeguards).items()}
        safeguards |= {"forget_ceiling": self.lower.bound, "gradient_clip": self.gradient_clip}
        off = [f"model.{name}" for name, value in safeguards.items() if value is None]
        if off:
            return f"switch the safeguards on that are off here ({', '.join(off)})"
        return "lower model.inner_lr or the optimizer's rate"

    def own_optimizers(self, outer: Optimizer) -> list[Optimizer]:
        """Make the ascent's optimizer, if it has one of its own."""
        whole_copies = self.exact and self.run.ranks.sharded
        return self.ascent.own_optimizers(outer, self.trained, whole_copies=whole_copies)

    @property
    def moves_parameters(self) -> bool:  # type: ignore[override]
        """Whether a pass follows an ascent of the same iteration, or the ascent's optimizer has no state yet.

        Otherwise nothing moves before an iteration's last pass, and no weights need be kept for making it again.
        """
        flattens = self.rates is not None and self.penalty.rho > 0
        passes_follow = self.num_batches > 2 or self.outer_at == "end" or flattens
        return passes_follow or any(not o.state for o in self.ascent.optimizers(self.run))

    @property
    def inner_optimizers(self) -> list[Optimizer]:
        """The optimizer that takes the ascent steps, if they are not plain and an iteration may be taken back."""
        return self.ascent.optimizers(self.run) if self.moves_parameters else []

    def on_train_start(self) -> None:
        """Refuse what the engine cannot differentiate, then make it."""
        preflight(self.trained, first_order=not self.exact)
        parameters, ranks = trainable(self.trained), self.run.ranks
        self.engine = Autograd(parameters, ranks) if self.exact else FiniteDifference(parameters, ranks=ranks)
        self.lower.begin(self, self.length)
        has_parts = self.beta > 0 or self.penalty.rho > 0
        last_whole = (self.length - 1) // self.period * self.period  # below 0 where no number ends the run
        if has_parts and not self.rates and 0 <= last_whole < self.higher_order_from * self.length:
            rank_zero_warn(
                f"Similarity and penalty act in none of the run's {self.length} iterations: lower "
                f"model.higher_order_every ({self.period}) or model.higher_order_from ({self.higher_order_from})."
            )

    def iterate(self, batch: dict[str, list[Batch]]) -> tuple[Vector, dict[str, float]]:
        """Run Algorithm 1 (``core.algorithm``, or ``core.variants``) up to the outer optimizer's step."""
        whole = self.needs_parts and (self.run.step - 1) % self.period == 0  # before it acts it only measures
        acts = whole and self._share_gone >= self.higher_order_from and not self._repairs
        scalars = {"rho": self.penalty.rho}
        # A difference of passes in bfloat16 is noise (docs/results/hardware.md).
        with self.run.full_precision() if acts and not self.exact else nullcontext():
            found, measured = self._outer_iteration(batch, whole=whole, acts=acts)
        scalars |= measured
        if self.lower.goal is not None:
            scalars["retain_rise"] = self.lower.goal.rise(batch["retain"][-1]["ids"], found.loss_r)
            self.lower.goal.path.advance(scalars["retain_rise"])
        self.penalty.update()
        tolerance, parts = self.stationarity_tol, found.parts
        if tolerance is not None and parts is not None and parts.grad_phi_norm <= tolerance:
            rank_zero_info(f"Stopping: |grad Phi| = {parts.grad_phi_norm:.3g} <= stationarity_tol = {tolerance}.")
            self.run.stop()
        return found.gradient, scalars

    def _outer_iteration(
        self, batch: dict[str, list[Batch]], *, whole: bool, acts: bool
    ) -> tuple[OuterIteration, dict[str, float]]:
        """Check the engine, flatten with ``rates: auto``, and run the algorithm; returns what was measured, too."""
        assert self.engine is not None, "on_train_start has not run"
        engine, scrutiny, lazy = self.engine, self.scrutiny, self.period
        similar, penalised = acts and self.beta > 0, acts and self.penalty.rho > 0
        scalars = scrutiny.look(self, engine, batch, similar=similar, penalised=penalised)
        beta = self.beta if similar and scrutiny.order > 1 else 0.0
        rho = self.penalty.rho if penalised and scrutiny.order > 2 else 0.0
        pairs = [
            (self.lower.loss(forget), self.loss(retain))
            for forget, retain in zip(batch["forget"][:-1], batch["retain"][:-1], strict=True)
        ]
        # The last pair is the upper level's: the penalty is that of the plain loss.
        last = self.loss(batch["forget"][-1]), self.loss(batch["retain"][-1])
        if self.rates and rho:
            scalars |= flatten(engine, *last, beta, rho, self.safeguards).scalars()
        clip = self.safeguards.penalty_clip
        bounds = replace(self.safeguards, penalty_clip=None if clip is None else lazy * clip)
        step = self.ascent.step(self.run, engine.parameters, self.lower.goal, batch["forget"])
        at_start, every = self.outer_at == "start", [*pairs, last]
        if self.rates or not whole:
            cheap = first_order_from_start if at_start else first_order_iteration
            found = cheap(engine, every, self.ascent.lr, bounds, step)
        else:
            full = iteration_from_start if at_start else guarded_iteration
            found = full(engine, every, self.ascent.lr, lazy * rho, beta, bounds, step)
        scalars |= found.scalars()
        if self.lower.goal is not None:  # what the ascent raises is then no loss
            scalars["inner/distance"] = -scalars.pop("inner/L_f")
        return found, scalars

    @property
    def _share_gone(self) -> float:
        """How much of the run, or with ``rates: auto`` of the path, is behind the present iteration."""
        goal = self.lower.goal
        if self.rates and goal is not None:
            return goal.path.share
        return (self.run.step - 1) / self.length if self.length > 0 else 1.0

    @property
    def _repairs(self) -> bool:
        """Whether, with ``rates: auto``, retain rows have to come back first: a flatter slope would cost them more."""
        goal = self.lower.goal
        return self.rates is not None and goal is not None and not goal.path.kept

    def skip_to_late(self) -> None:
        """Stand at the end of the goal's path, if there is one: the path says when parts begin."""
        if self.lower.goal is not None:
            self.lower.goal.path.skip()

    def step_arguments(self, scalars: dict[str, float]) -> dict[str, float]:
        """With ``rates: auto`` how far the retain loss is above its goal."""
        return {"gap": scalars["retain_rise"]} if self.rates else {}

    @property
    def compares(self) -> bool:
        """Whether tokens are to end at held-out tokens' losses."""
        return self.lower.seeks_goal

    def reached(self, number: int) -> tuple[bool, dict[str, float]]:
        """By the goal of the ascent, where it has one, once the penalty has had its iterations."""
        if not self.compares:
            return super().reached(number)
        reached, seen = self.lower.reached(number)
        stays = self.scrutiny.order > 2 and self._share_gone < self.until  # of order 2 the penalty is noise, left out
        return reached and not stays, seen

    def on_save_checkpoint(self, checkpoint: Checkpoint) -> None:
        """Add the penalty parameter, the goal's state and the steps of differences."""
        super().on_save_checkpoint(checkpoint)
        state = {"rho": self.penalty.rho, "lower": self.lower.state_dict()}
        checkpoint["ofmu"] = state | {"differences": self.scrutiny.state_dict()}

    def go_on_from(self, checkpoint: Checkpoint) -> None:
        """Go on where the checkpoint left off."""
        state = checkpoint["ofmu"]
        self.penalty.rho = state["rho"]
        self.scrutiny.load_state_dict(state["differences"])
        self.lower.load_state_dict(state["lower"])
        self._gradient_evaluations -= self.engine.gradient_evaluations if self.engine else 0.0
