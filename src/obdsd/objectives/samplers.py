"""One triplet per anchor: the five samplers of the paper's Margin losses, vectorised; and one that takes every positive.

Each is a function of (distances, labels, generator) → (anchors, positives, negatives). An anchor without a positive or a
negative in the batch gives no triplet. Every choice is an exponential race, argmax(log w - log e) with e ~ Exp(1): an
exact draw from the weights w in which nothing of weight 0 can win.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from obdsd.errors import InputError
from obdsd.method.checks import require, whole
from obdsd.method.precision import in_full
from obdsd.seeds import seed_of

Sampling = Literal["random", "semihard", "softhard", "distance", "regularised", "nearest"]
Distances = Float[Tensor, "b b"]
Labels = Int[Tensor, " b"]
Triplets = tuple[Int[Tensor, " t"], Int[Tensor, " t"], Int[Tensor, " t"]]


def random_triplets(distances: Distances, labels: Labels, generator: torch.Generator) -> Triplets:
    """b independent uniform draws from all valid triplets."""
    positive, negative = _pairs(labels)
    triplets_of_anchor = (positive.sum(dim=1) * negative.sum(dim=1)).to(distances.dtype)
    batch = len(labels) if triplets_of_anchor.any() else 0
    anchors = _draw(triplets_of_anchor.log().expand(batch, -1), generator)
    return anchors, _draw(_uniform(positive[anchors]), generator), _draw(_uniform(negative[anchors]), generator)


def semihard_triplets(distances: Distances, labels: Labels, generator: torch.Generator, margin: float = 0.2) -> Triplets:
    """A random positive; a random negative with d_ap < d_an < d_ap + margin, else any negative."""
    anchors, positive, negative, distances = _complete_rows(distances, labels)
    p = _draw(_uniform(positive), generator)
    d_ap = distances.gather(1, p[:, None])
    semihard = negative & (distances > d_ap) & (distances < d_ap + margin)
    return anchors, p, _draw(_uniform(_or_any(semihard, negative)), generator)


def softhard_triplets(distances: Distances, labels: Labels, generator: torch.Generator) -> Triplets:
    """A random positive farther than the nearest negative, a random negative nearer than the farthest positive; each else any."""
    anchors, positive, negative, distances = _complete_rows(distances, labels)
    nearest_negative = distances.masked_fill(~negative, float("inf")).amin(dim=1, keepdim=True)
    farthest_positive = distances.masked_fill(~positive, float("-inf")).amax(dim=1, keepdim=True)
    hard_positive = _or_any(positive & (distances > nearest_negative), positive)
    hard_negative = _or_any(negative & (distances < farthest_positive), negative)
    return anchors, _draw(_uniform(hard_positive), generator), _draw(_uniform(hard_negative), generator)


def distance_triplets(distances: Distances, labels: Labels, generator: torch.Generator, *, dim: int) -> Triplets:
    """A random positive; the negative by the inverse density of distances on the sphere of the embeddings' dimension."""
    anchors, positive, negative, distances = _complete_rows(distances, labels)
    log_weights = log_inverse_density(distances, dim).masked_fill(~negative, float("-inf"))
    return anchors, _draw(_uniform(positive), generator), _draw(log_weights, generator)


def regularised_triplets(distances: Distances, labels: Labels, generator: torch.Generator, *, dim: int, switch: float = 0.2) -> Triplets:
    """Distance sampling; with probability `switch` the triplet is (a, a, p), so that a true positive is pushed away (R-Margin)."""
    anchors, positives, negatives = distance_triplets(distances, labels, generator, dim=dim)
    switched = torch.rand(len(anchors), generator=generator, device=anchors.device) < switch
    return anchors, torch.where(switched, anchors, positives), torch.where(switched, positives, negatives)


def nearest_triplets(distances: Distances, labels: Labels, generator: torch.Generator, nearest: float = 0.5) -> Triplets:
    """Every positive, with as many of the nearest negatives at a distance of `nearest` or more; both in their order in the batch.

    Where there are fewer such negatives than positives, the last positives are left out.
    """
    positive, negative = _pairs(labels)
    far = distances.masked_fill(~negative | (distances < nearest), float("inf"))
    rank = far.argsort(dim=1, stable=True).argsort(dim=1)
    chosen = (rank < positive.sum(dim=1, keepdim=True)) & far.isfinite()
    kept = positive & (positive.cumsum(dim=1) <= chosen.sum(dim=1, keepdim=True))
    anchors, positives = kept.nonzero(as_tuple=True)
    return anchors, positives, chosen.nonzero(as_tuple=True)[1]


def permuted_triplets(distances: Distances, labels: Labels, generator: torch.Generator, *, dim: int) -> Triplets:
    """Distance sampling after the labels have changed hands at random: triplets whose rows may be of any classes (DiVA)."""
    order = torch.randperm(len(labels), generator=generator, device=labels.device)
    return distance_triplets(distances, labels[order], generator, dim=dim)


def three_class_triplets(distances: Distances, labels: Labels, generator: torch.Generator, *, dim: int) -> Triplets:
    """Anchor, positive and negative of three classes: the negative by distance sampling, a random positive of the classes left."""
    _, other = _pairs(labels)
    enough = torch.unique(labels).numel() > 2  # else there is no third class
    anchors = torch.arange(len(labels) if enough else 0, device=labels.device)
    log_weights = log_inverse_density(distances[anchors], dim).masked_fill(~other[anchors], float("-inf"))
    n = _draw(log_weights, generator)
    return anchors, _draw(_uniform(other[anchors] & (labels[n][:, None] != labels)), generator), n


def intra_triplets(labels: Labels, generator: torch.Generator) -> Triplets:
    """b triplets of one class each: the class uniform, its rows drawn with replacement, so that some of a triplet may be the same."""
    classes = torch.unique(labels)
    chosen = classes[torch.randint(len(classes), (len(labels),), generator=generator, device=labels.device)]
    of_class = _uniform(chosen[:, None] == labels)
    return _draw(of_class, generator), _draw(of_class, generator), _draw(of_class, generator)


def log_inverse_density(distances: Float[Tensor, "*s"], dim: int, nearest: float = 0.5) -> Float[Tensor, "*s"]:
    """log 1/q(d) with q(d) ∝ d^(n-2) (1 - d²/4)^((n-3)/2), the density of distances between random points of the unit sphere.

    Distances are clamped below at `nearest`, where the weight would explode, and not above; only opposite points are
    kept off the pole at d = 2.
    """
    d = distances.clamp(min=nearest)
    outer = (1 - d.square() / 4).clamp(min=1e-6)
    return (2 - dim) * d.log() - (dim - 3) / 2 * outer.log()


class TripletSampler(nn.Module):
    """A miner for pytorch-metric-learning losses whose draw is a function of (seed, step); `step` counts training calls.

    >>> z = torch.nn.functional.normalize(torch.randn(6, 4), dim=1)
    >>> anchors, positives, negatives = TripletSampler("distance", seed=0)(z, torch.tensor([0, 0, 1, 1, 2, 2]))
    >>> anchors, positives
    (tensor([0, 1, 2, 3, 4, 5]), tensor([1, 0, 3, 2, 5, 4]))
    """

    def __init__(self, sampling: Sampling, seed: int = 0) -> None:
        super().__init__()
        require(sampling in _SAMPLERS, "sampling", repr(sampling), "is unknown", f"use one of {', '.join(_SAMPLERS)}")
        self.sampling = sampling
        self.seed = seed
        self.step = 0

    @torch.no_grad()
    def forward(self, embeddings: Float[Tensor, "b d"], labels: Labels, ref_emb: None = None, ref_labels: None = None) -> Triplets:
        if ref_emb is not None and ref_emb is not embeddings:
            raise InputError(f"ref_emb={tuple(ref_emb.shape)} is another set; '{self.sampling}' sampling draws inside the batch only")
        labels = whole("labels", labels)
        generator = torch.Generator(embeddings.device).manual_seed(seed_of(self.seed, self.step))
        self.step += self.training
        distances = torch.cdist(in_full(embeddings), in_full(embeddings))
        options = {"dim": embeddings.shape[1]} if self.sampling in ("distance", "regularised") else {}
        return _SAMPLERS[self.sampling](distances, labels, generator, **options)

    def get_extra_state(self) -> Tensor:
        return torch.tensor(self.step)

    def set_extra_state(self, state: Tensor) -> None:
        self.step = int(state)


_SAMPLERS: dict[str, Callable[..., Any]] = {
    "random": random_triplets,
    "semihard": semihard_triplets,
    "softhard": softhard_triplets,
    "distance": distance_triplets,
    "regularised": regularised_triplets,
    "nearest": nearest_triplets,
}


def _pairs(labels: Tensor) -> tuple[Tensor, Tensor]:
    """Who is a positive and who a negative of whom, each (batch, batch)."""
    same = labels[:, None] == labels[None, :]
    return same.clone().fill_diagonal_(False), ~same


def _complete_rows(distances: Tensor, labels: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The anchors that have both a positive and a negative, and the rows of the pair masks and distances that are theirs."""
    positive, negative = _pairs(labels)
    complete = positive.any(dim=1) & negative.any(dim=1)
    anchors = complete.nonzero().squeeze(1)
    return anchors, positive[anchors], negative[anchors], distances[anchors]


def _or_any(wanted: Bool[Tensor, "a b"], fallback: Bool[Tensor, "a b"]) -> Bool[Tensor, "a b"]:
    return torch.where(wanted.any(dim=1, keepdim=True), wanted, fallback)


def _uniform(mask: Bool[Tensor, "a b"]) -> Float[Tensor, "a b"]:
    """Log weights of a uniform draw from each row's True entries."""
    return torch.zeros(mask.shape, device=mask.device).masked_fill_(~mask, float("-inf"))


def _draw(log_weights: Float[Tensor, "a b"], generator: torch.Generator) -> Int[Tensor, " a"]:
    waiting = torch.empty_like(log_weights, memory_format=torch.contiguous_format).exponential_(generator=generator)
    return (log_weights - waiting.log()).argmax(dim=1)
