import numpy as np
import pytest


@pytest.fixture(scope="session")
def features(tmp_path_factory):
    """An embeddings file of 30 classes × 8 rows of length 20; 15 classes train, 15 test."""
    generator = np.random.default_rng(0)
    labels = np.repeat(np.arange(30), 8)
    rows = generator.standard_normal((30, 20))[labels] + 1.5 * generator.standard_normal((240, 20))
    path = tmp_path_factory.mktemp("features") / "rows.npz"
    np.savez(path, embeddings=rows.astype(np.float32), labels=labels)
    return str(path)


@pytest.fixture
def options(features, tmp_path):
    """`options(preset="ms+obd-sd", **changes)`: a training of seconds."""
    from obdsd.presets import preset

    def make(name="ms+obd-sd", **changes):
        small = {"epochs": 3, "batch_size": 16, "dim": 6, "lr": 1e-3, "evaluate_every": 0, "reference": False, "out": str(tmp_path / "run")}
        return preset(name, features, **{**small, "device": "cpu", **changes})

    return make
