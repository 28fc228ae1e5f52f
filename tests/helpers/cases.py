"""Small smooth float64 networks with a forget and a retain batch, and independent derivatives of Phi for them."""

from dataclasses import replace

import torch
import torch.nn.functional as F
from torch import nn
from transformers import AttentionInterface, AttentionMaskInterface, LlamaConfig, LlamaForCausalLM
from transformers.masking_utils import eager_mask
from transformers.models.llama.modeling_llama import LlamaRMSNorm

from ofmu_pl.core.safeguards import AS_PRINTED

BETA, FLOOR = 0.7, 1e-3
FLOORED = replace(AS_PRINTED, norm_floor=FLOOR)


class Case:
    """A network with per-sample losses on a forget and a retain batch."""

    def __init__(self, network, sample_losses, forget, retain):
        self.network, self.sample_losses = network, sample_losses
        self.batches = {"forget": forget, "retain": retain}
        self.parameters = [p for p in network.parameters() if p.requires_grad]

    def loss(self, side, parts=1):
        """The mean loss as terms, one a part (parts of unequal size)."""
        batch = self.batches[side]
        n = len(batch[0])
        size = -(-n // parts)
        cuts = [tuple(x[i : i + size] for x in batch) for i in range(0, n, size)]
        return [lambda c=c: self.sample_losses(self.network, *c).sum() / n for c in cuts]

    def phi(self, beta=BETA, floor=FLOOR):
        """Phi as one differentiable scalar: nested autograd, nothing of core."""
        f, r = (self.loss(side)[0]() for side in ("forget", "retain"))
        g_f = torch.cat([g.flatten() for g in torch.autograd.grad(f, self.parameters, create_graph=True)])
        g_r = torch.cat([g.flatten() for g in torch.autograd.grad(r, self.parameters, create_graph=True)])
        n_f, n_r = ((g @ g + floor**2).sqrt() for g in (g_f, g_r))
        return f - beta * (g_f @ g_r) / (n_f * n_r)

    def grad_phi(self, create_graph=False):
        return torch.autograd.grad(self.phi(), self.parameters, create_graph=create_graph)

    def hessian_phi(self, v):
        g = self.grad_phi(create_graph=True)
        return torch.autograd.grad(g, self.parameters, v)

    def along(self, function, v, h):
        """Derivative along v by the 7-point central rule, error O(h^6)."""
        origin = [p.detach().clone() for p in self.parameters]
        total = None
        for step, weight in ((1, 45.0), (2, -9.0), (3, 1.0)):
            for sign in (1, -1):
                with torch.no_grad():
                    for p, o, d in zip(self.parameters, origin, v, strict=True):
                        p.copy_(o + sign * step * h * d)
                value = [x.detach() * (sign * weight / (60 * h)) for x in function()]
                total = value if total is None else [a + b for a, b in zip(total, value, strict=True)]
        with torch.no_grad():
            for p, o in zip(self.parameters, origin, strict=True):
                p.copy_(o)
        return total


def classifier(network, shape, classes=4, n=6):
    g = torch.Generator().manual_seed(3)

    def batch():
        x = torch.randn(n, *shape, dtype=torch.float64, generator=g)
        return x, torch.randint(classes, (n,), generator=g)

    return Case(network.double(), lambda net, x, y: F.cross_entropy(net(x), y, reduction="none"), batch(), batch())


def mlp():
    torch.manual_seed(0)
    return classifier(nn.Sequential(nn.Linear(5, 8), nn.Tanh(), nn.Linear(8, 8), nn.SiLU(), nn.Linear(8, 4)), (5,))


def group_norm_cnn():
    torch.manual_seed(0)
    return classifier(_cnn(nn.GroupNorm(2, 6)), (3, 6, 6))


def batch_norm_cnn(train=False):
    torch.manual_seed(0)
    norm = nn.BatchNorm2d(6)
    case = classifier(_cnn(norm), (3, 6, 6))
    with torch.no_grad():
        norm.running_mean.uniform_(-0.3, 0.3)
        norm.running_var.uniform_(0.5, 2.0)
    case.network.train(train)
    return case


def layer_norm_mlp():
    torch.manual_seed(0)
    return classifier(nn.Sequential(nn.Linear(5, 8), nn.LayerNorm(8), nn.SiLU(), nn.Linear(8, 4)), (5,))


def _cnn(norm):
    return nn.Sequential(
        nn.Conv2d(3, 6, 3, padding=1), norm, nn.SiLU(), nn.Conv2d(6, 6, 3), nn.GELU(), nn.Flatten(), nn.Linear(96, 4)
    )


def _attention_float64(module, query, key, value, attention_mask, scaling, dropout=0.0, **_):
    """Eager attention without transformers' cast of the softmax to float32 (it would hide errors below 1e-7)."""
    groups = query.shape[1] // key.shape[1]
    key, value = key.repeat_interleave(groups, 1), value.repeat_interleave(groups, 1)
    scores = query @ key.transpose(2, 3) * scaling
    if attention_mask is not None:
        scores = scores + attention_mask[..., : key.shape[2]]
    return (scores.softmax(-1) @ value).transpose(1, 2).contiguous(), None


AttentionInterface.register("float64", _attention_float64)
AttentionMaskInterface.register("float64", eager_mask)


def tiny_llama():
    """A Hugging Face Llama whose norms and softmax stay in float64."""
    torch.manual_seed(0)
    sizes = {"vocab_size": 11, "hidden_size": 12, "intermediate_size": 16, "num_hidden_layers": 2}
    heads = {"num_attention_heads": 2, "num_key_value_heads": 1, "attn_implementation": "float64"}
    config = LlamaConfig(**sizes, **heads, tie_word_embeddings=True, initializer_range=0.3, use_cache=False)
    network = LlamaForCausalLM(config).eval()
    for module in list(network.modules()):
        for name, child in module.named_children():
            if isinstance(child, LlamaRMSNorm):
                setattr(module, name, nn.RMSNorm(12, eps=child.variance_epsilon))
    g = torch.Generator().manual_seed(3)

    def losses(net, ids):
        logits = net(input_ids=ids).logits[:, :-1]
        return F.cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten(), reduction="none").view(len(ids), -1).mean(1)

    def batch():
        return (torch.randint(11, (4, 7), generator=g),)

    return Case(network.double(), losses, batch(), batch())


SMOOTH = {"mlp": mlp, "tiny_llama": tiny_llama, "group_norm_cnn": group_norm_cnn, "batch_norm_cnn_eval": batch_norm_cnn}


def error(x, y):
    """|x - y| / |y| over lists of tensors."""
    top = sum(float(((a - b) ** 2).sum()) for a, b in zip(x, y, strict=True))
    return (top / sum(float((b**2).sum()) for b in y)) ** 0.5


def direction(case, seed=5):
    g = torch.Generator().manual_seed(seed)
    v = [torch.randn(p.shape, dtype=p.dtype, generator=g) for p in case.parameters]
    size = sum(float((x**2).sum()) for x in v) ** 0.5
    return [x / size for x in v]
