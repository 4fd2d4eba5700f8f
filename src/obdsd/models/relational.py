"""The head of DRML: features in chunks, a node for each, and relations between the nodes of an item."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor, nn

from obdsd.method.checks import require
from obdsd.method.precision import in_full, without_autocast

LEAST = 1e-12  # what a sum of relations is at least, so that a node to which none leads has none


class RelationalHead(nn.Module):
    """Rows of G outputs, each made of a chunk's node and of the nodes that are related to it.

    The features are cut into chunks f_g of equal length. With all maps linear, n_g = [N_g f_g] of unit length,

        s_ij = max(w·(A_i f_i - B_j f_j) + w₀, 0) / Σ_i of the same        out_j = J [n_j, Σ_i s_ij n_i]

    J and w are shared, J begins as the identity of n_j, and no gradient reaches the features through the relations s.

    Args:
        features: Length of the features.
        dim: Length of the rows.
        branches: Chunks G.
    """

    def __init__(self, features: int, dim: int, branches: int) -> None:
        super().__init__()
        rule, remedy = f"must divide the {features} features", "use another number of branches"
        require(features % branches == 0, "branches", branches, rule, remedy)
        self.branches, length = branches, dim // branches
        width = features // branches
        self.node, self.source, self.sink = (OfChunk(branches, width, length) for _ in range(3))
        self.score, self.join = nn.Linear(length, 1), nn.Linear(2 * length, length)
        nn.init.kaiming_normal_(self.score.weight, mode="fan_out")
        nn.init.eye_(self.join.weight)
        for linear in (self.score, self.join):
            nn.init.zeros_(linear.bias)

    def chunks(self, features: Float[Tensor, "b f"]) -> Float[Tensor, "b g w"]:
        return features.reshape(-1, self.branches, features.shape[1] // self.branches)

    def nodes(self, features: Float[Tensor, "b f"]) -> Float[Tensor, "b g l"]:
        """The node of each chunk, of unit length."""
        nodes = self.node(self.chunks(features))
        with without_autocast(nodes):
            return nn.functional.normalize(in_full(nodes), dim=2)

    def relations(self, features: Float[Tensor, "b f"]) -> Float[Tensor, "b g g"]:
        """s_ij: how much of node i goes into output j."""
        known = self.chunks(features).detach()
        out_of, into = (in_full(of_chunk(known) @ self.score.weight[0]) for of_chunk in (self.source, self.sink))
        s = torch.relu(out_of[:, :, None] - into[:, None] + self.score.bias)
        return s / s.sum(dim=1, keepdim=True).clamp(min=LEAST)

    def forward(self, features: Float[Tensor, "b f"]) -> Float[Tensor, "b d"]:
        nodes = self.nodes(features).to(features.dtype)
        related = self.relations(features).mT.to(nodes.dtype) @ nodes
        return self.join(torch.cat([nodes, related], dim=2)).flatten(1)


class OfChunk(nn.Module):
    """A linear map of its own for each chunk, initialised as DRML's: Kaiming-normal over the outputs, no bias at first."""

    def __init__(self, chunks: int, inputs: int, outputs: int, generator: torch.Generator | None = None) -> None:
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.empty(chunks, outputs, inputs)), nn.Parameter(torch.zeros(chunks, outputs))
        nn.init.normal_(self.weight, std=(2 / outputs) ** 0.5, generator=generator)

    def forward(self, x: Float[Tensor, "b g i"]) -> Float[Tensor, "b g o"]:
        return torch.einsum("bgi,goi->bgo", x, self.weight) + self.bias
