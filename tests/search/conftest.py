"""A small model, photos of four classes, and their index."""

import shutil

import numpy as np
import pytest
from PIL import Image

from obdsd.models import Embedder
from obdsd.search import Index, Pass

CLASSES = ("ant", "bee", "cat", "dog")
EACH = 9
QUIET = Pass(workers=0, device="cpu", batch_size=5)


def photo(path, seed, tint):
    path.parent.mkdir(parents=True, exist_ok=True)
    noise = np.random.default_rng(seed).integers(-30, 31, (8, 8, 3))
    Image.fromarray((tint + noise).astype(np.uint8)).resize((36, 36)).save(path)


@pytest.fixture(scope="session")
def tiny(tmp_path_factory):
    folder = tmp_path_factory.mktemp("model") / "tiny"
    Embedder("tiny-conv", dim=8, seed=3).save(folder)
    return folder


@pytest.fixture(scope="session")
def whole(tiny, tmp_path_factory):
    """`photos`, and `photos.index` of them; nobody changes it."""
    folder = tmp_path_factory.mktemp("whole")
    for number, name in enumerate(CLASSES):
        for i in range(EACH):
            photo(folder / "photos" / name / f"{i}.png", 100 * number + i, 50 + 45 * number)
    Index.build(str(tiny), f"folder:{folder / 'photos'}", folder / "photos.index", how=QUIET)
    return folder


@pytest.fixture
def place(whole, tmp_path):
    """A copy of both that a test may change: its index knows its own photos."""
    shutil.copytree(whole, tmp_path, dirs_exist_ok=True)
    Index.open(tmp_path / "photos.index").refresh(f"folder:{tmp_path / 'photos'}", how=QUIET)
    return tmp_path
