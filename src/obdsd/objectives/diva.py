"""DiVA: four parts of an embedding, each with a task of its own, kept free of the first (discriminative, selfsimilarity, shared, intra)."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Literal

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from obdsd.data import Part
from obdsd.errors import InputError
from obdsd.method.checks import check_number, check_temperature, require
from obdsd.method.distillation import SelfDistillation
from obdsd.method.precision import in_full, without_autocast
from obdsd.method.teachers import EMATeacher, Teacher, TeacherBatch
from obdsd.objectives.decorrelation import Decorrelation
from obdsd.objectives.margin import MarginOfTriplets
from obdsd.objectives.samplers import Triplets, intra_triplets, log_inverse_density, permuted_triplets, three_class_triplets
from obdsd.objectives.system import Embed, System

OTHERS = ("selfsimilarity", "shared", "intra")  # the slices after the first
FARTHEST = 1.4  # keys of the queue beyond have no weight


class DiVA(System):
    """DiVA: the slices of an embedding learn classes, single items, what classes share, and what differs inside a class.

    With z_1 … z_4 the slices, each of unit length, and L_adv of `Decorrelation`, the loss is

        base(z_1) + α·[contrast(z_2) + margin(z_3) + margin(z_4)] + ρ·Σ_{k≥2} L_adv(z_k → z_1)

    contrast tells an item's key, as a running average of the network makes it, from those in a queue of earlier batches. On images the key
    is of another crop; on rows of features, which have no crops, of the same row. The triplets of z_3 are of labels that change hands at
    random, those of z_4 of one class each.

    Args:
        alpha: Weight of the losses of the three other slices (α); published 0.3, 0.15 and 0.2 for CUB-200-2011, CARS196 and SOP.
        decorrelation: Weight of the decorrelation (ρ); published 1500, 100 and 150.
        shared: Triplets of what classes share: of permuted labels (random, as the published code), or of three classes (standard, as the
            paper).
        queue: Keys of earlier batches that are remembered.
        momentum: How slowly the network that makes keys follows.
        temperature: Temperature of the contrast.
        key_weights: Whether the keys' weights sum to 1 over the queue (rows) or, as in the published code, over the batch (published).
    """

    keys: Tensor
    place: Tensor

    def __init__(
        self,
        model: Any,
        make_loss: Callable[[int], nn.Module],
        teacher: Teacher,
        distill: SelfDistillation,
        part: Part,
        seed: int = 0,
        *,
        alpha: float = 0.3,
        decorrelation: float = 1500.0,
        shared: Literal["random", "standard"] = "random",
        queue: int = 3360,
        momentum: float = 0.9,
        temperature: float = 0.01,
        key_weights: Literal["rows", "published"] = "rows",
    ) -> None:
        if model.architecture.slices != 4:
            raise InputError(f"has a task for each of four slices, slices={model.architecture.slices}; use slices=4")
        for name, value, usual in (("alpha", alpha, 0.3), ("decorrelation", decorrelation, 1500)):
            check_number(name, value)
            require(0 <= value < math.inf, name, value, "must be 0 or more and finite", f"try {usual}")
        require(queue >= 1, "queue", queue, "must be 1 or more", "try 3360, 30 batches of 112")
        require(0 <= momentum < 1, "momentum", momentum, "must lie in [0, 1)", "try 0.9")
        check_temperature(temperature)
        dim, classes = model.dim // 4, len(part.class_names)
        super().__init__(model, make_loss(dim), teacher, distill)
        self.another_view = model.preprocessing is not None
        self.items, self.seed = len(part), seed
        self.alpha, self.weight, self.temperature, self.published = alpha, decorrelation, temperature, key_weights == "published"
        self.triplets_of_shared = permuted_triplets if shared == "random" else three_class_triplets
        self.network = EMATeacher(model, momentum)
        self.of_shared, self.of_intra = MarginOfTriplets(classes), MarginOfTriplets(classes)
        generator = torch.Generator().manual_seed(seed)
        self.adversaries = nn.ModuleDict({name: Decorrelation(dim, dim, generator) for name in OTHERS})
        self.register_buffer("keys", torch.zeros(queue, dim))  # the queue
        self.register_buffer("place", torch.tensor(-1))  # of its oldest key; -1 while there is none
        self.new: Tensor | None = None  # the keys of the batch, which enter the queue after the step

    def check(self, items: int) -> None:
        if self.teacher.teaches:
            raise InputError("learns from a running average of its own; use teacher=none beside it")

    def begin(self, train_first: Callable[[], nn.Module]) -> None:
        super().begin(train_first)
        self.network.begin(self.model, train_first)

    def begin_epoch(self, progress: float, embed: Embed, resumed: bool = False) -> None:
        if int(self.place) < 0:
            chosen = np.resize(np.random.default_rng(self.seed).permutation(self.items), len(self.keys))
            once, of_each = np.unique(chosen, return_inverse=True)
            rows = embed(self.network.model, once.tolist())
            self.keys.copy_(self._keys(rows)[torch.from_numpy(of_each).to(rows.device)])
            self.place.zero_()

    def asks(self, progress: float) -> bool:
        return True

    @torch.no_grad()
    def ask(self, inputs: Tensor, indices: Int[Tensor, " b"]) -> TeacherBatch:
        """The items' keys."""
        return TeacherBatch(self._keys(self.network(inputs).embeddings), indices=indices)

    def _keys(self, rows: Float[Tensor, "b c"]) -> Float[Tensor, "b d"]:
        return self.model.slices_of(rows)[:, 1]

    def complete(self, batch: TeacherBatch, labels: Int[Tensor, " b"]) -> TeacherBatch:
        return batch

    def losses(
        self, rows: Float[Tensor, "b c"], labels: Int[Tensor, " b"], taught: TeacherBatch | None, progress: float
    ) -> tuple[Tensor, Tensor]:
        """All at once; nothing of it is a distillation."""
        assert taught is not None  # `asks` says so
        self.new = taught.embeddings
        first, *others = self.model.slices_of(rows).unbind(dim=1)
        selfsimilarity, shared, intra = others
        generator = torch.Generator(rows.device).manual_seed(int(torch.randint(2**62, ())))  # the training seeds torch's own at each step
        tasks = contrast(selfsimilarity, taught.embeddings, self.keys, self.temperature, self.published)
        tasks = tasks + self.of_shared(shared, labels, self._of_shared(shared, labels, generator))
        tasks = tasks + self.of_intra(intra, labels, intra_triplets(labels, generator))
        apart = torch.stack([self.adversaries[name](z, first) for name, z in zip(OTHERS, others, strict=True)]).sum()
        base = self.objective(first, labels) + self.alpha * tasks + self.weight * apart
        return base, torch.zeros_like(base)

    @torch.no_grad()
    def _of_shared(self, rows: Tensor, labels: Tensor, generator: torch.Generator) -> Triplets:
        rows = in_full(rows)
        return self.triplets_of_shared(torch.cdist(rows, rows), labels, generator, dim=rows.shape[1])

    def after_step(self, indices: Int[Tensor, " b"], rows: Float[Tensor, "b d"]) -> None:
        assert self.new is not None  # of `losses`
        new = self.new[-len(self.keys) :].to(self.keys)
        self.keys[(self.place + torch.arange(len(new), device=new.device)) % len(self.keys)] = new
        self.place.add_(len(new)).remainder_(len(self.keys))
        self.network.step(self.model)

    def parameter_groups(self, lr: float) -> list[dict[str, Any]]:
        adversaries = {"params": [*self.adversaries.parameters()], "lr": lr, "weight_decay": 0.0, "at_base_lr": True}
        own = [group for loss in (self.of_shared, self.of_intra) for group in loss.parameter_groups()]
        return [adversaries, *super().parameter_groups(lr), *own]


def contrast(
    query: Float[Tensor, "b d"], keys: Float[Tensor, "b d"], queue: Float[Tensor, "q d"], temperature: float, published: bool = False
) -> Float[Tensor, ""]:
    """-log of the share of q·k in the softmax of [q·k, w_j (q·queue_j)]/τ, mean over the batch.

    w is the inverse density of distances on the sphere, 0 beyond 1.4, without gradient. It sums to 1 over the queue; `published`: over the
    batch.
    """
    with without_autocast(query):
        query = in_full(query)
        S = query @ queue.mT  # (batch, queue)
        with torch.no_grad():
            distances = (2 - 2 * S).clamp(min=0).sqrt()
            log_w = log_inverse_density(distances, query.shape[1])
            w = (log_w - (log_w.max() if published else log_w.amax(dim=1, keepdim=True))).exp()
            w = w.masked_fill(distances > FARTHEST, 0).clamp(min=torch.finfo(w.dtype).tiny)
            w /= w.sum(dim=0 if published else 1, keepdim=True)
        logits = torch.cat([(query * keys).sum(dim=1, keepdim=True), w * S], dim=1) / temperature
        return nn.functional.cross_entropy(logits, torch.zeros(len(query), dtype=torch.int64, device=query.device))
