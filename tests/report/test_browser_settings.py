"""The page in a real browser under other conditions: narrow, dark, without pictures, with other runs, in weaker browsers."""

from dataclasses import replace

import numpy as np
import pytest

from tests.report.made_content import made_content
from tests.report.reading import CONTENT, LABELS, expected, queries


@pytest.mark.parametrize(
    "names", [("alone",), ("Multi-similarity", "with OBD-SD"), ("a rather long name of a baseline method", "with PSD", "with OBD-SD")]
)
def test_narrow_layout_holds(opened, names):
    page = opened(made_content(names=names), width=360, height=740, has_touch=True)
    for name in ("all", "wrong", "local", "cross"):
        page.click(f"[data-filter={name}]")
        assert page.evaluate("document.documentElement.scrollWidth") <= 360
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
    example = page.locator(".card:has(.truth)").first
    query, other = int(example.get_attribute("data-query")), int(example.locator(".truth .hit").get_attribute("data-item"))
    assert other == next(item for item in np.flatnonzero(LABELS == LABELS[query]) if item != query)
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
