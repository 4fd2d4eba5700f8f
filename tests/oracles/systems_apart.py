"""MIC, DCML and DiVA by their definitions, literally: loops over items, one number at a time, in the precision of the rows."""

from __future__ import annotations

import torch
from torch import Tensor

from tests.oracles.losses import unit


def decorrelation(source: Tensor, target: Tensor, w1: Tensor, b1: Tensor, w2: Tensor, b2: Tensor) -> Tensor:
    """Without the reversal: what the regressor lowers."""
    terms = []
    for a, c in zip(source, target, strict=True):
        predicted, own = unit(w2 @ torch.relu(w1 @ unit(a) + b1) + b2), unit(c)
        terms += [(own[k] * predicted[k]) ** 2 for k in range(len(own))]
    return -torch.stack(terms).sum() / len(terms)


def composites(
    features: Tensor, maps: list[tuple[Tensor, Tensor]], mixers: list[tuple[Tensor, Tensor]]
) -> tuple[list[Tensor], list[Tensor]]:
    """DCML: of each item the composites of unit length side by side, and the shares, a row a composite."""
    rows, shares = [], []
    for x in features:
        e = [W @ x + b for W, b in maps]
        together = torch.cat(e).detach()
        p = []
        for W, b in mixers:
            weights = (W @ together + b).exp()
            p.append(weights / weights.sum())
        rows.append(torch.cat([unit(sum(share * each for share, each in zip(own, e, strict=True))) for own in p]))
        shares.append(torch.stack(p))
    return rows, shares


def reinforcement(shares: list[Tensor]) -> Tensor:
    """Of each composite the mean of -log of its largest share, summed."""
    return sum(-torch.stack([p[c].max().log() for p in shares]).mean() for c in range(len(shares[0])))


def margin(z: Tensor, labels: Tensor, beta: Tensor, triplets: list[tuple[int, int, int]]) -> Tensor:
    """DiVA's, of given triplets, some of which may name a row twice."""
    terms = []
    for a, p, n in triplets:
        d_ap, d_an = (((z[a] - z[other]).square().sum() + 1e-8).sqrt() for other in (p, n))
        terms.append((d_ap - beta[labels[a]] + 0.2).clamp(min=0) + (beta[labels[a]] - d_an + 0.2).clamp(min=0))
    return torch.stack(terms).sum() / max(1, sum(bool(term > 0) for term in terms))


def contrast(query: Tensor, keys: Tensor, queue: Tensor, temperature: float, published: bool = False) -> Tensor:
    """DiVA's: each number of the weights by itself; a weight of 0 stays 0."""
    d = query.shape[1]
    w = torch.zeros(len(query), len(queue), dtype=torch.float64)
    for i in range(len(query)):
        for j in range(len(queue)):
            r = float((query[i] - queue[j]).detach().square().sum().sqrt())
            if r <= 1.4:
                r = max(r, 0.5)
                w[i, j] = r ** (2 - d) * (1 - r * r / 4) ** (-(d - 3) / 2)
    w = w / w.sum(dim=0 if published else 1, keepdim=True)
    terms = []
    for i in range(len(query)):
        logits = [query[i] @ keys[i], *(w[i, j] * (query[i] @ queue[j]) for j in range(len(queue)))]
        shares = torch.stack([(logit - max(logits)) / temperature for logit in logits]).exp()
        terms.append(-(shares[0] / shares.sum()).log())
    return torch.stack(terms).mean()
