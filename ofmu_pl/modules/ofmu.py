r"""OFMU (paper, Algorithm 1): T ascent steps on Phi, then one penalised descent step on the retain loss.

    inner    theta <- theta + eta_in clip(grad Phi), or an optimizer's step      T times, fresh (B_f, B_r) each
    outer    theta <- optimizer(theta, g_r + clip(2 rho_k Hess(Phi) grad Phi))   fresh (B_f', B_r')

Three parts say the rest, each chosen by ``class_path`` like an optimizer: what the lower level raises
(``lower_level.py``), who takes the ascent steps (``steppers.py``), and what the upper level adds to g_r, and when
(``upper_level.py``). Their defaults are the paper's form (T = 5, every iteration of second order); the form that ships
is in the configurations (docs/ofmu.md).

Run as printed the algorithm diverges (``configs/methods/ofmu_literal.yaml``): with plain steps of 1e-3 on a memorised
Llama of 40 questions, L_f was 5e9 in iteration 8 and L_r not a number in iteration 10. ``Safeguards``, a bound on the
forget loss and ``gradient_clip`` keep it stable.
"""

from collections.abc import Callable
from contextlib import nullcontext
from functools import partial
from typing import Any, Literal

from lightning.pytorch.utilities import rank_zero_info
from torch.optim import Optimizer

from ofmu_pl.core.autograd import Autograd
from ofmu_pl.core.derivatives import Engine, trainable
from ofmu_pl.core.finite_difference import FiniteDifference
from ofmu_pl.core.preflight import preflight
from ofmu_pl.core.safeguards import SAFE, Safeguards
from ofmu_pl.core.variants import LOOPS, Setting
from ofmu_pl.core.vectors import Vector
from ofmu_pl.modules.base import Checkpoint, UnlearningModule
from ofmu_pl.modules.lower_level import BoundedLoss, LowerLevel
from ofmu_pl.modules.moved import refuse_moved
from ofmu_pl.modules.reader import RowReader, means
from ofmu_pl.modules.scrutiny import Scrutiny
from ofmu_pl.modules.steppers import PlainSteps, Stepper
from ofmu_pl.modules.upper_level import Iteration, PrintedPenalty, UpperLevel
from ofmu_pl.networks.base import Batch, Network
from ofmu_pl.support.errors import UserError, check_range

ENGINES = ("autograd", "finite_difference")
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
        beta: Weight of the gradients' similarity in Phi (the paper is silent; 0.5 as in our prototype).
        lower: What the ascent raises, and how far: ``BoundedLoss``, ``HeldOutLevels``.
        stepper: Takes the ascent steps: ``PlainSteps`` as printed, ``AdamSteps``, ``SharedSteps``; or ``PathSteps``,
            which takes those of both loops.
        upper: What is added to g_r, and in which iterations: ``PrintedPenalty``, ``FlatteningStep``, ``NoPenalty``; or
            ``Reach``, which takes the ascents' gradients where relearning would be.
        outer_at: Where the outer gradient is taken: at the ``end`` of the ascents (theta_in, the paper's), or at their
            ``start`` (theta), so that the descent does not take back what its own iteration's ascents have done.
        engine: ``autograd`` (exact) or ``finite_difference`` (first-order gradients only: half the time, a fifteenth of
            the memory, any attention kernel). Its steps are checked in iterations 0, 1, 4, 16, 64 ... of second
            order, on their batches, and sought anew where two disagree by more than .2; a part for which none agree is
            left out with a warning.
        stationarity_tol: Stop once |grad Phi| is at most this (Algorithm 1's criterion), in iterations of second order;
            ``null``: run all iterations.
        safeguards: Bounds on the parts of an iteration.
        kwargs: See ``UnlearningModule``.

    Raises:
        UserError: A number is out of range, or two parts do not go together.

    Example:
        Two outer iterations on the generated benchmark, with Lightning's own trainer.

        >>> from functools import partial
        >>> from lightning.pytorch import Trainer
        >>> from ofmu_pl import Authors, CausalLM
        >>> shape = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
        >>> network = CausalLM(config={"model_type": "llama", **shape})
        >>> method = OFMU(network, inner_steps=2, upper=partial(PrintedPenalty, rho_0=0.25, gamma=2))
        >>> drawn = {"streams": method.streams, "num_batches": method.num_batches}
        >>> data = Authors(authors=4, forget_authors=1, batch_size=4, **drawn)
        >>> quiet = {"logger": False, "enable_progress_bar": False, "enable_model_summary": False}
        >>> trainer = Trainer(accelerator="cpu", devices=1, max_steps=2, enable_checkpointing=False, **quiet)
        >>> trainer.fit(method, datamodule=data)
        >>> method.run.step, method.upper.rho
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
        beta: float = 0.5,
        lower: Callable[[], LowerLevel] = lambda: BoundedLoss(bound="uniform"),
        stepper: Callable[[], Stepper] = lambda: PlainSteps(lr=0.02),
        upper: Callable[[], UpperLevel] = lambda: PrintedPenalty(rho_0=0.3, gamma=1.5),
        outer_at: Literal["end", "start"] = "end",
        engine: Literal["autograd", "finite_difference"] = "autograd",
        stationarity_tol: float | None = None,
        safeguards: Safeguards = SAFE,
        **kwargs: Any,
    ) -> None:
        refuse_moved(kwargs)
        if outer_at not in LOOPS or engine not in ENGINES:
            raise UserError(
                f"There is no model.outer_at {outer_at} or model.engine {engine}: give end or start, and "
                f"{' or '.join(ENGINES)}."
            )
        check_range(1, whole=True, inner_steps=inner_steps)
        check_range(0, beta=beta, stationarity_tol=stationarity_tol)
        steps = stepper()
        kwargs |= steps.outer_options
        super().__init__(network, **kwargs)
        self.beta, self.lower, self.stepper, self.upper = beta, lower(), steps, upper()
        self._check_parts()
        self.num_batches = inner_steps + 1  # of the ascents, and one of the outer step
        self.period, self.loops, self.stationarity_tol = self.upper.every, LOOPS[outer_at], stationarity_tol
        self.on_bar = self.upper.on_bar
        self.safeguards = self.upper.within(self.stepper.within(safeguards))
        self.engine_name, self.exact = engine, engine == "autograd"
        self.engine: Engine | None = None
        self.scrutiny = Scrutiny(beta, safeguards.floor, takes_parts=self.takes_parts, optional=self.upper.optional)

    def _check_parts(self) -> None:
        """Refuse parts that do not go together."""
        lower, steps, upper = (type(part).__name__ for part in (self.lower, self.stepper, self.upper))
        if self.upper.needs_goal and not self.lower.seeks_goal:
            raise UserError(f"model.upper {upper} goes by a path, and {lower} has none: set model.lower HeldOutLevels.")
        if self.upper.needs_mean and not self.stepper.keeps_mean:
            raise UserError(
                f"model.upper {upper} goes back along the ascent's running mean, and {steps} keep none: set "
                "model.stepper SharedSteps, AdamSteps or PathSteps."
            )
        if not self.stepper.follows_distance:
            return
        if not self.lower.seeks_goal or self.lower.ngram_weight:
            raise UserError(
                f"model.stepper {steps} go by the distance to a goal alone: set model.lower HeldOutLevels and "
                "model.lower.ngram_weight 0, or, to choose rates yourself, model.stepper SharedSteps."
            )
        if self.upper.acts_in_loops and (self.beta > 0 or (self.upper.rho > 0 and self.upper.differentiates)):
            raise UserError(
                f"model.stepper {steps} go along the losses' own gradients, to which {upper} adds: set model.upper "
                "FlatteningStep, or Reach or NoPenalty with model.beta 0."
            )

    def what_was_done(self) -> str:
        """Sentences for the audit page; those of parts that no iteration used are left out."""
        penalised = self.upper.acted > 0
        similar = self.beta > 0 and self.scrutiny.reached > 1 and (penalised or self.upper.acts_in_loops)
        parts = {BETA_IN_WORDS: similar, RHO_IN_WORDS: penalised, NGRAM_IN_WORDS: self.lower.ngram_weight > 0}
        return " ".join([self.in_words, *(words for words, used in parts.items() if used)])

    @property
    def watches_held_out(self) -> bool:
        """Whether held-out rows give the forget rows their goal, the guess its weights, or the penalty its null."""
        seen = self.lower.seeks_goal or self.lower.ngram_weight > 0 or self.upper.compares or super().watches_held_out
        return seen and self.run.data.never_seen is not None

    @property
    def takes_parts(self) -> bool:
        """Whether any iteration takes more than gradients, or measures that of Phi."""
        return self.beta > 0 or self.stationarity_tol is not None or (self.upper.rho > 0 and self.upper.differentiates)

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
        if self.stepper.follows_distance:
            return self.stepper.remedy
        safeguards = {f"safeguards.{name}": value for name, value in vars(self.safeguards).items()}
        safeguards |= {"lower.bound": self.lower.bounded or None, "gradient_clip": self.gradient_clip}
        off = [f"model.{name}" for name, value in safeguards.items() if value is None]
        return f"switch the safeguards on that are off here ({', '.join(off)})" if off else self.stepper.remedy

    def own_optimizers(self, outer: Optimizer) -> list[Optimizer]:
        """Make the ascent's optimizer, if it has one of its own."""
        if self.exact and self.run.ranks.sharded and not self.stepper.plain:
            raise UserError(
                "The exact engine ascends on whole copies of FSDP2's shards, for which no Adam keeps state: set "
                "model.engine finite_difference, model.stepper PlainSteps, or trainer.strategy ddp."
            )
        return self.stepper.own_optimizers(outer, self.trained, mean=self.upper.needs_mean)

    @property
    def moves_parameters(self) -> bool:  # type: ignore[override]
        """Whether a pass follows a step of the same iteration, or the ascent's optimizer has no state yet.

        Otherwise nothing moves before an iteration's last pass, and no weights need be kept for making it again.
        """
        moves_first = self.upper.rho > 0 and not self.upper.acts_in_loops
        passes_follow = self.num_batches > 2 or self.loops.ends_at_gradient or moves_first
        return passes_follow or any(not o.state for o in self.stepper.optimizers(self.run))

    @property
    def inner_optimizers(self) -> list[Optimizer]:
        """The optimizer that takes the ascent steps, if they are not plain and an iteration may be taken back."""
        return self.stepper.optimizers(self.run) if self.moves_parameters else []

    def on_train_start(self) -> None:
        """Refuse what the engine cannot differentiate, then make it."""
        preflight(self.trained, first_order=not self.exact)
        parameters, ranks = trainable(self.trained), self.run.ranks
        self.engine = Autograd(parameters, ranks) if self.exact else FiniteDifference(parameters, ranks=ranks)
        self.lower.begin(self, self.length)
        self.upper.begin(self.length, self.beta)

    def iterate(self, batch: dict[str, list[Batch]]) -> tuple[Vector, dict[str, float]]:
        """Run Algorithm 1 (``core.algorithm``, or ``core.variants``) up to the outer optimizer's step."""
        assert self.engine is not None, "on_train_start has not run"
        due = (self.run.step - 1) % self.period == 0
        acts = due and self.upper.acts(self._gone(), self.lower.path)  # before, second order only measures
        similar, penalised = acts and self.beta > 0, acts and self.upper.rho > 0
        differentiated = penalised and self.upper.differentiates
        scalars = {"rho": self.upper.rho}
        # A difference of passes in bfloat16 is noise (docs/results/hardware.md).
        with self.run.full_precision() if acts and self.takes_parts and not self.exact else nullcontext():
            if not self.scrutiny.examined:
                self.scrutiny.examine(self, self.engine, batch["forget"][0])
            if similar or differentiated:
                scalars |= self.scrutiny.look(self, self.engine, batch, penalised=differentiated)
            penalised = penalised and (self.scrutiny.order > 2 or not differentiated)
            due = due and self.takes_parts
            given = self._iteration(self.engine, batch, due=due, similar=similar, penalised=penalised)
            found, measured = self.upper.iterate(given)
        scalars |= measured | found.scalars()
        if self.stationarity_tol is not None and found.parts is not None:
            self._stop_where_stationary(found.parts.grad_phi_norm, self.stationarity_tol)
        return found.gradient, self.lower.measured(scalars, batch["retain"][-1]["ids"], found.loss_r)

    def _gone(self) -> float:
        """The share of the run that is gone; of the path where steps follow it, as such a run ends at its goal."""
        if self.stepper.follows_distance and self.lower.path is not None:
            return self.lower.path.share
        return (self.run.step - 1) / self.length if self.length > 0 else 1.0

    def _iteration(
        self, engine: Engine, batch: dict[str, list[Batch]], *, due: bool, similar: bool, penalised: bool
    ) -> Iteration:
        """What the upper level makes an iteration of: losses of its batches, who steps, and which parts act."""
        ascents = [self.lower.loss(forget) for forget in batch["forget"][:-1]]
        losses_f = [*ascents, self.loss(batch["forget"][-1])]  # the penalty is that of the plain loss
        pairs = list(zip(losses_f, map(self.loss, batch["retain"]), strict=True))
        step = self.stepper.step(self.run, engine.parameters, self.lower, batch["forget"])
        return Iteration(
            setting=Setting(engine, pairs, self.stepper.lr, self.safeguards, step),
            loops=self.loops,
            number=self.run.step - 1,
            due=due,
            beta=self.beta if similar and self.scrutiny.order > 1 else 0.0,
            penalised=penalised,
            mean=partial(self.stepper.mean, self.run),
            sides=None if self.run.data.never_seen is None else self._sides,
        )

    def _sides(self) -> tuple[float, float]:
        """Mean losses of up to 64 forget and 64 held-out rows, the first rank's, so that all ranks decide alike."""
        reader, ranks = RowReader(self.run.data, self.token_losses), self.run.ranks
        with self.scoring():
            forget, held_out = reader.losses("forget", reader.some("forget")), reader.read_held_out()
        return ranks.first(float(means(forget).mean())), ranks.first(float(means(held_out).mean()))

    def _stop_where_stationary(self, size: float, tolerance: float) -> None:
        if size <= tolerance:
            rank_zero_info(f"Stopping: |grad Phi| = {size:.3g} <= stationarity_tol = {tolerance}.")
            self.run.stop("the gradient of what it raises had become as small as was asked for")

    def on_train_end(self) -> None:
        """Say how the penalty fared, and take the weights that are kept."""
        if self.run.checks_itself:  # else numbers are made up
            self.upper.end()
        super().on_train_end()

    def skip_to_late(self) -> None:
        """Stand at the end of the goal's path, if there is one, and where the upper level acts."""
        self.upper.skip_to_late()
        if self.lower.path is not None:
            self.lower.path.skip()

    def clipped_norm(self, scalars: dict[str, float]) -> float:
        """|g_r|, so that a penalty in the direction takes nothing from the gradient that keeps utility."""
        whole = super().clipped_norm(scalars)
        return scalars.get("grad_L_r", whole) if self.upper.acts_in_loops else whole

    def step_arguments(self, scalars: dict[str, float]) -> dict[str, float]:
        """What the outer step needs of these."""
        return self.stepper.outer_arguments(scalars)

    @property
    def compares(self) -> bool:
        """Whether tokens are to end at held-out tokens' losses."""
        return self.lower.seeks_goal

    def reached(self) -> tuple[bool, dict[str, float]]:
        """By the goal of the ascent, where it has one, once the penalty has had its iterations."""
        if not self.compares:
            return super().reached()
        reached, seen = self.lower.reached()
        acts = self.scrutiny.order > 2 or not self.upper.differentiates  # else the penalty is left out
        stays = acts and self.upper.stays(self.lower.path)
        return reached and not stays, seen

    def on_save_checkpoint(self, checkpoint: Checkpoint) -> None:
        """Add the state of the parts, and the steps of differences."""
        super().on_save_checkpoint(checkpoint)
        parts = {"lower": self.lower.state_dict(), "upper": self.upper.state_dict()}
        checkpoint["ofmu"] = {**parts, "differences": self.scrutiny.state_dict()}

    def go_on_from(self, checkpoint: Checkpoint) -> None:
        """Go on where the checkpoint left off.

        Raises:
            UserError: A version wrote the checkpoint whose OFMU had no parts.
        """
        state = checkpoint.get("ofmu", {})
        if "upper" not in state:
            raise UserError(
                "OFMU of ofmu_pl 0.3 wrote this checkpoint: finish the run by that version, or begin it anew."
            )
        self.scrutiny.load_state_dict(state["differences"])
        self.lower.load_state_dict(state["lower"])
        self.upper.load_state_dict(state["upper"])
        self._gradient_evaluations -= self.engine.gradient_evaluations if self.engine else 0.0
