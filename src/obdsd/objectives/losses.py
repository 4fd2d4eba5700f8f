"""pytorch-metric-learning's losses behind one small interface, pinned to the paper's settings.

Two of that library's defaults are other losses at the same weight: it normalises embeddings again (which changes the gradient
of unit rows), and it averages over all anchors or active pairs. Here Multi-Similarity and Margin do not normalise inside, and the
average is over the anchors or the triplets that contribute.
"""

from __future__ import annotations

from typing import Any

import torch
from jaxtyping import Float, Int
from pytorch_metric_learning import distances, losses, miners, reducers
from torch import Tensor, nn

from obdsd.errors import InputError
from obdsd.method.checks import check_rows, check_temperature, check_unit_length, refuse, require
from obdsd.method.diffusion import inner_products
from obdsd.method.precision import in_full, without_autocast
from obdsd.objectives.samplers import Sampling, TripletSampler


class Objective(nn.Module):
    """A loss of pytorch-metric-learning, with its miner, as (embeddings, labels) → scalar; computed in float32 or better."""

    def __init__(
        self,
        loss: nn.Module,
        miner: nn.Module | None = None,
        *,
        unit_rows: bool = False,
        num_classes: int | None = None,
        dim: int | None = None,
        optimiser: dict[str, float] | None = None,
    ) -> None:
        super().__init__()
        self.loss = loss
        self.miner = miner
        self.unit_rows = unit_rows
        self.num_classes = num_classes
        self.dim = dim
        self.optimiser = optimiser or {}

    def forward(
        self,
        embeddings: Float[Tensor, "b d"],
        labels: Int[Tensor, " b"],
        indices_tuple: tuple[Tensor, ...] | None = None,
        ref_emb: Float[Tensor, "r d"] | None = None,
        ref_labels: Int[Tensor, " r"] | None = None,
    ) -> Float[Tensor, ""]:
        """`indices_tuple` stands for the miner's pairs or triplets; `ref_emb` and `ref_labels` are compared with instead of the batch."""
        self._check("embeddings", embeddings, "labels", labels)
        reference = self._reference(embeddings, labels, ref_emb, ref_labels)
        with without_autocast(embeddings):
            embeddings = in_full(embeddings)
            if indices_tuple is None and self.miner is not None:
                indices_tuple = self.miner(embeddings, labels, *reference)
            return self.loss(embeddings, labels, indices_tuple, *reference)

    def parameter_groups(self) -> list[dict[str, Any]]:
        """The objective's own trainable parameters (β, proxies) as optimiser groups; none if it has none.

        >>> from obdsd import objectives
        >>> [(len(group["params"]), group["lr"]) for group in objectives.margin(num_classes=5).parameter_groups()]
        [(1, 0.0005)]
        """
        parameters = [p for p in self.parameters() if p.requires_grad]
        return [{"params": parameters, **self.optimiser}] if parameters else []

    def proxies_of(self, labels: Int[Tensor, " b"]) -> Float[Tensor, "p d"] | None:
        """Unit rows of the proxies (or of all centres) of the classes that occur in `labels`, by ascending class; None without proxies.

        >>> from obdsd import objectives
        >>> objectives.proxy_anchor(num_classes=5, dim=3).proxies_of(torch.tensor([4, 1, 4])).shape
        torch.Size([2, 3])
        """
        table = _proxies_by_class(self.loss)
        if table is None:
            return None
        _check_range("labels", labels, len(table))
        return nn.functional.normalize(in_full(table[torch.unique(labels).to(table.device)]).flatten(0, 1), dim=1)

    def _reference(
        self, embeddings: Tensor, labels: Tensor, ref_emb: Tensor | None, ref_labels: Tensor | None
    ) -> tuple[Tensor, Tensor] | tuple[()]:
        """Another set to compare with, checked; nothing if there is none, or if it is the batch itself."""
        if (ref_emb is None and ref_labels is None) or (ref_emb is embeddings and ref_labels is labels):
            return ()
        if ref_emb is None or ref_labels is None:
            raise InputError("ref_emb and ref_labels go together; give both or neither")
        if isinstance(self.loss, losses.CrossBatchMemory):
            raise InputError("ref_emb=… beside CrossBatchMemory has no place: its memory is the reference; leave it out")
        self._check("ref_emb", ref_emb, "ref_labels", ref_labels)
        # The library tells "the same set" by the identity of the labels: two views of one batch need their own.
        return in_full(ref_emb), ref_labels.clone() if ref_labels is labels else ref_labels

    def _check(self, rows_name: str, rows: Tensor, labels_name: str, labels: Tensor) -> None:
        if self.unit_rows:
            check_rows(rows_name, rows)
            check_unit_length(rows_name, torch.linalg.vector_norm(in_full(rows.detach()), dim=1), rows.dtype)
        if self.dim is not None and rows.shape[1] != self.dim:
            refuse(f"{rows_name}.shape", tuple(rows.shape), f"must be (batch, {self.dim})", "make the objective for the model's dimension")
        self._check_labels(rows, labels, labels_name)

    def _check_labels(self, embeddings: Tensor, labels: Tensor, name: str = "labels") -> None:
        if labels.shape != embeddings.shape[:1]:
            refuse(f"{name}.shape", tuple(labels.shape), f"must be ({len(embeddings)},)", "give one label a row of embeddings")
        if self.num_classes is not None:
            _check_range(name, labels, self.num_classes)


def _check_range(name: str, labels: Tensor, num_classes: int) -> None:
    if labels.device.type == "cpu" and len(labels):
        low, high = int(labels.min()), int(labels.max())
        inside = 0 <= low and high < num_classes
        require(inside, name, f"{low}..{high}", f"must lie in 0..{num_classes - 1}", "renumber them or raise num_classes")


def _proxies_by_class(loss: nn.Module) -> Float[Tensor, "c k d"] | None:
    """What a proxy loss has learnt of its classes, without gradient; None for a loss of pairs or triplets."""
    if isinstance(loss, (losses.ProxyAnchorLoss, losses.ProxyNCALoss)):
        return loss.proxies.detach()[:, None]
    if isinstance(loss, losses.SoftTripleLoss):
        return loss.fc.detach().T.unflatten(0, (loss.num_classes, loss.centers_per_class))
    return None


def multi_similarity() -> Objective:
    """Multi-Similarity with its pair mining: α = 2, β = 40, base 0.5, mining margin 0.1, averaged over anchors that kept a pair.

    >>> z = torch.nn.functional.normalize(torch.randn(8, 4), dim=1)
    >>> multi_similarity()(z, torch.arange(4).repeat(2)).shape
    torch.Size([])
    """
    return _MultiSimilarity()


class _MultiSimilarity(Objective):
    """The library's miner and loss on one matrix of cosines: each would compute it anew, and the check of lengths needs it too."""

    loss: Any
    miner: Any

    def __init__(self) -> None:
        cosine = distances.DotProductSimilarity(normalize_embeddings=False)
        loss = losses.MultiSimilarityLoss(alpha=2, beta=40, base=0.5, distance=cosine, reducer=reducers.AvgNonZeroReducer())
        miner = miners.MultiSimilarityMiner(epsilon=0.1, distance=_GivenCosines(normalize_embeddings=False))
        super().__init__(loss, miner, unit_rows=True)

    def forward(
        self,
        embeddings: Float[Tensor, "b d"],
        labels: Int[Tensor, " b"],
        indices_tuple: tuple[Tensor, ...] | None = None,
        ref_emb: Float[Tensor, "r d"] | None = None,
        ref_labels: Int[Tensor, " r"] | None = None,
    ) -> Float[Tensor, ""]:
        if ref_emb is not None or ref_labels is not None:
            return super().forward(embeddings, labels, indices_tuple, ref_emb, ref_labels)
        check_rows("embeddings", embeddings)
        self._check_labels(embeddings, labels)
        D = inner_products(embeddings, embeddings)
        check_unit_length("embeddings", D.diagonal(), embeddings.dtype, squared=True)
        if indices_tuple is None:
            with torch.no_grad():
                self.miner.distance.cosines = D.clone()  # the miner writes into it
                indices_tuple = self.miner.mine(embeddings, labels, embeddings, labels)
        elif len(indices_tuple) == 3:
            anchors, positives, negatives = indices_tuple
            indices_tuple = (anchors, positives, anchors, negatives)
        return self.loss.reducer(self.loss.mat_based_loss(D, indices_tuple), in_full(embeddings), labels)


class _GivenCosines(distances.DotProductSimilarity):
    """Cosines that somebody has already computed, once; else computed as usual."""

    cosines: Tensor | None = None

    def forward(self, query_emb: Tensor, ref_emb: Tensor) -> Tensor:
        given, self.cosines = self.cosines, None
        return super().forward(query_emb, ref_emb) if given is None else given


def margin(num_classes: int, beta: float = 1.2, sampling: Sampling = "distance", seed: int = 0) -> Objective:
    """Margin loss, margin 0.2, with a trained boundary β for each class, averaged over the triplets with any active term."""
    require(num_classes >= 1, "num_classes", num_classes, "must be 1 or more", "pass the number of training classes")
    loss = losses.MarginLoss(
        margin=0.2,
        beta=beta,
        learn_beta=True,
        num_classes=num_classes,
        distance=distances.LpDistance(normalize_embeddings=False),
        reducer=reducers.AvgNonZeroReducer(),
    )
    sampler = TripletSampler(sampling, seed)
    return Objective(loss, sampler, unit_rows=True, num_classes=num_classes, optimiser={"lr": 5e-4, "weight_decay": 0.0})


def r_margin(num_classes: int, beta: float = 0.6, seed: int = 0) -> Objective:
    """Regularised Margin: β from 0.6, distance sampling, and one triplet in five pushes a true positive away."""
    return margin(num_classes, beta, "regularised", seed)


def nt_xent(temperature: float = 0.1) -> Objective:
    """NT-Xent, for telling instances apart: for every positive pair, -log of its softmax among the anchor's negatives.

    The labels say which rows are views of one instance.

    >>> views = torch.nn.functional.normalize(torch.tensor([[1.0, 0.0], [0.0, 1.0], [1.0, 0.0], [0.0, 1.0]]), dim=1)
    >>> nt_xent(temperature=1.0)(views, torch.tensor([0, 1, 0, 1]))  # log(1 + 2/e)
    tensor(0.5514)
    """
    check_temperature(temperature)
    return Objective(losses.NTXentLoss(temperature, distance=distances.DotProductSimilarity(normalize_embeddings=False)), unit_rows=True)


def from_pml(loss: nn.Module, miner: nn.Module | None = None, lr: float | None = None) -> Objective:
    """Any loss of pytorch-metric-learning, with any miner; `lr` is for the loss's own parameters (default: the optimiser's).

    >>> from pytorch_metric_learning import losses
    >>> objective = from_pml(losses.NTXentLoss(temperature=0.1))
    """
    for field, part in (("loss", loss), ("miner", miner)):
        if isinstance(part, type):
            raise InputError(f"{field}={part.__name__} is a class; make one of it, {part.__name__}()")
    if miner is not None and isinstance(loss, losses.CrossBatchMemory):
        raise InputError("miner=… beside CrossBatchMemory would mine the batch, not the memory; use CrossBatchMemory(…, miner=…)")
    return Objective(loss, miner, optimiser=None if lr is None else {"lr": lr})
