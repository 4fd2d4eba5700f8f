"""The retrieval metrics by their definitions: sort everything, count in loops."""

from __future__ import annotations

import numpy as np


def metrics(embeddings, labels, ks, query=None, groups=None):
    """By the name of the metric, its values over the queries that count."""
    asked = (embeddings, labels, groups) if query is None else query
    found = {name: [] for name in (*(f"recall@{k}" for k in ks), "r-precision", "map@r")}
    for i in range(len(asked[0])):
        others = []
        for j in range(len(embeddings)):
            itself = query is None and i == j
            same_group = groups is not None and labels[j] == asked[1][i] and groups[j] == asked[2][i]
            if not itself and not same_group:
                others.append((-float(np.dot(asked[0][i], embeddings[j])), j))
        hits = [bool(labels[j] == asked[1][i]) for _, j in sorted(others)]
        right = sum(hits)
        if right == 0:
            continue
        for k in ks:
            found[f"recall@{k}"].append(any(hits[:k]))
        found["r-precision"].append(sum(hits[:right]) / right)
        found["map@r"].append(sum(sum(hits[: n + 1]) / (n + 1) for n in range(right) if hits[n]) / right)
    return found
