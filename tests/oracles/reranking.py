"""Slow literal definitions of the re-rankers of `obdsd.search`, one query at a time, in float64, as docs/search.md writes them."""

from __future__ import annotations

import numpy as np


def nearest(rows, query, k, leave_out=None):
    """Positions of the k nearest rows by cosine; of equally near ones the first."""
    order = [int(i) for i in np.argsort(-(rows @ query), kind="stable") if i != leave_out]
    return order[:k]


def expanded(rows, query, neighbours, alpha, own=None):
    """αQE: the unit mean of a query and its nearest, weighted by max(cos, 0)^α."""
    total = np.array(query, dtype=np.float64)
    for i in nearest(rows, query, neighbours, own):
        total += max(float(rows[i] @ query), 0.0) ** alpha * rows[i]
    return total / np.linalg.norm(total)


def affinity(rows, neighbours, power, graph):
    """W of the k-NN graph, entry by entry; an item without an edge has a loop of weight 1."""
    n = len(rows)
    lists = [nearest(rows, rows[i], neighbours, i) for i in range(n)]
    W = np.zeros((n, n))
    for i in range(n):
        for j in range(n):
            there, back = j in lists[i], i in lists[j]
            if (there and back) if graph == "mutual" else (there or back):
                W[i, j] = max(float(rows[i] @ rows[j]), 0.0) ** power
    W[np.diag_indices(n)] = W.sum(axis=1) == 0
    return W


def walk(W, start, omega):
    """(1-ω)(I-ωS)⁻¹e, S = D^-1/2 W D^-1/2, dense."""
    root = np.sqrt(W.sum(axis=1))
    S = W / root[:, None] / root[None, :]
    return (1 - omega) * np.linalg.solve(np.eye(len(W)) - omega * S, np.eye(len(W))[start])


def walk_of_query(rows, W, query, neighbours, power, omega):
    """The walk from a query that joins the graph by edges to its nearest."""
    n = len(rows)
    extended = np.zeros((n + 1, n + 1))
    extended[:n, :n] = W
    for i in nearest(rows, query, neighbours):
        extended[i, n] = extended[n, i] = max(float(rows[i] @ query), 0.0) ** power
    return walk(extended, n, omega)[:n]


def reciprocal_distances(rows, k1, k2, share, query=None, own=None):
    """Zhong et al. 2017 by sets and dictionaries: the final distance of every item to a query outside, or to item `own`."""
    n, asking = len(rows), rows[own] if query is None else query
    lists = [nearest(rows, rows[i], k1, i) for i in range(n)]

    def mutual(i, k):
        return {j for j in lists[i][:k] if i in lists[j][:k]} | {i}

    def extended(first):
        bigger = set(first)
        for j in first:
            other = mutual(j, max(1, k1 // 2))
            if 3 * len(first & other) >= 2 * len(other):
                bigger |= other
        return bigger

    def encoding(row, first):
        weights = {j: float(np.exp(row @ rows[j] - 1)) for j in extended(first)}
        return {j: weight / sum(weights.values()) for j, weight in weights.items()}

    def mean(encodings):
        return {j: sum(each.get(j, 0.0) for each in encodings) / len(encodings) for j in set().union(*encodings)}

    plain = [encoding(rows[i], mutual(i, k1)) for i in range(n)]
    averaged = [mean([plain[i], *(plain[j] for j in lists[i][: k2 - 1])]) for i in range(n)]
    if query is None:
        mine = averaged[own]
    else:
        near = nearest(rows, query, k1)
        first = {j for j in near if rows[j] @ query >= rows[j] @ rows[lists[j][-1]]}
        mine = mean([encoding(query, first), *(plain[j] for j in near[: k2 - 1])])
    distances = []
    for i in range(n):
        least = sum(min(mine.get(j, 0.0), averaged[i].get(j, 0.0)) for j in set(mine) | set(averaged[i]))
        most = sum(max(mine.get(j, 0.0), averaged[i].get(j, 0.0)) for j in set(mine) | set(averaged[i]))
        distances.append((1 - share) * (1 - least / most) + share * (1 - float(asking @ rows[i])))
    return np.array(distances)
