"""A model that is used and no longer trained: the same rows, faster."""

from __future__ import annotations

import copy
from collections import Counter
from typing import TypeVar

import torch
from timm.layers.norm_act import BatchNormAct2d
from torch import Tensor, nn
from torch.nn.utils.fusion import fuse_conv_bn_eval

Model = TypeVar("Model", bound=nn.Module)
NEAR = 1e-5  # how far what it gives may be from what the model gives, in units of the largest number or 1
SIZE = 64  # side of the image that is tried, if the model does not say which it expects


def for_inference(model: Model) -> Model:
    """A copy in eval mode, without gradients: BatchNorm is folded into the convolutions before it, weights are channels-last.

    What is folded is found out, and proved, by an image of noise. If the two do not agree on it, nothing is folded.
    """
    with torch.inference_mode(False), torch.no_grad():  # what is made here may be used anywhere
        made = _still(model)
        if any(isinstance(module, nn.BatchNorm2d) for module in made.modules()):
            try:
                agrees = _fold(made)
            except Exception:  # a model that takes other inputs, or does what nobody foresaw: it is right as it is
                agrees = False
            made = made if agrees else _still(model)
        return made.to(memory_format=torch.channels_last)


def _still(model: Model) -> Model:
    return copy.deepcopy(model).eval().requires_grad_(False)


def _fold(model: nn.Module) -> bool:
    """Fold what can be; whether the model still gives the same."""
    weight = next(model.parameters())
    size = getattr(getattr(model, "preprocessing", None), "size", SIZE)
    image = torch.randn(1, 3, size, size, generator=torch.Generator().manual_seed(0)).to(weight)
    truth, pairs = _traced(model, image)
    for conv, norm in pairs:
        before, after = model.get_submodule(conv), model.get_submodule(norm)
        assert isinstance(before, nn.Conv2d)
        assert isinstance(after, nn.BatchNorm2d)
        _put(model, conv, fuse_conv_bn_eval(before, after))
        _put(model, norm, nn.Sequential(after.drop, after.act) if isinstance(after, BatchNormAct2d) else nn.Identity())
    far = (model(image) - truth).abs().max()
    return bool(far <= NEAR * max(1.0, float(truth.abs().max())))  # of NaN not


def _traced(model: nn.Module, image: Tensor) -> tuple[Tensor, list[tuple[str, str]]]:
    """What the model gives, and the names of each convolution and the BatchNorm that is given its output, both used once."""
    made: dict[int, tuple[str, Tensor]] = {}  # by the output itself, which is kept so that its id stays its own
    pairs: list[tuple[str, str]] = []
    uses: Counter[str] = Counter()

    def after_conv(name: str, output: Tensor) -> None:
        uses[name] += 1
        made[id(output)] = name, output

    def before_norm(name: str, input: Tensor) -> None:
        uses[name] += 1
        if id(input) in made:
            pairs.append((made[id(input)][0], name))

    hooks = []
    for name, module in model.named_modules():
        if isinstance(module, nn.Conv2d):
            hooks.append(module.register_forward_hook(lambda _, inputs, output, name=name: after_conv(name, output)))
        elif type(module) in (nn.BatchNorm2d, BatchNormAct2d) and module.running_mean is not None:
            hooks.append(module.register_forward_pre_hook(lambda _, inputs, name=name: before_norm(name, inputs[0])))
    output = model(image)
    for hook in hooks:
        hook.remove()
    return output, [pair for pair in pairs if uses[pair[0]] == uses[pair[1]] == 1]


def _put(model: nn.Module, name: str, module: nn.Module) -> None:
    parent, _, own = name.rpartition(".")
    setattr(model.get_submodule(parent), own, module)
