"""Forward + backward of the training objective at the paper's batch, against plain pytorch-metric-learning."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch
from pytorch_metric_learning import distances, losses, miners, reducers

from benchmarks.harness import Comparison, clustered_rows, run
from obdsd import BatchDiffusion, SelfDistillation, objectives

BATCH, DIM = 112, 128
Z, TEACHER, LABELS = clustered_rows(BATCH, DIM, seed=0), clustered_rows(BATCH, DIM, seed=1), torch.arange(BATCH // 2).repeat(2)


def both_ways(loss: Callable[[torch.Tensor], torch.Tensor]) -> Callable[[], None]:
    """Forward and backward on fresh leaves."""

    def call() -> None:
        z = Z.clone().requires_grad_()
        loss(z).backward()

    return call


def comparisons() -> Iterator[Comparison]:
    dot = distances.DotProductSimilarity(normalize_embeddings=False)
    mean, euclidean = reducers.AvgNonZeroReducer(), distances.LpDistance(normalize_embeddings=False)
    ms_loss = losses.MultiSimilarityLoss(alpha=2, beta=40, base=0.5, distance=dot, reducer=mean)
    ms_miner = miners.MultiSimilarityMiner(0.1, distance=dot)
    ours = objectives.multi_similarity()
    multi_similarity = both_ways(lambda z: ours(z, LABELS))
    yield Comparison(
        name="Multi-Similarity",
        ours=multi_similarity,
        peer=both_ways(lambda z: ms_loss(z, LABELS, ms_miner(z, LABELS))),
        peer_name="MultiSimilarityMiner + MultiSimilarityLoss",
        goal=1.0,
    )
    margin_loss = losses.MarginLoss(0.2, beta=1.2, learn_beta=True, num_classes=BATCH // 2, distance=euclidean, reducer=mean)
    distance_miner = miners.DistanceWeightedMiner()
    for sampling in ("distance", "regularised", "random", "semihard", "softhard"):
        objective = objectives.margin(BATCH // 2, sampling=sampling)
        yield Comparison(
            name=f"Margin, {sampling} sampling",
            ours=both_ways(lambda z, objective=objective: objective(z, LABELS)),
            peer=both_ways(lambda z: margin_loss(z, LABELS, distance_miner(z, LABELS))),
            peer_name="DistanceWeightedMiner + MarginLoss",
            goal=3.0 if sampling == "distance" else None,
        )
    for form in ("symmetric", "softmax"):
        distill = SelfDistillation(1000.0, targets=BatchDiffusion(0.3, form))
        yield Comparison(
            name=f"OBD-SD term, {form} form, teacher embeddings given",
            ours=both_ways(lambda z, distill=distill: distill(z, TEACHER, 0.5)),
            peer=multi_similarity,
            peer_name="the Multi-Similarity objective beside it",
            goal=2.0,
        )


def main() -> None:
    run(f"Training objectives, forward + backward, {BATCH} × {DIM}", "objectives", comparisons())
