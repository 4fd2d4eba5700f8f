import pytest
import torch
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm

from obdsd.models import Embedder
from obdsd.models.inference import for_inference
from tests.models.oracle import images

KINDS = {
    "depthwise, the activation in the norm": ({"backbone": "tf_efficientnet_lite0", "size": 64}, 0),
    "residual": ({"backbone": "test_resnet"}, 0),
    "squeezed and widened": ({"backbone": "mobilenetv3_small_050", "size": 64}, 0),
    "tiny": ({"backbone": "tiny-conv"}, 0),
    "norms before convolutions": ({"backbone": "resnetv2_18d", "size": 64}, None),
    "no norms": ({"backbone": "test_vit", "size": 64}, 0),
}


def trained(**arguments) -> Embedder:
    """A model whose BatchNorm has something to do."""
    model = Embedder(**{"pretrained": "none", "dim": 8, **arguments})
    generator = torch.Generator().manual_seed(1)
    for norm in batchnorms(model):
        ranges = ((norm.running_mean, -0.1, 0.1), (norm.running_var, 0.8, 1.2), (norm.weight, 0.8, 1.2), (norm.bias, -1, 1))
        for values, low, high in ranges:
            values.data.uniform_(low, high, generator=generator)
    return model


def batchnorms(model: nn.Module) -> list[_BatchNorm]:
    return [module for module in model.modules() if isinstance(module, _BatchNorm)]


@pytest.mark.parametrize(("kind", "left"), KINDS.values(), ids=KINDS.keys())
def test_rows_are_those_of_the_model_itself(kind, left):
    model = trained(**kind)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    fast = for_inference(model)
    assert left is None or len(batchnorms(fast)) == left
    assert len(batchnorms(fast)) < len(batchnorms(model)) or not batchnorms(model)
    inputs = images(3, model.preprocessing.size)
    torch.testing.assert_close(fast(inputs), model.eval()(inputs).detach(), rtol=0, atol=1e-5)
    assert not fast.training
    assert not any(weight.requires_grad for weight in fast.parameters())
    assert all(weight.is_contiguous(memory_format=torch.channels_last) for weight in fast.parameters() if weight.ndim == 4)
    assert type(fast) is Embedder
    assert fast.preprocessing == model.preprocessing
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())  # the model itself is left alone
    assert all(weight.requires_grad for weight in model.parameters())


class Forked(nn.Module):
    """The convolution's output goes to its norm and past it: what is folded would change the second way."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm = nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4)
        nn.init.constant_(self.norm.running_mean, 1.0)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        found = self.conv(x)
        return (self.norm(found) + found).mean(dim=(2, 3))


class Shared(nn.Module):
    """One convolution before two norms, behind one that has its own."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 3, 1), nn.BatchNorm2d(3))
        self.conv, self.norms = nn.Conv2d(3, 3, 3), nn.ModuleList([nn.BatchNorm2d(3), nn.BatchNorm2d(3)])
        nn.init.constant_(self.norms[0].running_mean, 1.0)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.stem(x)
        for norm in self.norms:
            x = norm(self.conv(x))
        return x.mean(dim=(2, 3))


class Scaled(nn.Conv2d):
    """A convolution that does more than its weights say."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return super().forward(x) * 3


def scaled() -> nn.Module:
    norm = nn.BatchNorm2d(4)
    nn.init.constant_(norm.running_mean, 1.0)
    return nn.Sequential(Scaled(3, 4, 3), norm, nn.AdaptiveAvgPool2d(1), nn.Flatten())


@pytest.mark.parametrize(("make", "left"), [(Forked, 1), (Shared, 2), (scaled, 1)])
def test_what_cannot_be_folded_stays_as_it_is(make, left):
    model = make()
    fast = for_inference(model)
    assert len(batchnorms(fast)) == left
    torch.testing.assert_close(fast(images()), model.eval()(images()).detach(), rtol=0, atol=1e-5)


def test_models_that_are_not_for_images_or_have_lost_their_numbers_stay_as_they_are():
    rows = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4))
    assert torch.equal(for_inference(rows)(torch.ones(2, 4)), rows.eval()(torch.ones(2, 4)).detach())
    grey = nn.Sequential(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4))  # the image that is tried has three channels
    assert len(batchnorms(for_inference(grey))) == 1
    lost = trained(backbone="tiny-conv")
    nn.init.constant_(lost.head.weight, float("nan"))
    assert len(batchnorms(for_inference(lost))) == len(batchnorms(lost))


def test_it_can_be_made_where_nothing_is_learned():
    model = trained(backbone="tiny-conv")
    with torch.inference_mode():
        fast = for_inference(model)
    assert not batchnorms(fast)
    fast(images(2, 32).requires_grad_()).sum().backward()  # its weights are ordinary tensors
