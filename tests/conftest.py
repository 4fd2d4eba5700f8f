"""Fixtures that several rooms share."""

import gc
import os
import shutil
from pathlib import Path

import hypothesis
import jaxtyping
import numpy as np
import pytest
import torch

REFERENCE = Path(__file__).parent / "oracles" / "reference.npz"
CHROMIUM = ("chromium", "chromium-browser", "google-chrome")
# As root there is no sandbox, and without a graphics card the map is drawn in software.
ARGUMENTS = ("--no-sandbox", "--use-angle=swiftshader", "--enable-unsafe-swiftshader")
collect_ignore = ["outside"]  # a package of somebody else: imported here, it would register its parts
if not (Path(__file__).parents[1] / "study").exists():  # a source package has none
    collect_ignore.append("test_study.py")

# Tests run side by side: threads that compete make all of them slower. Children inherit the variable.
os.environ["OMP_NUM_THREADS"] = "1"
torch.set_num_threads(1)

# One profile everywhere: the same examples on each run, no deadline on a noisy machine.
hypothesis.settings.register_profile("obdsd", deadline=None, derandomize=True, max_examples=40)
hypothesis.settings.load_profile("obdsd")


@pytest.fixture(scope="session", autouse=True)
def cache_of_the_tests(tmp_path_factory):
    """Nothing that the tests compute goes to the user's cache, and nothing comes from it."""
    os.environ["OBDSD_CACHE"] = str(tmp_path_factory.mktemp("cache"))


@pytest.fixture(scope="session")
def reference() -> dict[str, torch.Tensor]:
    """Numbers that the published code computes (see tests/oracles/README.md)."""
    with np.load(REFERENCE) as file:
        return {key: torch.from_numpy(file[key]) for key in file.files}


@pytest.fixture
def as_shipped():
    """Switch the shape checks of the tests off, to see what users see for a wrong shape."""
    jaxtyping.config.update("jaxtyping_disable", True)
    yield
    jaxtyping.config.update("jaxtyping_disable", False)


@pytest.fixture
def uncollected():
    """Python's garbage collector does not run: what ends is ended by somebody."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


@pytest.fixture
def full_disk(monkeypatch):
    """Nothing can be written any more."""

    def fail(descriptor):
        raise OSError(28, os.strerror(28))

    monkeypatch.setattr(os, "fsync", fail)


@pytest.fixture(scope="session")
def browser():
    """Debian's Chromium; without it these tests are skipped, or fail where OBDSD_BROWSER=required."""
    place = next(filter(None, map(shutil.which, CHROMIUM)), None)
    if place is None:
        reason = "no Chromium; install it, e.g. apt-get install chromium"
        if os.environ.get("OBDSD_BROWSER") == "required":
            pytest.fail(reason)
        pytest.skip(reason)
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=place, args=list(ARGUMENTS))
        yield chromium
        chromium.close()


def pytest_unconfigure(config: pytest.Config) -> None:
    """The last lines name the tests that had no browser to run in."""
    reporter = config.pluginmanager.get_plugin("terminalreporter")
    skipped = [report for report in reporter.stats.get("skipped", []) if "/test_browser" in report.nodeid] if reporter else []
    for report in skipped:
        reporter.write_line(f"skipped: {report.nodeid}")
    if skipped:
        reporter.write_line(f"{len(skipped)} tests of pages were skipped: {skipped[0].longrepr[2].removeprefix('Skipped: ')}")
