import pytest

from obdsd.presets import preset
from tests.made_up import write_rows


@pytest.fixture(scope="session")
def features(tmp_path_factory):
    """An embeddings file of 30 classes × 8 rows of length 20; 15 classes train, 15 test."""
    return write_rows(tmp_path_factory.mktemp("features") / "rows.npz", 30, 8, 20)


@pytest.fixture
def options(features, tmp_path):
    """`options(preset="ms+obd-sd", **changes)`: a training of seconds."""

    def make(name="ms+obd-sd", **changes):
        small = {"epochs": 3, "batch_size": 16, "dim": 6, "lr": 1e-3, "evaluate_every": 0, "reference": False}
        return preset(name, features, **{**small, "head": "two-layer", "out": str(tmp_path / "run"), "device": "cpu", **changes})

    return make
