"""Backbones by name: any of timm's, BN-Inception, a tiny one for 32×32 glyphs, and none at all for features that people already have."""

from __future__ import annotations

import ssl
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import huggingface_hub
import timm
import torch
from jaxtyping import Float
from timm.models import PretrainedCfg
from torch import Tensor, nn

from obdsd.errors import InputError
from obdsd.method.checks import refuse
from obdsd.models import bn_inception
from obdsd.models.places import BN_INCEPTION, FEATURES, TINY_CONV, refuse_backbone
from obdsd.preprocessing import Preprocessing

SECONDS = 5  # that the hub may take to answer
WEIGHT_FILES = ("model.safetensors", "pytorch_model.bin")
WITHOUT_NETWORK = "go online, pass a file by pretrained=FILE, or use backbone=tf_efficientnet_lite0 with pretrained=offline"


class TinyConv(nn.Module):
    """Four strided 3×3 convolutions with BatchNorm: 32×32 images to a 4×4 map of 128 features, small enough for a laptop's CPU."""

    def __init__(self, widths: tuple[int, ...] = (32, 64, 128, 128), strides: tuple[int, ...] = (2, 2, 2, 1)) -> None:
        super().__init__()
        self.num_features = widths[-1]
        blocks = zip((3, *widths), widths, strides, strict=False)
        self.blocks = nn.Sequential(*(self._block(inner, outer, stride) for inner, outer, stride in blocks))

    @staticmethod
    def _block(inner: int, outer: int, stride: int) -> nn.Sequential:
        convolution = nn.Conv2d(inner, outer, 3, stride=stride, padding=1, bias=False)
        nn.init.kaiming_normal_(convolution.weight, mode="fan_out", nonlinearity="relu")
        return nn.Sequential(convolution, nn.BatchNorm2d(outer), nn.ReLU(inplace=True))

    def forward(self, x: Float[Tensor, "b 3 h w"]) -> Float[Tensor, "b f h2 w2"]:
        return self.blocks(x)


def published(name: str) -> PretrainedCfg:
    """What timm knows of a backbone's published weights (size, mean, …); a name that it does not know is refused."""
    if not timm.is_model(name):
        refuse_backbone(name, timm.list_models())
    try:
        return timm.get_pretrained_cfg(name) or PretrainedCfg()
    except RuntimeError:  # a known architecture, an unknown tag
        known = ", ".join(timm.list_pretrained(f"{name.split('.')[0]}.*")) or "none"
        refuse("backbone", repr(name), "names weights that timm does not know", f"there are {known}")


def preprocessing_of(name: str, size: int | None = None) -> Preprocessing | None:
    """What a backbone expects of images by default, or at another size; None for features, which are no images."""
    if name == FEATURES:
        return None
    if name == TINY_CONV:
        return Preprocessing(size=size or 32, resize=size or 32, mean=(0.5, 0.5, 0.5), std=(0.5, 0.5, 0.5))
    if name == BN_INCEPTION:
        default = bn_inception.PREPROCESSING
        return default if size is None else default.at(size)
    cfg = published(name)
    size = size or cfg.input_size[-1]
    (m0, m1, m2), (s0, s1, s2) = cfg.mean, cfg.std
    return Preprocessing(
        size=size,
        resize=int(size / cfg.crop_pct),  # rounded down, as timm does
        mean=(m0, m1, m2),
        std=(s0, s1, s2),
        interpolation="bilinear" if cfg.interpolation == "bilinear" else "bicubic",
    )


def create(name: str, size: int | None = None, pretrained: bool = False) -> nn.Module:
    """A backbone without classifier and pooling; `size` is for transformers, whose position embeddings depend on it."""
    if name == FEATURES:
        return nn.Identity()
    if name == TINY_CONV:
        return TinyConv()
    if name == BN_INCEPTION:
        return bn_inception.create(pretrained)
    if pretrained:
        _check_within_reach(name)
    fixed: dict[str, Any] = {"img_size": size} if size and published(name).fixed_input_size else {}
    try:
        return timm.create_model(name, pretrained=pretrained, num_classes=0, global_pool="", **fixed)
    except Exception as failure:  # whatever a network, a cache or one of a thousand constructors may raise
        reason = " ".join(str(failure).split())[:200] or type(failure).__name__
        if not pretrained:
            raise InputError(f"backbone={name} cannot be built with size={size} ({reason}); try its default size") from failure
        raise InputError(f"pretrained=imagenet cannot be had for {name} ({reason}); {WITHOUT_NETWORK}") from failure


def _check_within_reach(name: str) -> None:
    """Refuse at once weights that are neither on this machine nor to be had: the client of the hub would try for a minute.

    A server that answers anything is asked in earnest, and so is a proxy: only one that cannot be connected to ends it here.
    """
    hub, repository = huggingface_hub.constants, published(name).hf_hub_id
    if repository is None or any(huggingface_hub.try_to_load_from_cache(repository, file) for file in WEIGHT_FILES):
        return
    reason = "HF_HUB_OFFLINE is set"
    if not hub.HF_HUB_OFFLINE:
        try:
            urllib.request.urlopen(urllib.request.Request(hub.ENDPOINT, method="HEAD"), timeout=SECONDS).close()
        except urllib.error.URLError as failure:
            if isinstance(failure, urllib.error.HTTPError) or isinstance(failure.reason, ssl.SSLError):
                return
            reason = f"{hub.ENDPOINT}: {failure.reason}"
        except OSError as failure:
            reason = f"{hub.ENDPOINT}: {failure}"
        else:
            return
    raise InputError(f"pretrained=imagenet cannot be had for {name} ({reason}); {WITHOUT_NETWORK}")


def classifier_of(name: str) -> str | Sequence[str] | None:
    """The layer, by its names, that a file of published weights may have and a backbone has not."""
    if name == TINY_CONV:
        return None
    return bn_inception.CLASSIFIER if name == BN_INCEPTION else published(name).classifier


def feature_width(backbone: Any) -> int:
    """Channels of a backbone's map; some of timm's widen it once more in their head."""
    return getattr(backbone, "head_hidden_size", None) or backbone.num_features


def has_class_token(backbone: nn.Module) -> bool:
    return getattr(backbone, "cls_token", None) is not None


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Inside, torch draws on the CPU from this seed; outside, it goes on as if nothing had happened."""
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)
        yield
