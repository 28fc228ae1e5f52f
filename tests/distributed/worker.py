"""A rank of some runs, mostly in float64."""

from functools import partial
from pathlib import Path

import lightning.pytorch as pl
import torch
from lightning.pytorch.callbacks import ModelCheckpoint
from lightning.pytorch.strategies import ModelParallelStrategy
from transformers.models.llama.modeling_llama import LlamaRMSNorm

from ofmu_pl.core.finite_difference import FiniteDifference
from ofmu_pl.core.shared_adam import SharedAdam
from ofmu_pl.core.vectors import is_sharded
from ofmu_pl.data import Authors, Digits
from ofmu_pl.modules import OFMU, GradDiff
from ofmu_pl.modules.lower_level import BoundedLoss, HeldOutLevels
from ofmu_pl.modules.reaching import Reach
from ofmu_pl.modules.steppers import AdamSteps, SharedSteps
from ofmu_pl.networks import CausalLM, SmallCNN, predictions
from ofmu_pl.training.checkpoints import WholeFiles, require_sound
from tests.helpers.methods import TEXTS
from tests.helpers.parts import ALONG_PATH, FIRST_ORDER, printed
from tests.helpers.training import TINY, quiet_trainer

WHOLE = predictions.CHUNK


class Double:
    """Makes a recipe's network float64; matrices of a frozen base stay in bfloat16."""

    def build(self, datamodule, *, exact):
        module = super().build(datamodule, exact=exact)
        return module._apply(lambda x: x.double() if x.dtype == torch.float32 else x)


class DoubleLM(Double, CausalLM):
    """Llama whose norms and softmax stay in float64: transformers casts them to float32, which rounds by 1e-8."""

    def build(self, datamodule, *, exact):
        module = super().build(datamodule, exact=exact)
        for m in module.modules():
            if isinstance(m, LlamaRMSNorm):
                m.forward = partial(root_mean_square, m)
        return module


def root_mean_square(m, x):
    return m.weight * x * torch.rsqrt(x.square().mean(-1, keepdim=True) + m.variance_epsilon)


def softmax_in_place(x, dim=None, dtype=None, _softmax=torch.nn.functional.softmax, **_):
    return _softmax(x, dim=dim, dtype=None if x.dtype == torch.float64 else dtype)


class DoubleCNN(Double, SmallCNN):
    def logits(self, module, batch):
        return super().logits(module, batch | {"images": batch["images"].double()})


class Central(OFMU):
    """OFMU by central differences, whose longer steps magnify the rounding of sums least."""

    def on_train_start(self):
        super().on_train_start()
        self.engine = FiniteDifference(self.engine.parameters, "central", ranks=self.run.ranks)


def adam(parameters):
    return torch.optim.AdamW(parameters, lr=1e-3)


def sgd(parameters):
    return torch.optim.SGD(parameters, lr=0.1)


def make(method, folder):
    lm, cnn, single = DoubleLM(config=dict(TINY)), DoubleCNN(width=8), CausalLM(config=dict(TINY))
    halved = DoubleLM(config=dict(TINY), lora={"r": 2}, base_dtype="bfloat16")
    ofmu = {"inner_steps": 2, "optimizer": adam, "micro_batch_size": 3}
    ascent = {"stepper": partial(AdamSteps, lr=1e-3)}
    shared = {"stepper": SharedSteps, "inner_steps": 2} | FIRST_ORDER
    shared |= {"engine": "finite_difference", "optimizer": lambda p: SharedAdam(p, lr=1e-3)}
    whole = {"outer_at": "start", "beta": 0.1, "upper": printed(every=2)}
    files = partial(GradDiff, CausalLM(str(folder / "model")), retain_loss="kl", optimizer=sgd)
    forms = {
        "ofmu-exact-lm": lambda: OFMU(lm, **ofmu),
        "ofmu-differences-lm": lambda: Central(lm, engine="finite_difference", **ofmu),
        "ofmu-differences-single": lambda: OFMU(single, engine="finite_difference", **ofmu | ascent),
        "ofmu-auto-lm": lambda: OFMU(lm, engine="finite_difference", inner_steps=2, **ALONG_PATH | FIRST_ORDER),
        "ofmu-shared-lm": lambda: Central(lm, lower=partial(BoundedLoss, 4.0), **shared | whole),
        "ofmu-reach-lm": lambda: OFMU(lm, **shared | {"upper": partial(Reach, 0.02, drop=1e-6, start=0.0)}),
        "ofmu-ngram-lm": lambda: OFMU(lm, lower=partial(HeldOutLevels, ngram_weight=0.3), **shared),
        "ofmu-bfloat16-lm": lambda: Central(halved, engine="finite_difference", **ofmu),
        "kl-files": files,
        "kl-files-bfloat16": files,
        "ofmu-exact-cnn": lambda: OFMU(cnn, **ofmu),
        "ofmu-differences-cnn": lambda: Central(cnn, engine="finite_difference", **ofmu | ascent),
    }
    for name, setting in TEXTS.items():
        if setting.ranks:
            forms[f"{name}-lm"] = partial(setting, lm, optimizer=adam, micro_batch_size=3)
    return forms[method]()


class Batches(pl.Callback):
    """Ids of all batches, as the ranks of a run see them before they share them."""

    def __init__(self):
        self.ids = []

    def on_train_batch_start(self, trainer, pl_module, batch, batch_idx):
        self.ids.append([[b["ids"].tolist() for b in batch[s]] for s in batch])


def main(runs):
    """Does runs, each given as METHOD, STRATEGY, FILE, CHECKPOINT; for a process of its own."""
    torch.nn.functional.softmax = softmax_in_place
    for run in runs:
        one(*run)


def one(method, strategy, file, checkpoint=None):
    module = make(method, Path(file).parent)
    # Ranks make logits of some places at a time.
    predictions.CHUNK, predictions.SHARE = (WHOLE, 1.0) if strategy == "one" else (10_000, 0.0)
    options = {"streams": module.streams, "num_batches": module.num_batches}
    if not method.endswith("cnn"):
        data = Authors(authors=4, forget_authors=1, holdout_authors=2, batch_size=4, **options)
    else:
        data = Digits(forget_classes=[0], train_items=300, batch_size=8, **options)
    fsdp2 = partial(ModelParallelStrategy, data_parallel_size=2, tensor_parallel_size=1, process_group_backend="gloo")
    strategies = {
        "one": lambda: "auto",
        "ddp": lambda: "ddp",
        "fsdp2": lambda: fsdp2(save_distributed_checkpoint=False),
        "fsdp2-shards": lambda: fsdp2(save_distributed_checkpoint=True),
    }
    seen = Batches()
    keep = ModelCheckpoint(
        Path(file).parent, every_n_train_steps=2, save_top_k=-1, filename=f"{Path(file).stem}-{{step}}"
    )
    mixed = method == "kl-files-bfloat16"
    trainer = quiet_trainer(
        3,
        precision="bf16-mixed" if mixed else "32-true",
        devices=1 if strategy == "one" else 2,
        strategy=strategies[strategy](),
        plugins=[WholeFiles()],
        callbacks=[seen, keep],
        enable_checkpointing=True,
        use_distributed_sampler=False,
    )
    torch.manual_seed(0)
    if checkpoint:
        require_sound(Path(checkpoint))
        trainer.ckpt_path = checkpoint  # as the command line does, so that the network is compared with it
    trainer.fit(module, datamodule=data, weights_only=True)
    if method.startswith("kl-files") and strategy == "fsdp2":  # the frozen model is in shards, too
        frozen = [*module._frozen.network.parameters()]
        assert is_sharded(frozen)
        assert mixed == any(p.dtype == torch.bfloat16 for p in frozen)
    state = {k: v.clone() for k, v in module.whole_network().state_dict().items()}
    if trainer.is_global_zero:
        torch.save({"state": state, "batches": seen.ids}, file)
