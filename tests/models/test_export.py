"""An ONNX file makes the rows of the model itself, of batches of any size, and says what it takes."""

import json

import numpy as np
import onnxruntime
import pytest
import torch
from torch import nn

from obdsd.data.transforms import ToNumbers
from obdsd.models import Embedder, open_model
from obdsd.models.agreement import least_cosine
from obdsd.models.export import exported
from obdsd.models.onnx_engine import OnnxModel
from tests.models.oracle import images
from tests.models.test_inference import trained

MODELS = {
    "tiny-conv": lambda: trained(backbone="tiny-conv"),
    "features": lambda: Embedder("features", features=6, head="two-layer", unit_features=True, dim=4),
    "slices": lambda: Embedder("features", features=6, dim=8, slices=4, slice_weights=(0.5, 1, 1, 1)),
    "relations": lambda: Embedder("features", features=6, dim=4, head="relational", branches=2),
    "composed": lambda: Embedder("features", features=6, dim=8, slices=4, head="composed"),
    "a power of features": lambda: Embedder("features", features=6, dim=4, feature_power=0.5),
    "generalised mean": lambda: trained(backbone="resnet10t", size=64, pooling="gem"),
    "a ResNet": lambda: trained(backbone="resnet10t", size=64, pooling="avg+max"),
    "a ViT": lambda: Embedder("vit_tiny_patch16_224", pretrained="none", size=32, pooling="token", dim=8),
    "lite0 with its weights": lambda: open_model("tf_efficientnet_lite0:offline", size=64),
}


def run(content: bytes, inputs: np.ndarray) -> np.ndarray:
    """As any program would, without this package."""
    session = onnxruntime.InferenceSession(content)
    (rows,) = session.run(None, {session.get_inputs()[0].name: inputs})
    return rows


@pytest.mark.parametrize("make", MODELS.values(), ids=MODELS.keys())
def test_rows_are_those_of_the_model_for_any_size_of_the_batch(make):
    model = make()
    content = exported(model)
    model.eval()
    for count in (1, 2, 7):
        inputs = images(count, model.preprocessing.size, seed=count) if model.preprocessing else torch.randn(count, 6)
        with torch.no_grad():
            truth = model(inputs).numpy()
        rows = run(content, inputs.numpy())
        assert rows.shape == truth.shape
        assert least_cosine(truth, rows) >= 0.99999
        np.testing.assert_allclose(rows, truth, rtol=0, atol=1e-5)


@pytest.mark.parametrize("backbone", ["tiny-conv", "bn-inception"])
def test_pixels_become_the_numbers_that_the_file_says(backbone):
    model = trained(backbone=backbone, size=32)
    content = exported(model, ToNumbers(model.preprocessing))
    said = onnxruntime.InferenceSession(content).get_modelmeta().custom_metadata_map
    how = json.loads(said["preprocessing"])
    for count in (1, 2, 7):
        pixels = np.random.default_rng(0).integers(0, 256, (count, 32, 32, 3), dtype=np.uint8)
        seen = pixels[..., ::-1] if how["channels"] == "bgr" else pixels
        numbers = (seen * how["range"] / 255 - how["mean"]) / how["std"]
        with torch.no_grad():
            truth = model.eval()(torch.from_numpy(numbers.astype(np.float32)).permute(0, 3, 1, 2)).numpy()
        np.testing.assert_allclose(run(content, pixels), truth, rtol=0, atol=1e-5)
    assert (said["takes"], how["size"], how["channels"]) == ("pixels", 32, "bgr" if backbone == "bn-inception" else "rgb")


def test_the_file_says_which_model_it_is_and_the_model_stays_as_it_was():
    model = trained(backbone="tiny-conv").train()
    model.backbone.blocks[0].eval()
    said = onnxruntime.InferenceSession(exported(model)).get_modelmeta().custom_metadata_map
    assert {name: said[name] for name in ("model", "backbone", "takes", "dim")} == {
        "model": model.digest(), "backbone": "tiny-conv", "takes": "numbers", "dim": "8",
    }  # fmt: skip
    assert json.loads(said["preprocessing"])["size"] == 32
    assert model.training
    assert not model.backbone.blocks[0].training
    assert all(weight.requires_grad for weight in model.parameters())
    before = model.digest()
    model.head.bias.data[0] += 1
    assert model.digest() != before


class Op(nn.Module):
    """An operation inside a backbone."""

    def __init__(self, function) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: torch.Tensor, **_: object) -> torch.Tensor:
        return self.function(x)


class Named(nn.Module):
    """Calls its part with a named argument."""

    def __init__(self, part: nn.Module) -> None:
        super().__init__()
        self.part = part

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.part(x, scale=None)


FAULTS = [
    (Named(Op(torch.erfinv)), r"head\.1\.part \(Op\) cannot \(No ONNX function found"),
    (Op(lambda x: x.reshape(5, 4)), r"head\.1 \(Op\) cannot \(.*inferred a static"),
    (Op(lambda x: x if x.sum() > 0 else -x), r"head\.1 \(Op\) cannot \(.*data-dependent"),
]


@pytest.mark.parametrize(("part", "line"), FAULTS, ids=["no such operation", "one size of a batch", "depends on the numbers"])
def test_a_part_that_cannot_be_exported_is_named_in_one_line(part, line, capfd):
    model = Embedder("features", features=6, dim=4)
    model.head = nn.Sequential(model.head, part)
    whole = rf"^backbone=features cannot be exported to ONNX: its part {line}.*; use another backbone$"
    with pytest.raises(ValueError, match=whole) as refused:
        exported(model)
    assert "\n" not in str(refused.value)
    assert capfd.readouterr() == ("", "")


def test_a_part_of_a_backbone_is_found_behind_pixels_too():
    model = Embedder("tiny-conv", dim=8)
    model.backbone = nn.Sequential(Op(torch.erfinv), nn.AvgPool2d(8), nn.Conv2d(3, 128, 3))
    with pytest.raises(ValueError, match=r"its part backbone\.0 \(Op\) cannot \(No ONNX function found for .*erf_inv"):
        exported(model, ToNumbers(model.preprocessing))


def test_a_fault_of_the_whole_is_told_as_one(monkeypatch):
    model = Embedder("features", features=6, dim=4)
    monkeypatch.setattr(model, "embed", lambda rows: torch.erfinv(rows))
    with pytest.raises(ValueError, match=r"each of its parts can, the whole cannot \(No ONNX function found"):
        exported(model)


def test_weights_beyond_one_file_are_refused_before_any_work():
    with torch.device("meta"):
        model = Embedder("features", features=65536, head="two-layer", hidden=16384, dim=8)
    with pytest.raises(ValueError, match=r"^backbone=features has weights of 4\.0 GiB, an ONNX file holds 2; export a smaller model$"):
        exported(model)


def test_what_is_no_file_of_onnx_is_refused():
    with pytest.raises(ValueError, match=r"^x\.onnx: onnxruntime cannot open it \(.*\); write it anew: obdsd export"):
        OnnxModel(b"nonsense", "x.onnx")
