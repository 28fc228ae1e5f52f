"""Where a run of any method ends, and which weights it keeps."""

from functools import partial

import pytest
import torch
from lightning.pytorch.callbacks import ModelCheckpoint

from ofmu_pl.core.ranks import Ranks
from ofmu_pl.data import TextFiles
from ofmu_pl.modules import MASC, NPO, OFMU, SCRUB, GradDiff
from ofmu_pl.modules.ending import LOOK_EVERY
from ofmu_pl.networks import CausalLM
from ofmu_pl.support.errors import UserError
from ofmu_pl.training.run import Run
from tests.helpers.images import network, train_on_digits
from tests.helpers.parts import ALONG_PATH, FIRST_ORDER
from tests.helpers.training import fit, interrupted, weights

FAST = partial(torch.optim.Adam, lr=2e-3)


@pytest.fixture
def unlearn(known):
    def run(method, steps, callbacks=(), ckpt_path=None, **sides):
        folder, rows = known
        streams = {"streams": method.streams, "num_batches": method.num_batches}
        data = TextFiles(**rows | sides, tokenizer=str(folder), batch_size=8, **streams)
        return fit(method, data, steps, callbacks, ckpt_path)

    def make(kind, steps=40, sides=None, **options):
        method = kind(CausalLM(str(known[0])), optimizer=FAST, **options)
        return method, run(method, steps, **sides or {})

    make.run = run
    return make


def test_a_run_ends_where_forget_rows_are_like_held_out_ones(unlearn):
    method, trainer = unlearn(NPO, steps=200, stop_at="holdout")
    assert 0 < trainer.global_step < 200
    assert trainer.global_step % LOOK_EVERY == 0
    reached, seen = method.reached()
    assert reached
    assert "than held-out ones" in method.run.why
    assert abs(seen["goal/auc"] - 0.5) < 0.25
    assert method.watches_held_out


def test_a_run_ends_where_retain_rows_are_harmed(unlearn):
    method, trainer = unlearn(GradDiff, steps=200, alpha=0.0, max_harm=0.2)
    assert trainer.global_step < 200
    assert "must stay" in method.run.why
    assert trainer.callback_metrics["goal/harm"] > 0.2


def test_masc_ends_where_few_tokens_lead_their_rivals(unlearn):
    shares = {}

    class Told(MASC):
        def reached(self):
            found = super().reached()
            if "share_above" in found[1]:
                shares[self.run.step] = found[1]["share_above"]
            return found

    def count(method):
        """The share by probabilities, row by row."""
        found, data = [], method.run.data
        for row in range(len(data.splits["forget"])):
            batch = data.collate("forget", [row], 0)
            with torch.no_grad():
                z = method.network(input_ids=batch["input_ids"]).logits[0, :-1]
            (places,) = (batch["labels"][0, 1:] != -100).nonzero(as_tuple=True)
            above = []
            for t in places.tolist():
                p, true = z[t].softmax(0), batch["labels"][0, t + 1]
                rivals = torch.cat([p[:true], p[true + 1 :]]).sort().values[-10:].sum()
                above.append(float(p[true] / (p[true] + rivals) > 0.7))
            found.append(sum(above) / len(above))
        return sum(found) / len(found)

    method, trainer = unlearn(Told, steps=200, stop_share=0.5)
    last, *earlier = sorted(shares)[::-1]
    assert last == trainer.global_step < 200
    assert "rivals" in method.run.why
    assert shares[last] <= 0.5
    assert all(shares[number] > 0.5 for number in earlier)
    assert shares[last] == pytest.approx(count(method))
    _, trainer = unlearn(MASC, steps=last + LOOK_EVERY, stop_share=None, max_harm=99.0)
    assert trainer.global_step == last + LOOK_EVERY
    assert not method.watches_held_out


def test_the_best_weights_are_those_of_the_nearest_look(unlearn):
    away = {}

    class Told(GradDiff):
        def reached(self):
            found = super().reached()
            note(self.run.step, found[1])
            return found

    def note(step, seen):
        if seen and seen["goal/harm"] <= 0.3:
            away[step] = max(abs(seen["goal/auc"] - 0.5), abs(seen["goal/facts_auc"] - 0.5))

    best, _ = unlearn(Told, steps=40, keep="best")
    assert best.ending.step == min(away, key=away.get) < 40
    there, _ = unlearn(GradDiff, steps=best.ending.step)
    assert torch.equal(weights(best), weights(there))


def test_a_run_that_goes_on_keeps_and_counts_the_same(unlearn, known, tmp_path):
    def make():
        return GradDiff(CausalLM(str(known[0])), optimizer=FAST, keep="best", max_harm=9.0)

    whole, resumed = interrupted(make, tmp_path, 40, 24, run=unlearn.run)
    assert whole.ending.best == resumed.ending.best
    assert torch.equal(whole.ending.watch.old, resumed.ending.watch.old)


def test_looks_are_work_and_without_them_nothing_changes(unlearn):
    plain, _ = unlearn(NPO, steps=20)
    watched, _ = unlearn(NPO, steps=20, max_harm=9.0)
    assert torch.equal(weights(plain), weights(watched))
    first, look = 24 / 3 / 8, (8 + 24 + 32) / 3 / 8  # forget, retain and held-out rows in batches of eight
    assert watched.gradient_evaluations - plain.gradient_evaluations == pytest.approx(first + 2 * look)


def test_ofmu_goes_by_its_own_goal_and_can_keep_the_best(unlearn):
    options = {"inner_steps": 1, "engine": "finite_difference"} | ALONG_PATH | FIRST_ORDER
    method, trainer = unlearn(OFMU, steps=200, stop_at="holdout", keep="best", **options)
    assert trainer.global_step < 200
    assert method.ending.watch is None
    assert method.ending.step <= trainer.global_step


def test_one_row_is_compared_by_its_loss(unlearn, known):
    row = [known[1]["forget"][0]]
    method, trainer = unlearn(NPO, steps=200, stop_at="holdout", sides={"forget": row})
    assert 0 < trainer.global_step < 200
    _, seen = method.reached()
    assert seen["goal/left"] < 1
    assert "held-out" not in method.run.why, "no comparison has ended it"


def test_copies_of_a_row_make_no_test(unlearn, known):
    """Twenty copies of one row beside held-out rows could not tell the sides apart either."""
    method, _ = unlearn(NPO, steps=10, stop_at="holdout", sides={"forget": known[1]["forget"][:1] * 20})
    _, seen = method.reached()
    assert "goal/left" in seen


def test_images_end_too():
    method = SCRUB(network(), max_epochs=0, optimizer=FAST, max_harm=0.5, keep="best")
    train_on_digits(method, steps=20, forget_classes=None, forget_fraction=0.1)
    assert method.ending.step in (10, 20)
    harmed = SCRUB(network(), max_epochs=99, optimizer=partial(torch.optim.Adam, lr=0.1), max_harm=0.5)
    assert train_on_digits(harmed, steps=100).global_step < 100


@pytest.mark.parametrize(("options", "told"), [({"stop_at": "retain"}, "stop_at"), ({"keep": "all"}, "keep")])
def test_words_that_are_none(options, told):
    with pytest.raises(UserError, match=told):
        NPO(CausalLM("gpt2"), **options)


@pytest.mark.parametrize("harm", [0, -1.0])
def test_no_harm_at_all_is_no_bound(harm):
    with pytest.raises(UserError, match="max_harm"):
        NPO(CausalLM("gpt2"), max_harm=harm)


def test_without_held_out_rows_it_is_refused(unlearn):
    with pytest.raises(UserError, match=r"model\.stop_at"):
        unlearn(NPO, stop_at="holdout", sides={"holdout": None})


def test_the_best_weights_are_not_kept_in_shards():
    method = NPO(CausalLM("gpt2"), keep="best")
    method.run = Run(None, Ranks(0, 2, sharded=True))
    with pytest.raises(UserError, match=r"model\.keep"):
        method.ending.begin(method)


def test_checkpoints_hold_the_best_weights(unlearn, tmp_path):
    keep = ModelCheckpoint(tmp_path, every_n_train_steps=20, filename="x")
    method = GradDiff(CausalLM(path=unlearn(NPO, steps=1)[0].recipe.path), optimizer=FAST, keep="best")
    unlearn.run(method, 20, callbacks=[keep])
    stored = torch.load(tmp_path / "x.ckpt", weights_only=True)["ending"]
    assert len(stored["weights"]) >= len(list(method.network.parameters()))
