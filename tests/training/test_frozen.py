"""A head on frozen features: computed once, one model for images in the end, and the same bits after any stop."""

import json

import numpy as np
import pytest
import torch

from obdsd import InputError
from obdsd.cli import main
from obdsd.cli.train import _summary
from obdsd.data import open_data
from obdsd.data.transforms import evaluation_transform
from obdsd.evaluation.embedding import embed
from obdsd.models import Embedder
from obdsd.presets import preset
from obdsd.report.headline import headline_of_runs
from obdsd.training import Trainer, train
from obdsd.training import features as features_module
from obdsd.training.verifying import verify_run
from tests.training.reading import assert_same_end

FROZEN = {"backbone": "tiny-conv", "pretrained": "none", "frozen": True, "epochs": 3, "batch_size": 12, "head": "linear", "workers": 0}


@pytest.fixture
def frozen(pictures, options):
    """Options of a training on frozen features of images."""
    return lambda name="ms+psd", **changes: options(name, **{"data": pictures, **FROZEN, **changes})


@pytest.fixture
def done(pictures, finished):
    return finished("ms+psd", data=pictures, **FROZEN)


def test_one_model_takes_images_and_gives_the_rows_that_were_scored(done, pictures):
    model = done.model()
    test = open_data(pictures)["test"].replace(transform=evaluation_transform(model.preprocessing))
    rows = embed(model, test)
    np.testing.assert_allclose(rows, done.rows()["test"], atol=1e-5)
    same = rows @ rows.T - 2 * np.eye(len(rows))
    assert done.scores["recall@1"] == pytest.approx(np.mean(test.labels[same.argmax(1)] == test.labels))
    features = torch.from_numpy(embed(model.headless(), test))
    np.testing.assert_allclose(model.head_alone().eval()(features).detach().numpy(), rows, atol=1e-5)


def test_the_untrained_reference_says_at_which_size_the_images_were_seen(frozen, tmp_path):
    torch.save(Embedder("tiny-conv", seed=5).backbone.state_dict(), tmp_path / "start.pt")
    begun = {"pretrained": str(tmp_path / "start.pt"), "reference": True, "epochs": 1}
    for size in (32, 24):
        record = train(frozen(size=size, out=str(tmp_path / f"at-{size}"), **begun), show=False)
        assert list(record.reference) == [f"frozen features at {size} px", "their PCA"]
        assert f"  frozen features at {size} px, untrained: Recall@1" in _summary(record)
        assert headline_of_runs({"ms": record}).sentences[1].startswith(f"frozen features at {size} px, untrained: ")
        assert not [check.differences for check in verify_run(record.folder, device="cpu") if check.differences]


def test_the_backbone_stays_as_it_was_and_the_head_learns(done):
    before = Embedder("tiny-conv", dim=6, pretrained="none", seed=0)
    for name, value in done.model().backbone.state_dict().items():
        assert torch.equal(value, before.backbone.state_dict()[name])
    assert not torch.equal(done.model().head.weight, before.head.weight)


def test_a_run_that_was_stopped_comes_to_the_same_end(done, broken_off, pictures):
    again = train(broken_off(Trainer, "step", 4, preset="ms+psd", data=pictures, **FROZEN), show=False)
    assert_same_end(done.folder, again.folder)


def test_features_are_computed_once_for_all_seeds_and_splits(frozen, tmp_path, monkeypatch):
    monkeypatch.setenv("OBDSD_CACHE", str(tmp_path / "cache"))
    times = []
    computed = features_module.embed
    monkeypatch.setattr(features_module, "embed", lambda *given, **named: times.append(1) or computed(*given, **named))
    train(frozen(out=str(tmp_path / "first")), show=False)
    once = len(times)
    assert once > 0
    train(frozen("ms", out=str(tmp_path / "second"), split_seed=5, val_fraction=0.4, batch_size=None, lr=0.1), show=False)
    assert len(times) == once
    train(frozen(out=str(tmp_path / "third"), seed=3), show=False)  # other random weights of the backbone
    assert len(times) > once


def test_evaluate_and_embed_ask_only_the_head_where_features_are_known(frozen, pictures, tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("OBDSD_CACHE", str(tmp_path / "cache"))
    record = train(frozen(), show=False)
    out = tmp_path / "rows.npz"
    command = ["embed", str(record.folder), pictures, "--out", str(out), "--device", "cpu", "--workers", "0"]
    with monkeypatch.context() as nothing:
        nothing.setattr("obdsd.evaluation.embedding.embed", lambda *given, **named: pytest.fail("the network was asked again"))
        assert main(command) == main(["evaluate", str(record.folder), pictures, "--out", str(tmp_path / "scores.json")]) == 0
    assert capsys.readouterr().err.count("were computed before") == 2
    known = np.load(out)["embeddings"]
    assert json.loads((tmp_path / "scores.json").read_text())["scores"]["recall@1"] == record.scores["recall@1"]
    monkeypatch.setenv("OBDSD_CACHE", str(tmp_path / "empty"))
    assert main(command) == 0
    assert "were computed before" not in capsys.readouterr().err
    np.testing.assert_allclose(known, np.load(out)["embeddings"], atol=1e-5)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"supervision": "none"}, "supervision=none needs views of an image, frozen features have none"),
        ({"head": "none", "dim": None}, "head=none on backbone=tiny-conv leaves nothing to train"),
        ({"batch_size": 400}, "batch_size=400 needs 200 classes"),
    ],
)
def test_what_does_not_go_with_it_is_refused_before_anything_is_computed(frozen, tmp_path, monkeypatch, changes, message):
    monkeypatch.setattr(features_module, "cached", None)
    with pytest.raises(InputError, match=message):
        train(frozen(out=str(tmp_path / "run"), **changes), show=False)


def test_embeddings_are_frozen_anyway(features):
    with pytest.raises(InputError, match="frozen=True is for images, embeddings are features; leave it out"):
        preset("ms", features, frozen=True, backbone="features")
