"""MIC, mining inter-class characteristics: a second embedding learns what classes share, and the first is kept free of it.

The second head and all that belongs to it are thrown away with this module: the model keeps the head of the classes alone.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from numpy.typing import NDArray
from torch import Tensor, nn

from obdsd.data import Part
from obdsd.data.batches import Batches
from obdsd.errors import InputError
from obdsd.method.checks import check_number, refuse, require
from obdsd.method.distillation import SelfDistillation
from obdsd.method.teachers import Teacher, TeacherBatch
from obdsd.objectives.decorrelation import Decorrelation
from obdsd.objectives.heads import linear, unit_rows
from obdsd.objectives.margin import margin
from obdsd.objectives.system import Embed, System

APART = 3  # a cluster comes again after so many others at the earliest
STEM = ("conv1", "bn1", "act1", "maxpool", "layer1")  # a ResNet up to its first stage


class MIC(System):
    """MIC: a second head learns clusters that lie across the classes; the embedding is decorrelated from it.

    c is the embedding, a the unit row of the second head on the same features, k the cluster that an item stands for. A batch of classes
    has the loss margin(c, class) + w·L_adv(a → c), with L_adv of `Decorrelation`; a batch of clusters has margin(a, k) + w·L_adv(a → c).
    Before the first epoch clusters are found by k-means on early features less the mean of their class; later on a itself.

    Args:
        clusters: Clusters that k-means finds across the classes.
        share: Batches of clusters for each batch of classes, 0 to 1.
        decorrelation: Weight of the decorrelation (w); published 2500, 500 and 250 for CUB-200-2011, CARS196 and SOP.
        within: Whether batches of clusters take the place of batches of classes, so that an epoch is no longer than usual.
        every: Epochs after which clusters are found anew.
        stray: Probability that an item of a batch of clusters comes from another cluster.
        matched: Whether new clusters get the numbers, and so the boundaries β, of the old ones that they hold most of.
    """

    assigned: Tensor
    ended: Tensor
    plan: TwoKinds

    def __init__(
        self,
        model: Any,
        make_loss: Callable[[int], nn.Module],
        teacher: Teacher,
        distill: SelfDistillation,
        part: Part,
        seed: int = 0,
        *,
        clusters: int = 30,
        share: float = 0.8,
        decorrelation: float = 2500.0,
        within: bool = False,
        every: int = 4,
        stray: float = 0.2,
        matched: bool = False,
    ) -> None:
        require(clusters > APART, "clusters", clusters, f"must be more than {APART}", "try 30")
        require(clusters <= len(part), "clusters", clusters, f"are more than the {len(part)} training items", "ask for fewer")
        for name, value in (("share", share), ("stray", stray)):
            check_number(name, value)
            require(0 <= value <= 1, name, value, "must lie in [0, 1]", "try the published value")
        check_number("decorrelation", decorrelation)
        require(0 <= decorrelation < math.inf, "decorrelation", decorrelation, "must be 0 or more and finite", "try 2500")
        require(every >= 1, "every", every, "must be 1 or more", "try 4")
        if len(np.unique(part.labels)) == len(part):
            raise InputError("looks for what classes share, and here each item is a class of its own; use supervision=labels")
        super().__init__(model, make_loss(model.dim), teacher, distill)
        self.labels, self.seed, self.clusters, self.share, self.stray = part.labels, seed, clusters, share, stray
        self.weight, self.within, self.every, self.matched = decorrelation, within, every, matched
        generator = torch.Generator().manual_seed(seed)
        self.shared = linear(model.feature_dim, model.dim, generator)
        self.adversary = Decorrelation(model.dim, model.dim, generator)
        self.of_clusters = margin(clusters, seed=seed)
        self.register_buffer("assigned", torch.zeros(len(part), dtype=torch.int64))
        self.register_buffer("ended", torch.tensor(0))  # epochs
        self.asked: Tensor | None = None  # the cluster that each row of the batch stands for; None in a batch of classes

    def compile_model(self) -> None:
        self.model.backbone.compile()  # both heads read its features: the model as a whole is not called

    def batches(self, usual: Batches) -> Batches:
        self.plan = TwoKinds(usual, self.share, self.stray, self.within)
        return self.plan

    def begin_epoch(self, progress: float, embed: Embed, resumed: bool = False) -> None:
        super().begin_epoch(progress, embed, resumed)
        if not resumed and int(self.ended) % self.every == 0:
            self.assigned.copy_(torch.from_numpy(self._found(embed)))
        self.plan.settle(self.assigned.cpu().numpy())

    def _found(self, embed: Embed) -> NDArray[np.int64]:
        """The cluster of each item of the training set."""
        from obdsd.evaluation.clustering import kmeans  # seconds of imports, which --help and mistakes must not wait for

        if first := int(self.ended) == 0:
            rows = without_class_means(embed(_early(self.model)).cpu().numpy(), self.labels)
        else:
            rows = embed(_Shared(self.model, self.shared)).cpu().numpy()
        found = kmeans(rows, self.clusters, seed=self.seed + int(self.ended))
        return found if first or not self.matched else renumbered(found, self.assigned.cpu().numpy(), self.clusters)

    def begin_step(self, step: int, indices: Int[Tensor, " b"]) -> None:
        asked = self.plan.drawn(self.plan.current, step)[1] if self.plan.kinds[step] else None
        self.asked = None if asked is None else torch.from_numpy(asked).to(indices.device)

    def rows(self, inputs: Tensor) -> Float[Tensor, "b c"]:
        """Embeddings, and beside them the rows of the second head."""
        features = self.model.pool(self.model.feature_map(inputs))
        return torch.cat([self.model.embed(features), _embedded(self.model, self.shared, features)], dim=1)

    def losses(
        self, rows: Float[Tensor, "b c"], labels: Int[Tensor, " b"], taught: TeacherBatch | None, progress: float
    ) -> tuple[Tensor, Tensor]:
        """The loss of the batch's kind with the decorrelation; a teacher is heard in batches of classes."""
        own, shared = rows.tensor_split([self.model.dim], dim=1)
        apart = self.weight * self.adversary(shared, own)
        if self.asked is not None:
            return self.of_clusters(shared, self.asked) + apart, torch.zeros_like(apart)
        base, distillation = super().losses(own, labels, taught, progress)
        return base + apart, distillation

    def end_epoch(self, reading: Any) -> None:
        super().end_epoch(reading)
        self.ended += 1

    def parameter_groups(self, lr: float) -> list[dict[str, Any]]:
        head = {"params": [*self.shared.parameters()], "lr": lr, "at_base_lr": True}
        adversary = {"params": [*self.adversary.parameters()], "lr": lr, "weight_decay": 1e-6, "at_base_lr": True}
        return [head, adversary, *super().parameter_groups(lr), *self.of_clusters.parameter_groups()]


class TwoKinds(Batches):
    """The usual batches, and after a `share` of them, evenly, one of clusters: `batch_size / per_class` draws of a cluster.

    A cluster comes again after two others at the earliest. Each item is of the cluster that was drawn, or with probability `stray` of one
    that is drawn for it alone; it stands for the former. A batch is a function of seed, epoch and its number. Batches of clusters make an
    epoch longer, unless both kinds are to be `within` the usual number.
    """

    def __init__(self, usual: Batches, share: float, stray: float, within: bool = False) -> None:
        super().__init__(usual.batch_size, usual.per_class, usual.seed, usual.rank, usual.world_size)
        self.usual, self.stray = usual, stray
        self.kinds: list[bool] = []  # of each batch whether it is one of clusters
        for batch in range(1, usual.number + 1):
            self.kinds += [False] + [True] * (int(batch * share + 1e-9) - int((batch - 1) * share + 1e-9))
        self.kinds = self.kinds[: usual.number] if within else self.kinds
        self.number = len(self.kinds)
        self.members: dict[int, NDArray[np.int64]] = {}

    def settle(self, assigned: NDArray[np.int64]) -> None:
        """From here on these are the items' clusters. A cluster without items is left out."""
        self.members = {int(cluster): np.flatnonzero(assigned == cluster) for cluster in np.unique(assigned)}
        if len(self.members) < APART:
            refuse("clusters", f"{len(self.members)} that hold items", f"must be {APART} or more", "the features may all be the same")

    def items_of(self, epoch: int) -> Iterator[list[int]]:
        usual = self.usual.items_of(epoch)
        for batch, of_clusters in enumerate(self.kinds):
            yield self.drawn(epoch, batch)[0].tolist() if of_clusters else next(usual)

    def drawn(self, epoch: int, batch: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """The items of a batch of clusters, and the cluster that each stands for."""
        random = np.random.default_rng((self.seed, epoch, batch))
        chosen: list[int] = []
        for _ in range(self.classes):
            chosen.append(int(random.choice([cluster for cluster in self.members if cluster not in chosen[1 - APART :]])))
        items = np.concatenate([self._of_one(random, self.members[cluster]) for cluster in chosen])
        for place in np.flatnonzero(random.random(len(items)) < self.stray):
            items[place] = random.choice(self.members[int(random.choice([*self.members]))])
        return items, np.repeat(chosen, self.per_class)

    def _of_one(self, random: np.random.Generator, members: NDArray[np.int64]) -> NDArray[np.int64]:
        return random.choice(members, self.per_class, replace=len(members) < self.per_class)


def without_class_means(rows: Float[np.ndarray, "n d"], labels: Int[np.ndarray, " n"]) -> Float[np.ndarray, "n d"]:
    """Rows less the mean of their class.

    >>> without_class_means(np.array([[1.0], [3.0], [5.0]]), np.array([0, 0, 1])).tolist()
    [[-1.0], [1.0], [0.0]]
    """
    _, of_class, sizes = np.unique(labels, return_inverse=True, return_counts=True)
    sums = np.zeros((len(sizes), rows.shape[1]), rows.dtype)
    np.add.at(sums, of_class, rows)
    return rows - (sums / sizes[:, None].astype(rows.dtype))[of_class]


def renumbered(found: Int[np.ndarray, " n"], before: Int[np.ndarray, " n"], clusters: int) -> NDArray[np.int64]:
    """The same clusters by other numbers, so that as many items as possible keep the number that they had (Hungarian matching).

    >>> renumbered(np.array([0, 0, 1, 1, 1]), np.array([1, 1, 0, 0, 1]), 2).tolist()
    [1, 1, 0, 0, 0]
    """
    from scipy.optimize import linear_sum_assignment  # half a second of imports, for who asks for it

    common = np.zeros((clusters, clusters))
    np.add.at(common, (found, before), 1)
    return linear_sum_assignment(common, maximize=True)[1].astype(np.int64)[found]


class _Shared(nn.Module):
    """Inputs → unit rows of the second head."""

    def __init__(self, model: Any, head: nn.Linear) -> None:
        super().__init__()
        self.model, self.head = model, head

    def forward(self, inputs: Tensor) -> Tensor:
        return _embedded(self.model, self.head, self.model.pool(self.model.feature_map(inputs)))


class _Early(nn.Module):
    """Images → unit rows of a ResNet's first stage, averaged over windows of 18 with stride 12 (of all, where there are fewer places)."""

    def __init__(self, backbone: nn.Module) -> None:
        super().__init__()
        self.stem = nn.Sequential(*(backbone.get_submodule(name) for name in STEM))

    def forward(self, images: Tensor) -> Tensor:
        places = self.stem(images)
        window = [min(18, side) for side in places.shape[2:]]
        return unit_rows(nn.functional.avg_pool2d(places, window, stride=12).flatten(1))


def _early(model: Any) -> nn.Module:
    """What the first clusters are found on: a ResNet's first stage, else the pooled features; of rows, the rows themselves."""
    return _Early(model.backbone) if all(hasattr(model.backbone, name) for name in STEM) else model.headless()


def _embedded(model: Any, head: nn.Linear, features: Tensor) -> Tensor:
    return unit_rows(head(model.before_head(features).to(head.weight.dtype)))
