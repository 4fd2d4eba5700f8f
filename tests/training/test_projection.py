"""A head that begins as the projection of the training set's features: what it is, who follows it, and that nothing else changes it."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from obdsd.data import open_data
from obdsd.errors import InputError
from obdsd.models import Embedder
from obdsd.presets import preset
from obdsd.training import train
from obdsd.training.checkpoints import read_state

PROJECTED = {"head": "linear", "head_init": "projection"}
STANDING = {**PROJECTED, "lr": 1e-12, "weight_decay": 0.0, "epochs": 1}


def unit_features(path, hold_out=False):
    collection = open_data(path)
    part = (collection.hold_out(fold=(0, 3)) if hold_out else collection)["train"]
    rows = np.stack([part[i][0] for i in range(len(part))]).astype(np.float64)
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def head_of(run) -> torch.Tensor:
    return Embedder.load(Path(run) / "model").state_dict()["head.weight"]


def test_the_head_begins_with_the_largest_singular_vectors(options, features):
    """An untrained run keeps the rank-6 products of the features that a whole SVD gives."""
    head = Embedder.load(train(options("ms", **STANDING), show=False).folder / "model").head
    assert head.bias.abs().max() < 1e-6
    P = head.weight.detach().double().numpy()
    X = unit_features(features)
    U, values, _ = np.linalg.svd(X)
    best = (U[:, :6] * values[:6] ** 2) @ U[:, :6].T
    np.testing.assert_allclose(P @ P.T, np.eye(6), atol=1e-4)
    np.testing.assert_allclose(X @ P.T @ P @ X.T, best, atol=1e-4)


def test_held_out_classes_play_no_part_in_it(options, features):
    chosen = options("ms", **STANDING, val_fold="0/3")
    P = head_of(train(chosen, show=False).folder).numpy()
    X = unit_features(features, hold_out=True)
    directions = np.linalg.svd(X)[2][:6]
    np.testing.assert_allclose(P.T @ P, directions.T @ directions, atol=1e-4)


def test_the_length_of_a_row_does_not_count(options, features, tmp_path):
    """Cosines are kept, whatever is done to the lengths."""
    data = dict(np.load(features))
    name = max(data, key=lambda key: data[key].ndim)
    scale = np.random.default_rng(0).uniform(0.1, 10, len(data[name]))[:, None]
    np.savez(tmp_path / "longer.npz", **{**data, name: (data[name] * scale).astype(np.float32)})
    runs = [options("ms", **STANDING), options("ms", **STANDING, data=str(tmp_path / "longer.npz"), out=str(tmp_path / "longer"))]
    P, Q = (head_of(train(chosen, show=False).folder).numpy() for chosen in runs)
    np.testing.assert_allclose(P.T @ P, Q.T @ Q, atol=1e-4)


@pytest.mark.parametrize("teacher", ["previous-epoch", "ema"])
def test_a_teacher_that_follows_the_model_begins_there_too(options, teacher):
    chosen = options("ms+psd-constant", **STANDING, teacher=teacher)
    train(chosen, show=False)
    losses = json.loads((Path(chosen.out) / "metrics.jsonl").read_text())["loss"]
    assert abs(losses["distillation"]) < 1e-5  # the student is its teacher
    state = read_state(Path(chosen.out) / "checkpoints" / "last.pt")["system"]
    torch.testing.assert_close(state["teacher.model.head.weight"], head_of(chosen.out), atol=1e-6, rtol=0)


def test_the_first_generation_teaches_though_the_second_begins_projected(options):
    chosen = options("ms+bar", **{**PROJECTED, "epochs": 1})
    train(chosen, show=False)
    state = read_state(Path(chosen.out) / "checkpoints" / "last.pt")["system"]
    torch.testing.assert_close(state["teacher.model.head.weight"], head_of(Path(chosen.out) / "first"), atol=0, rtol=0)


def test_images_are_embedded_for_it(image_options):
    chosen = image_options("ms", **STANDING, dim=16)
    P = head_of(train(chosen, show=False).folder)
    torch.testing.assert_close(P @ P.T, torch.eye(16), atol=1e-4, rtol=0)


def test_what_cannot_be_projected_is_refused_in_one_line(options):
    with pytest.raises(InputError, match=r"head_init=projection needs head=linear, not two-layer"):
        options("ms", head="two-layer", head_init="projection")
    with pytest.raises(InputError, match=r"dim=13 is more than the 12 features that head_init=projection keeps; ask for fewer"):
        train(options("ms", **PROJECTED, dim=13), show=False)


def test_presets_project_features_unless_another_head_is_asked_for(features):
    assert preset("ms", features).head_init == "projection"
    for head in ("two-layer", "none"):
        assert preset("ms", features, head=head).head_init == "random"
    assert preset("ms", "cub200:birds").head_init == "random"  # the paper's


def test_fewer_features_than_usual_are_all_kept(options):
    run = train(options("ms", **{**STANDING, "dim": None}), show=False)
    P = head_of(run.folder)
    torch.testing.assert_close(P @ P.T, torch.eye(12), atol=1e-4, rtol=0)
