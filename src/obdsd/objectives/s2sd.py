"""S2SD, simultaneous similarity-based self-distillation: wider heads on the same features teach the embedding; no second network.

The heads belong to the training alone: they are no part of the model and are thrown away with this module.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from obdsd.errors import InputError
from obdsd.method.checks import check_readable, refuse, require
from obdsd.method.distillation import SelfDistillation
from obdsd.method.pooling import pool
from obdsd.method.precision import in_full
from obdsd.method.teachers import Teacher, TeacherBatch
from obdsd.objectives.heads import linear, unit_rows
from obdsd.objectives.objective import parameter_groups_of
from obdsd.objectives.system import System

PUBLISHED = SelfDistillation(50.0, ramp="constant")


class S2SD(nn.Module):
    """(feature map, embeddings, labels) → ½(mean of the heads' losses + base loss) + the distillation from the heads.

    One head (2048,) is S2SD's DSD, four are MSD, and with `feature_weight` the pooled features teach too: MSDF.
    OBDP refines what all of them teach: `SelfDistillation(50.0, targets=BatchDiffusion(0.3), ramp="constant")`.

    Args:
        objective: Makes a base loss for rows of the given length, a new one at each call: the embedding and every head have their own
            β or proxies.
        feature_dim: Length of the pooled features.
        dim: Length of the embeddings.
        heads: Widths of the heads, each Linear-ReLU-Linear with unit rows.
        distill: The term from each head to the embedding; the mean over the heads counts.
        pooling: How a map becomes what the heads read; given rows stay as they are.
        feature_weight: Weight of the term from the features, without a ramp; 0 leaves it out.
        feature_from: Training calls before the features begin to teach.
        seed: For the heads' initialisation; torch's global generator is left alone.
        prefix_tokens: How many of a transformer's first tokens are no patches and are left out of the pooling.

    >>> from obdsd import objectives
    >>> s2sd = S2SD(lambda d: objectives.proxy_anchor(4, d), feature_dim=16, dim=3, heads=(8, 12))
    >>> z = nn.functional.normalize(torch.randn(6, 3), dim=1)
    >>> s2sd(torch.randn(6, 16, 7, 7), z, torch.tensor([0, 0, 1, 1, 2, 2])).shape
    torch.Size([])
    """

    def __init__(
        self,
        objective: Callable[[int], nn.Module],
        feature_dim: int,
        dim: int,
        *,
        heads: Sequence[int] = (512, 1024, 1536, 2048),
        distill: SelfDistillation = PUBLISHED,
        pooling: Literal["avg", "avg+max"] = "avg+max",
        feature_weight: float = 0.0,
        feature_from: int = 1000,
        seed: int = 0,
        prefix_tokens: int = 0,
    ) -> None:
        super().__init__()
        fits = isinstance(heads, Sequence) and len(heads) > 0 and all(isinstance(width, int) and width >= 1 for width in heads)
        require(fits, "heads", heads, "must be widths of 1 or more", "try (512, 1024, 1536, 2048), or (2048,) for one")
        require(min(feature_dim, dim) >= 1, "feature_dim, dim", (feature_dim, dim), "must be 1 or more", "pass the model's")
        require(pooling in ("avg", "avg+max"), "pooling", repr(pooling), "is unknown", "use 'avg' or 'avg+max'")
        require(feature_from >= 0, "feature_from", feature_from, "must be 0 or more", "use 0 to begin at once")
        require(prefix_tokens >= 0, "prefix_tokens", prefix_tokens, "must be 0 or more", "use 1 for a class token alone")
        finite = 0 <= feature_weight < float("inf")
        require(finite, "feature_weight", feature_weight, "must be 0 or more and finite", "use 0 to switch it off")
        self.feature_dim, self.dim, self.widths = feature_dim, dim, tuple(heads)
        self.pooling, self.prefix_tokens, self.distill = pooling, prefix_tokens, distill
        self.distill_features = replace(distill, weight=feature_weight, ramp="constant")
        self.feature_from, self.step = feature_from, 0
        self.base = objective(dim)
        self.losses = nn.ModuleList(objective(width) for width in heads)
        own = len({id(loss) for loss in (self.base, *self.losses)}) == 1 + len(heads)
        require(own, "objective", objective, "gives the same loss twice", "make a new one at each call")
        generator = torch.Generator().manual_seed(seed)
        self.heads = nn.ModuleList(_Head(feature_dim, width, generator) for width in heads)

    def pool(self, feature_map: Float[Tensor, "b ..."]) -> Float[Tensor, "b f"]:
        """What the heads read of a map (b, f, h, w), of tokens (b, n, f), or of rows (b, f), which are pooled already."""
        if feature_map.ndim not in (2, 3, 4):
            shapes = "must be (batch, features), (batch, tokens, features) or (batch, features, height, width)"
            refuse("feature_map.shape", tuple(feature_map.shape), shapes, "pass the backbone's last map")
        features = pool(feature_map, self.pooling, self.prefix_tokens)
        if features.shape[1] != self.feature_dim:
            shape, rule = tuple(feature_map.shape), f"must have {self.feature_dim} features"
            refuse("feature_map.shape", shape, rule, "make S2SD for the backbone's width")
        return features

    def parts(
        self, feature_map: Float[Tensor, "b ..."], embeddings: Float[Tensor, "b d"], labels: Int[Tensor, " b"], progress: float = 1.0
    ) -> tuple[Float[Tensor, ""], Float[Tensor, ""]]:
        """½(mean of the heads' losses + base loss), and what heads and features teach: the heads learn from the first alone."""
        check_readable("feature_map", feature_map)
        features = self.pool(feature_map)
        if embeddings.shape != (len(features), self.dim):
            expected = f"must be ({len(features)}, {self.dim})"
            refuse("embeddings.shape", tuple(embeddings.shape), expected, "give one row a sample of the feature map")
        rows = [head(features) for head in self.heads]
        of_heads = torch.stack([loss(z, labels) for loss, z in zip(self.losses, rows, strict=True)]).mean()
        taught = torch.stack([self.distill(embeddings, TeacherBatch(z.detach(), labels=labels), progress) for z in rows]).mean()
        if self.step >= self.feature_from and self.distill_features.active(progress):
            of_features = TeacherBatch(unit_rows(features.detach()), labels=labels)
            taught = taught + self.distill_features(embeddings, of_features, progress)
        self.step += self.training
        return (of_heads + self.base(embeddings, labels)) / 2, taught

    def forward(
        self, feature_map: Float[Tensor, "b ..."], embeddings: Float[Tensor, "b d"], labels: Int[Tensor, " b"], progress: float = 1.0
    ) -> Float[Tensor, ""]:
        base, distillation = self.parts(feature_map, embeddings, labels, progress)
        return base + distillation

    def parameter_groups(self) -> list[dict[str, Any]]:
        """The losses' own trainable parameters (β, proxies) as optimiser groups: the base loss's, then each head's."""
        return [group for loss in (self.base, *self.losses) for group in parameter_groups_of(loss)]

    def head_parameters(self) -> list[nn.Parameter]:
        """The heads' weights, to be trained at the base learning rate without weight decay."""
        return list(self.heads.parameters())

    def get_extra_state(self) -> Tensor:
        return torch.tensor(self.step)

    def set_extra_state(self, state: Tensor) -> None:
        self.step = int(state)


class S2SDSystem(System):
    """S2SD: wider heads beside the embedding learn with it and teach it; no second network.

    Args:
        widths: Widths of the heads; one head is S2SD's DSD, several are MSD.
        pooling: How local features become what the heads read.
        feature_weight: Weight at which the pooled features teach too (MSDF); 0 leaves it out.
        feature_from: Steps before the features begin to teach.
    """

    objective: S2SD
    teaches = True

    def __init__(
        self,
        model: Any,
        make_loss: Callable[[int], nn.Module],
        teacher: Teacher,
        distill: SelfDistillation,
        seed: int = 0,
        *,
        widths: list[int] = [512, 1024, 1536, 2048],  # noqa: B006
        pooling: Literal["avg", "avg+max"] = "avg+max",
        feature_weight: float = 0.0,
        feature_from: int = 1000,
    ) -> None:
        settings: dict[str, Any] = {"heads": widths, "pooling": pooling, "feature_weight": feature_weight, "feature_from": feature_from}
        sizes = model.feature_dim, model.dim
        objective = S2SD(make_loss, *sizes, distill=distill, seed=seed, prefix_tokens=model.prefix_tokens, **settings)
        super().__init__(model, objective, teacher, distill)

    def check(self, items: int) -> None:
        if self.teacher.teaches:
            raise InputError("teaches with heads of its own; use teacher=none beside it")
        if self.matching.one_space:
            raise InputError("teaches with heads whose rows live in spaces of their own; use a matching of relations, as kl or rkd")
        self.targets.check(items, self.objective.base, self.teacher)

    def compile_model(self) -> None:
        self.model.backbone.compile()  # the heads read its features: the model as a whole is not called

    def rows(self, inputs: Tensor) -> Float[Tensor, "b c"]:
        """Unit rows, and beside them the features that the heads read."""
        local = self.model.feature_map(inputs)
        return torch.cat([self.model.embed(self.model.pool(local)), in_full(self.objective.pool(local))], dim=1)

    def losses(
        self, rows: Float[Tensor, "b c"], labels: Int[Tensor, " b"], taught: TeacherBatch | None, progress: float
    ) -> tuple[Tensor, Tensor]:
        return self.objective.parts(rows[:, self.model.dim :], rows[:, : self.model.dim], labels, progress)

    def parameter_groups(self, lr: float) -> list[dict[str, Any]]:
        heads = {"params": self.objective.head_parameters(), "lr": lr, "weight_decay": 0.0, "at_base_lr": True}
        return [heads, *self.objective.parameter_groups()]


class _Head(nn.Module):
    """Linear-ReLU-Linear to unit rows, initialised as torch initialises its layers, but from a generator."""

    def __init__(self, features: int, width: int, generator: torch.Generator) -> None:
        super().__init__()
        self.first = linear(features, width, generator)
        self.second = linear(width, width, generator)

    def forward(self, features: Float[Tensor, "b f"]) -> Float[Tensor, "b t"]:
        hidden = torch.relu(self.first(features.to(self.first.weight.dtype)))  # a model of half precision has heads of full
        return unit_rows(self.second(hidden))
