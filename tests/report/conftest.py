"""A real browser, where there is one."""

import os
import shutil

import pytest

from obdsd.report.page import render
from tests.report.made_content import made_content

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
        page.wait_for_selector("html[data-ready=yes], #trouble:not([hidden])", state="attached")
        return page

    yield open_page
    for context in contexts:
        context.close()
