"""BN-Inception, the paper's second backbone, with the names of the weights in circulation."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from obdsd.method.checks import require
from obdsd.models.places import BN_INCEPTION
from obdsd.models.weights import fetch, fit_file
from obdsd.preprocessing import Preprocessing

# Converted from Caffe: blue first, pixels in 0..255, no scaling. With the usual RGB normalisation its retrieval is near chance.
PREPROCESSING = Preprocessing(size=224, resize=256, mean=(104.0, 117.0, 128.0), std=(1.0, 1.0, 1.0), channels="bgr", range=255.0)
CLASSIFIER = ("last_linear", "fc")  # the latter in older files
ADDRESS = "http://data.lip6.fr/cadene/pretrainedmodels/bn_inception-52deb4733.pth"
SHA256 = "52deb473314542a5c2f87e9e6f26f4ca42fe863d15f986414dbae8c2dfdd2353"
SMALLEST = 7  # side of an image that leaves one place of the map


class Block(NamedTuple):
    """Channels of an inception block: branches side by side whose maps are concatenated. One without `single` halves the map."""

    name: str
    single: int  # 1×1
    triple: tuple[int, int]  # 1×1, then 3×3
    double: tuple[int, int]  # 1×1, then 3×3 twice
    pool: Literal["avg", "max"]  # 3×3
    projection: int  # 1×1 after the pool; 0: what was pooled passes through

    @property
    def stride(self) -> int:
        return 1 if self.single else 2

    def width(self, inputs: int) -> int:
        return self.single + self.triple[1] + self.double[1] + (self.projection or inputs)


BLOCKS = (
    Block("3a", 64, (64, 64), (64, 96), "avg", 32),
    Block("3b", 64, (64, 96), (64, 96), "avg", 64),
    Block("3c", 0, (128, 160), (64, 96), "max", 0),
    Block("4a", 224, (64, 96), (96, 128), "avg", 128),
    Block("4b", 192, (96, 128), (96, 128), "avg", 128),
    Block("4c", 160, (128, 160), (128, 160), "avg", 128),
    Block("4d", 96, (128, 192), (160, 192), "avg", 128),
    Block("4e", 0, (128, 192), (192, 256), "max", 0),
    Block("5a", 352, (192, 320), (160, 224), "avg", 128),
    Block("5b", 352, (192, 320), (192, 224), "max", 128),
)


class Layer(NamedTuple):
    """A convolution (with bias, padded to keep the size), BatchNorm and ReLU."""

    name: str
    inputs: int
    outputs: int
    kernel: int = 1
    stride: int = 1


def branches(block: Block, inputs: int) -> Iterator[tuple[Layer, ...]]:
    """The chains of layers of a block, in the order of their channels; that of the pool comes last, and may be empty."""
    prefix, (reduced, single), (reduced2, double) = f"inception_{block.name}", block.triple, block.double
    if block.single:
        yield (Layer(f"{prefix}_1x1", inputs, block.single),)
    yield (
        Layer(f"{prefix}_3x3_reduce", inputs, reduced),
        Layer(f"{prefix}_3x3", reduced, single, 3, block.stride),
    )
    yield (
        Layer(f"{prefix}_double_3x3_reduce", inputs, reduced2),
        Layer(f"{prefix}_double_3x3_1", reduced2, double, 3),
        Layer(f"{prefix}_double_3x3_2", double, double, 3, block.stride),
    )
    yield (Layer(f"{prefix}_pool_proj", inputs, block.projection),) if block.projection else ()


class BNInception(nn.Module):
    """224×224 images to a 7×7 map of 1024 features; no classifier.

    >>> BNInception()(torch.zeros(2, 3, 224, 224)).shape
    torch.Size([2, 1024, 7, 7])
    """

    def __init__(self) -> None:
        super().__init__()
        self._stem = (Layer("conv1_7x7_s2", 3, 64, 7, 2), Layer("conv2_3x3_reduce", 64, 64), Layer("conv2_3x3", 64, 192, 3))
        self._blocks, width = [], self._stem[-1].outputs
        for block in BLOCKS:
            self._blocks.append((block, tuple(branches(block, width))))
            width = block.width(width)
        self.num_features = width
        for layer in (*self._stem, *(layer for _, chains in self._blocks for chain in chains for layer in chain)):
            self._add(layer)

    def _add(self, layer: Layer) -> None:
        convolution = nn.Conv2d(layer.inputs, layer.outputs, layer.kernel, layer.stride, padding=layer.kernel // 2)
        nn.init.kaiming_normal_(convolution.weight, nonlinearity="relu")
        nn.init.zeros_(convolution.bias)  # type: ignore[arg-type]
        self.add_module(layer.name, convolution)
        self.add_module(f"{layer.name}_bn", nn.BatchNorm2d(layer.outputs, eps=1e-5))

    def forward(self, x: Float[Tensor, "b 3 h w"]) -> Float[Tensor, "b f h2 w2"]:
        large = min(x.shape[-2:]) >= SMALLEST
        require(large, "x.shape", tuple(x.shape), f"must have {SMALLEST} pixels or more a side", "use larger images, as 224×224")
        first, *rest = self._stem
        x = _halve(self._run(x, first))
        x = _halve(self._run(x, *rest))
        for block, chains in self._blocks:
            *convolved, projection = chains
            outputs = [self._run(x, *chain) for chain in convolved]
            x = torch.cat([*outputs, self._run(_pooled(x, block), *projection)], dim=1)
        return x

    def _run(self, x: Tensor, *layers: Layer) -> Tensor:
        for layer in layers:
            x = F.relu(self.get_submodule(f"{layer.name}_bn")(self.get_submodule(layer.name)(x)))
        return x


def _halve(x: Tensor) -> Tensor:
    """The largest of 3×3 places with stride 2; the last window may hang over the border, as in Caffe."""
    return F.max_pool2d(x, 3, stride=2, ceil_mode=True)


def _pooled(x: Tensor, block: Block) -> Tensor:
    if block.pool == "avg":
        return F.avg_pool2d(x, 3, stride=1, padding=1)  # a sum over 9 also at the border, as in Caffe
    if block.stride == 1:
        return F.max_pool2d(x, 3, stride=1, padding=1)
    # The convolutions beside it give a map of an odd side one place more than the pool: there the published network fails for want
    # of a window. With it any size works, and the sizes that worked before, 224 for one, give what they gave.
    height, width = x.shape[-2:]
    return _halve(F.pad(x, (0, width % 2, 0, height % 2), value=float("-inf")))


def create(pretrained: bool = False) -> BNInception:
    """The network, initialised at random or with ImageNet's weights from where they have been for years."""
    backbone = BNInception()
    if pretrained:
        fit_file(backbone, fetch(ADDRESS, SHA256, BN_INCEPTION), CLASSIFIER)
    return backbone
