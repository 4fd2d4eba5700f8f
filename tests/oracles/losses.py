"""Base losses by their definitions, literally: loops over rows, one number at a time, in the precision of the rows."""

from __future__ import annotations

import torch
from torch import Tensor


def logistic(x: Tensor) -> Tensor:
    return 1 / (1 + torch.exp(-x))


def unit(row: Tensor) -> Tensor:
    return row / row.square().sum().sqrt()


def mates(labels: Tensor, i: int) -> list[int]:
    return [j for j in range(len(labels)) if j != i and labels[j] == labels[i]]


def cross_entropy(z: Tensor, i: int, target: dict[int, float | Tensor], temperature: float) -> Tensor:
    """-Σ_j t_j log softmax_{j≠i}(z_i·z_j/τ)_j."""
    s = {j: z[i] @ z[j] / temperature for j in range(len(z)) if j != i}
    log_sum = torch.stack([x.exp() for x in s.values()]).sum().log()
    return sum((share * (log_sum - s[j]) for j, share in target.items()), start=z.new_zeros(()))


def supcon(z: Tensor, labels: Tensor, temperature: float = 0.1) -> Tensor:
    terms = [cross_entropy(z, i, {p: 1 / len(mates(labels, i)) for p in mates(labels, i)}, temperature) for i in range(len(z))]
    return torch.stack(terms).mean()


def recall_at_k(z: Tensor, labels: Tensor, ks: tuple[int, ...] = (1, 2, 4, 8, 16), itself: bool = False) -> Tensor:
    missing = []
    for q in range(len(z)):
        found = {k: z.new_zeros(()) for k in ks}
        for p in mates(labels, q):
            rank = z.new_ones(())
            for j in range(len(z)):
                if j != p and (itself or j != q):
                    rank = rank + logistic((z[q] @ z[j] - z[q] @ z[p]) / 0.01)
            for k in ks:
                found[k] = found[k] + logistic(min(k, len(z)) - rank)
        if count := len(mates(labels, q)):
            cut = {k: min(k, len(z)) for k in ks}
            missing += [1 - found[k].clamp(max=cut[k]) / min(cut[k], count) for k in ks]
    return torch.stack(missing).mean()


def contextual(z: Tensor, labels: Tensor, k: int = 4, slack: float = 0.05, share: float = 0.2) -> Tensor:
    """Values only: the gradient of its steps is a convention."""
    n, z = len(z), torch.stack([unit(row) for row in z])
    S = [[float(z[i] @ z[j]) for j in range(n)] for i in range(n)]
    D = [[max(2 - 2 * S[i][j], 0.0) for j in range(n)] for i in range(n)]

    def near(count: int) -> list[set[int]]:
        return [{j for j in range(n) if D[i][j] <= sorted(D[i])[count - 1] + slack} for i in range(n)]

    N, few, every = near(k), near(k // 2), set(range(n))

    def weight(i: int, j: int) -> float:
        if j not in N[i]:
            return 0.0
        outside = (every - N[i]) & (every - N[j])
        return (len(N[i] & N[j]) / len(N[i]) + len(outside) / max(len(every - N[i]), 1)) / 2

    def shared(i: int, j: int) -> float:
        mutual = [m for m in range(n) if m in few[i] and i in few[m]]
        return sum(weight(m, j) for m in mutual) / len(mutual)

    context = contrastive = 0.0
    pulled, pushed = [], []
    for i in range(n):
        for j in range(n):
            same, J = bool(labels[i] == labels[j]), (shared(i, j) + shared(j, i)) / 2
            if i != j:
                context += (1 - J) ** 2 if same else J**2
            (pulled if same else pushed).append(0.75 - S[i][j] if same else S[i][j] - 0.6)
    for values in (pulled, pushed):
        active = [value for value in values if value > 0]
        contrastive += sum(active) / max(len(active), 1)
    spread = (sum(map(sum, S)) / n**2 - 0.3) ** 2
    return z.new_tensor(share * contrastive + (1 - share) * context / n**2 + 0.1 * spread)


def mean_field(z: Tensor, labels: Tensor, vectors: Tensor, apart: float) -> Tensor:
    z, m = torch.stack([unit(row) for row in z]), torch.stack([unit(row) for row in vectors])
    total, between = z.new_zeros(()), z.new_zeros(())
    for i, label in enumerate(labels.tolist()):
        for c in range(len(m)):
            d = 1 - z[i] @ m[c]
            total = total + (d - 0.02 if c == label else 0.3 - d).clamp(min=0)
    for c in range(len(m)):
        for other in range(len(m)):
            if c != other:
                between = between + (0.3 - (1 - m[c] @ m[other])).clamp(min=0) ** 2
    return total / len(z) + apart * between / len(m)


def epshn(z: Tensor, labels: Tensor, semi_hard: bool, temperature: float = 0.1) -> Tensor:
    z = torch.stack([unit(row) for row in z])
    terms = []
    for i in range(len(z)):
        pull = [z[i] @ z[p] for p in mates(labels, i) if z[i] @ z[p] <= 0.9999]
        push = [z[i] @ z[n] for n in range(len(z)) if labels[n] != labels[i]]
        if not pull:
            continue
        p = max(pull, key=Tensor.detach)
        push = [s for s in push if s <= p or not semi_hard]
        if push and p > 0 and (n := max(push, key=Tensor.detach)) > 0:
            terms.append(-torch.log((p / temperature).exp() / ((p / temperature).exp() + (n / temperature).exp())))
    return torch.stack(terms).mean() if terms else 0 * z.sum()


def proxy_gml(z: Tensor, labels: Tensor, proxies: Tensor, each: int, kept: int, regulariser: float) -> Tensor:
    """`proxies` in rows, those of a class one after the other."""
    P = torch.stack([unit(row) for row in proxies])
    classes, total, of_proxies = len(P) // each, z.new_zeros(()), z.new_zeros(())
    for i, label in enumerate(labels.tolist()):
        s = [z[i] @ P[q] for q in range(len(P))]
        order = sorted(range(len(P)), key=lambda q: (q // each != label, -s[q].detach()))[:kept]
        logits = {c: sum(s[q] for q in order if q // each == c) for c in {q // each for q in order}}
        total = total - torch.log(logits[label].exp() / sum(logit.exp() for logit in logits.values()))
    for m in range(len(P)):
        logits = [sum(P[m] @ P[q] for q in range(c * each, (c + 1) * each)) for c in range(classes)]
        of_proxies = of_proxies - torch.log(logits[m // each].exp() / sum(logit.exp() for logit in logits))
    return total / len(z) + regulariser * of_proxies / len(P)
