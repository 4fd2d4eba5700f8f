"""What people write for MODEL on a command line."""

import pytest
import torch

from obdsd import InputError
from obdsd.models import Embedder, open_model
from tests.models.oracle import images


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
    ("gone", "model='gone' does not exist; it must be a model folder, a run folder, or BACKBONE:WEIGHTS, such as resnet50:imagenet"),
    ("resnet50", "did you mean resnet50:imagenet?"),
    ("resnet_50:", "did you mean resnet50:imagenet?"),
    ("bn_inception", "did you mean bn-inception:imagenet?"),
    ("tiny_conv", "did you mean tiny-conv:none?"),
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
