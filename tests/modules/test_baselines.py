"""Baselines as modules: their first step against independent arithmetic, references, adapters, resuming, bad input."""

import pytest
import torch
from transformers import AutoModelForCausalLM

from ofmu_pl.data import Authors
from ofmu_pl.losses import dpo, kl, npo, token_nll
from ofmu_pl.modules import CEU, DPO, MASC, NPO, OFMU, PDU, RMU, UNDIAL, GradDiff, Negation
from ofmu_pl.networks import CausalLM
from ofmu_pl.networks.adapters import merged
from ofmu_pl.support.errors import UserError
from tests.helpers.methods import SGD, TEXTS, chosen
from tests.helpers.parts import plain
from tests.helpers.training import TINY, interrupted, train, weights

DEEP = {**TINY, "num_hidden_layers": 3}


def save_random(path, **config):
    data = Authors(authors=4, forget_authors=1)
    data.setup()
    torch.manual_seed(0)
    CausalLM(config={**DEEP, **config}).build(data, exact=False).save_pretrained(path)
    data.tokenizer.save_pretrained(path)
    return str(path)


def at_test_size(name, folder, **options):
    """A method of the folder's model."""
    setting = TEXTS[name]
    return setting(CausalLM(path=folder), **options, **SGD if setting.steps else {})


@pytest.mark.parametrize("name", chosen(TEXTS, "batches", lambda setting: setting.steps))
def test_micro_batches_change_nothing(folder, name):
    """Batches of four rows, as three and one."""
    ends = []
    for size in (None, 3):
        module = at_test_size(name, folder, micro_batch_size=size)
        train(module, steps=3)
        ends.append(weights(module))
    start = at_test_size(name, folder)
    train(start, steps=0)
    assert (ends[0] - weights(start)).norm() > 1e-6, "it moves"
    torch.testing.assert_close(ends[1], ends[0], rtol=1e-4, atol=2e-6)


def step_by_hand(folder, module, direction):
    """One SGD step from the folder's weights along the gradient of ``direction(network, frozen, batch)``."""
    train(module, steps=1)
    start = TEXTS["grad_diff"](CausalLM(path=folder), **SGD)
    train(start, steps=0)
    data = Authors(authors=4, forget_authors=1, batch_size=4, streams=module.streams)
    data.setup()
    network = start.network
    frozen = AutoModelForCausalLM.from_pretrained(folder)
    loss = direction(network, frozen, {name: batches[0] for name, batches in data.iteration(0).items()})
    gradients = torch.autograd.grad(loss, list(network.parameters()), allow_unused=True)
    with torch.no_grad():
        for p, g in zip(network.parameters(), gradients, strict=True):
            p.sub_(0 if g is None else 0.1 * g)
    torch.testing.assert_close(weights(module), weights(start), rtol=1e-4, atol=1e-6)


def answers(network, batch):
    """Logits of all positions, and targets."""
    logits = network(input_ids=batch["input_ids"], attention_mask=batch["attention_mask"]).logits
    return logits[:, :-1], batch["labels"][:, 1:]


def test_npo_with_cached_losses_is_npo_with_a_live_reference(folder):
    def loss(network, frozen, batch):
        nll, reference = (token_nll(*answers(m, batch["forget"])).sum(1) for m in (network, frozen))
        retain = token_nll(*answers(network, batch["retain"]))
        mask = batch["retain"]["labels"][:, 1:] != -100
        return npo(nll, reference.detach(), 0.1).mean() + (retain.sum(1) / mask.sum(1)).mean()

    step_by_hand(folder, NPO(CausalLM(path=folder), **SGD), loss)


def test_under_autocast_the_reference_is_computed_as_what_is_compared_with_it(folder):
    """Before the first step both are the same model: in two precisions they would differ by all of the rounding."""
    module = NPO(CausalLM(path=folder), optimizer=lambda p: torch.optim.SGD(p, lr=0.0))
    data = train(module, steps=1, precision="bf16-mixed").datamodule
    batch = data.collate("forget", list(range(len(data.splits["forget"]))), 0)
    with torch.no_grad():
        exact = module.summed_nll(batch)
        with module.run.forward_context():
            rounded = module.summed_nll(batch)
    assert (module.reference("forget", batch) - rounded).abs().max() < 0.1 * (exact - rounded).abs().max()


def test_dpo_pairs_each_question_with_its_refusal(folder):
    def loss(network, frozen, batch):
        forget, other = batch["forget"], batch["alternative"]
        assert forget["ids"].tolist() == other["ids"].tolist()
        nll = [token_nll(*answers(m, b)).sum(1) for b in (other, forget) for m in (network, frozen)]
        return dpo(nll[0], nll[1].detach(), nll[2], nll[3].detach(), 0.1).mean()

    step_by_hand(folder, DPO(CausalLM(path=folder), alpha=0.0, micro_batch_size=2, **SGD), loss)


def test_kl_retain_term(folder):
    def loss(network, frozen, batch):
        nll = token_nll(*answers(network, batch["forget"])).sum(1)
        mask = batch["forget"]["labels"][:, 1:] != -100
        goal = answers(frozen, batch["retain"])[0].detach()
        return -(nll / mask.sum(1)).mean() + 2 * kl(*answers(network, batch["retain"]), goal).mean()

    step_by_hand(folder, GradDiff(CausalLM(path=folder), alpha=2.0, retain_loss="kl", **SGD), loss)


def test_rmu_steers_hidden_states_of_a_batch(folder):
    def loss(network, frozen, batch):
        u = torch.rand(16, generator=torch.Generator().manual_seed(0))
        total = 0.0
        for name, weight in (("forget", 1.0), ("retain", 3.0)):
            b = batch[name]
            inputs = {k: b[k] for k in ("input_ids", "attention_mask")}
            h, f = (m(**inputs, output_hidden_states=True).hidden_states[2] for m in (network, frozen))
            goal = 2 * u / u.norm() if name == "forget" else f.detach()
            rows = [((h - goal)[i][b["labels"][i] != -100] ** 2).mean() for i in range(len(h))]
            total = total + weight * torch.stack(rows).mean()
        return total

    module = RMU(CausalLM(path=folder), layer="model.layers.1", coefficient=2.0, alpha=3.0, **SGD)
    step_by_hand(folder, module, loss)


@pytest.mark.parametrize("name", chosen(TEXTS, "resume", lambda setting: setting.keeps))
def test_stop_and_resume_ends_with_the_same_bits(folder, tmp_path, name):
    def make():
        return TEXTS[name](CausalLM(path=folder), optimizer=lambda p: torch.optim.AdamW(p, lr=0.01))

    whole, resumed = interrupted(make, tmp_path, 4, at=2)
    assert whole.alpha == resumed.alpha
    if whole.constrain:
        assert whole.constrain.multiplier == resumed.constrain.multiplier > 0


@pytest.mark.parametrize("precision", ["16-true", "bf16-true"])  # on a CPU 16-mixed is bf16-mixed
def test_no_method_runs_where_steps_are_lost(folder, precision):
    with pytest.raises(UserError, match=f"{precision} .*trainer.precision"):
        train(GradDiff(CausalLM(path=folder), **SGD), steps=1, precision=precision)


LORA = {"r": 2, "lora_alpha": 4, "target_modules": "all-linear"}


@pytest.mark.parametrize("make", [lambda n: OFMU(n, inner_steps=2, stepper=plain(0.1)), NPO, UNDIAL])
def test_adapters_are_all_that_is_trained_and_merge_into_the_same_model(folder, make):
    module = make(CausalLM(path=folder, lora=LORA))
    module.make_optimizer = lambda p: torch.optim.AdamW(p, lr=0.05)
    train(module, steps=3)
    network = module.network.eval()
    trained = [name for name, p in network.named_parameters() if p.requires_grad]
    assert trained
    assert all("lora_" in name for name in trained)
    original = AutoModelForCausalLM.from_pretrained(folder)
    ids = torch.arange(20)[None]
    with torch.no_grad(), network.disable_adapter():
        torch.testing.assert_close(network(ids).logits, original(ids).logits)
    with torch.no_grad():
        adapted, plain = network(ids).logits, merged(network)(ids).logits
        assert (adapted - original(ids).logits).abs().max() > 1e-3
        torch.testing.assert_close(adapted, plain, rtol=1e-4, atol=1e-5)
    assert not any("lora" in name for name, _ in merged(network).named_parameters())


def test_qlora_trains_adapters_beside_weights_in_4_bits(tmp_path):
    wide = save_random(tmp_path, hidden_size=64, intermediate_size=128)  # bitsandbytes wants blocks of 64
    module = NPO(CausalLM(path=wide, lora=LORA, load_in_4bit=True), **SGD)
    train(module, steps=2)
    kinds = {p.dtype for name, p in module.network.named_parameters() if "layers" in name and not p.requires_grad}
    assert torch.uint8 in kinds
    trained = {name: p for name, p in module.network.named_parameters() if p.requires_grad}
    assert all(p.dtype == torch.float32 and torch.isfinite(p).all() for p in trained.values())
    assert any(p.abs().max() > 0 for name, p in trained.items() if "lora_B" in name), "they start at 0"


def test_pdu_watches_its_constraint_from_a_price_of_zero(folder):
    """The bound is broken at once, so the price rises by ``dual_step (L_r - epsilon)`` each time."""
    module = PDU(CausalLM(path=folder), epsilon=0.5, alpha=0.0, dual_step=2.0, **SGD)
    assert module.streams == ("forget", "retain")
    first = train(module, steps=1).callback_metrics["L_r"].item()
    assert first > 0.5
    assert module.alpha == pytest.approx(2.0 * (first - 0.5))


def test_ce_u_counts_the_first_token_of_a_document(folder):
    """Nothing predicts it. Upstream counts it among those that are left alone."""
    module = CEU(CausalLM(path=folder), skip=2, **SGD)
    train(module, steps=0)
    with torch.no_grad():
        module.network.lm_head.weight.mul_(50)  # else all tokens have the loss of a uniform guess
    ids = torch.tensor([[5, 6, 7, 8, 9], [5, 6, 7, 8, 9]])
    labels = torch.tensor([[-100, 6, 7, 8, 9], [-100, -100, 7, 8, 9]])
    got = module.forget_losses({"input_ids": ids, "attention_mask": torch.ones_like(ids), "labels": labels})
    logits = module.network(input_ids=ids).logits.detach()
    for row, kept in ((0, (2, 3, 4)), (1, (4,))):  # tokens, after the first two of document and answer
        losses = []
        for t in kept:
            z = logits[row, t - 1].double()
            own = z.index_fill(0, ids[row, t], -torch.inf).softmax(0)
            losses.append(-(own * z.log_softmax(0)).sum())
        assert got[row].item() == pytest.approx(torch.stack(losses).mean().item(), rel=1e-5)


def test_adapters_serve_as_their_own_frozen_model(folder):
    """UNDIAL under adapters makes no second copy."""
    module = UNDIAL(CausalLM(path=folder, lora=LORA), **SGD)
    train(module, steps=1)
    assert module._frozen.network is None
    plain = UNDIAL(CausalLM(path=folder), **SGD)
    train(plain, steps=1)
    assert plain._frozen.network is not None


def test_only_the_named_adapters_are_trained_beside_a_frozen_model(folder):
    """Peft itself trains all adapters once they were switched off and on again."""
    module = UNDIAL(CausalLM(path=folder, lora=LORA, trainable=r"layers\.0\.mlp"), **SGD)
    train(module, steps=2)
    parameters = dict(module.network.named_parameters())
    trained = {name for name, p in parameters.items() if p.requires_grad}
    assert trained == {name for name in parameters if "layers.0.mlp" in name and "lora_" in name}
    assert {name for name, p in parameters.items() if "lora_B" in name and p.any()} == trained & {
        name for name in parameters if "lora_B" in name
    }, "they start at 0"


def test_only_the_named_parameters_are_trained(folder):
    pattern = r"layers\.[01]\.mlp\.down_proj"
    module = RMU(CausalLM(path=folder, trainable=pattern), layer="model.layers.1", **SGD)
    train(module, steps=2)
    start = dict(AutoModelForCausalLM.from_pretrained(folder).named_parameters())
    moved = {name for name, p in module.network.named_parameters() if not torch.equal(p, start[name])}
    assert moved == {f"model.layers.{i}.mlp.down_proj.weight" for i in (0, 1)}


def bitsandbytes_adamw(name, **options):
    import bitsandbytes

    return lambda p: getattr(bitsandbytes.optim, name)(p, **options)


def test_a_bitsandbytes_optimizer_trains(folder):
    module = NPO(CausalLM(path=folder), optimizer=bitsandbytes_adamw("AdamW8bit", lr=0.01))
    train(module, steps=2)
    start = TEXTS["npo"](CausalLM(path=folder))
    train(start, steps=0)
    assert torch.isfinite(weights(module)).all()
    assert not torch.equal(weights(module), weights(start))
    state = module.run.optimizers[0].state
    assert state[module.network.get_input_embeddings().weight]["state1"].dtype == torch.float32
    assert state[module.network.get_output_embeddings().weight]["state1"].dtype == torch.uint8


def test_paged_optimizers_are_refused_where_there_is_nothing_to_page_from(folder):
    with pytest.raises(UserError, match="optim.AdamW8bit"):
        train(NPO(CausalLM(path=folder), optimizer=bitsandbytes_adamw("PagedAdamW8bit")), steps=1)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda f: RMU(CausalLM(path=f), layer="model.layers.9"), "model.layers.9"),
        (lambda f: GradDiff(CausalLM(path=f), retain_loss="embedding"), "model.layer"),
        (lambda f: GradDiff(CausalLM(path=f), retain_loss="klx"), "retain_loss klx.*kl"),
        (lambda f: GradDiff(CausalLM(path=f), micro_batch_size=2.5), "micro_batch_size"),
        (lambda f: Negation(CausalLM(path=f), steps=1.5), "steps"),
        (lambda f: MASC(CausalLM(path=f), rivals=1.5), "rivals"),
        (lambda f: MASC(CausalLM(path=f), stop_share=-3.0), "stop_share"),
        (lambda f: GradDiff(CausalLM(path=f), alpha=-1), "alpha"),
        (lambda f: NPO(CausalLM(path=f), beta=0.0), "beta"),
        (lambda f: NPO(CausalLM(path=f, lora={"r": 2, "target_modules": ["nothing"]})), "nothing.*network.lora"),
        (lambda f: NPO(CausalLM(path=f, lora={"rank": 2})), "rank.*network.lora"),
        (lambda f: NPO(CausalLM(path=f, trainable="nothing")), "network.trainable 'nothing'"),
        (lambda f: NPO(CausalLM(path=f, trainable="(")), r"network.trainable '\(' .*\("),
        (lambda f: NPO(CausalLM(path=f, load_in_4bit=True)), "`lora`"),
    ],
)
def test_bad_arguments(folder, make, words):
    with pytest.raises(UserError, match=words):
        train(make(folder), steps=1)


def test_reference_answers_keep_the_precision_of_the_run(folder):
    """The weights have not moved, so that the ratio to the frozen model is 1; in float32 it was off by 1e-6."""
    module = NPO(CausalLM(path=folder), optimizer=lambda p: torch.optim.SGD(p, lr=0.0))
    train(module, steps=1, precision="64-true")
    part = module.run.data.collate("forget", [0, 1, 2], 0)
    with torch.no_grad():
        off = module.summed_nll(part) - module.reference("forget", part)
    assert off.abs().max() < 1e-10
