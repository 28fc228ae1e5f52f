"""OFMU written out from its formulas, by nested ``torch.autograd.grad`` and plain arithmetic.

Nothing of ofmu_pl's mathematics is called. What comes from ofmu_pl is data: batches, rows as tokens, the kinds of
tokens (``data.guessable``), the n-gram model (``modules.ngram``), and the network before the first step.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F

from ofmu_pl.core.safeguards import SAFE, Safeguards
from ofmu_pl.modules.ngram import NGram, Reply

IGNORED = -100
OWN = 0
"""The kind of a token that is neither usual nor copied."""


# Numbers of the docs -------------------------------------------------------------------------------------------------

PATH, APPROACH, CEILING_APPROACH = 100, 0.6, 0.15
HARM, KEPT, EVERY, LOOKED_AT = 0.3, 0.03, 10, 64
WIDTH, CORNER, GUARD = 0.25, 0.05, 0.1
ALIKE, ALIKE_AUC, CAP, LEVEL = 32, 0.1, 0.8, 0.05
LOWEST, HALVINGS, READ_FOR_TEMPERATURE = 0.05, 12, 32


def spread(count, most):
    """Numbers of at most so many rows, evenly spaced."""
    return list(range(count)) if count <= most else [k * count // most for k in range(most)]


def log_odds(loss):
    """``ln(e^l - 1)``; a loss below 1e-6 counts as 1e-6."""
    return loss.clamp(min=1e-6).expm1().log()


def bent(losses, level):
    """Losses up to a level, with a corner of 0.25 nats."""
    return losses if level is None else level - 0.25 * F.softplus((level - losses) / 0.25)


# The network ---------------------------------------------------------------------------------------------------------


class Model:
    """A network, what it says of rows, and derivatives by its parameters as flat vectors.

    Attributes:
        work: Gradients of one batch's loss so far, as a run counts them; a pass without a gradient is a third.
    """

    def __init__(self, network, data):
        self.network, self.data, self.work = network, data, 0.0
        self.theta = [p for p in network.parameters() if p.requires_grad]
        self.text = data.modality == "text"

    def logits(self, batch):
        """Logits (b, S, V) and the tokens that they are of (b, S); an image has one "token", its class."""
        if not self.text:
            return self.network(batch["images"].double())[:, None], batch["labels"][:, None]
        return self.network(batch["input_ids"])[:, :-1], batch["labels"][:, 1:]

    def tokens(self, batch):
        """For each row the losses of the tokens that its loss is on."""
        found = []
        for scores, wanted in zip(*self.logits(batch), strict=True):
            there = wanted != IGNORED
            found.append(-scores[there].log_softmax(1).gather(1, wanted[there, None])[:, 0])
        return found

    def rows(self, batch):
        """Mean loss of each row, (b,)."""
        return torch.stack([losses.mean() for losses in self.tokens(batch)])

    def looked_at(self, stream, rows):
        """Losses of the tokens of some rows of a split, as numbers."""
        self.work += len(rows) / 3 / self.data.batch_size
        with torch.no_grad():
            return [self.tokens(self.data.collate(stream, [i], 0))[0] for i in rows]

    def grad(self, value, graph=False):
        found = torch.autograd.grad(value, self.theta, create_graph=graph, materialize_grads=True)
        return torch.cat([x.flatten() for x in found])

    def go(self, step):
        """``theta <- theta + step``."""
        with torch.no_grad():
            for p, d in zip(self.theta, step.split([p.numel() for p in self.theta]), strict=True):
                p.add_(d.view_as(p))

    def weights(self):
        return torch.cat([p.detach().flatten() for p in self.theta])


# Where forget rows are to end ----------------------------------------------------------------------------------------


def distance(losses, start, level, left, *, ceiling):
    """How far a row, of tokens' losses (n,), is from its goal, in log-odds."""
    pushed = ~level.isnan()
    far, count = losses.new_zeros(()), max(1, int(pushed.sum()))
    if pushed.any():
        now, aim = losses[pushed], level[pushed]
        goal, first = log_odds(aim.mean()), log_odds(start[pushed].mean())
        moves = torch.sigmoid((aim - now.detach()) / WIDTH)
        if not ceiling and log_odds(now.detach().mean()) >= goal:
            moves = 1 - moves
        z = log_odds((moves * now + (1 - moves) * now.detach()).mean())
        if ceiling:
            place = goal + left * (first - goal)
            far = CORNER * F.softplus((place - z) / CORNER)
        else:
            far = ((z - goal) ** 2 + WIDTH**2).sqrt() - WIDTH
    right = log_odds(start[~pushed]).clamp(min=0.0)  # p = 1/2 at least, or as it was
    wrong = CORNER * F.softplus((log_odds(losses[~pushed]) - right) / CORNER)
    return far + GUARD * wrong.sum() / count


def groups_of(start, kinds, held_kinds, ease):
    """Like tokens: numbers of forget tokens, numbers of held-out ones, and the quantile of each forget token."""
    found = []
    for kind in sorted(set(kinds.tolist())):
        ours, theirs = (kinds == kind).nonzero()[0], (held_kinds == kind).nonzero()[0]
        if not len(theirs) and kind != OWN:
            continue
        if not len(theirs):
            theirs = np.arange(len(held_kinds))
        pieces = 1
        if ease is not None:
            pieces = max(1, len(theirs) // ALIKE)
            ours = np.array(sorted(ours, key=lambda i: ease[0][i]), dtype=int)
            theirs = np.array(sorted(theirs, key=lambda i: ease[1][i]), dtype=int)
        for mine, like in zip(np.array_split(ours, pieces), np.array_split(theirs, pieces), strict=True):
            rank = {i: place for place, i in enumerate(sorted(mine, key=lambda i: start[i]))}
            found.append((kind, mine, like, [(rank[i] + 0.5) / len(mine) for i in mine]))
    return found


def area(forgotten, held):
    """``P(held > forget) + P(equal) / 2``, and whether it is near enough to a half."""
    pairs = [(h > f) + (h == f) / 2 for h in held for f in forgotten]
    auc, n, m = sum(pairs) / len(pairs), len(forgotten), len(held)
    return auc, abs(auc - 0.5) <= max(ALIKE_AUC, math.sqrt((n + m + 1) / 12 / n / m))


class Way:
    """The goal of forget rows and the way there, as the text of ``modules.goal`` has it.

    Attributes:
        sets: The levels that were ever set.
        gone: Iterations that the path has gone.
        harm: Running mean of the rise of retain losses.
        refused: Whether each iteration's rise made the path wait.
    """

    def __init__(self, model, iterations, drawn, *, ceiling, vocabulary, guess=None):
        self.model, self.data, self.ceiling, self.guess = model, model.data, ceiling, guess
        self.blind = float(np.float32(math.log(vocabulary) / (2 if model.text else 1)))  # kept in float32
        self.length = max(1.0, CEILING_APPROACH * iterations if ceiling else min(PATH, APPROACH * iterations))
        self.gone, self.harm, self.refused = 0, 0.0, []
        forget = range(len(self.data.splits["forget"]))
        self.start = model.looked_at("forget", forget)
        self.held_split = self.data.never_seen
        self.groups, self.sets = None, []
        self.set_levels()
        self.old = {i: x.mean() for i, x in zip(drawn, model.looked_at("retain", drawn), strict=True)}

    def kinds(self, stream, rows, losses):
        """The kind of each token of rows, one after another."""
        if not self.model.text:
            return np.full(sum(map(len, losses)), OWN)
        encoded = self.data.encoded(stream)
        return np.concatenate([self.data.kinds(encoded[i]) for i in rows])

    def set_levels(self):
        """Give each forget token its level, NaN where it is not pushed; returns the held-out tokens' losses."""
        forget = range(len(self.start))
        kinds, counts = self.kinds("forget", forget, self.start), [len(x) for x in self.start]
        if self.held_split is None:
            levels = np.where(kinds == OWN, self.blind, np.nan)
            self.set(levels, counts)
            return []
        shown = spread(len(self.data.splits[self.held_split]), LOOKED_AT)
        held = self.model.looked_at(self.held_split, shown)
        losses = torch.cat(held).numpy()
        if self.groups is None:
            ease = None
            if self.guess is not None:
                ease = self.guess.losses("forget", forget), self.guess.losses(self.held_split, shown)
            held_kinds = self.kinds(self.held_split, shown, held)
            self.groups = groups_of(torch.cat(self.start).numpy(), kinds, held_kinds, ease)
        levels = np.zeros(len(kinds))
        for _, mine, like, quantiles in self.groups:
            levels[mine] = [np.quantile(losses[like], q) for q in quantiles]
        if self.model.text:
            facts = [losses[like] for kind, _, like, _ in self.groups if kind == OWN]
            most = np.quantile(np.concatenate(facts), CAP) if self.ceiling and facts else math.inf
            levels = np.where(levels > math.log(2), np.minimum(levels, most), np.nan)
        self.set(levels, counts)
        return held

    def set(self, levels, counts):
        """Take levels, (K,), for rows of so many tokens."""
        self.sets.append(torch.from_numpy(levels))
        self.levels = self.sets[-1].split(counts)

    def left(self, gone):
        return 1 - min(1.0, gone / self.length)

    def distances(self, batch):
        """Of each row of a forget batch, (b,)."""
        found = []
        for i, losses in zip(batch["ids"].tolist(), self.model.tokens(batch), strict=True):
            found.append(distance(losses, self.start[i], self.levels[i], self.left(self.gone), ceiling=self.ceiling))
        return torch.stack(found)

    def ahead(self, batch, t, steps, now):
        """How far the path, at ascent t of so many, is ahead of a batch that is at the mean distance ``now``."""
        first = [distance(self.start[i], self.start[i], self.levels[i], 1.0, ceiling=False) for i in batch["ids"]]
        return now - self.left(self.gone + (t + 1) / steps) * float(sum(first) / len(first))

    def note(self, ids, loss):
        """Take in a retain batch's loss: the harm, and whether the path goes on; returns the rise."""
        rise = loss - float(sum(self.old[i] for i in ids.tolist()) / len(ids))
        self.harm += 0.2 * (rise - self.harm)
        self.refused.append(rise >= HARM)
        self.gone += not self.refused[-1]
        return rise

    def check(self, number):
        """At every tenth iteration set the levels anew; whether rows are at the goal, and what is logged."""
        if number % EVERY:
            return False, {}
        seen = {"goal/harm": self.harm}
        forget = spread(len(self.start), LOOKED_AT)
        if self.held_split is None:
            arrived = self.gone >= self.length
            if arrived:
                seen["goal/left"] = self.still(forget)
                arrived = seen["goal/left"] <= WIDTH
            return arrived and self.harm <= KEPT, seen
        held = self.set_levels()
        ours = self.model.looked_at("forget", forget)
        seen["goal/auc"], arrived = area([float(x.mean()) for x in ours], [float(x.mean()) for x in held])
        if 2 / math.comb(len(ours) + len(held), len(ours)) > LEVEL:  # no AUC could tell so few rows apart
            seen["goal/left"] = self.still(forget)
            arrived = abs(seen["goal/left"]) <= WIDTH
        elif self.model.text:
            shown = spread(len(self.data.splits[self.held_split]), LOOKED_AT)
            sides = self.facts(ours, "forget", forget), self.facts(held, self.held_split, shown)
            seen["goal/facts_auc"], arrived = area(*sides)
        return arrived and self.harm <= KEPT, seen

    def still(self, rows):
        """What rows have yet to rise to their levels, in log-odds, on average."""
        found = []
        for i, losses in zip(rows, self.model.looked_at("forget", rows), strict=True):
            pushed = ~self.levels[i].isnan()
            if pushed.any():
                found.append(float(log_odds(self.levels[i][pushed].mean()) - log_odds(losses[pushed].mean())))
        return sum(found) / len(found) if found else 0.0

    def facts(self, losses, stream, rows):
        """Mean loss of each row's own tokens; of all of them where it has none."""
        found = []
        for i, x in zip(rows, losses, strict=True):
            own = torch.from_numpy(self.data.kinds(self.data.encoded(stream)[i]) == OWN)
            found.append(float((x[own] if own.any() else x).mean()))
        return found


class Pull:
    """The guess that an answer is drawn to: the n-gram model's, sharpened until it is as sure as the network."""

    def __init__(self, model, vocabulary):
        self.model, data = model, model.data
        self.held = data.never_seen
        known = [self.answer("retain", i) for i in range(len(data.splits["retain"]))]
        unseen = [self.answer(self.held, i) for i in range(len(data.splits[self.held]))]
        self.ngram = NGram(known, unseen, vocabulary)
        self.temperature = self.sharpened()

    def answer(self, stream, i):
        row = self.model.data.encoded(stream)[i]
        places = [place for place, label in enumerate(row.labels) if label != IGNORED]
        return Reply(row.input_ids, places[0], places)

    def said(self, stream, i):
        """Probabilities of all tokens at the places of a row's answer, (n, V) float32."""
        return self.ngram.dense(self.ngram.sparse(self.answer(stream, i)))

    def losses(self, stream, rows):
        """Losses of the true tokens of rows, one after another."""
        found = []
        for i in rows:
            answer = self.answer(stream, i)
            true = torch.tensor([answer.tokens[place] for place in answer.places])
            found.append(-self.said(stream, i).gather(1, true[:, None])[:, 0].double().log())
        return torch.cat(found).numpy()

    def sharpened(self):
        """The temperature, by halving, at which the mean entropy at held-out answers is the network's; at most 1."""
        rows = spread(len(self.model.data.splits[self.held]), READ_FOR_TEMPERATURE)
        self.model.work += len(rows) / 3 / self.model.data.batch_size
        sure = []
        for i in rows:
            (scores,), (wanted,) = self.model.logits(self.model.data.collate(self.held, [i], 0))
            log_p = scores[wanted != IGNORED].detach().log_softmax(1)
            sure.append(-(log_p.exp() * log_p).sum(1))
        wanted = torch.cat(sure).mean()
        said = torch.cat([self.said(self.held, i) for i in rows]).double().log()
        low, high = LOWEST, 1.0
        for _ in range(HALVINGS):
            middle = (low + high) / 2
            log_q = (said / middle).log_softmax(1)
            surer = -(log_q.exp() * log_q).sum(1).mean() < wanted
            low, high = (middle, high) if surer else (low, middle)
        return high

    def divergences(self, batch):
        """``KL(q || p)`` of each row of a forget batch, the mean over its answer, (b,)."""
        found = []
        for i, scores, wanted in zip(batch["ids"].tolist(), *self.model.logits(batch), strict=True):
            log_p = scores[wanted != IGNORED].log_softmax(1)
            log_q = (self.said("forget", i).log() / self.temperature).log_softmax(1)  # a guess is kept in float32
            found.append((log_q.exp() * (log_q - log_p)).sum(1).mean())
        return torch.stack(found)


# Steps ---------------------------------------------------------------------------------------------------------------


class PolyakByHand:
    """Steps as long as it takes to close a gap, to first order, in Adam's metric."""

    def __init__(self, lr):
        self.lr, self.square, self.count, self.recent = lr, 0.0, 0, 0.0
        self.mean = 0.0

    @property
    def size(self):
        return (self.square / (1 - 0.99**self.count)).sqrt() + 1e-12

    def descent(self, gradient, gap):
        """The step; ``recent`` is the largest recent rate, which falls by 1.5 a step at most."""
        self.count += 1
        self.square = 0.99 * self.square + 0.01 * gradient**2
        self.mean = 0.9 * self.mean + 0.1 * gradient
        direction = gradient / self.size
        slope = float(gradient @ direction)
        if gap <= 0 or slope <= 0:
            return torch.zeros_like(gradient)
        rate = gap / slope
        if self.recent:
            rate = min(rate, 1.5 * self.recent)
        self.recent = max(rate, self.recent / 1.5)
        return -self.lr * rate * direction


class SharedAdamByHand:
    """One second moment for ascent and descent, and a first moment for each."""

    def __init__(self):
        self.square, self.means, self.counts = 0.0, {1: 0.0, -1: 0.0}, {1: 0, -1: 0}

    def step(self, direction, sign, lr):
        """Along a direction (sign 1) or against it (sign -1)."""
        self.counts[sign] += 1
        self.square = 0.99 * self.square + 0.01 * direction**2
        self.means[sign] = 0.9 * self.means[sign] + 0.1 * direction
        size = (self.square / (1 - 0.99 ** sum(self.counts.values()))).sqrt() + 1e-8
        return sign * lr * self.means[sign] / (1 - 0.9 ** self.counts[sign]) / size


class AdamByHand:
    """Adam for the descent, without decay; plain steps for the ascent."""

    def __init__(self):
        self.square, self.mean, self.count = 0.0, 0.0, 0

    def step(self, direction, sign, lr):
        if sign > 0:
            return lr * direction
        self.count += 1
        self.mean = 0.9 * self.mean + 0.1 * direction
        self.square = 0.999 * self.square + 0.001 * direction**2
        size = (self.square / (1 - 0.999**self.count)).sqrt() + 1e-8
        return -lr * self.mean / (1 - 0.9**self.count) / size


class PlainByHand:
    """Plain steps in both loops."""

    def step(self, direction, sign, lr):
        return sign * lr * direction


# Iterations ----------------------------------------------------------------------------------------------------------


def cost(form, *, similar, penalised):
    """Gradients that grad Phi takes by the exact engine, with L_r's own; ``penalised``: and Hess(Phi) grad Phi.

    A product with a Hessian counts 2 and one with third derivatives 6, or with graphs built again 3 and 9.
    """
    hvp, third = (2, 6) if form.micro_batch_size is None else (3, 9)
    gradient = 2 + 2 * hvp * similar
    return gradient + (hvp + similar * (hvp + 2 * third)) * penalised


def examined(form, rows):
    """Gradients, of a batch of so many rows, of trying all derivatives on two rows before the first step."""
    return (10 if form.beta or form.rho_0 else 1) * 2 / rows


class Phi:
    """``Phi = L_f - beta s`` at the parameters of now, with its graph, and what a run logs of it."""

    def __init__(self, model, loss_f, loss_r, beta, safeguards):
        self.g_f, self.g_r = model.grad(loss_f, graph=True), model.grad(loss_r, graph=True)
        floor = safeguards.norm_floor or 0.0
        norms = [(g @ g + floor**2).sqrt() for g in (self.g_f, self.g_r)]
        s = self.g_f @ self.g_r / (norms[0] * norms[1])
        self.similarity = s.item()
        if safeguards.aligned_only and s <= 0:
            beta = 0.0
        self.model, self.similar, self.value = model, beta > 0, loss_f - beta * s
        self.gradient = model.grad(self.value, graph=True)
        self.losses = loss_f.item(), loss_r.item()

    @property
    def decorrelation(self):
        """The similarity's part of grad Phi."""
        return (self.gradient - self.g_f).detach()

    def hessian_gradient(self):
        """``Hess(Phi) grad Phi``: half of the gradient of ``|grad Phi|^2``."""
        return self.model.grad(self.gradient @ self.gradient / 2)

    def logged(self, penalty=None, curved=None):
        """Scalars; ``penalty`` is the vector after all clips and ``curved`` is Hess(Phi) grad Phi, if there are any."""
        g_f, g_r, v = (x.detach() for x in (self.g_f, self.g_r, self.gradient))
        found = {"L_f": self.losses[0], "L_r": self.losses[1], "Sim": self.similarity}
        found |= {"grad_L_f": g_f.norm().item(), "grad_L_r": g_r.norm().item(), "grad_Phi": v.norm().item()}
        size = 0.0 if penalty is None else penalty.norm().item()
        found |= {"penalty": size, "penalty_share": size / found["grad_L_r"]}
        return found | {"curvature": 0.0 if curved is None else (v @ curved / (v @ v)).item()}


@dataclass
class Form:
    """Settings of OFMU by their names; the values are those that most tests begin with."""

    rates: str | None = None
    stop_at: str | None = None
    beta: float = 0.1
    rho_0: float = 0.3
    gamma: float = 1.5
    higher_order_every: int = 1
    higher_order_from: float = 0.0
    higher_order_until: float = 1.0
    outer_at: str = "end"
    inner_steps: int = 1
    inner_optimizer: str = "sgd"
    inner_lr: float = 1.0
    forget_ceiling: str | None = None
    ngram_weight: float = 0.0
    safeguards: Safeguards = SAFE
    gradient_clip: float | None = 1.0
    reach: float = 0.0
    micro_batch_size: int | None = None
    optimizer: Callable = torch.optim.SGD
    scheduler: Callable | None = None


class AutoByHand:
    """``rates: auto``: flatten, ascend along the path, descend to the old losses.

    Attributes:
        acted: Whether similarity and penalty acted in each iteration.
        paused: Whether in an iteration that they were due in they waited for retain rows.
        lengths: How far back each ascent took its gradient.
        logged: Scalars of each iteration.
        stopped: Whether the run is at its end.
    """

    def __init__(self, model, form, way):
        self.model, self.form, self.way = model, form, way
        self.up, self.down = PolyakByHand(0.25 if form.reach else 1.0), PolyakByHand(2.0)
        self.lengths = []
        self.acted, self.paused, self.logged = [], [], []
        self.stopped = False

    @property
    def gone(self):
        """How much of the path."""
        return self.way.gone / self.way.length

    def iterate(self, k, batch):
        """Iteration k, from 0, up to its check."""
        form, scalars = self.form, {"rho": self.form.rho_0}
        self.model.work += len(batch["forget"]) + (0 if k else examined(form, self.model.data.batch_size))
        due = k % form.higher_order_every == 0 and self.gone >= form.higher_order_from
        self.paused.append(due and self.way.harm > KEPT)
        self.acted.append(due and not self.paused[-1])
        forget, retain = batch["forget"][-1], batch["retain"][-1]
        if self.acted[-1] and form.rho_0:
            scalars |= self.flatten(forget, retain)
        before = self.below(retain) if form.outer_at == "start" else None
        scalars |= self.ascend(k, batch["forget"][:-1])
        loss, gradient = before or self.below(retain)
        rise = self.way.note(retain["ids"], loss)
        self.model.go(self.down.descent(gradient, rise))
        scalars |= {"L_r": loss, "retain_rise": rise, "gradient_norm": gradient.norm().item()}
        reached, seen = self.way.check(k + 1)
        stays = form.rho_0 > 0 and self.gone < form.higher_order_until
        self.stopped = form.stop_at is not None and reached and not stays
        self.logged.append(scalars | seen | {"gradient_evaluations": self.model.work})

    def below(self, retain):
        """L_r and its gradient."""
        loss = self.model.rows(retain).mean()
        return loss.item(), self.model.grad(loss)

    def flatten(self, forget, retain):
        """A plain step that takes away a share of |grad Phi|, to first order; L_f is the plain loss."""
        sides = [self.model.rows(b).mean() for b in (forget, retain)]
        phi = Phi(self.model, *sides, self.form.beta, self.form.safeguards)
        h, v = phi.hessian_gradient(), phi.gradient.detach()
        self.model.work += cost(self.form, similar=phi.similar, penalised=True)
        self.model.go(-self.form.rho_0 * (v @ v) / (h @ h) * h)
        return phi.logged(h, h)

    def reached(self, k, number):
        """The step back to where ascent ``number`` of the run takes its gradient; iteration 0 has no direction yet."""
        reaches = self.form.reach and k and self.gone >= self.form.higher_order_from
        self.lengths.append(self.form.reach * ((0.6180339887498949 * number + 0.5) % 1.0) if reaches else 0.0)
        u = self.up.mean / self.up.size if reaches else torch.ones_like(self.model.weights())
        return self.lengths[-1] * u / u.square().mean().sqrt()

    def ascend(self, k, batches):
        """One step for each forget batch, as far as the path is ahead of it."""
        found = {}
        for t, batch in enumerate(batches):
            step = self.reached(k, k * len(batches) + t)
            self.model.go(step)
            far = self.way.distances(batch).mean()
            gradient = self.model.grad(far)
            self.model.go(-step)
            gap = self.way.ahead(batch, t, len(batches), far.item())
            self.model.go(self.up.descent(gradient, gap))
            found = found or {"inner/distance": far.item(), "inner/grad_Phi": gradient.norm().item()}
            if t == 0 and self.form.reach:
                found["rho"] = self.form.reach if self.lengths[-1] else 0.0
        return found


class FixedByHand:
    """Fixed rates: T ascents on Phi, one descent along ``g_r + 2 rho Hess(Phi) grad Phi``.

    Args:
        model: The network.
        form: The settings.
        length: Iterations in all.
        steps: Takes the steps of both loops.
        rates: The ascent's and the descent's rate in iteration k, from 0.
        level: The value at which forget rows' losses are bent; ``None``: at none.
        way: The goal of a ceiling that held-out rows set.
        pull: The guess.

    Attributes:
        acted: Whether similarity and penalty acted in each iteration.
        shares: |penalty| / |g_r| of each of these, before the clip.
        similarities: s of each of these.
        logged: Scalars of each iteration.
    """

    def __init__(self, model, form, length, steps, rates, level=None, way=None, pull=None):
        self.model, self.form, self.length, self.steps, self.rates = model, form, length, steps, rates
        self.level, self.way, self.pull = level, way, pull
        self.acted, self.shares, self.similarities, self.logged = [], [], [], []
        self.stopped = False

    def iterate(self, k, batch):
        """Iteration k, from 0, up to its check."""
        form, (inner_rate, rate) = self.form, self.rates(k)
        rho = form.rho_0 * form.gamma**k
        if form.safeguards.rho_max is not None:
            rho = min(rho, form.safeguards.rho_max)
        whole = k % form.higher_order_every == 0 and (form.beta > 0 or form.rho_0 > 0)
        self.acted.append(whole and k / self.length >= form.higher_order_from)
        self.scalars = {"rho": rho}
        self.model.work += 0 if k else examined(form, self.model.data.batch_size)
        *pairs, last = zip(batch["forget"], batch["retain"], strict=True)
        before = self.outer(rho, *last, whole=whole) if form.outer_at == "start" else None
        for t, (forget, retain) in enumerate(pairs):
            self.ascend(t, forget, retain, inner_rate, before)
        direction, _ = before or self.outer(rho, *last, whole=whole)
        if self.way is not None:
            self.scalars["retain_rise"] = self.way.note(last[1]["ids"], self.scalars["L_r"])
        self.scalars["gradient_norm"] = direction.norm().item()
        kept = self.scalars.get("grad_L_r", direction.norm().item())
        bounded = direction if form.gradient_clip is None else direction * min(1.0, form.gradient_clip / kept)
        self.model.go(self.steps.step(bounded, -1, rate))
        seen = {} if self.way is None else self.way.check(k + 1)[1]
        self.logged.append(self.scalars | seen | {"gradient_evaluations": self.model.work})

    def outer(self, rho, forget, retain, *, whole):
        """The direction of the descent, and the similarity's part of grad Phi; L_f is the plain loss."""
        loss_r = self.model.rows(retain).mean()
        if not whole:
            self.scalars["L_r"] = loss_r.item()
            self.model.work += 1
            return self.model.grad(loss_r), 0.0
        form, acts = self.form, self.acted[-1]
        phi = Phi(self.model, self.model.rows(forget).mean(), loss_r, form.beta if acts else 0.0, form.safeguards)
        g_r = phi.g_r.detach()
        self.model.work += cost(form, similar=phi.similar, penalised=acts and form.rho_0 > 0)
        if not acts:
            self.scalars |= phi.logged()
            return g_r, 0.0
        curved = phi.hessian_gradient()
        penalty = 2 * form.higher_order_every * rho * curved
        self.similarities.append(phi.similarity)
        self.shares.append((penalty.norm() / g_r.norm()).item())
        if form.safeguards.penalty_clip is not None:
            bound = form.higher_order_every * form.safeguards.penalty_clip
            penalty = clipped(penalty, bound * g_r.norm().item())
        self.scalars |= phi.logged(penalty, curved)
        return g_r + penalty, phi.decorrelation

    def ascend(self, t, forget, retain, rate, before):
        """One ascent: by the similarity's part at theta where the outer gradient was taken there, else by its own."""
        raised = self.raised(forget)
        if before is None and self.acted[-1]:
            loss_r = self.model.rows(retain).mean()
            phi = Phi(self.model, raised, loss_r, self.form.beta, self.form.safeguards)
            gradient = phi.gradient.detach()
            self.model.work += cost(self.form, similar=phi.similar, penalised=False)
        else:
            self.model.work += 1
            gradient = self.model.grad(raised) + (before[1] if before else 0.0)
        if t == 0:
            seen = {"inner/L_f": raised.item()} if self.way is None else {"inner/distance": -raised.item()}
            self.scalars |= seen | {"inner/grad_Phi": gradient.norm().item()}
        self.model.go(self.steps.step(clipped(gradient, self.form.safeguards.inner_clip), 1, rate))

    def raised(self, batch):
        """What the ascent raises: the bent loss, or minus the distance to the goal; less the pull to the guess."""
        values = bent(self.model.rows(batch), self.level) if self.way is None else -self.way.distances(batch)
        if self.pull is not None:
            values = values - self.form.ngram_weight * self.pull.divergences(batch)
        return values.mean()


def clipped(vector, most):
    """The vector, no longer than so much."""
    size = vector.norm().item()
    return vector if most is None or size <= most else vector * (most / size)
