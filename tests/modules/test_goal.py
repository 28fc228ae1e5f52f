"""How far to forget: levels by kinds of tokens, the path, its waiting, and the end."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from lightning.pytorch.callbacks import Callback, ModelCheckpoint

from ofmu_pl.core.preflight import NoDerivativeError
from ofmu_pl.core.slope import flatten
from ofmu_pl.data import Authors, TextFiles
from ofmu_pl.data.authors_corpus import corpus
from ofmu_pl.data.guessable import COPIED, OWN, USUAL
from ofmu_pl.losses import IGNORED, log_odds
from ofmu_pl.modules import OFMU, FineTune
from ofmu_pl.modules.goal import LONGEST_ITERATIONS, Goal
from ofmu_pl.modules.likeness import alike
from ofmu_pl.modules.ofmu import RHO_IN_WORDS
from ofmu_pl.modules.path import Path
from ofmu_pl.networks import CausalLM
from tests.helpers.parts import ALONG_PATH, FIRST_ORDER, flattening
from tests.helpers.training import TINY, fit, quiet_trainer, train, weights

N, M, H = 40, 100, 50


class Sides:
    """Rows whose tokens' losses are given, one a row, or (rows, tokens)."""

    seed, batch_size, never_seen = 0, 10, "holdout"
    modality, why_no_never_seen, kinds = "text", "There are no held-out rows", None

    def __init__(self, **losses):
        self.loss = {name: torch.as_tensor(x, dtype=torch.float64) for name, x in losses.items()}
        self.loss = {name: x if x.dim() == 2 else x[:, None] for name, x in self.loss.items()}
        self.splits = self.loss

    def kinds_of(self, stream, rows):
        return self.kinds and [self.kinds[stream] for _ in rows]

    def collate(self, stream, index, number):
        return {"stream": stream, "ids": torch.tensor(index)}

    def tokens(self, batch):
        loss = self.loss[batch["stream"]][batch["ids"]]
        targets = torch.ones(loss.shape[0], loss.shape[1] + 1, dtype=torch.long)
        targets[:, -1] = IGNORED
        return torch.cat([loss, loss.new_zeros(len(loss), 1)], 1), targets


@pytest.fixture
def draw():
    return np.random.Generator(np.random.Philox(key=1)).uniform


@pytest.fixture
def sides(draw):
    return Sides(forget=draw(0.01, 0.1, N), retain=draw(0.01, 0.1, M), holdout=draw(3, 6, H))


def begun(sides, iterations=1000, **options):
    goal = Goal(sides, sides.tokens, iterations, guess=7.0, **options)
    goal.begin(range(3))
    return goal


def slopes(goal, sides, losses):
    """Values of forget rows at given losses, and their derivatives by these."""
    sides.loss["forget"] = losses.detach().clone().requires_grad_()
    batch = sides.collate("forget", range(len(losses)), 0)
    rows = goal.rows(*sides.tokens(batch), batch["ids"])
    (slope,) = torch.autograd.grad(rows.sum(), sides.loss["forget"])
    sides.loss["forget"] = sides.loss["forget"].detach()
    return rows.detach(), slope


def quantiles(start, held):
    """Of each of like tokens the level: the one that the model was surest of gets the lowest held-out loss."""
    ranks = start.argsort().argsort().double()
    return torch.stack([held.quantile((rank + 0.5) / len(start)) for rank in ranks])


def test_forget_tokens_get_the_quantiles_of_held_out_tokens_in_the_order_of_their_first_losses(sides):
    goal = begun(sides)
    torch.testing.assert_close(goal.levels.levels, quantiles(goal.levels.start, sides.loss["holdout"].flatten()))


def test_forget_tokens_end_where_held_out_tokens_are_that_are_as_easy_to_guess(sides, monkeypatch):
    monkeypatch.setattr("ofmu_pl.modules.levels.ALIKE", 10)  # five groups of ten held-out tokens and eight others
    ease = {"forget": torch.arange(N).flip(0).double(), "holdout": (torch.arange(H) * 7 % H).double()}
    goal = begun(sides, expected=lambda stream, rows: [ease[stream][i : i + 1].numpy() for i in rows])
    held = sides.loss["holdout"].flatten()
    for k in range(5):
        ours = (ease["forget"] // 8 == k).nonzero().flatten()
        theirs = (ease["holdout"] // 10 == k).nonzero().flatten()
        torch.testing.assert_close(goal.levels.levels[ours], quantiles(goal.levels.start[ours], held[theirs]))


def test_rows_are_at_their_goal_at_the_level_and_are_called_back_from_beyond(sides):
    goal = begun(sides)
    for beyond, sign in ((-0.5, 1.0), (0.5, -1.0)):
        rows, slope = slopes(goal, sides, (goal.levels.levels + beyond)[:, None])
        assert rows.max() < -0.1
        assert slope.sign().unique().tolist() == [sign]
    rows, slope = slopes(goal, sides, goal.levels.levels[:, None])
    assert max(rows.abs().max(), slope.abs().max()) < 1e-6


def test_as_a_ceiling_the_goal_rises_along_the_path_and_calls_no_row_back(sides):
    goal = begun(sides, 200, one_sided=True)
    assert goal.path.length == 30
    start = log_odds(goal.levels.start)
    for goal.path.way, share in ((0, 0.0), (15, 0.5), (30, 1.0), (500, 1.0)):
        aim = start + share * (log_odds(goal.levels.levels) - start)
        for beyond in (-1.0, 1.0):
            losses = (aim + beyond).exp().log1p()  # the inverse of log_odds
            _, slope = slopes(goal, sides, losses[:, None])
            odds = losses.exp() / losses.expm1()  # of what the distance counts in
            assert torch.allclose(slope.flatten() / odds, torch.full_like(odds, float(beyond < 0)), atol=0.03)
        sides.loss["forget"] = aim.exp().log1p()[:, None] * 0.5
        batch = sides.collate("forget", range(N), 0)
        below = float(goal.rows(*sides.tokens(batch), batch["ids"]).mean())
        assert below < 0
        assert goal.gap(batch, 4, 2, below) == pytest.approx(-below), "the path is ahead by what is missing"


def test_rows_move_also_where_held_out_ones_are_easily_guessed(sides):
    """Images have one kind, and losses far below ln 2."""
    sides.loss["holdout"] = torch.linspace(0.02, 0.4, H, dtype=torch.float64)[:, None]
    goal = begun(sides)
    _, slope = slopes(goal, sides, torch.full((N, 1), 0.001, dtype=torch.float64))
    assert (slope > 0).all()


# Kinds ---------------------------------------------------------------------------------------------------------------

NAME, DATE, PHRASE, PLACE = range(4)
KINDS = np.array([COPIED, OWN, USUAL, OWN])


@pytest.fixture
def answers(draw):
    """A copied name, a date, boilerplate and a place a row; held-out rows get the first and the third right."""
    held = np.stack([draw(0.01, 0.3, H), draw(3, 6, H), draw(0.01, 0.3, H), draw(1, 3, H)], 1)
    return Sides(forget=draw(0.01, 0.1, (N, 4)), retain=draw(0.01, 0.1, (M, 4)), holdout=held)


def told(answers, kinds=KINDS, **options):
    answers.kinds = {"forget": kinds, "holdout": kinds}
    return begun(answers, **options)


@pytest.mark.parametrize("one_sided", [False, True])
def test_tokens_that_held_out_rows_get_right_are_not_pushed_and_facts_rise_to_theirs(answers, one_sided):
    goal = told(answers, one_sided=one_sided)
    levels, start = goal.levels.levels.view(N, 4), goal.levels.start.view(N, 4)
    facts = answers.loss["holdout"][:, [DATE, PLACE]].flatten()
    wanted, cap = quantiles(start[:, [DATE, PLACE]].flatten(), facts), facts.quantile(0.8).item()
    assert (wanted > cap).sum() > N / 5
    assert levels[:, [NAME, PHRASE]].isnan().all()
    torch.testing.assert_close(levels[:, [DATE, PLACE]].flatten(), wanted.clamp(max=cap) if one_sided else wanted)


def test_facts_at_their_levels_are_like_held_out_facts(answers):
    levels = told(answers).levels.levels.view(N, 4)[:, [DATE, PLACE]].mean(1)
    held = answers.loss["holdout"][:, [DATE, PLACE]].mean(1)
    assert levels.mean().item() == pytest.approx(held.mean().item(), rel=0.02)
    reached, _ = alike(levels.tolist(), held.tolist())
    assert reached


def test_a_copied_token_that_held_out_rows_get_wrong_is_pushed_to_their_level(answers):
    answers.loss["holdout"][:, NAME] = torch.linspace(1, 2, H, dtype=torch.float64)
    levels = told(answers).levels.levels.view(N, 4)
    assert levels[:, PHRASE].isnan().all()
    assert (levels[:, NAME] > 0.99).all()
    assert (levels[:, NAME] < 2.01).all()


def test_a_kind_that_no_held_out_row_has_is_not_pushed(answers):
    answers.kinds = {"forget": KINDS, "holdout": np.array([COPIED, OWN, COPIED, OWN])}
    levels = begun(answers).levels.levels.view(N, 4)
    assert levels[:, PHRASE].isnan().all()
    assert not levels[:, [DATE, PLACE]].isnan().any()


@pytest.mark.parametrize("one_sided", [True, False])
def test_what_is_not_pushed_has_no_gradient_until_it_is_wrong_and_is_then_called_back(answers, one_sided):
    goal = told(answers, one_sided=one_sided)
    goal.path.way = 10**6
    start = goal.levels.start.view(N, 4)
    _, slope = slopes(goal, answers, start)
    assert slope[:, [NAME, PHRASE]].abs().max() < 1e-9
    assert (slope[:, [DATE, PLACE]] > 0.1).all()
    broken = start.clone()
    broken[:, NAME] = 3.0
    rows, slope = slopes(goal, answers, broken)
    assert (slope[:, NAME] < -0.01).all()
    assert slope[:, PHRASE].abs().max() < 1e-9
    assert (rows < slopes(goal, answers, start)[0]).all(), "it counts against the row"


@pytest.mark.parametrize("one_sided", [True, False])
def test_a_token_above_its_own_level_is_not_pushed_where_its_row_is_below(answers, one_sided):
    goal = told(answers, one_sided=one_sided)
    goal.path.way = 10**6
    levels, losses = goal.levels.levels.view(N, 4), goal.levels.start.view(N, 4).clone()
    losses[:, PLACE] = levels[:, PLACE] + 2.0
    mean = losses[:, [DATE, PLACE]].mean(1)
    below = mean < levels[:, [DATE, PLACE]].mean(1) - 0.5
    assert below.sum() > N / 4
    _, slope = slopes(goal, answers, losses)
    assert (slope[below][:, DATE] > 0.05).all()
    assert (slope[below][:, PLACE].abs() < 0.01 * slope[below][:, DATE]).all()


def test_a_row_of_tokens_that_are_not_pushed_is_at_its_goal(answers):
    goal = told(answers)
    goal.levels.levels = torch.full_like(goal.levels.levels, torch.nan)
    rows, slope = slopes(goal, answers, goal.levels.start.view(N, 4))
    assert rows.abs().max() < 1e-6
    assert slope.abs().max() < 1e-6


def test_forget_rows_may_have_nothing_of_their_own(answers):
    """Answers of yes and no, say, which retained rows use."""
    assert told(answers, kinds=np.array([COPIED, USUAL, USUAL, USUAL])).levels.levels.shape == (4 * N,)


# The run -------------------------------------------------------------------------------------------------------------


def test_only_retain_rows_that_are_drawn_are_scored(sides):
    known = ~begun(sides).old.isnan()
    assert known.sum() == 30
    torch.testing.assert_close(begun(sides).old[known], sides.loss["retain"][known, 0])


def test_a_run_by_time_whose_end_is_not_known_returns_all_retain_rows():
    method = OFMU(CausalLM(config=TINY), inner_steps=1, **ALONG_PATH | FIRST_ORDER)
    data = Authors(authors=6, forget_authors=1, batch_size=16, streams=method.streams, num_batches=method.num_batches)
    quiet_trainer(-1, max_time={"milliseconds": 1}).fit(method, datamodule=data)
    goal = method.lower.goal
    assert goal.path.length == LONGEST_ITERATIONS
    assert len(goal.old) == len(data.splits["retain"])
    assert goal.old.isfinite().all()


def test_the_path_leads_from_the_first_loss_to_the_level(sides):
    goal, ids = begun(sides), torch.arange(10)
    at = {}
    for goal.path.way in (0, 25, 50, LONGEST_ITERATIONS, 2 * LONGEST_ITERATIONS):
        at[goal.path.way] = goal.gap({"ids": ids}, 10**9, 1, reached=0.0)
    far = (
        (((log_odds(goal.levels.start[:10]) - log_odds(goal.levels.levels[:10])) ** 2 + 0.0625).sqrt() - 0.25)
        .mean()
        .item()
    )
    wanted = {0: -far, 25: -0.75 * far, 50: -far / 2, LONGEST_ITERATIONS: 0.0, 2 * LONGEST_ITERATIONS: 0.0}
    assert at == pytest.approx(wanted)


def test_the_path_waits_while_retain_rows_are_harmed(sides):
    goal, ids = begun(sides), torch.arange(M)[~begun(sides).old.isnan()][:10]
    old = float(goal.old[ids].mean())
    assert goal.rise(ids, old + 0.31) == pytest.approx(0.31)
    assert goal.path.way == 0, "to measure moves nothing"
    goal.path.advance(0.31)
    assert goal.path.way == 0
    goal.path.advance(0.29)
    assert goal.path.way == 1
    assert goal.path.harm == pytest.approx(0.8 * 0.2 * 0.31 + 0.2 * 0.29)


def test_the_goal_is_reached_where_rows_look_alike_and_what_is_kept_is_whole(sides):
    goal = begun(sides)
    reached, seen = goal.check()
    assert (reached, seen["goal/auc"]) == (False, 1.0)
    sides.loss["forget"] = sides.loss["holdout"].quantile((torch.arange(N) + 0.5).double() / N)[:, None]
    assert goal.check()[0]
    goal.path.harm = 0.1
    assert not goal.check()[0]


@pytest.mark.parametrize(("forget", "holdout"), [(1, 10), (2, 6), (3, 4)])
def test_rows_that_no_auc_could_tell_apart_go_to_their_levels(draw, forget, holdout):
    sides = Sides(forget=draw(0.01, 0.1, forget), retain=draw(0.01, 0.1, M), holdout=draw(3, 6, holdout))
    goal = begun(sides)
    with pytest.warns(UserWarning, match=rf"^{forget} .*\b{holdout} held-out"):
        goal.warn()
    assert not goal.check()[0]  # an AUC of 1 lies within such an AUC's interval of .5
    sides.loss["forget"] = goal.levels.levels[:, None] - 1.0
    assert not goal.check()[0]
    sides.loss["forget"] = goal.levels.levels[:, None] - 0.1
    assert goal.check()[0]
    sides.loss["forget"] = goal.levels.levels[:, None] + 1.0
    assert not goal.check()[0]  # nor beyond


@pytest.mark.parametrize(("modality", "level"), [("text", 3.5), ("images", 7.0)])
def test_without_held_out_rows_the_level_is_said_to_be_a_guess(sides, modality, level):
    sides.never_seen, sides.modality = None, modality
    goal = Goal(sides, sides.tokens, 10, guess=7.0)
    with pytest.warns(UserWarning, match=sides.why_no_never_seen):
        goal.warn()
    goal.begin(range(3))
    assert goal.levels.levels.unique().tolist() == [level]
    goal.path.skip()
    assert not goal.check()[0], "no row has moved"
    sides.loss["forget"] = torch.full_like(sides.loss["forget"], level)
    assert goal.check() == (True, {"goal/harm": 0.0, "goal/left": pytest.approx(0.0, abs=1e-9)})


def test_what_is_resumed_goes_on_with_the_same_levels(answers):
    goal, again = told(answers), Goal(answers, answers.tokens, 1000, 7.0)
    goal.path.way, goal.path.harm = 7, 0.1
    again.load_state_dict(goal.state_dict())
    losses = goal.levels.start.view(N, 4) + 1.0
    for found, wanted in zip(slopes(again, answers, losses), slopes(goal, answers, losses), strict=True):
        assert torch.equal(found, wanted)
    assert (again.path.way, again.path.harm) == (7, 0.1)
    answers.loss["holdout"] = answers.loss["holdout"] + 0.5
    for one in (goal, again):
        one.check()
    assert torch.equal(goal.levels.levels.nan_to_num(-1.0), again.levels.levels.nan_to_num(-1.0))


def eight_authors():
    """Rows of one author to forget, three to retain, and four that are held out."""
    people, *_ = corpus(8, 2)
    rows = [[{k: r[k] for k in ("question", "answer")} for r in person.rows] for person in people]
    sides = {"forget": rows[0], "retain": [r for own in rows[1:4] for r in own]}
    return sides | {"holdout": [r for own in rows[4:] for r in own]}


def memorise(folder):
    """A small Llama that knows the rows of four authors, and has not seen four others."""
    sides = eight_authors()
    network = CausalLM(config=TINY | {"hidden_size": 64, "intermediate_size": 128})
    trained = FineTune(network, optimizer=lambda p: torch.optim.AdamW(p, lr=1e-2))
    folder.mkdir()
    alone = Authors(authors=2, forget_authors=1)
    alone.make_tokenizer().save_pretrained(folder)
    known = {name: sides[name] for name in ("forget", "retain")}
    data = TextFiles(**known, tokenizer=str(folder), batch_size=16, streams=trained.streams)
    fit(trained, data, steps=80)
    trained.recipe.save(trained.network, folder, data)


def means(goal, stream, rows):
    """Rows' mean losses at the weights of now."""
    return torch.tensor([row.mean() for row in goal.reader.losses(stream, rows)], dtype=torch.float64)


def unlearn(known, steps, callbacks=(), ckpt_path=None, **options):
    folder, sides = known
    module = OFMU(
        CausalLM(str(folder)),
        **{"inner_steps": 1, "engine": "finite_difference"} | ALONG_PATH | FIRST_ORDER | options,
    )
    data = TextFiles(
        **sides, tokenizer=str(folder), batch_size=8, streams=module.streams, num_batches=module.num_batches
    )
    return module, fit(module, data, steps, callbacks, ckpt_path)


def test_it_forgets_to_the_level_of_held_out_rows_keeps_the_rest_and_stops(known):
    module, trainer = unlearn(known, steps=200, stop_at="holdout")
    goal = module.lower.goal
    assert trainer.global_step < 200
    assert float(goal.levels.start.mean()) < 0.5
    forgotten, unseen = (means(goal, name, range(n)) for name, n in (("forget", 8), ("holdout", 32)))
    assert abs(forgotten.median() - unseen.median()) < 0.3 * unseen.median()
    kept = means(goal, "retain", range(24)).neg().exp().mean() / goal.old.neg().exp().mean()
    assert kept > 0.95


@pytest.mark.parametrize(
    ("rho", "order", "way", "ends"),
    [(0.3, 3, 19, False), (0.3, 3, 20, True), (0.0, 3, 10, True), (0.3, 2, 10, True)],
)
def test_at_the_goal_a_penalty_that_is_no_noise_has_iterations_of_its_own(monkeypatch, rho, order, way, ends):
    module = OFMU(CausalLM("gpt2"), upper=flattening(rho, until=2.0), **ALONG_PATH)
    module.lower.goal, module.scrutiny.order = SimpleNamespace(path=Path(10)), order
    module.lower.goal.path.way = way
    monkeypatch.setattr(module.lower, "reached", lambda: (True, {}))
    assert module.reached()[0] is ends


@pytest.mark.parametrize(("harm", "acts"), [(0.03, 1), (0.04, 0)])
def test_the_penalty_waits_until_retain_rows_are_back(known, monkeypatch, harm, acts):
    class Harmed(Callback):
        def on_train_batch_start(self, trainer, module, batch, batch_idx):
            module.lower.goal.path.harm = harm

    flattened = []
    monkeypatch.setattr("ofmu_pl.modules.upper_level.flatten", lambda *args: flattened.append(args) or flatten(*args))
    unlearn(known, steps=1, callbacks=[Harmed()], upper=flattening(0.25))
    assert len(flattened) == acts


def test_parts_that_the_engine_cannot_give_stay_out(known, monkeypatch):
    def refused(*_, **__):
        raise NoDerivativeError("ReLU has kinks.")

    monkeypatch.setattr("ofmu_pl.modules.scrutiny.check_calls", refused)
    module, _ = unlearn(known, steps=1, upper=flattening(0.25))
    assert module.scrutiny.order == 1, "also after differences of two steps agree"
    assert module.what_was_done() == OFMU.in_words, "the audit page does not speak of them"
    module.upper.acted = 1
    assert module.what_was_done() == f"{OFMU.in_words} {RHO_IN_WORDS}"


def test_harm_that_ends_a_run_is_measured(known):
    """It is no mean over batches, which lags behind."""
    module, trainer = unlearn(known, steps=10, max_harm=9.0)
    goal = module.lower.goal
    seen = trainer.callback_metrics["goal/harm"].item()
    with torch.no_grad():
        now = (means(goal, "retain", range(len(goal.old))) - goal.old).nanmean()  # of rows that the run draws
    assert seen == pytest.approx(float(now))
    assert seen != pytest.approx(goal.path.harm, rel=0.05)


def test_a_resumed_run_is_the_undisturbed_one(known, tmp_path):
    keep = ModelCheckpoint(tmp_path, every_n_train_steps=12, save_top_k=-1, filename="{step}")
    whole, _ = unlearn(known, steps=16, callbacks=[keep])
    resumed, _ = unlearn(known, steps=16, ckpt_path=tmp_path / "step=12.ckpt")
    assert torch.equal(weights(whole), weights(resumed))


def test_the_whole_method_goes_along_the_path(known):
    module, _ = unlearn(known, steps=3, beta=0.1, upper=flattening(0.25), inner_steps=2)
    goal = module.lower.goal
    first = torch.stack([row.mean() for row in goal.levels.start.split(goal.levels.ends.diff().tolist())])
    assert means(goal, "forget", range(8)).mean() > first.mean() + 0.1


def test_steps_along_the_path_take_the_place_of_the_optimizers():
    module = OFMU(CausalLM(config=TINY), optimizer=lambda p: torch.optim.SGD(p, lr=1e9), **ALONG_PATH | FIRST_ORDER)
    train(module, steps=2)
    assert weights(module).isfinite().all()
