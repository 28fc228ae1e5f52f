"""Every loss row by row and token by token in float64 against its formula, its gradient, and its edges."""

import math

import numpy as np
import pytest
import torch

from ofmu_pl import losses as L

B, S, V, D = 3, 6, 7, 5


@pytest.fixture
def case():
    """Logits of a model and of a reference, and targets: a short row, a gap, and a row without any."""
    torch.manual_seed(0)
    targets = torch.randint(V, (B, S))
    targets[0, :2] = L.IGNORED
    targets[1, [0, 3, 5]] = L.IGNORED
    targets[2] = L.IGNORED
    logits = (3 * torch.randn(B, S, V, dtype=torch.float64)).requires_grad_()
    return logits, targets, 3 * torch.randn(B, S, V, dtype=torch.float64)


def log_softmax(z):
    return z - np.log(np.exp(z).sum())


def by_token(function, targets, *arrays):
    """Mean over a row's targets of ``function(token, *vectors)``; 0 for a row without."""
    rows = []
    arrays = [a.detach().numpy() for a in arrays]
    for b in range(len(targets)):
        found = [(t, int(targets[b, t])) for t in range(targets.shape[1]) if targets[b, t] != L.IGNORED]
        values = [function(y, *(a[b, t] for a in arrays)) for t, y in found]
        rows.append(np.mean(values) if values else 0.0)
    return rows


def same(got, wanted):
    np.testing.assert_allclose(got.detach().numpy(), wanted, rtol=1e-12, atol=1e-14)


def test_mean_of_token_losses(case):
    logits, targets, _ = case
    wanted = by_token(lambda y, z: -log_softmax(z)[y], targets, logits)
    same(L.sample_mean(L.token_nll(logits, targets), targets), wanted)
    labels = torch.full((B, S), L.IGNORED)
    labels[:, 1:] = targets[:, :-1]
    kept = targets.clone()
    kept[:, -1] = L.IGNORED
    assert torch.equal(L.shifted(labels), kept)


@pytest.mark.parametrize("beta", [0.1, 2.5])
def test_npo(beta):
    nll, reference = (torch.rand(4, dtype=torch.float64) * 30 for _ in range(2))
    nll.requires_grad_()
    ratio = np.exp(reference.numpy() - nll.detach().numpy())  # p / p_ref
    wanted = 2 / beta * np.log1p(ratio**beta)
    np.testing.assert_allclose(L.npo(nll, reference, beta).detach(), wanted, rtol=1e-8)  # softplus is linear above 20
    (gradient,) = torch.autograd.grad(L.npo(nll, reference, beta).sum(), nll)
    # Ascent, with weights that vanish with the ratio.
    np.testing.assert_allclose(gradient, -2 * ratio**beta / (1 + ratio**beta), rtol=1e-8)


def test_npo_towards_gradient_ascent():
    """Up to the constant (2 / beta) log 2 the loss tends to -nll + reference (Zhang et al., section 3)."""
    nll, reference = torch.tensor([5.0, 2.0]).double(), torch.tensor([1.0, 4.0]).double()
    beta = 1e-6
    same((L.npo(nll, reference, beta) - 2 / beta * math.log(2)).round(decimals=4), [-4.0, 2.0])


@pytest.mark.parametrize(("beta", "delta"), [(4.5, 0.0), (2.5, 0.4)])
def test_simnpo(beta, delta):
    nll = torch.tensor([0.0, 0.3, 6.0, 200.0], dtype=torch.float64)
    sigmoid = 1 / (1 + np.exp(-beta * (nll.numpy() - delta)))
    same(L.simnpo(nll, beta, delta), -2 / beta * np.log(sigmoid))


def test_dpo():
    torch.manual_seed(0)
    a, ra, y, ry = torch.rand(4, 5, dtype=torch.float64) * 8
    beta = 0.3
    margin = beta * ((ra - a) - (ry - y)).numpy()
    same(L.dpo(a, ra, y, ry, beta), 2 / beta * np.log1p(np.exp(-margin)))
    assert (L.dpo(a - 1, ra, y, ry, beta) < L.dpo(a, ra, y, ry, beta)).all(), "likelier refusals are better"
    assert (L.dpo(a, ra, y + 1, ry, beta) < L.dpo(a, ra, y, ry, beta)).all(), "unlikelier forget answers are better"


@pytest.mark.parametrize(("beta_1", "beta_2"), [(1.0, 0.0), (5.0, 1.0)])
def test_weighted_ascent(case, beta_1, beta_2):
    logits, targets, _ = case

    def weight(y, z):
        p = np.exp(log_softmax(z)[y])
        return p**beta_1 * (1 - p) ** beta_2

    got = L.weighted_ascent(logits, targets, beta_1, beta_2)
    same(got, by_token(lambda y, z: weight(y, z) * log_softmax(z)[y], targets, logits))
    (gradient,) = torch.autograd.grad(got.sum(), logits)
    # Constant weights: w (onehot - p) / n at each position.
    z, wanted = logits.detach().numpy(), np.zeros((B, S, V))
    for b in range(B):
        found = [t for t in range(S) if targets[b, t] != L.IGNORED]
        for t in found:
            y = int(targets[b, t])
            wanted[b, t] = weight(y, z[b, t]) * (np.eye(V)[y] - np.exp(log_softmax(z[b, t]))) / len(found)
    same(gradient, wanted)


def test_undial(case):
    logits, targets, reference = case

    def loss(y, z, r):
        lowered = r - 10 * np.eye(V)[y]
        return -(np.exp(log_softmax(lowered)) * log_softmax(z)).sum()

    same(L.undial(logits, targets, reference, 10.0), by_token(loss, targets, logits, reference))


def test_log_odds_of_what_is_known_too_well_have_a_value_and_a_slope():
    """A row far below the floor is pushed as one at the floor; else what a model knows best would never move."""
    logit = torch.tensor([12.0, 16.0, 20.0], dtype=torch.float64, requires_grad=True)
    found = L.log_odds(torch.nn.functional.softplus(-logit))
    (slope,) = torch.autograd.grad(found.sum(), logit)
    assert found[1:].tolist() == pytest.approx([math.log(1e-6)] * 2, abs=1e-5)
    assert slope[0].item() == pytest.approx(-1.0, rel=1e-3)
    assert (slope < 0).all()


@pytest.mark.parametrize("skip", [0, 1, 9])
def test_ce_u(case, skip):
    logits, targets, _ = case
    kept = targets.clone()
    for row in kept:
        row[(row != L.IGNORED).nonzero()[:skip]] = L.IGNORED

    def loss(y, z):
        others = np.delete(np.arange(V), y)
        return -(np.exp(log_softmax(z[others])) * log_softmax(z)[others]).sum()

    got = L.ce_u(logits, L.after_first(targets, skip))
    same(got, by_token(loss, kept, logits))
    (gradient,) = torch.autograd.grad(got.sum(), logits)
    assert torch.isfinite(gradient).all()
    z, wanted = logits.detach().numpy(), np.zeros((B, S, V))
    for b in range(B):
        found = [t for t in range(S) if kept[b, t] != L.IGNORED]
        for t in found:  # the target distribution is constant: p - q
            y = int(kept[b, t])
            q = np.exp(log_softmax(np.where(np.arange(V) == y, -1e30, z[b, t])))
            wanted[b, t] = (np.exp(log_softmax(z[b, t])) - q) / len(found)
    same(gradient, wanted)


def test_logit_margin(case):
    logits, targets, _ = case
    same(L.logit_margin(logits, targets), by_token(lambda y, z: (z.max() - z.mean()) ** 2, targets, logits))


def test_kl(case):
    logits, targets, reference = case

    def loss(y, z, r):
        return (np.exp(log_softmax(r)) * (log_softmax(r) - log_softmax(z))).sum()

    same(L.kl(logits, targets, reference), by_token(loss, targets, logits, reference))
    same(L.kl(reference, targets, reference), np.zeros(B))


def divergence(p, q):
    """Jensen-Shannon, where 0 log 0 is 0."""
    m = (p + q) / 2
    return sum((x[x > 0] * np.log(x[x > 0] / m[x > 0])).sum() for x in (p, q)) / 2


def test_js(case):
    logits, targets, reference = case
    wanted = by_token(lambda y, z, r: divergence(*np.exp((log_softmax(z), log_softmax(r)))), targets, logits, reference)
    same(L.js(logits, targets, reference), wanted)
    same(L.js(reference, targets, logits), wanted)
    same(L.js(reference, targets, reference), np.zeros(B))


def test_js_to_token(case):
    logits, targets, _ = case
    wanted = by_token(lambda y, z: divergence(np.exp(log_softmax(z)), np.eye(V)[y]), targets, logits)
    same(L.js_to_token(logits, targets), wanted)
    ends = torch.tensor([[[0.0, 1000.0]], [[1000.0, 0.0]]], dtype=torch.float64).requires_grad_()
    found = L.js_to_token(ends, torch.zeros(2, 1, dtype=torch.long))
    same(found, [math.log(2), 0.0])
    (gradient,) = torch.autograd.grad(found.sum(), ends)
    assert torch.isfinite(gradient).all()


@pytest.mark.parametrize("rivals", [None, 1, 3, 99])
def test_margins(case, rivals):
    logits, targets, _ = case

    def margin(y, z):
        others = np.sort(np.delete(z, y))[::-1][:rivals]
        return z[y] - np.log(np.exp(others).sum())

    same(L.sample_mean(L.margins(logits, targets, rivals), targets), by_token(margin, targets, logits))


def test_margin_hinge(case):
    logits, targets, _ = case

    def loss(y, z):
        margin = z[y] - np.log(np.exp(np.sort(np.delete(z, y))[-2:]).sum())
        return max(0.0, margin + 3.0 + 0.25) / 0.25

    got = L.margin_hinge(logits, targets, 2, -3.0, 0.25)
    same(got, by_token(loss, targets, logits))
    above = L.sample_mean((L.margins(logits, targets, 2) > -3.0).double(), targets)
    assert 0 < above.mean() < 1
    assert (got >= above).all()


def confident_npo(logits, targets, beta):
    """CATNIP's, token by token."""
    return L.sample_mean(L.simnpo(-L.margins(logits, targets), beta), targets)


@pytest.mark.parametrize("beta", [1.0, 0.3])
def test_confident_npo(case, beta):
    logits, targets, _ = case
    p = lambda y, z: np.exp(log_softmax(z)[y])  # noqa: E731
    got = confident_npo(logits, targets, beta)
    same(got, by_token(lambda y, z: 2 / beta * np.log1p((p(y, z) / (1 - p(y, z))) ** beta), targets, logits))
    (gradient,) = torch.autograd.grad(got.sum(), logits)
    true = gradient.gather(2, targets.clamp(min=0).unsqueeze(2)).squeeze(2).sum(1)
    if beta == 1:  # what pushes a token is its confidence
        same(true, by_token(lambda y, z: 2 * p(y, z), targets, logits))
    sure = torch.tensor([[[0.0, 900.0]]], dtype=torch.float64).requires_grad_()
    (gradient,) = torch.autograd.grad(confident_npo(sure, torch.ones(1, 1).long(), beta), sure)
    same(gradient, [[[-2.0, 2.0]]])


def test_hidden_distance_of_rows_of_different_lengths():
    torch.manual_seed(0)
    hidden, frozen = torch.randn(2, B, S, D, dtype=torch.float64)
    vector, mask = torch.rand(D, dtype=torch.float64), torch.arange(S) < torch.tensor([[1], [4], [0]])
    for goal in (frozen, vector):
        got = L.hidden_distance(hidden, goal, mask)
        for b in range(B):
            steps = [((hidden - goal)[b, t] ** 2).mean() for t in range(S) if mask[b, t]]
            assert got[b] == pytest.approx(float(sum(steps) / len(steps)) if steps else 0.0, rel=1e-12)
            alone = L.hidden_distance(hidden[b : b + 1], goal if goal.dim() == 1 else goal[b : b + 1], mask[b : b + 1])
            assert alone[0] == got[b], "a row's loss does not depend on the others"


ALL = {
    "nll": lambda z, y, r: L.sample_mean(L.token_nll(z, y), y),
    "undial": lambda z, y, r: L.undial(z, y, r, 10.0),
    "kl": L.kl,
    "js": L.js,
    "confident_npo": lambda z, y, r: confident_npo(z, y, 0.7),
    "margin_hinge": lambda z, y, r: L.margin_hinge(z, y, 3, 0.8, 0.3),
    "js_to_token": lambda z, y, r: L.js_to_token(z, y),
    "logit_margin": lambda z, y, r: L.logit_margin(z, y),
    "ce_u": lambda z, y, r: L.ce_u(z, y),
    "weighted_ascent": lambda z, y, r: L.weighted_ascent(z, y, 1.0, 1.0),
    "npo": lambda z, y, r: L.npo(L.token_nll(z, y).sum(1), L.token_nll(r, y).sum(1), 0.1),
    "simnpo": lambda z, y, r: L.simnpo(L.sample_mean(L.token_nll(z, y), y), 4.5),
}


@pytest.mark.parametrize(
    "name", ["nll", "undial", "kl", "js", "js_to_token", "confident_npo", "logit_margin", "npo", "simnpo"]
)
def test_gradients_are_those_of_differences(case, name):
    logits, targets, reference = case
    assert torch.autograd.gradcheck(lambda z: ALL[name](z, targets, reference), (logits,))


@pytest.mark.parametrize("name", ALL)
def test_edges(case, name):
    logits, targets, reference = case
    together = ALL[name](logits, targets, reference)
    assert together.shape == (B,)
    for b in range(B):
        alone = ALL[name](logits[b : b + 1], targets[b : b + 1], reference[b : b + 1])
        assert alone[0].item() == pytest.approx(together[b].item(), rel=1e-12), "a batch of one"
    (gradient,) = torch.autograd.grad(together.sum(), logits)
    assert not gradient[targets == L.IGNORED].any(), "positions without a target have no gradient"
    if name not in ("npo", "simnpo"):  # these say what forgetting nothing is worth
        assert together[2] == 0, "a row without targets"
    half = ALL[name](logits.bfloat16(), targets, reference.bfloat16())
    assert half.dtype == torch.float32
    np.testing.assert_allclose(half.detach(), together.detach(), rtol=0.1, atol=0.1)
