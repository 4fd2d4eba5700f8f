"""The page in a real browser: what a user does, and sees."""

import time

import pytest

from obdsd.search import Index
from tests.serve.conftest import EACH, NASTY

DROP = """([selector, kind, bytes]) => {
    const data = new DataTransfer(), file = new File([new Uint8Array(bytes)], "dropped.jpg", { type: "image/jpeg" });
    if (bytes.length) data.items.add(file);
    const event = kind === "paste" ? new ClipboardEvent(kind, { clipboardData: data, bubbles: true, cancelable: true })
        : new DragEvent(kind, { dataTransfer: data, bubbles: true, cancelable: true });
    document.querySelector(selector).dispatchEvent(event);
}"""
WIDE = """() => [...document.querySelectorAll('main *, header *')].filter(each => each.getClientRects().length
    && each.getBoundingClientRect().right > 376).map(each => each.outerHTML.slice(0, 90))"""


@pytest.fixture(scope="module")
def index(collection):
    return Index.open(collection / "photos.index")


@pytest.fixture(scope="module")
def opened(browser, server):
    """Opens the page; nothing may go wrong, and nobody but the server be asked for anything."""
    contexts = []

    def open_page(path="/", **settings):
        context = browser.new_context(**{"viewport": {"width": 1180, "height": 860}, "reduced_motion": "reduce", **settings})
        contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(60_000)
        page.trouble = []
        page.on("console", lambda message: page.trouble.append(f"{message.type}: {message.text}"))
        page.on("pageerror", lambda error: page.trouble.append(f"error: {error}"))
        page.on("dialog", lambda dialog: (page.trouble.append(f"dialog: {dialog.message}"), dialog.dismiss()))
        ours = (f"{server.address}/", "data:", f"blob:{server.address}/")
        page.on("request", lambda request: request.url.startswith(ours) or page.trouble.append(request.url))
        page.goto(server.address + path)
        page.wait_for_selector("html[data-ready=yes]" if path != "/docs" else "main", state="attached")
        return page

    yield open_page
    for context in contexts:
        context.close()


@pytest.fixture(scope="module")
def shared(opened):
    return opened()


@pytest.fixture
def page(shared, server):
    """The page as it is when it opens."""
    shared.goto("about:blank")
    shared.goto(server.address)
    shared.wait_for_selector("html[data-ready=yes]", state="attached")
    shared.trouble.clear()
    yield shared
    assert shared.trouble == []


def found(page, words):
    """The names that are shown, once the status says so."""
    page.wait_for_function("words => document.getElementById('status').textContent.includes(words)", arg=words)
    return page.eval_on_selector_all("#found .caption > span:nth-of-type(1)", "all => all.map(one => one.textContent)")


def names(answers):
    return [hit.name for hit in answers[0].hits]


def photo_of(collection):
    return list((collection / "new.jpg").read_bytes())


def test_a_photo_that_is_dropped_finds_its_like(page, index, collection):
    page.evaluate(DROP, ["#drop", "dragover", []])
    assert page.get_attribute("#drop", "class") == "over"
    page.evaluate(DROP, ["#drop", "drop", photo_of(collection)])
    assert found(page, "12 found for dropped.jpg, in ") == names(index.search(collection / "new.jpg", 12))
    assert page.get_attribute("#drop", "class") == ""
    assert page.inner_text("#verdict").startswith(f"The nearest item has {index.search(collection / 'new.jpg', 1)[0].most_alike:.3f}. ")
    page.wait_for_function("() => [...document.querySelectorAll('#results img')].every(image => image.complete && image.naturalWidth > 0)")
    assert page.locator("#found img").count() == 12
    assert page.eval_on_selector("#preview", "image => [image.naturalWidth, image.naturalHeight]") == [800, 600]


def test_a_photo_that_is_pasted_or_picked_finds_the_same(page, index, collection):
    truth = names(index.search(collection / "new.jpg", 12))
    page.evaluate(DROP, ["body", "paste", photo_of(collection)])
    assert found(page, "found for dropped.jpg") == truth
    page.set_input_files("#file", collection / "new.jpg")
    assert found(page, "found for new.jpg") == truth


def test_what_is_no_image_is_told_in_one_line(page, tmp_path):
    (tmp_path / "notes.txt").write_text("no image")
    page.set_input_files("#file", tmp_path / "notes.txt")
    line = "notes.txt: is no image that can be read; send JPEG, PNG, WebP, GIF, BMP or TIFF"
    page.wait_for_selector(f"#status.wrong >> text={line}")
    assert page.is_hidden("#results")
    (trouble,) = page.trouble  # the browser itself remarks on every refusal
    assert trouble.startswith("error: Failed to load resource: the server responded with a status of 422 ")
    page.trouble.clear()
    with (tmp_path / "large.jpg").open("wb") as file:
        file.truncate(20_000_001)
    page.set_input_files("#file", tmp_path / "large.jpg")
    page.wait_for_selector("#status.wrong >> text=large.jpg has 20.0 MB, more than the 20 MB that are taken.")
    page.evaluate(DROP, ["#drop", "drop", []])
    page.wait_for_selector("#status.wrong >> text=There was no image file in it.")


def test_options_search_again(page, index, collection):
    new = collection / "new.jpg"
    page.set_input_files("#file", new)
    found(page, "12 found for new.jpg, in ")
    page.check("#rerank")
    spec = "alpha-qe(neighbours=2)"
    assert found(page, f"12 found for new.jpg, re-ranked by {spec}, in ") == names(index.search(new, 12, rerank=spec))
    assert "score " in page.inner_text("#found li >> nth=0")
    page.uncheck("#rerank")
    page.select_option("#k", "6")
    assert found(page, "6 found for new.jpg, in ") == names(index.search(new, 6))
    page.fill("#within", "bee")
    page.keyboard.press("Enter")
    assert found(page, "6 found for new.jpg, only bee, in ") == names(index.search(new, 6, within="bee"))
    page.fill("#within", "bea")
    page.keyboard.press("Enter")
    page.wait_for_selector("#status.wrong >> text=within='bea' is no label of the index; its labels, the most alike first: bee")
    page.trouble.clear()


def test_the_verdict_says_whether_anything_is_alike(page, index, collection):
    most = index.search(collection / "new.jpg", 1)[0].most_alike
    page.fill("#threshold", "1")
    page.set_input_files("#file", collection / "new.jpg")
    assert found(page, "0 found for new.jpg") == []
    assert page.inner_text("#verdict") == f"Nothing alike: the nearest item has {most:.3f}, less than 1.000."
    page.click("#anyway")
    assert len(found(page, "12 found for new.jpg")) == 12
    assert page.inner_text("#verdict") == f"Something alike: the nearest item has {most:.3f}, at least -1.000."
    assert page.is_hidden("#anyway")


def test_a_found_item_searches_in_its_turn_and_back_leads_back(page, index, collection):
    page.set_input_files("#file", collection / "new.jpg")
    first, *_ = found(page, "found for new.jpg")
    page.click("#found a >> nth=0")
    assert found(page, f"12 found for {first}") == names(index.search(first, 12))
    assert page.inner_text("#label") == first.split("/")[0]
    page.wait_for_function("() => document.getElementById('preview').naturalWidth > 0")
    page.go_back()
    assert found(page, "found for new.jpg")[0] == first


def test_names_and_labels_are_text_and_never_run(page, opened, index):
    name = f"{NASTY}/3.png"
    other = opened(f"/#item={name.replace('%', '%25')}")
    shown = found(other, f"12 found for {name}")
    assert shown == names(index.search(name, 12))
    assert any(one.startswith(NASTY) for one in shown)
    assert other.inner_text("#label") == NASTY
    assert other.locator("img[onerror], img[src=x]").count() == 0
    assert NASTY in other.eval_on_selector_all("#labels option", "all => all.map(one => one.value)")
    assert other.trouble == []


def test_by_keyboard_alone(page, collection):
    order, choosers = [], []
    page.on("filechooser", lambda chooser: choosers.append(chooser))  # long before it is needed: a busy browser takes its time to heed it
    for _ in range(7):
        page.keyboard.press("Tab")
        order.append(page.evaluate("document.activeElement.id || document.activeElement.textContent"))
        assert page.evaluate("getComputedStyle(document.activeElement).outlineStyle") == "solid"
    assert order == ["Skip to the search", "HTTP interface", "pick", "k", "rerank", "within", "threshold"]
    page.focus("#pick")
    page.keyboard.press("Enter")
    deadline = time.monotonic() + 60
    while not choosers and time.monotonic() < deadline:
        page.wait_for_timeout(10)
    choosers[0].set_files(collection / "new.jpg")
    first, *_ = found(page, "found for new.jpg")
    page.focus("#rerank")
    page.keyboard.press("Space")
    first, *_ = found(page, "re-ranked by ")
    page.focus("#threshold")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.getAttribute('href')").startswith("#item=")
    page.keyboard.press("Enter")
    found(page, f"found for {first}")
    assert page.evaluate("document.activeElement.id") == "status"  # from here Tab leads to what was found
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.getAttribute('href')").startswith("#item=")


def test_everything_operable_has_a_name_and_the_result_is_spoken(page):
    nameless = page.evaluate(
        """() => [...document.querySelectorAll('button, select, a, input:not([hidden])')]
        .filter(each => !(each.textContent.trim() || each.labels?.[0]?.textContent.trim())).map(each => each.outerHTML)"""
    )
    assert nameless == []
    assert [page.get_attribute("#status", name) for name in ("role", "aria-live")] == ["status", "polite"]


@pytest.mark.parametrize(("scheme", "back"), [("light", "rgb(247, 247, 245)"), ("dark", "rgb(20, 22, 26)")])
def test_on_a_phone_nothing_is_wider_than_the_screen(opened, collection, scheme, back):
    page = opened(viewport={"width": 375, "height": 740}, has_touch=True, color_scheme=scheme)
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == back
    page.check("#rerank")
    page.set_input_files("#file", collection / "new.jpg")
    found(page, "12 found for new.jpg")
    assert page.evaluate("document.documentElement.scrollWidth") == 375
    assert page.evaluate(WIDE) == []
    page.goto(page.url.partition("#")[0] + "docs")
    assert page.evaluate("document.documentElement.scrollWidth") == 375
    assert page.trouble == []


def test_the_reference_opens_without_any_other_host(opened):
    page = opened("/docs")
    assert page.inner_text("h1") == "HTTP interface"
    assert page.locator("section").count() == 5
    assert page.trouble == []


def test_a_server_that_is_gone_is_told(page, collection):
    page.route("**/api/search", lambda route: route.abort())
    page.set_input_files("#file", collection / "new.jpg")
    page.wait_for_selector("#status.wrong >> text=The server does not answer; is it running?")
    page.unroute("**/api/search")
    page.trouble.clear()
    page.select_option("#k", "24")
    assert len(found(page, "24 found for new.jpg")) == 24 < 4 * EACH
