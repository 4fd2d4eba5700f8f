"""The report's page in a browser; one finished comparison and one run on images for all tests of this room."""

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from obdsd import cli
from obdsd.evaluation.embedding import embed
from obdsd.models import Embedder
from obdsd.presets import preset
from obdsd.report import gather, render
from obdsd.training import train
from tests.made_up import write_rows
from tests.report.made_content import made_content

TINY = {"batch_size": 12, "dim": 5, "lr": 1e-3, "device": "cpu"}
SMALL = {"epochs": 3, **TINY, "evaluate_every": 1, "val_fraction": 0.4, "test_every": 2}
FLAGS = [word for name, value in SMALL.items() for word in (f"--{name.replace('_', '-')}", str(value))]


def quick_run(name, data, out, **changes):
    """Train a preset for a moment: the folder of the run."""
    train(preset(name, str(data), **{"epochs": 2, **TINY, "reference": False, **changes}, out=str(out)), show=False)
    return out


def embed_part(run, part):
    """What the model of a run in a report makes of a part of embeddings."""
    return embed(Embedder.load(Path(run.folder) / "model"), part, batch_size=256)


@pytest.fixture(scope="module")
def opened(browser, tmp_path_factory):
    """Opens a content's page, and notes what should not happen: messages, errors, dialogs, requests."""
    contexts = []

    def open_page(content=None, *, width=1280, height=900, before="", **settings):
        file = tmp_path_factory.mktemp("page") / "report.html"
        file.write_text(render(content or made_content()), encoding="utf-8")
        context = browser.new_context(viewport={"width": width, "height": height}, offline=True, reduced_motion="reduce", **settings)
        contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(60_000)
        page.trouble = []
        page.on("console", lambda message: page.trouble.append(f"{message.type}: {message.text}"))
        page.on("pageerror", lambda error: page.trouble.append(f"error: {error}"))
        page.on("dialog", lambda dialog: (page.trouble.append(f"dialog: {dialog.message}"), dialog.dismiss()))
        page.on("request", lambda request: request.url.startswith(("file:", "data:", "blob:")) or page.trouble.append(request.url))
        if before:
            page.add_init_script(before)
        page.goto(file.as_uri())
        if settings.get("java_script_enabled", True):
            page.wait_for_selector("html[data-ready=yes], #trouble:not([hidden])", state="attached")
        return page

    yield open_page
    for context in contexts:
        context.close()


@pytest.fixture(scope="session")
def compared(tmp_path_factory):
    """The folder of a finished comparison: three rows of two seeds on rows of a file, 10 test classes × 6, 4 training classes held out."""
    folder = tmp_path_factory.mktemp("compared")
    write_rows(folder / "rows.npz", 20, 6, 12)
    assert cli.main([*compare_words(folder), "--no-report"]) == 0
    return folder / "out"


def compare_words(folder):
    """The command that makes it."""
    rows = ["--presets", "ms,ms+psd,ms+obd-sd", "--seeds", "2", "--first-seed", "3"]
    return ["compare", str(folder / "rows.npz"), *rows, *FLAGS, "--out", str(folder / "out")]


@pytest.fixture(scope="session")
def content(compared):
    return gather([compared], device="cpu")


@pytest.fixture(scope="session")
def photographs(tmp_path_factory):
    """A folder of 8 classes × 6 images, and a run on it."""
    folder = tmp_path_factory.mktemp("photographs")
    generator = np.random.default_rng(0)
    for c in range(8):
        (folder / "images" / f"class {c}").mkdir(parents=True)
        pattern = generator.integers(0, 255, (6, 5, 3))
        for i in range(6):
            pixels = np.clip(np.kron(pattern, np.ones((16, 24, 1))) + generator.normal(0, 25, (96, 120, 3)), 0, 255)
            Image.fromarray(pixels.astype(np.uint8)).save(folder / "images" / f"class {c}" / f"{i}.png")
    images = {"batch_size": 8, "dim": 6, "backbone": "tiny-conv", "pretrained": "none", "workers": 0}
    quick_run("ms+obd-sd", f"folder:{folder / 'images'}", folder / "run", **images, reference=True)
    return folder


@pytest.fixture(scope="session")
def pictured(photographs):
    return gather([photographs / "run"], device="cpu")
