"""Divide and conquer: every slice of an embedding learns from one cluster of the training set, in the end the whole from all."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Literal

import numpy as np
import torch
from jaxtyping import Float, Int
from numpy.typing import NDArray
from torch import Tensor, nn

from obdsd.data.batches import Batches, InstanceBatches, deal
from obdsd.errors import InputError
from obdsd.evaluation.clustering import kmeans
from obdsd.method.checks import check_number, require
from obdsd.method.distillation import SelfDistillation
from obdsd.method.teachers import Teacher
from obdsd.objectives.objective import parameter_groups_of
from obdsd.objectives.system import Embed, System

Clusters = NDArray[np.int64]


class DivideAndConquer(System):
    """Divide and conquer: slice c of the embedding learns from batches of cluster c alone, at last the whole from all.

    The training set is divided into as many clusters as the embedding has slices, by k-means of its rows, anew every few epochs; a new
    cluster has the number of the old one that it shares most items with. Batches are of one cluster after the other; of a cluster of few
    classes a batch takes several times as many items each. An item alone of its class in its cluster takes no part until the next time.

    Args:
        every: Epochs until the training set is divided anew.
        clustered: What is clustered; the published code takes the features that the head is given.
        whole_from: Share of the training after which the whole embedding learns, from batches of one cluster still; published code: 0.4.
        all_from: Share of the training after which batches are of all clusters.
    """

    objective: Learners
    cluster_of: Tensor
    epoch: Tensor

    def __init__(
        self,
        model: Any,
        make_loss: Callable[[int], nn.Module],
        teacher: Teacher,
        distill: SelfDistillation,
        part: Any,
        seed: int = 0,
        *,
        every: int = 2,
        clustered: Literal["embeddings", "features"] = "embeddings",
        whole_from: float = 0.95,
        all_from: float = 0.95,
    ) -> None:
        require(every >= 1, "every", every, "must be 1 or more", "try 2")
        check_number("whole_from", whole_from)
        check_number("all_from", all_from)
        rule, remedy = "must not be less than whole_from, and both lie in [0, 1]", "try whole_from=0.4, all_from=0.95"
        require(0 <= whole_from <= all_from <= 1, "whole_from, all_from", (whole_from, all_from), rule, remedy)
        slices = model.architecture.slices
        require(slices > 1, "slices", slices, "leaves nothing to divide", "add slices=8, or another number of 2 or more")
        super().__init__(model, Learners(make_loss, model.dim, slices), teacher, distill)
        self.every, self.clustered, self.whole_from, self.all_from, self.seed = every, clustered, whole_from, all_from, seed
        self.slices, self.sliced = slices, True
        self.register_buffer("cluster_of", torch.zeros(len(part), dtype=torch.int64))
        self.register_buffer("epoch", torch.tensor(0))  # how many of them began

    def check(self, items: int) -> None:
        super().check(items)
        require(items >= self.slices, "slices", self.slices, f"are more than the {items} training items", "use fewer")

    def batches(self, usual: Batches) -> Batches:
        if isinstance(usual, InstanceBatches):
            raise InputError("system=divide-and-conquer learns from labels; leave supervision=none out")
        self.turns = ClustersInTurn(usual)
        return self.turns

    def begin_epoch(self, progress: float, embed: Embed, resumed: bool = False) -> None:
        super().begin_epoch(progress, embed, resumed)
        divided = progress < self.all_from
        if not resumed:
            if divided and int(self.epoch) % self.every == 0:
                self._divide(embed)
            self.epoch += 1
        self.sliced = progress < self.whole_from
        self.turns.settle(self.cluster_of.cpu().numpy() if divided else None)

    def _divide(self, embed: Embed) -> None:
        rows = embed(self.model if self.clustered == "embeddings" else self.model.headless())
        found = kmeans(rows.cpu().numpy(), self.slices, self.seed)
        if int(self.epoch):
            found = renumbered(found, self.cluster_of.cpu().numpy(), self.slices)
        self.cluster_of.copy_(torch.from_numpy(found))

    def begin_step(self, step: int, indices: Int[Tensor, " b"]) -> None:
        self.objective.active = int(self.cluster_of[indices[0]]) if self.sliced else None


class Learners(nn.Module):
    """A loss on each slice of unit rows, and one on the whole: `active` is the slice that learns, None if it is the whole.

    Args:
        make_loss: Makes a base loss for rows of the given length, a new one at each call.
        dim: Length of the rows.
        slices: Their equal parts.
    """

    def __init__(self, make_loss: Callable[[int], nn.Module], dim: int, slices: int) -> None:
        super().__init__()
        self.whole = make_loss(dim)
        self.of_slice = nn.ModuleList(make_loss(dim // slices) for _ in range(slices))
        self.active: int | None = None

    def forward(self, rows: Float[Tensor, "b d"], labels: Int[Tensor, " b"]) -> Float[Tensor, ""]:
        if self.active is None:
            return self.whole(rows, labels)
        own = rows.chunk(len(self.of_slice), dim=1)[self.active]
        return self.of_slice[self.active](nn.functional.normalize(own, dim=1), labels)

    def parameter_groups(self) -> list[dict[str, Any]]:
        """The losses' own trainable parameters as optimiser groups: the whole's, then each slice's."""
        return [group for loss in (self.whole, *self.of_slice) for group in parameter_groups_of(loss)]


class ClustersInTurn(Batches):
    """Batches of one cluster after the other, P×K within each; as many an epoch as of the usual batches, which stand in without clusters.

    A cluster needs two classes of two items each; one that has not is passed over.
    """

    def __init__(self, usual: Any) -> None:
        super().__init__(usual.batch_size, usual.per_class, usual.seed, usual.rank, usual.world_size)
        self.usual, self.number = usual, usual.number
        self.clusters: list[list[Clusters]] = []

    def settle(self, cluster_of: Clusters | None) -> None:
        """The cluster of each item from here on; None for no clusters."""
        self.clusters = []
        if cluster_of is None:
            return
        for cluster in range(int(cluster_of.max()) + 1):
            within = [items[cluster_of[items] == cluster] for items in self.usual.members]
            if len(classes := [items for items in within if len(items) > 1]) > 1:
                self.clusters.append(classes)
        if not self.clusters:
            raise InputError("no cluster of the training set has two classes of two items each; use fewer slices, or another system")

    def items_of(self, epoch: int) -> Iterator[list[int]]:
        if not self.clusters:
            yield from self.usual.items_of(epoch)
            return
        random = np.random.default_rng((self.seed, epoch))
        decks: list[list[list[int]]] = [[[] for _ in classes] for classes in self.clusters]
        for batch in range(epoch * self.number, (epoch + 1) * self.number):  # the turn goes on from epoch to epoch
            turn = batch % len(self.clusters)
            classes = self.clusters[turn]
            rounds = [random.permutation(len(classes)) for _ in range(-(-self.classes // len(classes)))]
            chosen = np.concatenate(rounds)[: self.classes].tolist()
            yield [item for c in chosen for item in deal(random, classes[c], decks[turn][c], self.per_class)]


def renumbered(current: Clusters, previous: Clusters, clusters: int) -> Clusters:
    """The current clusters with the numbers of the previous ones, one each, so that most items keep theirs.

    >>> renumbered(np.array([2, 2, 2, 0, 0, 1]), np.array([0, 0, 1, 1, 1, 2]), 3)
    array([0, 0, 0, 1, 1, 2])
    """
    from scipy.optimize import linear_sum_assignment

    shared = np.zeros((clusters, clusters), dtype=np.int64)
    np.add.at(shared, (current, previous), 1)
    rows, columns = linear_sum_assignment(shared, maximize=True)
    number = np.empty(clusters, dtype=np.int64)
    number[rows] = columns
    return number[current]
