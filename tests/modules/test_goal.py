"""How far to forget: levels, the path, its waiting, and the end."""

from functools import partial

import numpy as np
import pytest
import torch
from lightning.pytorch.callbacks import ModelCheckpoint

from ofmu_pl.data import Authors, TextFiles
from ofmu_pl.data.authors_corpus import corpus
from ofmu_pl.losses import IGNORED, ceiling, log_odds
from ofmu_pl.metrics.membership import auc_interval
from ofmu_pl.modules import OFMU, FineTune
from ofmu_pl.modules.goal import HARM, PATH, Goal
from ofmu_pl.networks import CausalLM, SmallCNN
from ofmu_pl.support.errors import UserError
from ofmu_pl.training.export import save_model
from tests.helpers.images import train_on_digits
from tests.helpers.training import TINY, fit, quiet_trainer, train, weights

N, M, H = 40, 100, 50


class Sides:
    """Rows of one token, whose losses are given."""

    seed, batch_size, never_seen = 0, 10, "holdout"
    modality, why_no_never_seen = "text", "There are no never-seen rows"

    def __init__(self, **losses):
        self.loss = {name: torch.as_tensor(x, dtype=torch.float64) for name, x in losses.items()}
        self.splits = self.loss

    def collate(self, stream, index, number):
        return {"stream": stream, "ids": torch.tensor(index)}

    def tokens(self, batch):
        loss = self.loss[batch["stream"]][batch["ids"]]
        return torch.stack([loss, loss.new_zeros(len(loss))], 1), torch.tensor([[1, IGNORED]] * len(loss))


@pytest.fixture
def sides():
    draw = np.random.Generator(np.random.Philox(key=1))
    return Sides(forget=draw.uniform(0.01, 0.1, N), retain=draw.uniform(0.01, 0.1, M), holdout=draw.uniform(3, 6, H))


def begun(sides, iterations=1000):
    goal = Goal(sides, sides.tokens, iterations, guess=7.0)
    goal.begin(range(3))
    return goal


def test_forget_rows_get_the_quantiles_of_never_seen_rows_in_another_order(sides):
    goal = begun(sides)
    c = goal.token_level
    assert c == pytest.approx(sides.loss["holdout"].quantile(0.8).item())
    bounded = ceiling(sides.loss["holdout"], c)
    wanted = bounded.quantile((torch.arange(N, dtype=torch.float64) + 0.5) / N)
    torch.testing.assert_close(goal.levels.sort().values, wanted)
    assert not torch.equal(goal.levels, wanted)


def test_forget_rows_end_where_never_seen_rows_are_that_are_as_easy_to_guess(sides):
    """The guess ranks never-seen rows as it likes, and a forget row's rank among its own has their rank's loss."""
    guess = {"forget": torch.arange(N).flip(0).double(), "holdout": (torch.arange(H) * 7 % H).double()}
    goal = Goal(sides, sides.tokens, 1000, guess=7.0, expected=lambda stream, rows: guess[stream][list(rows)])
    goal.begin(range(3))
    by_lot = begun(sides).levels
    torch.testing.assert_close(goal.levels.sort().values, by_lot.sort().values)  # the same levels, given otherwise
    easiest_first = sides.loss["holdout"][guess["holdout"].argsort()]
    alike = [easiest_first[int((N - 1 - i + 0.5) * H / N)].item() for i in range(N)]
    unbent = [i for i in range(N) if alike[i] < goal.token_level - 1]
    assert len(unbent) > N / 4
    assert goal.levels[unbent].argsort().tolist() == torch.tensor([alike[i] for i in unbent]).argsort().tolist()
    assert goal.levels.argsort().tolist() != by_lot.argsort().tolist()


def test_rows_are_at_their_goal_at_the_level_and_are_called_back_from_beyond(sides):
    goal = begun(sides)
    batch = sides.collate("forget", range(N), 0)
    slopes = []
    for beyond in (-0.5, 0.0, 0.5):
        sides.loss["forget"] = (goal.levels + beyond).clamp(max=goal.token_level - 0.5).requires_grad_()
        rows = goal.rows(*sides.tokens(batch), batch["ids"])
        (slope,) = torch.autograd.grad(rows.sum(), sides.loss["forget"])
        low = goal.levels < goal.token_level - 2  # else the tokens are bent
        assert low.any()
        slopes.append((rows[low].max().item(), slope[low].sign().unique().tolist()))
    assert slopes[0][0] < -0.1
    assert slopes[0][1] == [1.0]
    assert slopes[1][0] == pytest.approx(0, abs=1e-3)
    assert slopes[2][0] < -0.1
    assert slopes[2][1] == [-1.0]


def test_as_a_ceiling_the_goal_rises_along_the_path_and_calls_no_row_back(sides):
    goal = Goal(sides, sides.tokens, 200, guess=7.0, one_sided=True)
    goal.begin(range(3))
    assert goal.length == 30
    batch, start = sides.collate("forget", range(N), 0), log_odds(goal.start)
    low = goal.levels < goal.token_level - 2  # else the tokens are bent
    for goal.way, share in ((0, 0.0), (15, 0.5), (30, 1.0), (500, 1.0)):
        aim = start + share * (log_odds(goal.levels) - start)
        for beyond in (-1.0, 1.0):
            losses = (aim + beyond).exp().log1p()  # the inverse of log_odds
            sides.loss["forget"] = losses.detach().requires_grad_()
            (slope,) = torch.autograd.grad(goal.rows(*sides.tokens(batch), batch["ids"]).sum(), sides.loss["forget"])
            odds = losses.exp() / losses.expm1()  # of what the distance counts in
            assert (slope / odds)[low].min().item() == pytest.approx(float(beyond < 0), abs=0.03)


def test_rows_move_also_where_never_seen_ones_are_easily_guessed(sides):
    sides.loss["holdout"] = torch.linspace(0.02, 0.4, H, dtype=torch.float64)
    goal = begun(sides)
    sides.loss["forget"] = torch.full((N,), 0.001, dtype=torch.float64).requires_grad_()
    batch = sides.collate("forget", range(N), 0)
    (slope,) = torch.autograd.grad(goal.rows(*sides.tokens(batch), batch["ids"]).sum(), sides.loss["forget"])
    assert (slope > 0).all()


def test_only_retain_rows_that_are_drawn_are_scored(sides):
    known = ~begun(sides).old.isnan()
    assert known.sum() == 30
    torch.testing.assert_close(begun(sides).old[known], sides.loss["retain"][known])


def test_a_run_of_epochs_whose_end_is_not_known_returns_all_retain_rows():
    method = OFMU(CausalLM(config=TINY), inner_steps=1, rates="auto")
    data = Authors(authors=6, forget_authors=1, batch_size=16, streams=method.streams, num_batches=method.num_batches)
    quiet_trainer(-1, max_epochs=1).fit(method, datamodule=data)
    goal = method.lower.goal
    assert goal.length == PATH
    assert len(goal.old) == len(data.splits["retain"])
    assert goal.old.isfinite().all()


def test_the_path_leads_from_the_first_loss_to_the_level(sides):
    goal, ids = begun(sides), torch.arange(10)
    at = {}
    for goal.way in (0, 25, 50, PATH, 2 * PATH):
        at[goal.way] = goal.gap([{}, {"ids": ids}], 10**9, 1, reached=0.0)
    far = (((log_odds(goal.start[:10]) - log_odds(goal.levels[:10])) ** 2 + 0.0625).sqrt() - 0.25).mean().item()
    wanted = {0: -far, 25: -0.75 * far, 50: -far / 2, PATH: 0.0, 2 * PATH: 0.0}
    assert at == pytest.approx(wanted)


def test_the_path_waits_while_retain_rows_are_harmed(sides):
    goal, ids = begun(sides), torch.arange(M)[~begun(sides).old.isnan()][:10]
    old = float(goal.old[ids].mean())
    assert goal.excess(ids, old + HARM + 0.01) == pytest.approx(HARM + 0.01)
    assert goal.way == 0
    goal.excess(ids, old + HARM - 0.01)
    assert goal.way == 1


def test_the_goal_is_reached_where_rows_look_alike_and_what_is_kept_is_whole(sides):
    goal = begun(sides)
    assert goal.check(9) == (False, {})
    reached, seen = goal.check(10)
    assert (reached, seen["goal/auc"]) == (False, 1.0)
    sides.loss["forget"] = sides.loss["holdout"].quantile((torch.arange(N) + 0.5).double() / N)
    assert goal.check(20)[0]
    goal.harm = 0.1
    assert not goal.check(30)[0]


def test_without_never_seen_rows_the_level_is_said_to_be_a_guess(sides):
    sides.never_seen = None
    goal = Goal(sides, sides.tokens, 10, guess=7.0)
    with pytest.warns(UserWarning, match="no never-seen rows"):
        goal.begin(range(3))
    assert goal.levels.unique().tolist() == [3.5]


def memorised(folder):
    """A small Llama that knows the rows of four authors, and never saw four others."""
    people, *_ = corpus(8, 0)
    rows = [[{k: r[k] for k in ("question", "answer")} for r in person.rows] for person in people]
    sides = {"forget": rows[0], "retain": [r for own in rows[1:4] for r in own]}
    sides["holdout"] = [r for own in rows[4:] for r in own]
    network = CausalLM(config=TINY | {"hidden_size": 64, "intermediate_size": 128})
    trained = FineTune(network, optimizer=lambda p: torch.optim.AdamW(p, lr=1e-2))
    folder.mkdir()
    alone = Authors(authors=2, forget_authors=1)
    alone.make_tokenizer().save_pretrained(folder)
    known = {name: sides[name] for name in ("forget", "retain")}
    data = TextFiles(**known, tokenizer=str(folder), batch_size=16, streams=trained.streams)
    fit(trained, data, steps=150)
    trained.recipe.save(trained.network, folder, data)
    return folder, sides


@pytest.fixture(scope="module")
def known(tmp_path_factory):
    return memorised(tmp_path_factory.mktemp("goal") / "model")


def unlearn(known, steps, callbacks=(), ckpt_path=None, **options):
    folder, sides = known
    module = OFMU(
        CausalLM(str(folder)),
        **{"inner_steps": 1, "engine": "finite_difference", "beta": 0.0, "rho_0": 0.0, "rates": "auto"} | options,
    )
    data = TextFiles(
        **sides, tokenizer=str(folder), batch_size=8, streams=module.streams, num_batches=module.num_batches
    )
    return module, fit(module, data, steps, callbacks, ckpt_path)


def test_it_forgets_to_the_level_of_never_seen_rows_keeps_the_rest_and_stops(known):
    module, trainer = unlearn(known, steps=200, stop_at="holdout")
    goal = module.lower.goal
    assert trainer.global_step < 200
    assert float(goal.start.mean()) < 0.5
    forgotten, unseen = (goal._score(name, range(n)) for name, n in (("forget", 8), ("holdout", 32)))
    assert abs(forgotten.median() - unseen.median()) < 0.3 * unseen.median()
    kept = goal._score("retain", range(24)).neg().exp().mean() / goal.old.neg().exp().mean()
    assert kept > 0.95


def test_a_resumed_run_is_the_undisturbed_one(known, tmp_path):
    keep = ModelCheckpoint(tmp_path, every_n_train_steps=12, save_top_k=-1, filename="{step}")
    whole, _ = unlearn(known, steps=16, callbacks=[keep])
    resumed, _ = unlearn(known, steps=16, ckpt_path=tmp_path / "step=12.ckpt")
    assert torch.equal(weights(whole), weights(resumed))


def test_of_first_order_an_iteration_takes_two_gradients(known):
    module, _ = unlearn(known, steps=3)
    assert module.gradient_evaluations == 6


def test_the_whole_method_goes_along_the_path(known):
    module, _ = unlearn(known, steps=3, beta=0.1, rho_0=0.25, inner_steps=2)
    assert module.lower.goal._score("forget", range(8)).mean() > module.lower.goal.start.mean() + 0.1


def test_automatic_rates_take_the_place_of_given_ones():
    module = OFMU(CausalLM(config=TINY), rates="auto", optimizer=lambda p: torch.optim.SGD(p, lr=1e9), inner_lr=1e9)
    train(module, steps=2)
    assert weights(module).isfinite().all()
    with pytest.raises(UserError, match="rates"):
        OFMU(CausalLM(config=TINY), rates="automatic")


@pytest.mark.slow
def test_images_are_forgotten_to_the_level_of_test_images(tmp_path):
    """Their losses are far below the corner of a bound on tokens, which once left nothing to pull at."""
    drawn = {"forget_classes": None, "forget_fraction": 0.1, "train_items": 600, "batch_size": 64}
    learnt = FineTune(SmallCNN(width=16), optimizer=partial(torch.optim.AdamW, lr=1e-2))
    trainer = train_on_digits(learnt, steps=150, **drawn)
    save_model(tmp_path / "target", trainer, learnt)
    rates = {"rates": "auto", "beta": 0.0, "rho_0": 0.0, "inner_steps": 1}
    method = OFMU(SmallCNN(path=str(tmp_path / "target"), width=16), engine="finite_difference", **rates)
    trainer = train_on_digits(method, steps=100, **drawn)
    data, goal = trainer.datamodule, method.lower.goal
    now = {name: goal._score(name, range(len(data.splits[name]))) for name in ("forget", "retain", "test")}
    ends = auc_interval(now["forget"].numpy(), now["test"].numpy())
    before = auc_interval(goal.start.numpy(), now["test"].numpy())
    assert before[0] > 0.5, "they were told apart"
    assert ends[0] < 0.5 < ends[1]
    assert float(now["retain"].mean()) < 0.05
