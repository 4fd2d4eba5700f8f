"""A real browser, where there is one."""

import os
import shutil

import pytest

CHROMIUM = ("chromium", "chromium-browser", "google-chrome")
# As root there is no sandbox, and without a graphics card the map is drawn in software.
ARGUMENTS = ("--no-sandbox", "--use-angle=swiftshader", "--enable-unsafe-swiftshader")


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
