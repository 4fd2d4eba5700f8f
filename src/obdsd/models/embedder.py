"""The embedder: backbone → pooling → head → unit rows."""

from __future__ import annotations

import copy
import hashlib
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from obdsd.errors import InputError
from obdsd.method.checks import refuse, require
from obdsd.method.pooling import Pooling, pool
from obdsd.method.precision import in_full, without_autocast
from obdsd.models import backbones, folder
from obdsd.models.composed import Composed
from obdsd.models.folder import Architecture, BatchNorm, Description, Head
from obdsd.models.places import FEATURES, TINY_CONV, find, located
from obdsd.models.relational import RelationalHead
from obdsd.models.weights import check_shapes, fit, fit_file, fit_offline, state_digest
from obdsd.preprocessing import Preprocessing
from obdsd.provenance import TrainedOn


class Embedder(nn.Module):
    """Images, or features that somebody has computed, to unit rows.

    Args:
        backbone: A name of timm, `bn-inception`, `tiny-conv` for 32×32 images, or `features` for rows that are given.
        dim: Length of the rows; default 128, with head `none` that of the features.
        pooling: `avg` over places, `avg+max` (the paper's "+D"), `gem`, the cube root of the mean of cubes,
            or `token`, a transformer's class token.
        head: `linear`, `two-layer` (ReLU between), `composed` (as many linear maps as `slices`, mixed for each item), `relational` (DRML's:
            parts of the features, and relations between them), or `none`: the pooled features themselves.
        hidden: Width of a two-layer head between its layers; default that of the features.
        branches: Equal parts of the features, each with its part of a row, in a relational head; default 4.
        slices: Equal parts of a row, each brought to unit length by itself before the row is.
        slice_weights: What each slice is multiplied by in the row; default 1 for all.
        batchnorm: `frozen` keeps the statistics, whatever `train()` says, while scales and shifts train; or `train`.
            Default: frozen with weights, train without.
        pretrained: Weights to begin with: `imagenet` (downloaded), `offline` (pip packages, for tf_efficientnet_lite0, 1, 2), `none`, a
            file, or a model folder or a run, whose backbone is taken. Default: imagenet, or none for the two that have no such
            weights, `tiny-conv` and `features`.
        features: Length of the rows that are given to the backbone `features`.
        size: Side of the images, if not the backbone's own.
        unit_features: Whether pooled features are brought to unit length before the head, as those of a file of embeddings are.
        feature_power: Exponent of the features before the head, with their signs; then they are brought to unit length. 1 leaves them.
        seed: For all that is initialised at random; torch's global generator is left alone.

    >>> embedder = Embedder("features", features=512, dim=64)
    >>> embedder(torch.randn(8, 512)).shape
    torch.Size([8, 64])
    """

    preprocessing: Preprocessing | None  # None for features, which are no images
    trained_on: TrainedOn | None = None  # what it has seen, if it comes from a training
    made_by: dict[str, str | int] | None = None  # how the rows were made that it takes, if it takes rows and their file says so
    feature_dim: int
    dim: int
    knows_something: bool  # whether the features are worth something before any training

    def __init__(
        self,
        backbone: str = "resnet50",
        *,
        dim: int | None = None,
        pooling: Pooling = "avg",
        head: Head = "linear",
        hidden: int | None = None,
        branches: int | None = None,
        slices: int = 1,
        slice_weights: Sequence[float] = (),
        batchnorm: BatchNorm | None = None,
        pretrained: str | Path | None = None,
        features: int | None = None,
        size: int | None = None,
        unit_features: bool = False,
        feature_power: float = 1.0,
        seed: int = 0,
    ) -> None:
        super().__init__()
        if pretrained is None:
            pretrained = "none" if backbone in (FEATURES, TINY_CONV) else "imagenet"
        self.architecture = Architecture(
            backbone=backbone,
            features=features,
            size=size,
            pooling=pooling,
            head=head,
            hidden=hidden,
            branches=branches or 4 if head == "relational" else branches,
            slices=slices,
            slice_weights=tuple(slice_weights),
            dim=128 if dim is None and head != "none" else dim,
            batchnorm=batchnorm or ("train" if pretrained == "none" else "frozen"),
            unit_features=unit_features,
            feature_power=feature_power,
        )
        if (backbone == FEATURES and pretrained != "none") or (backbone == TINY_CONV and pretrained == "imagenet"):
            refuse("pretrained", pretrained, f"weights do not exist for {backbone}", "use none")
        self.knows_something = backbone == FEATURES or pretrained != "none"
        self.preprocessing = backbones.preprocessing_of(backbone, size)
        with backbones.seeded(seed):
            self.backbone = backbones.create(backbone, size, pretrained=pretrained == "imagenet")
            self.feature_dim = features or backbones.feature_width(self.backbone)
            self.dim = self.architecture.dim or self.feature_dim
            self.head = _make_head(self.architecture, self.feature_dim, self.dim)
        if pooling == "token" and not backbones.has_class_token(self.backbone):
            refuse("pooling", pooling, f"needs a class token, {backbone} has none", "use avg, avg+max or gem")
        if pretrained == "offline":
            assert self.preprocessing is not None
            self.preprocessing = fit_offline(self.backbone, backbone, self.preprocessing)
        elif pretrained not in ("none", "imagenet"):  # the latter came with the backbone
            self._begin_with(Path(pretrained).expanduser())
        self.train()

    def _begin_with(self, path: Path) -> None:
        """The backbone of a model of ours, with what it expects of images and what it has seen; or a file of weights."""
        place, own = find(path), self.architecture
        if place is None:
            return fit_file(self.backbone, path, backbones.classifier_of(own.backbone))
        model, tensors = folder.read(place)
        theirs = model.architecture.backbone
        same = theirs.partition(".")[0] == own.backbone.partition(".")[0]  # a tag names published weights, which are not taken
        require(same, "pretrained", path, f"is a model with backbone={theirs}, not {own.backbone}", f"use backbone={theirs}")
        fit(self.backbone, {key.removeprefix("backbone."): tensors[key] for key in tensors if key.startswith("backbone.")}, place)
        assert model.preprocessing is not None  # it has a backbone for images
        self.preprocessing = model.preprocessing if own.size is None else model.preprocessing.at(own.size)
        self.trained_on = model.trained_on

    def feature_map(self, x: Float[Tensor, "b ..."]) -> Float[Tensor, "b ..."]:
        """Local features before pooling: (b, f, h, w), or a transformer's tokens (b, n, f); rows (b, f) pass as they are."""
        self._check_input(x)
        self._keep_frozen()  # also if somebody called train() on the backbone alone
        features = self.backbone(x)
        if features.ndim == 4 and getattr(self.backbone, "output_fmt", "NCHW") == "NHWC":  # Swin and its kin
            features = features.permute(0, 3, 1, 2)
        return features

    def pool(self, features: Float[Tensor, "b ..."]) -> Float[Tensor, "b f"]:
        return pool(features, self.architecture.pooling, self.prefix_tokens)

    def embed(self, features: Float[Tensor, "b f"]) -> Float[Tensor, "b d"]:
        """Unit rows of pooled features; normalised in float32 whatever the model's precision."""
        rows = self.head(self.before_head(features))
        return _unit(rows if self.architecture.slices == 1 else self._weighted(self.slices_of(rows)))

    def before_head(self, features: Float[Tensor, "b f"]) -> Float[Tensor, "b f"]:
        """What the head is given of pooled features: as they are, of unit length, or of unit length after their power."""
        own = self.architecture
        features = _unit(features) if own.unit_features else features
        if own.feature_power == 1:
            return features
        tamed = features.abs().clamp(min=SMALLEST) ** own.feature_power  # a root has no finite gradient at 0
        return _unit(tamed * features.sign())

    def slices_of(self, rows: Float[Tensor, "b d"]) -> Float[Tensor, "b k s"]:
        """The slices of rows, each of unit length: of the model's own unit rows, too, with the same gradient, for a loss on each."""
        k = self.architecture.slices
        return _unit(rows.reshape(-1, k, self.dim // k))

    def _weighted(self, slices: Float[Tensor, "b k s"]) -> Float[Tensor, "b d"]:
        weights = self.architecture.slice_weights
        return (slices * slices.new_tensor(weights)[:, None] if weights else slices).flatten(1)

    def forward(self, x: Float[Tensor, "b ..."]) -> Float[Tensor, "b d"]:
        return self.embed(self.pool(self.feature_map(x)))

    def begin_projected(self, projection: Float[Tensor, "*g d f"]) -> None:
        """Let the linear layer of the head begin as this projection; the nodes of a relational head as theirs."""
        layer = self.head
        if isinstance(layer, Composed):
            layer.take_one_each()
            layer = layer.ensemble
        elif isinstance(layer, RelationalHead):
            layer = layer.node
        layer.load_state_dict({"weight": projection, "bias": torch.zeros(projection.shape[:-1])})

    @property
    def prefix_tokens(self) -> int:
        """How many of a transformer's tokens come before those of the patches: class token, registers."""
        return getattr(self.backbone, "num_prefix_tokens", int(backbones.has_class_token(self.backbone)))

    def how_it_sees(self) -> dict[str, str | int] | None:
        """What tells its rows of images from those of the same weights that see them otherwise; None if it takes rows."""
        own, seen = self.architecture, self.preprocessing
        if seen is None:
            return None
        return {"backbone": own.backbone, "pooling": own.pooling, "size": seen.size, "resize": seen.resize}

    def digest(self) -> str:
        """Tells a model from others by all that decides its rows."""
        own = self.architecture
        sliced = f" {own.slices} {own.slice_weights}" if own.slices > 1 else ""
        powered = f" power {own.feature_power}" if own.feature_power != 1 else ""
        branched = f" {own.branches}" if own.branches else ""
        about = f"{own}{sliced}{powered}{branched} {self.preprocessing} {state_digest(self.state_dict())}"
        return hashlib.blake2b(about.encode(), digest_size=16).hexdigest()

    def headless(self) -> Embedder:
        """A copy that gives the pooled features themselves, as unit rows."""
        bare = copy.deepcopy(self)
        bare.architecture = replace(self.architecture, **_NO_HEAD, unit_features=False)
        bare.head, bare.dim = nn.Identity(), self.feature_dim
        return bare

    def head_alone(self) -> Embedder:
        """The head itself, not a copy, as an embedder of the unit features that the backbone gives it. What it learns, this one knows."""
        alone = Embedder(FEATURES, features=self.feature_dim, **_head_of(self.architecture))
        alone.head = self.head
        return alone

    def joined(self, head: Embedder) -> Embedder:
        """One model for images: this backbone, and a head that was trained on its unit features (a file that `obdsd embed` wrote)."""
        rows = head.architecture
        if rows.backbone != FEATURES:
            refuse("head", rows.backbone, "is a model for images, not a head", "give a model that was trained on embeddings")
        if self.architecture.head != "none" or self.preprocessing is None:
            refuse("backbone", self.architecture.backbone, "must give its pooled features as they are", "use BACKBONE:WEIGHTS")
        if self.feature_dim != rows.features:
            lengths = f"gives {self.feature_dim} features, the head takes {rows.features}"
            refuse("backbone", self.architecture.backbone, lengths, "use the backbone that the head's embeddings were made by")
        whole = copy.deepcopy(self)
        whole.architecture = replace(self.architecture, **_head_of(rows), unit_features=True)
        whole.head, whole.dim, whole.trained_on = copy.deepcopy(head.head), head.dim, head.trained_on
        return whole

    def train(self, mode: bool = True) -> Embedder:
        super().train(mode)
        self._keep_frozen()
        return self

    def _keep_frozen(self) -> None:
        if self.architecture.batchnorm == "frozen":
            for module in self.modules():
                if isinstance(module, _BatchNorm):
                    module.training = False

    def save(self, path: str | Path) -> None:
        """Write `model.safetensors` and `model.json` into a folder, each whole or not at all."""
        model = Description(
            architecture=self.architecture, preprocessing=self.preprocessing, trained_on=self.trained_on, made_by=self.made_by
        )
        folder.write(Path(path), model, self.state_dict())

    @classmethod
    def load(cls, path: str | Path, map_location: str | torch.device = "cpu") -> Embedder:
        """The embedder that `save` wrote, in eval mode; downloads nothing and executes nothing from the folder."""
        model, tensors = folder.read(Path(path))
        source = Path(path) / "model.safetensors"
        with torch.device("meta"):  # nothing is allocated for sizes that only model.json claims
            check_shapes(cls(**asdict(model.architecture), pretrained="none").state_dict(), tensors, source)
        embedder = cls(**asdict(model.architecture), pretrained="none")
        fit(embedder, tensors, source)
        embedder.preprocessing, embedder.trained_on, embedder.made_by = model.preprocessing, model.trained_on, model.made_by
        return embedder.to(map_location).eval()

    def _check_input(self, x: Tensor) -> None:
        shape = tuple(x.shape)
        if self.architecture.backbone == FEATURES:
            fits = x.ndim == 2 and x.shape[1] == self.feature_dim
            require(fits, "x.shape", shape, f"must be (batch, {self.feature_dim})", "pass the rows that the head was made for")
        else:
            fits = x.ndim == 4 and x.shape[1] == 3
            require(fits, "x.shape", shape, "must be (batch, 3, height, width)", "pass a batch of colour images")
        require(x.is_floating_point(), "x.dtype", x.dtype, "must be floating point", "apply the embedder's preprocessing first")


_NO_HEAD: dict[str, Any] = {"head": "none", "hidden": None, "branches": None, "dim": None, "slices": 1, "slice_weights": ()}
_NO_HEAD |= {"feature_power": 1.0}
SMALLEST = 1e-12  # of a feature whose power is taken


def _head_of(architecture: Architecture) -> dict[str, Any]:
    """All that says what the head is made of."""
    return {name: getattr(architecture, name) for name in _NO_HEAD}


def _unit(rows: Float[Tensor, "*b d"]) -> Float[Tensor, "*b d"]:
    with without_autocast(rows):
        return nn.functional.normalize(in_full(rows), dim=-1)


def _make_head(own: Architecture, features: int, dim: int) -> nn.Module:
    if own.head == "none":
        return nn.Identity()
    if own.head == "linear":
        return nn.Linear(features, dim)
    if own.head == "composed":
        return Composed(features, dim, own.slices)
    if own.branches:
        return RelationalHead(features, dim, own.branches)
    hidden = own.hidden or features
    return nn.Sequential(nn.Linear(features, hidden), nn.ReLU(), nn.Linear(hidden, dim))


def open_model(source: str, size: int | None = None, pooling: Pooling | None = None, resize: int | None = None) -> Embedder:
    """A model folder, a run folder (its `model/`), or `BACKBONE:WEIGHTS` (`tf_efficientnet_lite0:offline`, `resnet50:imagenet`,
    `resnet50:weights.pth`), whose pooled features are taken as they are; in eval mode.

    Args:
        size: Side of the images, if not the backbone's own. This and the rest are for `BACKBONE:WEIGHTS`: a trained model has its own.
        pooling: How local features become one row; `avg` if not given.
        resize: Length of the images' shorter side before the centre crop, if not in proportion to `size`.
    """
    place = located(source)
    if place is not None:
        for name, value in {"size": size, "pooling": pooling, "resize": resize}.items():
            require(value is None, name, value, f"is for BACKBONE:WEIGHTS, model={source} has its own", "leave it out")
        return Embedder.load(place)
    backbone, _, weights = source.partition(":")
    how: dict[str, Any] = {"size": size, "pooling": pooling or "avg", "pretrained": str(Path(weights).expanduser())}
    model = Embedder(backbone, head="none", **how).eval()
    if resize is not None:
        assert model.preprocessing is not None  # `features` is no BACKBONE:WEIGHTS
        require(resize >= model.preprocessing.size, "resize", resize, f"is less than size={model.preprocessing.size}", "enlarge it")
        model.preprocessing = replace(model.preprocessing, resize=resize)
    return model


def check_takes(model: str, embedder: Embedder, data: str, kind: str, length: int | None) -> None:
    """Refuse data that a model is not made for: `images` for one of rows, `embeddings` for one of images, rows of another length."""
    wanted = "images" if embedder.preprocessing is not None else "embeddings"
    if kind != wanted:
        raise InputError(f"{data}: holds {kind}, but model={model} is made for {wanted}; give data that it fits")
    if wanted == "embeddings" and length != embedder.feature_dim:
        remedy = "give the features that it was trained on"
        raise InputError(f"{data}: vectors have length {length}, but model={model} takes {embedder.feature_dim}; {remedy}")
