"""ProxyGML: several proxies a class, of which each row meets its own and the hardest others."""

from __future__ import annotations

import math

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from obdsd.method.checks import check_number, require
from obdsd.objectives.objective import Objective, check_sizes, seeded


def proxy_gml(num_classes: int, dim: int, seed: int = 0, proxies: int = 12, kept: float = 0.05, regulariser: float = 0.3) -> Objective:
    """ProxyGML: cross-entropy over classes of the sums of similarities to the proxies that a row keeps, and the same for the proxies.

    Of all proxies a row keeps the share `kept`: those of its own class first, then the most similar others. A class's logit is the sum of
    the row's similarities to its kept proxies; classes without one are left out of the softmax. `regulariser` weighs the cross-entropy of
    every proxy, whose logits are the sums of its similarities to each class's proxies. Proxies are normalised inside and learn at rate
    0.03; the published optimiser is Adam with ε = 0.01.

    Args:
        num_classes: Classes of the training set.
        dim: Length of the embeddings.
        seed: Seed of the proxies.
        proxies: Proxies a class.
        kept: Share of all proxies that a row keeps.
        regulariser: Weight of the proxies' own cross-entropy.
    """
    check_sizes(num_classes, dim)
    loss = ProxyGML(num_classes, dim, seed, proxies, kept, regulariser)
    own = {"lr": 0.03, "eps": 0.01}
    return Objective(loss, unit_rows=True, num_classes=num_classes, dim=dim, optimiser=own, proxies=several_a_class)


def several_a_class(loss: ProxyGML) -> Float[Tensor, "c n d"]:
    """The proxies of each class."""
    return loss.proxies.view(loss.num_classes, -1, loss.proxies.shape[1])


class ProxyGML(nn.Module):
    """See `proxy_gml`."""

    def __init__(self, num_classes: int, dim: int, seed: int, proxies: int, kept: float, regulariser: float) -> None:
        super().__init__()
        check_number("kept", kept)
        check_number("regulariser", regulariser)
        require(proxies >= 1, "proxies", proxies, "must be 1 or more", "try 12")
        require(0 < kept <= 1, "kept", kept, "must be a share above 0, 1 at most", "try 0.05")
        require(0 <= regulariser < float("inf"), "regulariser", regulariser, "must be 0 or more and finite", "try 0.3")
        self.num_classes, self.regulariser = num_classes, regulariser
        self.kept = math.ceil(kept * num_classes * proxies - 1e-9)  # 0.05 × 1,200 is 60, not the 61 that rounding could make of it
        weights = torch.empty(dim, num_classes * proxies)  # as published, whose bound is that of rows of this length
        seeded(nn.init.kaiming_uniform_, seed, a=math.sqrt(5))(weights)
        self.proxies = nn.Parameter(weights.T.contiguous())

    def forward(self, embeddings: Float[Tensor, "b d"], labels: Int[Tensor, " b"], indices_tuple: None = None) -> Float[Tensor, ""]:
        P = nn.functional.normalize(self.proxies.to(embeddings.dtype), dim=1)
        loss = self._classified(embeddings @ P.mT, labels)
        if not self.regulariser:
            return loss
        of_proxies = torch.arange(self.num_classes, device=P.device).repeat_interleave(len(P) // self.num_classes)
        return loss + self.regulariser * nn.functional.cross_entropy(self._by_class(P @ P.mT), of_proxies)

    def _classified(self, S: Float[Tensor, "b p"], labels: Int[Tensor, " b"]) -> Float[Tensor, ""]:
        own = nn.functional.one_hot(labels, self.num_classes).bool().repeat_interleave(S.shape[1] // self.num_classes, dim=1)
        kept = self._chosen(S.detach(), own)
        present = self._by_class(kept.to(S)) > 0
        logits = self._by_class(S * kept).masked_fill(~present, -torch.inf)
        return nn.functional.cross_entropy(logits, labels)

    def _chosen(self, S: Float[Tensor, "b p"], own: Bool[Tensor, "b p"]) -> Bool[Tensor, "b p"]:
        nearest = (S + 1000 * own).topk(self.kept, dim=1).indices
        return torch.zeros_like(own).scatter(1, nearest, True)

    def _by_class(self, values: Float[Tensor, "n p"]) -> Float[Tensor, "n c"]:
        return values.view(len(values), self.num_classes, -1).sum(dim=2)
