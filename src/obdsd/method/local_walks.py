"""The walk of Eq. 3 from one node at a time, each within a few nodes around it: all of a large graph in bounded memory."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from jaxtyping import Float, Int
from torch import Tensor

from obdsd.method.checks import refuse
from obdsd.method.graph import Graph, solve_walk

BATCH_BYTES = 64 * 2**20  # of the table that finds nodes
BATCH_NODES = 1 << 14  # nodes of all walks that are solved at a time: what they need stays in the processor's cache


@contextmanager
def one_thread() -> Iterator[None]:
    """The pieces of walks are too small to share: where other programs run, threads that wait for each other take ten times as long."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


@torch.no_grad()
def local_walks(transition: Graph, reach: Int[Tensor, "s m"], omega: float, tolerance: float = 1e-5) -> Float[Tensor, "s m"]:
    """(1-ω)(I-ωS_RR)⁻¹e for each row R of `reach`: the walk that starts at R's first node and is lost where it leaves R.

    With all nodes in R it is Eq. 3 with a one-hot start. A row may be filled up with -1. The walks of many rows are solved as one system
    without edges between them, each to `tolerance`.

    >>> S = Graph.of_edges(3, torch.tensor([0, 1, 1, 2]), torch.tensor([1, 0, 2, 1]), torch.tensor([0.7, 0.7, 0.7, 0.7]))
    >>> local_walks(S, torch.tensor([[0, 1, 2], [0, 1, -1]]), omega=0.5)
    tensor([[0.5811, 0.2318, 0.0811],
            [0.5698, 0.1994, 0.0000]])
    """
    if reach.ndim != 2 or not reach.numel() or reach.amax() >= transition.nodes or reach.amin() < -1 or (reach[:, 0] < 0).any():
        refuse("reach", tuple(reach.shape), f"must hold nodes in 0..{transition.nodes - 1}, a row for each walk", "begin it with its start")
    batch = max(1, min(BATCH_BYTES // (4 * transition.nodes), BATCH_NODES // reach.shape[1]))
    place = torch.full((min(batch, len(reach)), transition.nodes + 1), -1, dtype=torch.int32, device=reach.device)
    walks = transition.weights.new_empty(reach.shape)
    for first in range(0, len(reach), batch):
        some = reach[first : first + batch]
        blocks = _blocks(transition, some, place[: len(some)])
        start = walks.new_zeros(*some.shape)
        start[:, 0] = 1
        least = 5 * torch.finfo(start.dtype).eps
        walks[first : first + batch] = solve_walk(blocks, start.view(-1, 1), omega, max(least, tolerance / math.sqrt(len(some)))).view_as(
            some
        )
    return walks


@torch.no_grad()
def most_visited(transition: Graph, starts: Int[Tensor, " s"], omega: float, reach: int, steps: int = 3) -> Int[Tensor, "s m"]:
    """For the walk from each start the `reach` nodes that its first steps visit most, itself first, filled up with -1; or all nodes.

    >>> S = Graph.of_edges(3, torch.tensor([0, 1, 1, 2]), torch.tensor([1, 0, 2, 1]), torch.tensor([0.7, 0.7, 0.7, 0.7]))
    >>> most_visited(S, torch.tensor([2, 0]), omega=0.5, reach=2)
    tensor([[2, 1],
            [0, 1]])
    """
    n, walks = transition.nodes, torch.arange(len(starts), device=starts.device)
    if reach >= n:
        return (starts[:, None] + torch.arange(n, device=starts.device)) % n
    first = walks * n + starts  # the number of a walk and a node
    place, often = first, transition.weights.new_full((len(starts),), 1 - omega)
    for _ in range(steps):
        owner, entry = _entries(transition, place % n)
        place = torch.cat((first, (place // n)[owner] * n + transition.columns[entry]))
        often = torch.cat((often.new_full((len(starts),), 1 - omega), omega * often[owner] * transition.weights[entry]))
        place, number = torch.unique(place, return_inverse=True)
        often = often.new_zeros(len(place)).index_add_(0, number, often)
    often[torch.searchsorted(place, first)] = torch.inf
    order = often.argsort(descending=True, stable=True)
    order = order[(place[order] // n).argsort(stable=True)]  # walk by walk
    walk, node = place[order] // n, place[order] % n
    rank = torch.arange(len(walk), device=walk.device) - torch.searchsorted(walk, walks)[walk]
    reached = torch.full((len(starts), reach), -1, dtype=torch.long, device=starts.device)
    kept = rank < reach
    reached[walk[kept], rank[kept]] = node[kept]
    return reached


def _entries(graph: Graph, nodes: Int[Tensor, " s"]) -> tuple[Int[Tensor, " e"], Int[Tensor, " e"]]:
    """All entries of these rows of a graph, one row after the other: whose of `nodes` each is, and its number."""
    degree = graph.starts.diff()[nodes]
    owner = torch.arange(len(nodes), device=nodes.device).repeat_interleave(degree)
    first = graph.starts[nodes] - degree.cumsum(0) + degree
    return owner, torch.arange(len(owner), device=nodes.device) + first[owner]


def _blocks(S: Graph, reach: Tensor, place: Tensor) -> Graph:
    """The graph of all walks side by side: node a of walk b is number b·m + a. `place` holds -1 before and after."""
    walks, m = reach.shape
    nodes = torch.where(reach < 0, S.nodes, reach)  # the last column stands for no node
    place.scatter_(1, nodes, torch.arange(m, dtype=torch.int32, device=reach.device).expand(walks, m))
    place[:, -1] = -1
    present = (reach >= 0).flatten().nonzero().squeeze(1)
    place_of, entry = _entries(S, reach.flatten()[present])
    owner = present[place_of]
    walk = owner // m
    target = place.flatten()[walk * place.shape[1] + S.columns[entry]]
    inside = (target >= 0).nonzero().squeeze(1)
    counts = torch.bincount(owner[inside], minlength=walks * m)
    starts = torch.cat((counts.new_zeros(1), counts.cumsum(0)))
    columns = walk[inside] * m + target[inside]
    place.scatter_(1, nodes, -1)
    return Graph(starts, columns, S.weights[entry[inside]])
