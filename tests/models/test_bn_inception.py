import hashlib
import re
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from PIL import Image
from torch import Tensor
from torch.nn import functional as F

from obdsd import InputError
from obdsd.data.transforms import evaluation_transform, training_transform
from obdsd.models import Embedder, bn_inception, open_model
from obdsd.models.bn_inception import BNInception
from obdsd.preprocessing import Preprocessing
from tests.models.oracle import images

CAFFE = Preprocessing(size=224, resize=256, mean=(104, 117, 128), std=(1, 1, 1), channels="bgr", range=255, interpolation="bilinear")


def reference(x: Tensor, w: dict[str, Tensor]) -> Tensor:
    """The map as the network's description has it, tensor by tensor; widths are those of the tensors."""

    def layer(x: Tensor, name: str, stride: int = 1) -> Tensor:
        x = F.conv2d(x, w[f"{name}.weight"], w[f"{name}.bias"], stride, padding=w[f"{name}.weight"].shape[-1] // 2)
        mean, var, scale, shift = (w[f"{name}_bn.{part}"][:, None, None] for part in ("running_mean", "running_var", "weight", "bias"))
        return ((x - mean) / (var + 1e-5).sqrt() * scale + shift).clamp(min=0)

    def ends(side: int) -> int:  # windows start at 0, 2, 4, … while two or more of their three places are inside
        return len(range(0, side - 1, 2))

    x = largest(y := layer(x, "conv1_7x7_s2", 2), 2, 0, [ends(side) for side in y.shape[2:]])
    x = largest(y := layer(layer(x, "conv2_3x3_reduce"), "conv2_3x3"), 2, 0, [ends(side) for side in y.shape[2:]])
    for block in ("3a", "3b", "3c", "4a", "4b", "4c", "4d", "4e", "5a", "5b"):
        name, halved = f"inception_{block}", block in ("3c", "4e")
        stride = 2 if halved else 1
        three = layer(layer(x, f"{name}_3x3_reduce"), f"{name}_3x3", stride)
        double = layer(layer(layer(x, f"{name}_double_3x3_reduce"), f"{name}_double_3x3_1"), f"{name}_double_3x3_2", stride)
        if halved:
            x = torch.cat([three, double, largest(x, 2, 0, three.shape[2:])], 1)
            continue
        pooled = largest(x, 1, 1, x.shape[2:]) if block == "5b" else ninth(x)
        x = torch.cat([layer(x, f"{name}_1x1"), three, double, layer(pooled, f"{name}_pool_proj")], 1)
    return x


def largest(x: Tensor, stride: int, before: int, places: list[int] | torch.Size) -> Tensor:
    padded = F.pad(x, (before, 3, before, 3), value=-torch.inf)
    return padded.unfold(2, 3, stride).unfold(3, 3, stride).amax((-1, -2))[:, :, : places[0], : places[1]]


def ninth(x: Tensor) -> Tensor:
    return sum(F.pad(x, (1, 1, 1, 1))[:, :, i : i + x.shape[2], j : j + x.shape[3]] for i in range(3) for j in range(3)) / 9


def spoiled(seed: int = 0) -> BNInception:
    """A network in which every tensor is random, so that none can be mistaken for another or left out."""
    generator = torch.Generator().manual_seed(seed)
    network = BNInception().double().eval()
    for name, tensor in network.state_dict().items():
        if "num_batches" in name:
            continue
        noise = torch.randn(tensor.shape, generator=generator, dtype=tensor.dtype)
        if tensor.ndim == 4:
            tensor.copy_(noise * (2 / tensor[0].numel()) ** 0.5)
        else:
            tensor.copy_(1 + noise.abs() / 2 if re.search(r"_bn.weight|running_var", name) else noise / 3)
    return network


@pytest.fixture(scope="module")
def network() -> BNInception:
    return spoiled()


@pytest.mark.parametrize(
    ("height", "width", "shape"),
    [
        (224, 224, (7, 7)),  # the paper's
        (64, 64, (2, 2)),  # every map is even, as there
        (66, 97, (2, 3)),
        (75, 61, (3, 2)),  # odd maps where the blocks 3c and 4e halve them
        (7, 32, (1, 1)),
    ],
)
def test_the_map_is_that_of_a_reference_written_otherwise(network, height, width, shape):
    x = torch.randn(2, 3, height, width, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    with torch.no_grad():
        expected = reference(x, network.state_dict())
        assert torch.allclose(network(x), expected, rtol=1e-9, atol=1e-9)
    assert expected.shape == (2, 1024, *shape)
    assert expected.std() > 0.1


def test_names_and_numbers_are_those_of_the_published_network():
    state = BNInception().state_dict()
    assert sum(tensor.ndim == 4 for tensor in state.values()) == 69  # convolutions
    assert sum(p.numel() for p in BNInception().parameters()) == 11_295_240 - 1025 * 1000  # published, without the classifier
    shapes = {"inception_3c_double_3x3_2.weight": (96, 96, 3, 3), "inception_4e_3x3_reduce.weight": (128, 608, 1, 1)}
    assert {name: tuple(state[name].shape) for name in shapes} == shapes
    assert re.search(r"^https?://.*/bn_inception-52deb4733\.pth$", bn_inception.ADDRESS)
    assert re.fullmatch(r"52deb4733[0-9a-f]{55}", bn_inception.SHA256)
    assert not {"inception_3c_1x1.weight", "inception_4e_pool_proj.weight", "last_linear.weight"} & set(state)


def test_the_scale_of_the_map_is_kept_without_statistics():
    assert 0.1 < Embedder("bn-inception", pretrained="none").eval().feature_map(images()).std() < 10


def test_images_that_leave_nothing_are_refused():
    with pytest.raises(InputError, match=r"x.shape=\(1, 3, 6, 64\) must have 7 pixels or more a side; use larger images"):
        Embedder("bn-inception", pretrained="none")(torch.zeros(1, 3, 6, 64))


def published_file(path: Path, kind: str = "new") -> dict[str, Tensor]:
    """What is in circulation, with random numbers: with classifier, without counters; the older ones with BatchNorm's vectors as rows."""
    state = {name: tensor.float() for name, tensor in spoiled(5).state_dict().items() if "num_batches" not in name}
    classifier = "last_linear" if kind == "new" else "fc"
    content = {**state, f"{classifier}.weight": torch.zeros(1000, 1024), f"{classifier}.bias": torch.zeros(1000)}
    if kind == "new":
        torch.save(content, path)
    else:
        rows = {name: tensor[None] if "_bn." in name else tensor for name, tensor in content.items()}
        torch.save(rows, path, pickle_protocol=2, _use_new_zipfile_serialization=False)
    return state


@pytest.mark.parametrize("kind", ["new", "older"])
def test_the_files_in_circulation_fit(tmp_path, kind):
    state = published_file(tmp_path / "bn.pth", kind)
    model = Embedder("bn-inception", pretrained=tmp_path / "bn.pth")
    loaded = model.backbone.state_dict()
    assert all(torch.equal(loaded[name], state[name]) for name in state)
    assert model.architecture.batchnorm == "frozen"


def test_other_shapes_are_still_refused(tmp_path):
    state = published_file(tmp_path / "bn.pth")
    state["conv1_7x7_s2_bn.weight"] = torch.zeros(2, 64)
    torch.save(state, tmp_path / "bn.pth")
    with pytest.raises(InputError, match=r"1 of another shape: conv1_7x7_s2_bn.weight \(2, 64\) for \(64,\)"):
        Embedder("bn-inception", pretrained=tmp_path / "bn.pth")


def embedders(folder: Path) -> Iterator[Embedder]:
    """All the ways to one."""
    new = Embedder("bn-inception", pretrained="none", dim=4)
    yield new
    new.save(folder / "model")
    yield Embedder.load(folder / "model")
    published_file(folder / "bn.pth")
    yield open_model(f"bn-inception:{folder / 'bn.pth'}")


def test_images_arrive_blue_first_and_unscaled_whichever_way_the_model_was_made(tmp_path):
    red = Image.new("RGB", (300, 260), (255, 0, 0))
    expected = torch.tensor([0.0 - 104, 0.0 - 117, 255.0 - 128])[:, None, None].expand(3, 224, 224)
    for model in embedders(tmp_path):
        assert model.preprocessing == CAFFE
        for transform in (evaluation_transform, training_transform):
            assert torch.allclose(transform(model.preprocessing)(red), expected, atol=1e-4)


@pytest.fixture
def server(tmp_path, monkeypatch) -> SimpleNamespace:
    """An address of a file on this machine, whose checksum is the one that is asked for; torch's folder is empty."""
    file = tmp_path / "server" / "bn_inception-52deb4733.pth"
    file.parent.mkdir()
    state = published_file(file)
    monkeypatch.setenv("TORCH_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(bn_inception, "ADDRESS", file.as_uri())
    monkeypatch.setattr(bn_inception, "SHA256", hashlib.sha256(file.read_bytes()).hexdigest())
    return SimpleNamespace(file=file, state=state, cached=tmp_path / "home" / "hub" / "checkpoints" / file.name)


def test_imagenet_weights_are_downloaded_once(server):
    model = Embedder("bn-inception")  # the default
    assert torch.equal(model.backbone.state_dict()["conv2_3x3.bias"], server.state["conv2_3x3.bias"])
    assert model.preprocessing == CAFFE
    assert [server.cached] == list(server.cached.parent.iterdir())
    server.file.unlink()
    again = open_model("bn-inception:imagenet")
    assert torch.equal(again.backbone.state_dict()["conv2_3x3.bias"], server.state["conv2_3x3.bias"])


def test_a_damaged_copy_is_downloaded_again(server):
    server.cached.parent.mkdir(parents=True)
    server.cached.write_bytes(server.file.read_bytes()[:-1])
    Embedder("bn-inception")
    assert server.cached.read_bytes() == server.file.read_bytes()


@pytest.mark.parametrize(
    ("content", "address", "reason"),
    [
        (b"damaged", None, r"its SHA-256 is not [0-9a-f]{12}…"),
        (None, None, "No such file"),
        (None, "http://127.0.0.1:9/bn_inception-52deb4733.pth", "refused"),  # nobody listens there
    ],
)
def test_what_cannot_be_downloaded_is_one_line_and_leaves_nothing(server, monkeypatch, content, address, reason):
    server.file.unlink() if content is None else server.file.write_bytes(content)
    monkeypatch.setattr(bn_inception, "ADDRESS", address or bn_inception.ADDRESS)
    start = r"pretrained=imagenet cannot be had for bn-inception from \S+bn_inception-52deb4733.pth "
    with pytest.raises(InputError, match=rf"^{start}\(.*{reason}.*\); go online, or .*=FILE$"):
        Embedder("bn-inception")
    assert not server.cached.parent.exists()
