import os
import signal
from itertools import count

import numpy as np
import pytest
from PIL import Image

from obdsd.errors import Terminated
from obdsd.presets import preset
from obdsd.training import train
from tests.made_up import write_rows
from tests.training.teaching import write_teachers

SMALL = {"epochs": 2, "batch_size": 16, "dim": 6, "lr": 1e-3, "evaluate_every": 0, "reference": False, "head": "two-layer", "device": "cpu"}


@pytest.fixture(scope="session")
def features(tmp_path_factory):
    """An embeddings file of 24 classes × 6 rows of length 12; 12 classes train in 4 batches of 16, 12 test."""
    return write_rows(tmp_path_factory.mktemp("features") / "rows.npz", 24, 6, 12)


@pytest.fixture(scope="session")
def pictures(tmp_path_factory):
    """A folder of 12 classes × 4 images of 32×32, noise around a picture of their own."""
    folder, generator = tmp_path_factory.mktemp("pictures"), np.random.default_rng(0)
    for c in range(12):
        (folder / f"c{c}").mkdir()
        own = generator.integers(0, 255, (32, 32, 3))
        for i in range(4):
            pixels = np.clip(own + generator.normal(0, 40, own.shape), 0, 255).astype(np.uint8)
            Image.fromarray(pixels).save(folder / f"c{c}" / f"{i}.png")
    return f"folder:{folder}"


@pytest.fixture(scope="session")
def teachers(features, tmp_path_factory):
    """The folder of teachers of another kind; see `write_teachers`."""
    return write_teachers(tmp_path_factory.mktemp("teachers"), features)


@pytest.fixture
def options(features, tmp_path):
    """`options(preset="ms+obd-sd", **changes)`: a training of a fraction of a second."""

    def make(name="ms+obd-sd", **changes):
        return preset(name, **{"data": features, **SMALL, "out": str(tmp_path / "run"), **changes})

    return make


@pytest.fixture
def image_options(pictures, options):
    """The same with images."""

    def make(name="ms+obd-sd", **changes):
        of_images = {"backbone": "tiny-conv", "batch_size": 8, "head": "linear", "workers": 0, "crop": 0.5, "pretrained": "none"}
        return options(name, **{"data": pictures, **of_images, **changes})

    return make


@pytest.fixture(scope="session")
def finished(features, tmp_path_factory):
    """`finished(preset, **changes)`: a finished training, made once for all tests that only look at it."""
    records = {}

    def make(name="ms+obd-sd", **changes):
        key = (name, str(sorted(changes.items())))
        if key not in records:
            out = str(tmp_path_factory.mktemp("finished") / "run")
            records[key] = train(preset(name, **{"data": features, **SMALL, "out": out, **changes}), show=False)
        return records[key]

    return make


@pytest.fixture
def broken_off(options, monkeypatch):
    """A training that ends at the `number`-th call of a method, by an error or by SIGTERM: its options, to go on with it."""

    def run(where, name, number, error=None, preset="ms+obd-sd", show=False, **changes):
        chosen, method, calls = options(preset, **changes), getattr(where, name), count(1)

        def stopping(self, *rest):
            if next(calls) == number:
                if error is not None:
                    raise error
                os.kill(os.getpid(), signal.SIGTERM)
            return method(self, *rest)

        monkeypatch.setattr(where, name, stopping)
        with pytest.raises(error or Terminated):
            train(chosen, show=show)
        monkeypatch.setattr(where, name, method)
        return chosen.replace(resume=True)

    return run
