"""The page in a real browser, from the disk, without a network: what a reader sees and does."""

import io

import numpy as np
import pytest
from PIL import Image

from tests.report.made_content import BASE, CONTENT, LABELS, NASTY, OURS, expected, queries


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


def test_first_screen_tells_the_result(page):
    assert page.title() == CONTENT.title
    for words in (CONTENT.title, CONTENT.chart.sentence, *CONTENT.sentences, CONTENT.rows[1][1], CONTENT.facts["Epoch"]):
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
    pixels = np.asarray(Image.open(io.BytesIO(page.locator(f"#{plot}").screenshot())).convert("RGB")).astype(int)
    for colour in ((0x00, 0x72, 0xB2), (0xD5, 0x5E, 0x00), (0x00, 0x9E, 0x73)):
        blended = 0.85 * np.array(colour) + 0.15 * 255
        assert (abs(pixels - blended).max(axis=2) < 12).sum() > 100


def test_pointing_at_a_mark_shows_its_picture_and_a_click_opens_its_neighbours(page):
    distances = np.linalg.norm(OURS.map[:, None] - OURS.map, axis=2) + 1e9 * np.eye(len(LABELS))
    item = int(distances.min(axis=1).argmax())  # the farthest from all others: no other mark hides it
    page.locator("#map-1").scroll_into_view_if_needed()
    x, y = page.evaluate(
        """place => { const box = document.getElementById("map-1"), edge = box.getBoundingClientRect(), { xaxis, yaxis } = box._fullLayout;
        return [edge.x + xaxis._offset + xaxis.d2p(box.data[0].x[place]), edge.y + yaxis._offset + yaxis.d2p(box.data[0].y[place])]; }""",
        item,
    )
    page.mouse.move(x - 30, y - 30)
    page.mouse.move(x, y, steps=4)
    page.wait_for_selector("#tip:not([hidden])")
    assert page.inner_text("#tip").split("\n") == [CONTENT.classes[LABELS[item]], CONTENT.names[item]]
    assert page.get_attribute("#tip img", "src").startswith("data:image/webp;base64,")
    page.mouse.click(x, y)
    page.wait_for_selector(f".card[data-query='{item}']")
    assert queries(page) == [item]
    assert page.inner_text("#status") == f"Neighbours of {CONTENT.names[item]} ({CONTENT.classes[LABELS[item]]})"
    shown = page.eval_on_selector_all(".rows .hit", "hits => hits.map(hit => Number(hit.dataset.item))")
    assert shown == [*BASE.neighbours.indices[item], *OURS.neighbours.indices[item]]
    page.locator(".rows .hit").first.click()  # a found item searches in its turn
    assert queries(page) == [BASE.neighbours.indices[item, 0]]
    page.click("#back")
    assert len(queries(page)) == len(LABELS)


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
    assert all(example == OURS.positive.indices[query, 0] for query, example in examples)


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
    assert {f"{NASTY[:15]}…", "<b>Kite</b>"} <= set(ticks)


def test_the_runs_compared_can_be_changed(page):
    for ours, base, name in (("0", "1", "losses"), ("1", "0", "wins")):
        page.select_option("#ours", ours)
        page.select_option("#base", base)
        page.click("[data-filter=wins]")
        assert queries(page) == expected(name)


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
        assert np.allclose(drawn, run.batch.matrices[2].values, atol=3e-5)
        assert page.inner_text("#batch-words").startswith(f"{run.name}: epoch 3, batch 1, 24 items of 3 classes")
        figures = page.locator("#matrices figure").all_inner_texts()
        assert all(matrix.title in text and matrix.sentence in text for matrix, text in zip(run.batch.matrices, figures, strict=True))


def test_refined_targets_can_be_seen_as_what_the_diffusion_changes(page):
    page.select_option("#batch-run", "1")
    page.check("#difference")
    _, pairwise, diffused, *_ = (matrix.values for matrix in OURS.batch.matrices)
    change = diffused - pairwise
    assert np.allclose(page.evaluate("document.getElementById('matrix-2').data[0].z"), change, atol=3e-5)
    assert np.allclose(page.evaluate("document.getElementById('matrix-1').data[0].z"), pairwise, atol=3e-5)
    page.uncheck("#difference")
    assert page.evaluate("document.getElementById('matrix-2').data[0].colorscale") == "Cividis"


def test_theme_button_turns_page_and_plots(page):
    def look():
        ink = page.evaluate("document.getElementById('curve-0').layout.font.color")
        return page.evaluate("getComputedStyle(document.body).backgroundColor"), ink, page.get_attribute("#theme", "aria-pressed")

    light = look()
    page.click("#theme")
    assert look() == ("rgb(20, 22, 26)", "#e8eaed", "true")
    page.click("#theme")
    assert look() == light == ("rgb(247, 247, 245)", "#1d2126", "false")


def test_by_keyboard_alone(page):
    def focused(expression):
        return page.evaluate(f"document.activeElement.{expression}")

    page.reload()
    page.wait_for_selector("html[data-ready=yes]", state="attached")
    page.keyboard.press("Tab")
    assert focused("textContent") == "Skip to the result"
    assert page.locator(".skip").bounding_box()["x"] >= 0
    page.keyboard.press("Enter")
    assert focused("id") == "result"
    for _ in range(60):
        page.keyboard.press("Tab")
        if focused("dataset.filter") == "wins":
            break
    assert page.evaluate("getComputedStyle(document.activeElement).outlineStyle") == "solid"
    page.keyboard.press("Enter")
    assert focused("dataset.filter") == "wins"  # the button is made anew and keeps the focus
    assert queries(page) == expected("wins")
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
