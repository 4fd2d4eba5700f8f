import copy
import re

import pytest
import torch
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm

from obdsd import InputError
from obdsd.method.pooling import pool
from obdsd.models import Embedder, open_model
from obdsd.preprocessing import Preprocessing
from tests.models.oracle import images
from tests.refusing import refused

SMALL = {
    "convolutional": {"backbone": "test_resnet"},
    "widened head": {"backbone": "mobilenetv3_small_050"},
    "channels last": {"backbone": "test_mambaout"},
    "transformer": {"backbone": "test_vit", "size": 64},
    "registers, no class token": {"backbone": "test_vit2", "size": 64},
    "tiny": {"backbone": "tiny-conv"},
}
every_kind = pytest.mark.parametrize("kind", SMALL.values(), ids=SMALL.keys())


def embedder(backbone="test_resnet", **arguments) -> Embedder:
    return Embedder(backbone, **{"pretrained": "none", "dim": 8, **arguments})


def batchnorms(module: nn.Module) -> list[_BatchNorm]:
    return [m for m in module.modules() if isinstance(m, _BatchNorm)]


def test_pooling_by_hand():
    grid = torch.tensor([[[[1.0, 2.0], [3.0, 6.0]], [[-1.0, -1.0], [-1.0, -5.0]]]])  # (1, 2 features, 2, 2)
    assert pool(grid, "avg").tolist() == [[12 / 4, -8 / 4]]
    assert pool(grid, "avg+max").tolist() == [[12 / 4 + 6, -8 / 4 - 1]]
    tokens = torch.tensor([[[100.0, 200.0], [1.0, 5.0], [3.0, 1.0]]])  # (1, class token and 2 patches, 2 features)
    assert pool(tokens, "token", prefix_tokens=1).tolist() == [[100, 200]]
    assert pool(tokens, "avg", prefix_tokens=1).tolist() == [[4 / 2, 6 / 2]]
    assert pool(tokens, "avg+max", prefix_tokens=1).tolist() == [[4 / 2 + 3, 6 / 2 + 5]]
    cubes = [[((1 + 8 + 27 + 216) / 4) ** (1 / 3), 1e-6]]  # what is below 0 counts as next to nothing
    torch.testing.assert_close(pool(grid, "gem"), torch.tensor(cubes))
    torch.testing.assert_close(
        pool(tokens, "gem", prefix_tokens=1), torch.tensor([[((1 + 27) / 2) ** (1 / 3), ((125 + 1) / 2) ** (1 / 3)]])
    )
    rows = torch.tensor([[1.0, 2.0]])
    assert torch.equal(pool(rows), rows)


@every_kind
def test_forward_is_the_composition_and_gives_unit_rows(kind):
    model, x = embedder(**kind).eval(), images()
    features = model.feature_map(x)
    pooled = model.pool(features)
    assert pooled.shape == (len(x), model.feature_dim)
    z = model(x)
    assert torch.equal(z, model.embed(pooled))
    assert torch.allclose(z, nn.functional.normalize(pooled @ model.head.weight.T + model.head.bias, dim=1), atol=1e-6)
    assert torch.allclose(z.norm(dim=1), torch.ones(len(x)))


@every_kind
def test_pooling_is_over_places_and_never_over_features(kind):
    model, x = embedder(**kind, pooling="avg+max").eval(), images()
    grid = model.backbone(x)
    if grid.ndim == 4:
        places = (1, 2) if "mamba" in kind["backbone"] else (2, 3)
    else:
        grid, places = grid[:, 1:], (1,)  # a class token or a register comes first
    assert torch.allclose(model.pool(model.feature_map(x)), grid.mean(places) + grid.amax(places), atol=1e-6)


def test_the_class_token_is_the_first_of_a_transformer():
    model, x = embedder("test_vit", size=64, pooling="token").eval(), images()
    assert torch.equal(model.pool(model.feature_map(x)), model.backbone.forward_features(x)[:, 0])


def test_a_two_layer_head_by_hand():
    assert Embedder("features", features=4, head="two-layer").head[0].weight.shape == (4, 4)
    model = Embedder("features", features=4, head="two-layer", hidden=7, dim=3)
    x = torch.randn(5, 4, generator=torch.Generator().manual_seed(0))
    first, _, second = model.head
    assert (first.weight.shape, second.weight.shape) == ((7, 4), (3, 7))
    hidden = (x @ first.weight.T + first.bias).clamp(min=0)
    assert torch.allclose(model(x), nn.functional.normalize(hidden @ second.weight.T + second.bias, dim=1), atol=1e-6)
    assert model.preprocessing is None


WEIGHTS = {"all alike": (), "one is half": (0.5, 1, 1, 1)}


@pytest.mark.parametrize("weights", WEIGHTS.values(), ids=WEIGHTS.keys())
@pytest.mark.parametrize("head", ["linear", "two-layer", "composed"])
def test_slices_are_brought_to_unit_length_one_by_one(head, weights):
    model = Embedder("features", features=6, dim=8, head=head, slices=4, slice_weights=weights).eval()
    x = torch.randn(5, 6, generator=torch.Generator().manual_seed(0))
    rows, raw = model(x).detach(), model.head(x).detach()
    for i in range(5):
        parts = [raw[i, 2 * k : 2 * k + 2] for k in range(4)]
        parts = [weight * part / (part[0] ** 2 + part[1] ** 2) ** 0.5 for part, weight in zip(parts, weights or [1] * 4, strict=True)]
        whole = torch.cat(parts)
        torch.testing.assert_close(rows[i], whole / sum(float(each) ** 2 for each in whole) ** 0.5)
    torch.testing.assert_close(model.slices_of(rows), nn.functional.normalize(raw.view(5, 4, 2), dim=2))


def test_a_loss_on_each_slice_has_the_same_gradient_through_the_whole_rows():
    """What a system reads of the rows that it is given is what the head's own slices would have told it."""
    model = Embedder("features", features=6, dim=8, slices=4, slice_weights=(0.5, 1, 2, 1)).double()
    x = torch.randn(5, 6, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    towards = torch.randn(5, 4, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(2))
    gradients = []
    for slices in (model.slices_of(model(x)), nn.functional.normalize(model.head(x).view(5, 4, 2), dim=2)):
        gradients.append(torch.autograd.grad((slices * towards).sum(), [*model.parameters()]))
    for ours, direct in zip(*gradients, strict=True):
        torch.testing.assert_close(ours, direct, rtol=1e-9, atol=1e-12)


def test_slices_stay_with_the_head_and_tell_models_apart():
    made = {"dim": 8, "slices": 4, "slice_weights": (0.5, 1, 1, 1)}
    model = Embedder("tiny-conv", **made, unit_features=True).eval()
    x, alone = images(3, 32), model.head_alone().eval()
    assert torch.equal(alone(model.headless()(x)), model(x))
    assert torch.equal(model.headless().joined(alone)(x), model(x))
    others = {**made, "slices": 2, "slice_weights": ()}, {**made, "slice_weights": ()}, {"dim": 8}
    assert len({Embedder("tiny-conv", **each, unit_features=True).digest() for each in (made, *others)}) == 4


@pytest.mark.parametrize("head", ["linear", "none"])
def test_the_power_of_features_by_hand(head):
    model = Embedder("features", features=3, dim=2 if head == "linear" else None, head=head, feature_power=0.5).double()
    x = torch.tensor([[4.0, 0.0, -9.0], [1.0, 16.0, 4.0]], dtype=torch.float64, requires_grad=True)
    before = torch.tensor([[2, 0, -3], [1, 4, 2]], dtype=torch.float64) / torch.tensor([[13.0], [21.0]], dtype=torch.float64) ** 0.5
    torch.testing.assert_close(model.before_head(x), before, atol=1e-6, rtol=0)
    torch.testing.assert_close(model(x), nn.functional.normalize(model.head(before), dim=1), atol=1e-6, rtol=0)
    torch.testing.assert_close(model(7 * x), model(x))  # as features of unit length
    (gradient,) = torch.autograd.grad(model(x)[:, 0].sum(), x)
    assert gradient.isfinite().all()  # a root's is not, at 0


def test_the_power_of_features_stays_with_the_head_and_tells_models_apart():
    model = Embedder("tiny-conv", dim=8, feature_power=0.5, unit_features=True).eval()
    x, alone = images(3, 32), model.head_alone().eval()
    assert torch.equal(alone(model.headless()(x)), model(x))
    assert torch.equal(model.headless().joined(alone)(x), model(x))
    assert len({Embedder("tiny-conv", dim=8, feature_power=p).digest() for p in (0.25, 0.5, 1)}) == 3


def test_a_headless_copy_gives_the_pooled_features_and_can_be_saved(tmp_path):
    model, x = embedder(head="two-layer", hidden=5, dim=3).eval(), images()
    bare = model.headless()
    expected = nn.functional.normalize(model.pool(model.feature_map(x)), dim=1)
    for headless in (bare, embedder(head="none", dim=None).eval()):
        assert torch.equal(headless(x), expected)
        assert headless.dim == model.feature_dim
    bare.save(tmp_path)
    assert torch.equal(Embedder.load(tmp_path)(x), expected)
    with torch.no_grad():
        next(model.backbone.parameters()).zero_()
    assert torch.equal(bare(x), expected)  # a copy
    assert model(x).shape[1] == 3


@pytest.mark.parametrize("backbone", ["test_resnet", "test_efficientnet", "tiny-conv", "bn-inception"])
def test_frozen_batchnorm_keeps_its_statistics_and_trains_the_rest(backbone):
    parent = nn.Sequential(embedder(backbone, batchnorm="frozen"))
    parent.train()
    parent[0].backbone.train()  # and of a part alone
    before = copy.deepcopy(parent.state_dict())
    optimizer = torch.optim.SGD(parent.parameters(), lr=0.1)
    assert len(batchnorms(parent)) >= 4
    parent(images())[:, 0].sum().backward()
    assert all(norm.weight.grad.abs().sum() > 0 for norm in batchnorms(parent)[-2:])
    optimizer.step()
    after = parent.state_dict()
    statistics = [key for key in before if re.search(r"running_|num_batches", key)]
    assert all(torch.equal(before[key], after[key]) for key in statistics)
    assert parent.training
    assert not any(norm.training for norm in batchnorms(parent))


def test_batchnorm_trains_when_asked_and_without_pretrained_weights():
    for model in (embedder(batchnorm="train"), embedder()):
        before = [norm.running_mean.clone() for norm in batchnorms(model)]
        model(images())
        assert not any(torch.equal(norm.running_mean, old) for norm, old in zip(batchnorms(model), before, strict=True))


def test_the_seed_decides_all_new_layers_and_the_global_generator_is_left_alone():
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    first, again, other = embedder(seed=1), embedder(seed=1), embedder(seed=2)
    assert torch.equal(torch.rand(3), expected)
    assert all(torch.equal(a, b) for a, b in zip(first.parameters(), again.parameters(), strict=True))
    assert not torch.equal(first.head.weight, other.head.weight)
    assert not torch.equal(first.backbone.conv1[0].weight, other.backbone.conv1[0].weight)


def test_rows_are_of_unit_length_in_float32_under_autocast():
    model = embedder("tiny-conv").eval()
    with torch.autocast("cpu", torch.bfloat16):
        assert model.head(model.pool(model.feature_map(images(side=32)))).dtype == torch.bfloat16
        z = model(images(side=32))
    assert z.dtype == torch.float32
    assert torch.allclose(z.norm(dim=1), torch.ones(2), atol=1e-6)


def test_preprocessing_travels_with_the_backbone():
    mean, std, half = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225), (0.5, 0.5, 0.5)
    tv = Embedder("resnet50.tv_in1k", pretrained="none").preprocessing
    assert tv == Preprocessing(size=224, resize=256, mean=mean, std=std, interpolation="bilinear")
    assert embedder("tiny-conv").preprocessing == Preprocessing(size=32, resize=32, mean=half, std=half)
    caffe = Preprocessing(size=112, resize=128, mean=(104, 117, 128), std=(1, 1, 1), channels="bgr", range=255)
    assert embedder("bn-inception", size=112).preprocessing == caffe
    small = embedder("test_vit", size=64).preprocessing  # cut from 1 / 0.95 of the size
    assert small == Preprocessing(size=64, resize=67, mean=half, std=half, interpolation="bicubic")


WRONG = [
    ({"backbone": "resnet5O"}, "backbone='resnet5O' is not known to timm; try .*resnet50"),
    ({"backbone": "bninception"}, "backbone='bninception' is not known to timm; try bn-inception"),
    ({"backbone": "hf-hub:evil/model"}, "is not known to timm; timm.list_models"),
    ({"backbone": "resnet50.magic"}, "backbone='resnet50.magic' names weights that timm does not know; .*resnet50.tv_in1k"),
    ({"pooling": "max"}, "pooling='max' is no choice; use avg or avg.max or gem or token"),
    ({"head": "mlp"}, "head='mlp' is no choice; use linear or two-layer or composed or relational or none"),
    ({"batchnorm": "sync"}, "batchnorm='sync' is no choice; use frozen or train"),
    ({"dim": 0}, "dim=0 must be a whole number in 1..65536"),
    ({"size": 4097}, "size=4097 must be a whole number in 1..4096"),
    ({"hidden": 7}, "hidden=7 does not go with head=linear; use head=two-layer or leave it out"),
    ({"head": "none"}, "dim=8 does not go with head=none"),
    ({"head": "none", "dim": None, "slices": 2}, "slices=2 must divide dim=None; use slices=1 or a head"),
    ({"slices": 3}, "slices=3 must divide dim=8; use slices=1 or a head whose length can be divided"),
    ({"branches": 2}, "branches=2 does not go with head=linear; give both branches and head=relational, or neither"),
    ({"head": "relational", "branches": 3}, "branches=3 must divide dim=8; use another number of branches"),
    ({"head": "relational", "branches": 0.5}, "branches=0.5 must be a whole number in 1..65536"),
    ({"head": "composed"}, "slices=1 leaves head=composed nothing to mix; use slices=4"),
    ({"slices": 0}, "slices=0 must be a whole number in 1..65536"),
    ({"slices": 2, "slice_weights": (1, 2, 3)}, r"slice_weights=.1, 2, 3. must be one a slice, of slices=2; or leave it out: all are 1"),
    ({"slice_weights": (1,)}, r"slice_weights=.1,. must be one a slice, of slices=1"),
    ({"feature_power": 0}, "feature_power=0 must be a number above 0, 10 at most; try 0.5"),
    ({"slices": 2, "slice_weights": (1, 0)}, r"slice_weights=.1, 0. must be positive numbers; give one a slice"),
    ({"backbone": "features"}, "features=None goes with backbone=features"),
    ({"features": 4}, "features=4 goes with backbone=features"),
    ({"backbone": "features", "features": 4, "pooling": "avg+max"}, "pooling=avg.max needs a map"),
    ({"backbone": "features", "features": 4, "size": 32}, "size=32 is of images"),
    ({"backbone": "features", "features": 4, "pretrained": "imagenet"}, "weights do not exist for features"),
    ({"backbone": "tiny-conv", "pretrained": "imagenet"}, "=imagenet weights do not exist for tiny-conv; use none"),
    ({"pooling": "token"}, "pooling=token needs a class token, test_resnet has none"),
    ({"backbone": "test_vit2", "pooling": "token"}, "pooling=token needs a class token, test_vit2 has none"),
    ({"backbone": "xcit_nano_12_p16_224", "size": 7}, "cannot be built with size=7 .*divide.*; try its default size"),
]
test_wrong_arguments_are_refused_in_one_line = refused(WRONG, lambda arguments: embedder(**arguments), regex=True)
ROWS = {"backbone": "features", "features": 4}
test_wrong_inputs_are_refused = refused(
    [
        (lambda: embedder()(torch.zeros(2, 1, 32, 32)), "x.shape=(2, 1, 32, 32) must be (batch, 3, height, width); pass a batch of colour"),
        (lambda: embedder()(torch.zeros(2, 3, 32, 32).byte()), "x.dtype=torch.uint8 must be floating point; apply the embedder's prep"),
        (lambda: embedder(**ROWS)(torch.zeros(2, 5)), "x.shape=(2, 5) must be (batch, 4)"),
    ]
)


# ---- What people write for MODEL on a command line.


@pytest.mark.parametrize("below", ["my:model", "run/model"])
def test_model_folders_and_run_folders(tmp_path, below):
    model = Embedder("tiny-conv", dim=8, seed=2).eval()
    model.save(tmp_path / below)
    opened = open_model(str(tmp_path / below.removesuffix("/model")))
    x = images(4)
    assert torch.equal(opened(x), model(x))
    assert not opened.training


def test_a_backbone_with_weights_gives_its_pooled_features(tmp_path):
    backbone = Embedder("tiny-conv", head="none", seed=9).eval()
    torch.save(backbone.backbone.state_dict(), tmp_path / "weights.pth")
    opened = open_model(f"tiny-conv:{tmp_path / 'weights.pth'}")
    x = images(4)
    assert torch.equal(opened(x), backbone(x))
    assert (opened.architecture.head, opened.dim, opened.training) == ("none", 128, False)


SOURCES = [
    ("gone", "model='gone' does not exist; it must be a model folder, a run folder, or BACKBONE:WEIGHTS, as gone:imagenet"),
    ("resnet50", "or BACKBONE:WEIGHTS, as resnet50:imagenet"),
    ("resnet50:", "or BACKBONE:WEIGHTS, as resnet50:imagenet"),
    ("runs/none", "train it first (obdsd train DATA --out runs/none), or take tf_efficientnet_lite0:offline"),
    ("features:none", "model='features:none' does not exist; it must be a model folder"),
    ("empty:folder", "model='empty:folder' holds no model.json; it must be a model folder"),
    ("x.npz", "model='x.npz' is a file; it must be a model folder"),
    ("resnet_50:none", "backbone='resnet_50' is not known to timm; try resnet50"),
    ("test_resnet:ofline", "ofline: no such file; give a .safetensors, .pth or .pt file, or imagenet, offline or none"),
]


@pytest.mark.parametrize(("source", "message"), SOURCES, ids=[source for source, _ in SOURCES])
def test_anything_else_is_refused_in_one_line(tmp_path, monkeypatch, source, message):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty:folder").mkdir()
    (tmp_path / "x.npz").write_text("")
    with pytest.raises(InputError) as refusal:
        open_model(source)
    assert message in str(refusal.value)
    assert "\n" not in str(refusal.value)
