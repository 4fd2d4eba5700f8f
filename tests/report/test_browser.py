"""The page in a real browser, from the disk, without a network: what a reader sees and does."""

import io
from dataclasses import replace

import numpy as np
import pytest
from PIL import Image

from obdsd.report.page import render
from tests.report.made_content import NASTY, made_content

CONTENT = made_content()
LABELS = np.array([item.label for item in CONTENT.items])
BASE, OURS = CONTENT.runs


@pytest.fixture(scope="module")
def opened(browser, tmp_path_factory):
    """Opens a content's page, and notes what should not happen: messages, errors, dialogs, requests."""
    contexts = []

    def open_page(content=CONTENT, *, width=1280, height=900, before="", **settings):
        file = tmp_path_factory.mktemp("page") / "report.html"
        file.write_text(render(content), encoding="utf-8")
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


@pytest.fixture(scope="module")
def shared(opened):
    return opened()


@pytest.fixture
def page(shared):
    """The page of two runs, as it is when it opens; nothing may go wrong while a test uses it."""
    shared.evaluate("scrollTo(0, 0)")
    shared.fill("#class-search", "")
    shared.click("[data-filter=all]")
    yield shared
    assert shared.trouble == []


def queries(page) -> list[int]:
    """All queries of the gallery as it stands, page after page."""
    found = []
    while True:
        found += page.eval_on_selector_all(".card", "cards => cards.map(card => Number(card.dataset.query))")
        if not page.is_visible("#next") or page.is_disabled("#next"):
            return found
        page.click("#next")


def point(page, plot: str, place: int) -> tuple[float, float]:
    """Where on the screen a point of a plot is."""
    page.locator(f"#{plot}").scroll_into_view_if_needed()
    x, y = page.evaluate(
        """([plot, place]) => { const box = document.getElementById(plot), edge = box.getBoundingClientRect();
        const { xaxis, yaxis } = box._fullLayout;
        return [edge.x + xaxis._offset + xaxis.d2p(box.data[0].x[place]), edge.y + yaxis._offset + yaxis.d2p(box.data[0].y[place])]; }""",
        [plot, place],
    )
    return x, y


def lonely(run) -> int:
    """The item farthest from all others on a map: no other mark hides it."""
    distances = np.linalg.norm(run.map[:, None] - run.map, axis=2) + 1e9 * np.eye(len(run.map))
    return int(distances.min(axis=1).argmax())


def colours(picture: bytes) -> np.ndarray:
    return np.asarray(Image.open(io.BytesIO(picture)).convert("RGB")).reshape(-1, 3).astype(int)


def overflow(page) -> int:
    return page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")


def test_first_screen_tells_the_result(page):
    assert page.title() == CONTENT.title
    for words in (CONTENT.title, CONTENT.words[0], CONTENT.rows[1][1], CONTENT.facts["Epoch"]):
        box = page.get_by_text(words, exact=True).first.bounding_box()
        assert box is not None
        assert box["y"] + box["height"] < 900


def test_all_plots_are_drawn(page):
    plots = page.eval_on_selector_all(".plot", "all => all.filter(plot => plot.querySelector('.main-svg')).length")
    assert plots == page.locator(".plot").count() == 5 + 2 + 4 + 5 + 1
    lines = page.eval_on_selector("#curve-0", "plot => plot.querySelectorAll('.scatterlayer .trace').length")
    assert lines == 2


@pytest.mark.parametrize("plot", ["map-0", "map-1"])
def test_map_has_its_points_in_the_class_colours(page, plot):
    page.locator(f"#{plot}").scroll_into_view_if_needed()
    assert page.locator(f"#{plot} canvas").count() > 0
    pixels = colours(page.locator(f"#{plot}").screenshot())
    for colour in ((0x00, 0x72, 0xB2), (0xD5, 0x5E, 0x00), (0x00, 0x9E, 0x73)):
        blended = 0.85 * np.array(colour) + 0.15 * 255
        assert (abs(pixels - blended).max(axis=1) < 12).sum() > 100


def test_pointing_at_a_mark_shows_its_picture_and_a_click_opens_its_neighbours(page):
    item = lonely(OURS)
    x, y = point(page, "map-1", item)
    page.mouse.move(x - 30, y - 30)
    page.mouse.move(x, y, steps=4)
    page.wait_for_selector("#tip:not([hidden])")
    assert page.inner_text("#tip").split("\n") == [CONTENT.classes[LABELS[item]], CONTENT.items[item].name]
    assert page.get_attribute("#tip img", "src").startswith("data:image/jpeg;base64,")
    page.mouse.click(x, y)
    page.wait_for_selector(f".card[data-query='{item}']")
    assert queries(page) == [item]
    assert page.inner_text("#status") == f"Neighbours of {CONTENT.items[item].name} ({CONTENT.classes[LABELS[item]]})"
    shown = page.eval_on_selector_all(".rows .hit", "hits => hits.map(hit => Number(hit.dataset.item))")
    assert shown == [*BASE.neighbours.indices[item], *OURS.neighbours.indices[item]]
    page.click("#back")
    assert len(queries(page)) == len(LABELS)


def test_a_found_item_searches_in_its_turn(page):
    page.locator(".rows .hit").first.click()
    assert queries(page) == [BASE.neighbours.indices[0, 0]]


def expected(name: str) -> list[int]:
    """The queries of each filter, from the content alone."""
    gain = np.array(OURS.per_class) - np.array(BASE.per_class)
    best = [label for label in np.argsort(-gain, kind="stable") if gain[label] > 0][:10]
    hardest = np.argsort(BASE.positive.cosines[:, 0], kind="stable")
    return {
        "all": list(range(len(LABELS))),
        "wins": np.flatnonzero(OURS.right & ~BASE.right).tolist(),
        "losses": np.flatnonzero(BASE.right & ~OURS.right).tolist(),
        "wrong": np.flatnonzero(~BASE.right & ~OURS.right).tolist(),
        "improved": [int(item) for label in best for item in np.flatnonzero(LABELS == label)],
        "cross": hardest[:12].tolist(),
        "local": CONTENT.local_queries.tolist(),
        "chosen": CONTENT.chosen_queries.tolist(),
    }[name]


@pytest.mark.parametrize("name", ["all", "wins", "losses", "wrong", "improved", "cross", "local", "chosen"])
def test_every_filter_shows_its_queries(page, name):
    page.click(f"[data-filter={name}]")
    assert page.get_attribute(f"[data-filter={name}]", "aria-pressed") == "true"
    wanted = expected(name)
    assert wanted
    assert page.inner_text("#status") == f"1–{min(12, len(wanted))} of {len(wanted)} queries"
    assert page.inner_text(f"[data-filter={name}] .count") == str(len(wanted))
    assert queries(page) == wanted


def test_right_and_wrong_are_marked_by_sign_and_border(page):
    hits = page.eval_on_selector_all(
        ".card",
        """cards => cards.flatMap(card => [...card.querySelectorAll('.rows .hit')].map(hit => [
        Number(card.dataset.query), Number(hit.dataset.item), hit.querySelector('.mark').textContent,
        getComputedStyle(hit.querySelector('.frame')).borderTopStyle]))""",
    )
    assert {mark for *_, mark, _ in hits} == {"✓", "✗"}
    for query, item, mark, border in hits:
        assert (mark, border) == (("✓", "solid") if LABELS[query] == LABELS[item] else ("✗", "dashed"))


def test_failures_show_what_should_have_been_found(page):
    page.click("[data-filter=wrong]")
    examples = page.eval_on_selector_all(
        ".card", "cards => cards.map(card => [Number(card.dataset.query), Number(card.querySelector('.truth .hit').dataset.item)])"
    )
    assert examples
    for query, example in examples:
        assert example == OURS.positive.indices[query, 0]


def test_local_queries_show_the_crop_and_their_recall(page):
    page.click("[data-filter=local]")
    words = page.inner_text("#filter-words")
    assert f"{BASE.name} {100 * BASE.local_recall:.1f} %, {OURS.name} {100 * OURS.local_recall:.1f} %" in words
    sources = page.eval_on_selector_all(".query > .frame img", "images => images.map(image => image.src)")
    page.click("[data-filter=all]")
    assert sources[0] != page.get_attribute(".query > .frame img", "src")  # item 0 is the first of both
    page.click("[data-filter=local]")
    hits = page.eval_on_selector_all(".card:nth-child(2) .hit", "hits => hits.map(hit => Number(hit.dataset.item))")
    assert hits == [*BASE.local.indices[1], *OURS.local.indices[1]]


def test_search_by_class_narrows_the_filter(page):
    page.click("[data-filter=wins]")
    page.fill("#class-search", "WREN")
    assert queries(page) == [item for item in expected("wins") if LABELS[item] == CONTENT.classes.index("Wren")]
    page.fill("#class-search", "no such bird")
    assert page.inner_text("#status") == "No query in classes with “no such bird”."
    assert queries(page) == []


def test_a_class_called_script_is_shown_and_not_run(page):
    page.fill("#class-search", NASTY)
    label = CONTENT.classes.index(NASTY)
    assert queries(page) == np.flatnonzero(LABELS == label).tolist()
    assert page.inner_text(".query strong >> nth=0") == NASTY
    assert page.locator(".chip", has_text=NASTY).count() == 1
    ticks = page.eval_on_selector_all("#per-class .xtick text", "texts => texts.map(text => text.textContent)")
    assert f"{NASTY[:15]}…" in ticks


def test_the_runs_compared_can_be_changed(page):
    page.select_option("#ours", "0")
    page.select_option("#base", "1")
    page.click("[data-filter=wins]")
    assert queries(page) == expected("losses")
    page.select_option("#ours", "1")
    page.select_option("#base", "0")
    page.click("[data-filter=wins]")
    assert queries(page) == expected("wins")


def test_a_class_is_picked_out_on_the_map(page):
    chip = page.locator(".chip", has_text="Heron")
    chip.click()
    opacity = page.evaluate("document.getElementById('map-0').data[0].marker.opacity")
    assert [value > 0.5 for value in opacity] == (LABELS == 0).tolist()
    assert chip.get_attribute("aria-pressed") == "true"
    chip.click()
    assert set(page.evaluate("document.getElementById('map-0').data[0].marker.opacity")) == {0.85}


def test_batch_matrices_are_those_of_the_chosen_run(page):
    for place, run in ((0, BASE), (1, OURS)):
        page.select_option("#batch-run", str(place))
        drawn = page.evaluate("document.getElementById('matrix-2').data[0].z")
        assert np.allclose(drawn, run.heatmaps.matrices["diffused targets (OBD-SD)"], atol=3e-5)
        assert page.inner_text("#batch-words").startswith(f"{run.name}: epoch 3, batch 1, 24 items of 3 classes")


def test_theme_button_turns_page_and_plots(page):
    def look():
        ink = page.evaluate("document.getElementById('curve-0').layout.font.color")
        return page.evaluate("getComputedStyle(document.body).backgroundColor"), ink, page.get_attribute("#theme", "aria-pressed")

    light = look()
    page.click("#theme")
    assert look() == ("rgb(20, 22, 26)", "#e8eaed", "true")
    page.click("#theme")
    assert look() == light == ("rgb(247, 247, 245)", "#1d2126", "false")


def focused(page, expression: str):
    return page.evaluate(f"document.activeElement.{expression}")


def test_by_keyboard_alone(page):
    page.reload()
    page.wait_for_selector("html[data-ready=yes]", state="attached")
    page.keyboard.press("Tab")
    assert focused(page, "textContent") == "Skip to the result"
    assert page.locator(".skip").bounding_box()["x"] >= 0
    page.keyboard.press("Enter")
    assert focused(page, "id") == "result"
    for _ in range(60):
        page.keyboard.press("Tab")
        if focused(page, "dataset.filter") == "wins":
            break
    assert page.evaluate("getComputedStyle(document.activeElement).outlineStyle") == "solid"
    page.keyboard.press("Enter")
    assert focused(page, "dataset.filter") == "wins"  # the button is made anew and keeps the focus
    assert queries(page) == expected("wins")
    page.keyboard.press("Shift+Tab")
    page.locator("#next").focus()
    page.click("[data-filter=all]")
    page.locator("#next").focus()
    page.keyboard.press("Enter")
    assert page.inner_text("#page-number") == "page 2 of 8"
    page.locator(".hit").first.focus()
    page.keyboard.press("Enter")
    assert page.inner_text("#status").startswith("Neighbours of ")


def test_everything_operable_has_a_name(page):
    nameless = page.evaluate(
        """() => [...document.querySelectorAll('main button, main input, main select, header button')]
        .filter(each => !(each.getAttribute('aria-label') || each.textContent.trim() || each.labels?.[0]?.textContent.trim())).length"""
    )
    assert nameless == 0
    assert page.get_attribute("#status", "aria-live") == "polite"
    assert page.eval_on_selector_all(".plot", "plots => plots.every(plot => plot.getAttribute('aria-label'))")


@pytest.mark.parametrize(
    "names", [("alone",), ("Multi-similarity", "with OBD-SD"), ("a rather long name of a baseline method", "with PSD", "with OBD-SD")]
)
def test_narrow_layout_holds(opened, names):
    page = opened(made_content(names=names), width=360, height=740, has_touch=True)
    for name in ("all", "wrong", "local", "cross"):
        page.click(f"[data-filter={name}]")
        assert overflow(page) <= 0
    wide = """() => [...document.querySelectorAll('main *')].filter(each => !each.closest('.scroll') && !each.closest('svg')
        && each.getClientRects().length && each.getBoundingClientRect().right > 361).map(each => each.outerHTML.slice(0, 90))"""
    assert page.evaluate(wide) == []
    assert page.trouble == []


def test_dark_where_the_reader_asks_for_it(opened):
    page = opened(color_scheme="dark")
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(20, 22, 26)"
    page.click("#theme")
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(247, 247, 245)"


def test_without_images_ids_are_shown(opened):
    page = opened(made_content(images=False))
    assert page.locator("main img").count() == 0
    assert page.inner_text(".query .id >> nth=0") == CONTENT.items[0].name
    assert page.locator("[data-filter=local]").count() == 0
    assert page.trouble == []


def test_only_scored_items_ask_and_only_their_classes_have_a_recall(opened):
    asking = np.flatnonzero(LABELS < 9)
    runs = [
        replace(run, per_class=[*run.per_class[:9], *[float("nan")] * 3], positive=None, geometry=replace(run.geometry, gradient={}))
        for run in CONTENT.runs
    ]
    page = opened(replace(CONTENT, asking=asking, runs=runs))
    for name in ("wins", "losses", "wrong"):
        page.click(f"[data-filter={name}]")
        assert queries(page) == [item for item in expected(name) if LABELS[item] < 9]
        example = page.locator(".truth .hit").first
        assert name != "wrong" or example.get_attribute("data-item") in (
            str(item) for item in np.flatnonzero(LABELS == LABELS[expected(name)[0]])
        )
    page.click("[data-filter=cross]")
    assert len(queries(page)) == 12
    assert set(LABELS[queries(page)]) <= set(range(9))
    assert page.evaluate("document.getElementById('per-class').data[0].x.length") == 9
    assert page.is_visible("#gradient-words")
    assert page.trouble == []


def test_one_run_has_nothing_to_compare(opened):
    content = made_content(names=("alone",))
    page = opened(content)
    keys = page.eval_on_selector_all("[data-filter]", "buttons => buttons.map(button => button.dataset.filter)")
    assert keys == ["all", "wrong", "cross", "local", "chosen"]
    page.click("[data-filter=wrong]")
    assert queries(page) == np.flatnonzero(~content.runs[0].right).tolist()
    assert page.locator(".maps .plot").count() == 1
    assert page.trouble == []


def test_all_of_three_runs_or_the_two_compared(opened):
    page = opened(made_content(names=("one", "two", "three")))
    assert page.locator(".maps .plot").count() == 3
    assert page.locator(".card").first.locator(".row").count() == 3
    page.uncheck("#all-runs")
    assert page.eval_on_selector_all(".maps h3", "titles => titles.map(title => title.textContent)") == ["one", "three"]
    assert page.locator(".card").first.locator(".row").count() == 2
    assert page.trouble == []


def test_without_webgl_the_map_is_drawn_all_the_same(opened):
    none = "const get = HTMLCanvasElement.prototype.getContext; HTMLCanvasElement.prototype.getContext = function (kind, ...more) "
    page = opened(before=none + "{ return kind.includes('webgl') ? null : get.call(this, kind, ...more); };")
    assert page.locator("#map-0 .scatterlayer .point").count() == len(LABELS)
    assert page.trouble == []


def test_an_old_browser_still_has_tables_and_gallery(opened):
    page = opened(before="delete window.DecompressionStream;")
    assert "this browser is from before 2023" in page.inner_text("#trouble")
    assert len(page.trouble) == 1
    page.click("[data-filter=losses]")
    assert queries(page) == expected("losses")
