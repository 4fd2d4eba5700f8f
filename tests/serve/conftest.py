"""A collection, its index, and the command that serves it, in a process of its own."""

import queue
import re
import signal
import threading
from contextlib import contextmanager

import numpy as np
import pytest
from PIL import Image

from obdsd.models import Embedder
from obdsd.search import Index, Pass
from tests.serve.asking import Client
from tests.started import PATIENCE, python

NASTY = "<img src=x onerror=alert(1)>&'"
CLASSES = ("ant", "bee", "cat", NASTY)
EACH = 9
QUIET = Pass(workers=0, device="cpu", batch_size=5)


def photo(seed, tint, size=(40, 30)):
    noise = np.random.default_rng(seed).integers(-30, 31, (6, 8, 3))
    return Image.fromarray((tint + noise).astype(np.uint8)).resize(size)


def turned(image, path):
    """Written so that a reader must turn it by 90°."""
    exif = image.getexif()
    exif[0x0112] = 6
    image.transpose(Image.Transpose.ROTATE_90).save(path, exif=exif, quality=95)


def make_collection(folder):
    """`photos`, of which one is turned, `photos.index` of them, and `new.jpg`, which is turned, too."""
    for number, name in enumerate(CLASSES):
        (folder / "photos" / name).mkdir(parents=True)
        for i in range(EACH):
            photo(100 * number + i, 50 + 45 * number).save(folder / "photos" / name / f"{i}.png")
    turned(photo(7, 140, (800, 600)), folder / "photos" / "ant" / "turned.jpg")
    turned(photo(8, 95, (800, 600)), folder / "new.jpg")
    Embedder("tiny-conv", dim=8, seed=3).save(folder / "model")
    return Index.build(str(folder / "model"), f"folder:{folder / 'photos'}", folder / "photos.index", how=QUIET)


@pytest.fixture(scope="session")
def collection(tmp_path_factory):
    folder = tmp_path_factory.mktemp("collection")
    make_collection(folder)
    return folder


@contextmanager
def served(index, *words, signal_at_the_end=signal.SIGTERM, code=0):
    """`obdsd serve`, when it answers; `client.lines()` is what it has printed to standard error. It must end well."""
    command = ("-u", "-m", "obdsd", "serve", index, "--port", 0, "--device", "cpu", *words)
    with python(*command) as process:
        errors: queue.Queue[str] = queue.Queue()
        reading = threading.Thread(target=lambda: [errors.put(line) for line in process.stderr], daemon=True)
        reading.start()
        printed = [process.stdout.readline() for _ in range(2)]
        found = re.fullmatch(r"open http://(.+):(\d+) \(Ctrl-C ends it\)\n", printed[1])
        assert found, (printed, process.stderr if process.poll() is None else list(errors.queue))
        client = Client(found[1], int(found[2]), process, errors)
        yield client
        if process.poll() is None:
            process.send_signal(signal_at_the_end)
        assert process.wait(PATIENCE) == code
        reading.join(PATIENCE)


@pytest.fixture(scope="session")
def server(collection):
    """Who uses it leaves its index alone. It must not have complained in the end."""
    with served(collection / "photos.index", "--rerank", "alpha-qe(neighbours=2)") as client:
        yield client
        assert client.lines() == []
