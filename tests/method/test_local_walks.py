"""Walks within a few nodes against dense solves of the same nodes."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from obdsd import InputError
from obdsd.method import local_walks as module
from obdsd.method.graph import mutual_neighbours, normalised
from obdsd.method.local_walks import local_walks
from tests.oracles import slow


def literal(S: torch.Tensor, nodes: list[int], omega: float) -> torch.Tensor:
    """The walk on a cut-out of S, dense."""
    cut = S[nodes][:, nodes]
    return (1 - omega) * torch.linalg.solve(torch.eye(len(nodes), dtype=S.dtype) - omega * cut, torch.eye(len(nodes), dtype=S.dtype)[0])


@given(seed=st.integers(0, 10**6), omega=st.sampled_from([0.0, 0.3, 0.9, 0.99]), walks=st.integers(1, 9), batch=st.integers(1, 60))
def test_walks_are_those_of_the_graph_cut_to_their_nodes(seed, omega, walks, batch):
    n, m = 20, 8
    transition = normalised(mutual_neighbours(slow.unit_rows(n, 4, seed, torch.float64), 5))
    generator = torch.Generator().manual_seed(seed)
    reach = torch.stack([torch.randperm(n, generator=generator)[:m] for _ in range(walks)])
    reach[:, m - 2 :] = torch.where(torch.rand(walks, 2, generator=generator) < 0.5, -1, reach[:, m - 2 :])
    before, module.BATCH_NODES = module.BATCH_NODES, batch
    try:
        found = local_walks(transition, reach, omega, tolerance=1e-12)
    finally:
        module.BATCH_NODES = before
    S = transition @ torch.eye(n, dtype=torch.float64)
    for nodes, values in zip(reach.tolist(), found, strict=True):
        there = [place for place, node in enumerate(nodes) if node >= 0]
        torch.testing.assert_close(values[there], literal(S, [nodes[place] for place in there], omega), rtol=0, atol=1e-9)
        assert (values[[place for place in range(m) if place not in there]] == 0).all()


@pytest.mark.parametrize("reach", [torch.tensor([[0, 6]]), torch.tensor([[-1, 0]]), torch.tensor([[0, -2]]), torch.empty(0, 3).long()])
def test_nodes_that_are_not_there_are_refused(reach):
    transition = normalised(mutual_neighbours(slow.unit_rows(6, 3, seed=0), 2))
    with pytest.raises(InputError, match=r"reach=.* must hold nodes in 0..5, a row for each walk; begin it with its start"):
        local_walks(transition, reach, 0.5)
