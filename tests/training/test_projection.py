"""A head that begins as the projection of the training set's features: what it is, who follows it, and that nothing else changes it."""

import numpy as np
import pytest
import torch

from obdsd.data import open_data
from obdsd.errors import InputError
from obdsd.models import Embedder
from obdsd.training import train
from obdsd.training.checkpoints import read_state
from tests.training.reading import rewritten

PROJECTED = {"head": "linear", "head_init": "projection"}
STANDING = {**PROJECTED, "lr": 1e-12, "weight_decay": 0.0, "epochs": 1}


def head_of(folder) -> torch.Tensor:
    return Embedder.load(folder / "model").head.weight.detach()


@pytest.mark.parametrize("changes", [{}, {"val_fold": "0/3"}, {"dim": None}], ids=["test classes", "held-out classes", "all kept"])
def test_the_head_begins_with_the_largest_singular_vectors(options, features, tmp_path, changes):
    """An untrained run keeps the products of the training features that a whole SVD gives, whatever the lengths of the rows."""
    scale = np.random.default_rng(0).uniform(0.1, 10, (24 * 6, 1)).astype(np.float32)
    longer = rewritten(features, tmp_path / "longer.npz", embeddings=np.load(features)["embeddings"] * scale)
    collection = open_data(features)
    rows = (collection.hold_out(fold=(0, 3)) if "val_fold" in changes else collection)["train"].matrix()
    dim = 12 if "dim" in changes else 6
    directions = np.linalg.svd(rows / np.linalg.norm(rows, axis=1, keepdims=True))[2][:dim]
    for number, path in enumerate((features, longer)):
        run = train(options("ms", **{**STANDING, **changes, "data": path, "out": str(tmp_path / str(number))}), show=False)
        P = head_of(run.folder).numpy()
        assert run.model().head.bias.abs().max() < 1e-6
        np.testing.assert_allclose(P @ P.T, np.eye(dim), atol=1e-4)
        np.testing.assert_allclose(P.T @ P, directions.T @ directions, atol=1e-4)


def test_it_is_that_of_the_features_that_the_head_is_given(options):
    run = train(options("ms", **STANDING, feature_power=0.5), show=False)
    rows = open_data(options().data)["train"].matrix()
    rooted = np.sign(rows) * np.abs(rows) ** 0.5
    directions = np.linalg.svd(rooted / np.linalg.norm(rooted, axis=1, keepdims=True))[2][:6]
    P = head_of(run.folder).numpy()
    np.testing.assert_allclose(P.T @ P, directions.T @ directions, atol=1e-4)


def test_slices_begin_as_the_projection_with_a_like_share_each(options):
    """Turned: the same products, and no slice that the training set's rows hardly reach."""
    plain, sliced = (head_of(train(options("ms", **STANDING, slices=n, out=f"{options().out}-{n}"), show=False).folder) for n in (1, 3))
    torch.testing.assert_close(sliced.T @ sliced, plain.T @ plain, atol=1e-4, rtol=0)
    rows = torch.from_numpy(open_data(options().data)["train"].matrix())
    share = (rows @ sliced.T).unflatten(1, (3, 2)).square().sum(dim=(0, 2))
    assert share.min() > 0.3 * share.mean()
    assert (rows @ plain.T).unflatten(1, (3, 2)).square().sum(dim=(0, 2)).min() < 0.9 * share.min()


@pytest.mark.parametrize("teacher", ["previous-epoch", "ema"])
def test_a_teacher_that_follows_the_model_begins_there_too(options, teacher):
    run = train(options("ms+psd-constant", **STANDING, teacher=teacher, keep_checkpoints=True), show=False)
    assert abs(run.metrics[0]["loss"]["distillation"]) < 1e-5  # the student is its teacher
    state = read_state(run.folder / "checkpoints" / "last.pt")["system"]
    torch.testing.assert_close(state["teacher.model.head.weight"], head_of(run.folder), atol=1e-6, rtol=0)


def test_the_first_generation_teaches_though_the_second_begins_projected(options):
    run = train(options("ms+bar", **{**PROJECTED, "epochs": 1}, keep_checkpoints=True), show=False)
    state = read_state(run.folder / "checkpoints" / "last.pt")["system"]
    assert torch.equal(state["teacher.model.head.weight"], head_of(run.folder / "first"))


def test_images_are_embedded_for_it(image_options):
    P = head_of(train(image_options("ms", **STANDING, dim=16), show=False).folder)
    torch.testing.assert_close(P @ P.T, torch.eye(16), atol=1e-4, rtol=0)


def test_more_than_there_is_cannot_be_projected(options):
    with pytest.raises(InputError, match=r"dim=13 is more than the 12 features that head_init=projection keeps; ask for fewer"):
        train(options("ms", **PROJECTED, dim=13), show=False)
