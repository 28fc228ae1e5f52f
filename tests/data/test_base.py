"""The loader under Lightning: a resumed run sees exactly the iterations that the uninterrupted one would have seen."""

import lightning.pytorch as pl
import pytest
import torch
from lightning.pytorch.callbacks import ModelCheckpoint

from ofmu_pl.data import Authors

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
    return Authors(batch_size=EPOCH, streams=("forget", "retain"), pairs=2, authors=4, forget_authors=1)


def trainer(folder, steps):
    return pl.Trainer(
        max_epochs=-1,
        max_steps=steps,
        accelerator="cpu",
        logger=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        limit_val_batches=0,
        use_distributed_sampler=False,
        callbacks=[ModelCheckpoint(folder, "{step}", every_n_train_steps=1, save_top_k=-1, monitor=None)],
    )


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


def test_a_resumed_run_can_be_resumed_again(whole, tmp_path):
    """The counts of a resumed epoch must be right in the next checkpoint too."""
    seen = run(tmp_path, 4).seen
    for stop in (5, 7, STEPS):
        seen += run(tmp_path, stop, str(tmp_path / f"step={len(seen)}.ckpt")).seen
    assert seen == whole[1]


def test_validate_and_test_run_one_trivial_step(tmp_path):
    model, judge = Recorder(), trainer(tmp_path, 1)
    judge.limit_val_batches = 1
    judge.validate(model, data(), verbose=False)
    judge.test(model, data(), verbose=False)
    assert model.seen == ["validated", "tested"]


def test_setup_does_its_work_once():
    module = data()
    module.setup("fit")
    tokenizer, splits = module.tokenizer, module.splits
    module.setup("test")
    assert module.tokenizer is tokenizer
    assert module.splits is splits


def test_without_a_trainer_the_loader_starts_at_zero_each_time():
    module = data()
    module.setup()
    loader = module.train_dataloader()
    first, again = list(loader), list(loader)
    assert len(first) == len(loader) == EPOCH
    assert [b["forget"][0]["ids"].tolist() for b in first] == [b["forget"][0]["ids"].tolist() for b in again]
