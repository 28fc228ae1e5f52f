"""The loader under Lightning: a resumed run sees exactly the iterations that the uninterrupted one would have seen."""

import json
from pathlib import Path
from types import SimpleNamespace

import lightning.pytorch as pl
import pytest
import torch
from lightning.pytorch.callbacks import ModelCheckpoint

from ofmu_pl.data import Authors
from ofmu_pl.support.errors import UserError

EPOCH, STEPS = 3, 8  # 8 forget rows in batches of 3


class Recorder(pl.LightningModule):
    """Writes down what it is given, with one counted optimizer step an iteration."""

    def __init__(self):
        super().__init__()
        self.automatic_optimization = False
        self.weight = torch.nn.Parameter(torch.zeros(1))
        self.seen = []

    def training_step(self, batch, _):
        ids = {stream: [b["ids"].tolist() for b in batches] for stream, batches in batch.items()}
        self.seen.append((self.global_step, self.current_epoch, ids))
        optimizer = self.optimizers()
        self.weight.grad = torch.ones(1)
        optimizer.step()

    def validation_step(self, batch, _):
        self.seen.append("validated")

    def test_step(self, batch, _):  # noqa: PT019  Lightning's hook, not a test
        self.seen.append("tested")

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=1.0)


def data():
    return Authors(batch_size=EPOCH, streams=("forget", "retain"), num_batches=2, authors=4, forget_authors=1)


PLAIN = {
    "accelerator": "cpu",
    "logger": False,
    "enable_progress_bar": False,
    "enable_model_summary": False,
    "num_sanity_val_steps": 0,
}


def keep(folder):
    return ModelCheckpoint(folder, "{step}", every_n_train_steps=1, save_top_k=-1, monitor=None)


def trainer(folder, steps):
    more = {"limit_val_batches": 0, "use_distributed_sampler": False, "callbacks": [keep(folder)]}
    return pl.Trainer(**PLAIN, **more, max_epochs=-1, max_steps=steps)


def run(folder, steps, checkpoint=None):
    model = Recorder()
    trainer(folder, steps).fit(model, data(), ckpt_path=checkpoint)
    return model


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    folder = tmp_path_factory.mktemp("whole")
    return folder, run(folder, STEPS).seen


def test_iteration_k_is_a_function_of_k_through_epoch_borders(whole):
    module = data()
    module.setup()
    for k, (step, epoch, ids) in enumerate(whole[1]):
        expected = {s: [b["ids"].tolist() for b in batches] for s, batches in module.iteration(k).items()}
        assert (step, epoch, ids) == (k, k // EPOCH, expected)
    assert len(whole[1]) == STEPS


@pytest.mark.parametrize("stop", range(1, STEPS))
def test_a_stopped_run_resumes_with_the_next_iteration(whole, tmp_path, stop):
    first = run(tmp_path, stop).seen
    resumed = run(tmp_path, STEPS, str(tmp_path / f"step={stop}.ckpt"))
    assert first + resumed.seen == whole[1]
    assert resumed.weight.item() == -STEPS


@pytest.mark.parametrize("step", [2, 3, 4])
def test_a_killed_run_resumes_from_any_checkpoint(whole, tmp_path, step):
    """Unlike at a stop, the checkpoint was written with the epoch and the run still going on."""
    assert run(tmp_path, STEPS, str(whole[0] / f"step={step}.ckpt")).seen == whole[1][step:]


class Ours(Recorder):
    takes_whole_iterations = True


def test_validate_and_test_run_one_trivial_step_of_our_modules(tmp_path):
    model, judge = Ours(), trainer(tmp_path, 1)
    judge.limit_val_batches = judge.limit_test_batches = 1.0
    judge.validate(model, data(), verbose=False)
    judge.test(model, data(), verbose=False)
    assert model.seen == ["validated", "tested"]


class Stranger(pl.LightningModule):
    """Another study's module: Lightning's own optimization; writes down the rows of each batch, by epoch."""

    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.zeros(1))
        self.epochs, self.validated = [], []

    def training_step(self, batch, batch_idx):
        if len(self.epochs) <= self.current_epoch:
            self.epochs += [[] for _ in range(self.current_epoch + 1 - len(self.epochs))]
        self.epochs[self.current_epoch].append(rows(batch))
        return self.weight.sum()

    def validation_step(self, batch, batch_idx, dataloader_idx):
        self.validated.append((dataloader_idx, batch["ids"].tolist()))

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=1.0)

    def on_train_end(self):
        if self.trainer.world_size > 1:
            path = Path(self.trainer.default_root_dir) / f"{self.global_rank}.json"
            path.write_text(json.dumps(self.epochs))


def rows(batch):
    return {stream: [b["ids"].tolist() for b in batches] for stream, batches in batch.items()}


NONE_KEPT = PLAIN | {"enable_checkpointing": False}


def expected(epochs, module=None):
    module = module or data()
    module.setup()
    n = module.iterations_per_epoch
    return [[rows(module.iteration(k)) for k in range(e * n, (e + 1) * n)] for e in range(epochs)]


@pytest.mark.parametrize("accumulated", [1, 2, 3])
def test_a_plain_trainer_that_accumulates_gets_whole_epochs(tmp_path, accumulated):
    """By counted steps, epochs had half the batches each time, and repeated some."""
    model = Stranger()
    plain = pl.Trainer(**NONE_KEPT, max_epochs=3, accumulate_grad_batches=accumulated, limit_val_batches=0)
    plain.fit(model, data())
    assert model.epochs == expected(3)
    assert plain.global_step == 3 * -(-EPOCH // accumulated)


def test_a_plain_trainer_with_shorter_epochs_goes_on_where_the_last_ended():
    model = Stranger()
    pl.Trainer(**NONE_KEPT, max_epochs=3, limit_train_batches=EPOCH - 1, limit_val_batches=0).fit(model, data())
    assert list(map(len, model.epochs)) == [EPOCH - 1] * 3
    given, whole = ([k for epoch in epochs for k in epoch] for epochs in (model.epochs, expected(3)))
    assert given == whole[: len(given)]


def test_a_plain_trainer_that_accumulates_resumes_where_it_was(tmp_path):
    options = {"max_epochs": 3, "accumulate_grad_batches": 2, "limit_val_batches": 0}
    whole = Stranger()
    pl.Trainer(**PLAIN, **options, callbacks=[keep(tmp_path)]).fit(whole, data())
    assert whole.epochs == expected(3)
    resumed = Stranger()
    second = str(tmp_path / "step=3.ckpt")  # of epoch 1
    pl.Trainer(**NONE_KEPT, **options).fit(resumed, data(), ckpt_path=second)
    assert [k for epoch in resumed.epochs for k in epoch] == [*expected(3)[1][2:], *expected(3)[2]]


@pytest.mark.parametrize("wraps", [True, False])
def test_ranks_of_a_plain_trainer_share_each_batch(tmp_path, wraps):
    module = Authors(batch_size=4, streams=("forget", "retain"), authors=4, forget_authors=1)
    pl.Trainer(
        **NONE_KEPT,
        max_epochs=3,
        limit_val_batches=0,
        strategy="ddp_fork",
        devices=2,
        use_distributed_sampler=wraps,
        default_root_dir=tmp_path,
    ).fit(Stranger(), module)
    whole = Authors(batch_size=4, streams=("forget", "retain"), authors=4, forget_authors=1)
    for rank in range(2):
        share = [[{s: [b[rank::2] for b in bs] for s, bs in k.items()} for k in epoch] for epoch in expected(3, whole)]
        assert json.loads((tmp_path / f"{rank}.json").read_text()) == share


def test_batches_that_do_not_divide_among_ranks():
    module = data()
    module.setup()
    module.trainer = SimpleNamespace(lightning_module=None, global_rank=0, world_size=2)
    with pytest.raises(UserError, match=r"3 forget .*data\.batch_size"):
        module.train_dataloader().collate_fn(0)


def test_a_plain_trainer_validates_on_every_row_once():
    model, module = Stranger(), data()
    pl.Trainer(**NONE_KEPT).validate(model, module, verbose=False)
    for number, split in enumerate(("forget", "retain")):
        seen = [ids for loader, ids in model.validated if loader == number]
        assert max(map(len, seen)) == EPOCH
        assert [i for ids in seen for i in ids] == list(range(len(module.splits[split])))
