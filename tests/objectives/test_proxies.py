"""ProxyNCA++, SoftTriple and NT-Xent by their definitions, and the proxies that a loss hands out."""

import math

import pytest
import torch
from pytorch_metric_learning import losses, regularizers
from torch.nn.functional import normalize

from obdsd import objectives
from obdsd.objectives.soft_triple import _Spread
from tests.oracles import slow
from tests.refusing import refused

Z, LABELS = slow.unit_rows(12, 6, seed=0, dtype=torch.float64), torch.tensor([0, 0, 1, 1, 2, 2, 3, 3, 0, 1, 2, 3])
CLASSES = 5  # one of them is not in the batch
PROXY = {"proxy-anchor": objectives.proxy_anchor, "proxy-nca": objectives.proxy_nca, "soft-triple": objectives.soft_triple}
each = pytest.mark.parametrize("make", PROXY.values(), ids=PROXY.keys())


def value_and_gradients(loss_of, *inputs):
    leaves = [x.detach().clone().requires_grad_() for x in inputs]
    loss = loss_of(*leaves)
    return loss.detach(), *torch.autograd.grad(loss, leaves)


def literal_proxy_anchor(z, proxies):
    """1/|P⁺| Σ_{p∈P⁺} log(1 + Σ_{x∈X⁺} e^{-α(s-δ)}) + 1/|P| Σ_p log(1 + Σ_{x∈X⁻} e^{α(s+δ)}), α = 32, δ = 0.1."""
    pull = push = 0.0
    for c, proxy in enumerate(proxies):
        s, positive = normalize(z, dim=1) @ proxy / proxy.norm(), LABELS == c
        if positive.any():
            pull += torch.log(1 + torch.exp(-32 * (s[positive] - 0.1)).sum()) / 4
        push += torch.log(1 + torch.exp(32 * (s[~positive] + 0.1)).sum()) / CLASSES
    return pull + push


def literal_proxy_nca(z, proxies):
    """-log(e^{-9‖z-p_y‖²} / Σ_p e^{-9‖z-p‖²}), the sum over all proxies, averaged over the rows."""
    total = 0.0
    for i, label in enumerate(LABELS.tolist()):
        exponents = [-9 * (z[i] / z[i].norm() - p / p.norm()).square().sum() for p in proxies]
        total += torch.stack([e.exp() for e in exponents]).sum().log() - exponents[label]
    return total / len(z)


def literal_soft_triple(z, centres):
    """-log(e^{20(S_y-0.01)} / (e^{20(S_y-0.01)} + Σ_{c≠y} e^{20 S_c})) + 0.2 Σ_c Σ_{s<t} ‖w_cs-w_ct‖ / (C K(K-1)).

    S_c = Σ_k softmax_k(s_k/0.1) s_k is a row's similarity to a class.
    """
    total = spread = 0.0
    w = [[centres[:, 10 * c + k] / centres[:, 10 * c + k].norm() for k in range(10)] for c in range(CLASSES)]
    for i, label in enumerate(LABELS.tolist()):
        scores = []
        for c in range(CLASSES):
            s = torch.stack([z[i] @ w[c][k] / z[i].norm() for k in range(10)])
            share = (s / 0.1).exp()
            scores.append(20 * ((share * s).sum() / share.sum() - (0.01 if c == label else 0.0)))
        total += torch.stack([score.exp() for score in scores]).sum().log() - scores[label]
    for c in range(CLASSES):
        for s in range(10):
            for t in range(s + 1, 10):
                spread += (w[c][s] - w[c][t]).norm()
    return total / len(z) + 0.2 * spread / (CLASSES * 10 * 9)


DEFINITIONS = {
    "proxy-anchor": (literal_proxy_anchor, 1e-9),
    "proxy-nca": (literal_proxy_nca, 1e-9),
    "soft-triple": (literal_soft_triple, 1e-5),  # 1e-5 under the root of each distance
}


@pytest.mark.parametrize("name", PROXY)
def test_value_and_gradients_by_definition(name):
    literal, tolerance = DEFINITIONS[name]
    objective = PROXY[name](CLASSES, 6, seed=3).double()
    (own,) = objective.parameters()
    loss = objective(z := Z.clone().requires_grad_(), LABELS)
    got = loss.detach(), *torch.autograd.grad(loss, [z, own])
    for ours, truth in zip(got, value_and_gradients(literal, Z, own), strict=True):
        torch.testing.assert_close(ours, truth, rtol=tolerance, atol=tolerance)


def test_centres_that_meet_have_a_finite_gradient():
    centres = torch.ones(20, 6, requires_grad=True)
    _Spread(10)(centres).backward()
    assert centres.grad.isfinite().all()


def test_spread_is_that_of_pytorch_metric_learning():
    centres = torch.randn(CLASSES * 10, 6, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    torch.testing.assert_close(_Spread(10)(centres), regularizers.SparseCentersRegularizer(CLASSES, 10)(centres), rtol=1e-5, atol=0)


@each
def test_proxies_come_from_the_seed_alone(make):
    torch.manual_seed(5)
    before = torch.get_rng_state()
    first, same, other = (next(make(7, 6, seed=seed).parameters()) for seed in (0, 0, 1))
    assert torch.equal(first, same)
    assert not torch.equal(first, other)
    assert torch.equal(torch.get_rng_state(), before)


def test_proxies_and_boundaries_start_as_published():
    assert (objectives.margin(4).loss.beta == 1.2).all()
    assert (objectives.r_margin(4).loss.beta == 0.6).all()
    assert objectives.proxy_nca(500, 64).loss.proxies.std().item() == pytest.approx(1 / 8, rel=0.02)
    bound = 1 / math.sqrt(50 * 10)
    centres = objectives.soft_triple(50, 64).loss.fc
    assert 0.99 * bound < centres.abs().max() <= bound


@each
def test_the_proxies_of_some_classes(make):
    objective = make(CLASSES, 6, seed=2)
    everyone = objective.proxies_of(torch.arange(CLASSES))
    per_class = len(everyone) // CLASSES
    assert per_class == (10 if make is objectives.soft_triple else 1)
    torch.testing.assert_close(everyone.norm(dim=1), torch.ones(len(everyone)))
    assert not everyone.requires_grad
    some = objective.proxies_of(torch.tensor([3, 0, 3, 1, 0]))
    by_class = everyone.view(CLASSES, per_class, 6)
    assert torch.equal(some, torch.cat([by_class[0], by_class[1], by_class[3]]))
    assert objective.proxies_of(torch.tensor([]).long()).shape == (0, 6)


def test_proxies_are_those_that_the_losses_compare_with():
    z = Z.float()
    for make in (objectives.proxy_anchor, objectives.proxy_nca):
        objective = make(CLASSES, 6, seed=2)
        assert torch.equal(objective.proxies_of(torch.arange(CLASSES)), normalize(objective.loss.proxies.detach(), dim=1))
    objective = objectives.soft_triple(CLASSES, 6, seed=2)
    cosines = (z @ objective.proxies_of(torch.arange(CLASSES)).T).view(12, CLASSES, 10)
    torch.testing.assert_close((torch.softmax(cosines / 0.1, dim=2) * cosines).sum(dim=2), objective.loss.get_logits(z).detach())


def test_only_proxy_losses_have_proxies():
    for pairs in (objectives.multi_similarity(), objectives.margin(4), objectives.nt_xent(), objectives.from_pml(losses.ContrastiveLoss())):
        assert pairs.proxies_of(LABELS) is None
    from_pml = objectives.from_pml(losses.ProxyAnchorLoss(CLASSES, 6))
    assert from_pml.proxies_of(LABELS).shape == (4, 6)


def literal_nt_xent(z, labels, temperature):
    """-log(e^{s_ap/τ} / (e^{s_ap/τ} + Σ_n e^{s_an/τ})), averaged over the ordered positive pairs."""
    terms = []
    for a, p in ((a, p) for a in range(len(z)) for p in range(len(z)) if a != p and labels[a] == labels[p]):
        among = [z[a] @ z[n] / temperature for n in range(len(z)) if labels[n] != labels[a]]
        among.append(z[a] @ z[p] / temperature)
        terms.append(torch.stack([x.exp() for x in among]).sum().log() - among[-1])
    return torch.stack(terms).mean()


@pytest.mark.parametrize("temperature", [0.1, 0.5])
@pytest.mark.parametrize("labels", [torch.arange(6).repeat(2), LABELS], ids=["two views", "three views"])
def test_nt_xent_by_definition(labels, temperature):
    objective = objectives.nt_xent() if temperature == 0.1 else objectives.nt_xent(temperature)
    got = value_and_gradients(lambda z: objective(z, labels), Z)
    for ours, truth in zip(got, value_and_gradients(lambda z: literal_nt_xent(z, labels, temperature), Z), strict=True):
        torch.testing.assert_close(ours, truth, rtol=1e-6, atol=1e-6)


BAD = [
    (lambda: objectives.proxy_nca(0, 6), "num_classes, dim=(0, 6) must be 1 or more; pass the training set's"),
    (lambda: objectives.soft_triple(3, 0), "num_classes, dim=(3, 0) must be 1 or more"),
    (lambda: objectives.proxy_nca(3, 6)(Z, LABELS), "labels=0..3 must lie in 0..2; renumber them or raise num_classes"),
    (lambda: objectives.soft_triple(5, 9)(Z, LABELS), "embeddings.shape=(12, 6) must be (batch, 9); make the objective for"),
    (lambda: objectives.soft_triple(5, 6)(2 * Z, LABELS), "embeddings=rows off by 1 must be of unit length"),
    (lambda: objectives.proxy_nca(5, 6).proxies_of(LABELS - 1), "labels=-1..2 must lie in 0..4"),
    (lambda: objectives.from_pml(losses.SoftTripleLoss(3, 6)).proxies_of(LABELS), "labels=0..3 must lie in 0..2"),
    (lambda: objectives.nt_xent(0.0), "temperature=0.0 must be a positive finite number"),
    (lambda: objectives.nt_xent()(2 * Z, LABELS), "embeddings=rows off by 1 must be of unit length"),
]
test_bad_input_is_refused_in_one_clear_line = refused(BAD)
