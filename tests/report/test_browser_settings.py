"""The page in a real browser under other conditions: narrow, dark, without pictures, with other runs, in weaker browsers.

A page takes seconds to draw: conditions that do not disturb each other share one.
"""

from dataclasses import replace

import numpy as np
import pytest

from tests.report.made_content import CONTENT, LABELS, expected, in_turns, made_content, queries, right, untaught

NO_WEBGL = """const get = HTMLCanvasElement.prototype.getContext; HTMLCanvasElement.prototype.getContext = function (kind, ...more)
    { return kind.includes('webgl') ? null : get.call(this, kind, ...more); };"""
WIDE = """() => [...document.querySelectorAll('main *')].filter(each => !each.closest('.scroll') && !each.closest('svg')
    && each.getClientRects().length && each.getBoundingClientRect().right > 361).map(each => each.outerHTML.slice(0, 90))"""


def check_narrow(page):
    """Nothing is wider than the screen of a phone."""
    for name in ("all", "wrong", "local", "cross"):
        page.click(f"[data-filter={name}]")
        assert page.evaluate("document.documentElement.scrollWidth") <= 360
    assert page.evaluate(WIDE) == []


def test_one_run_on_a_phone_has_nothing_to_compare(opened):
    content = made_content(names=("alone",))
    page = opened(content, width=360, height=740, has_touch=True)
    check_narrow(page)
    keys = page.eval_on_selector_all("[data-filter]", "buttons => buttons.map(button => button.dataset.filter)")
    assert keys == ["all", "wrong", "cross", "local", "chosen"]
    page.click("[data-filter=wrong]")
    assert queries(page) == in_turns(np.flatnonzero(~right(content.runs[0], content.labels)))
    assert page.locator(".maps .plot").count() == 1
    assert page.locator("#compare").count() == 0
    assert page.trouble == []


def test_all_of_three_runs_or_the_two_compared_on_a_phone_in_the_dark(opened):
    long = "a rather long name of a baseline method"
    page = opened(made_content(names=(long, "two", "three")), width=360, height=740, has_touch=True, color_scheme="dark")
    check_narrow(page)
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(20, 22, 26)"
    page.click("#theme")
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(247, 247, 245)"
    assert page.locator(".maps .plot").count() == 3
    assert page.locator(".card").first.locator(".row").count() == 3
    page.uncheck("#all-runs")
    assert page.eval_on_selector_all(".maps h3", "titles => titles.map(title => title.textContent)") == [long, "three"]
    assert page.locator(".card").first.locator(".row").count() == 2
    assert page.trouble == []


@pytest.fixture(scope="module")
def bare(opened):
    """Without pictures and teachers, in a browser without WebGL; the last three classes are on the map and not scored."""
    made = made_content(images=False)
    runs = [replace(run, per_class=[*run.per_class[:9], *[float("nan")] * 3]) for run in made.runs]
    return opened(untaught(replace(made, asking=np.flatnonzero(LABELS < 9), runs=runs)), before=NO_WEBGL)


def test_without_images_ids_are_shown_and_without_webgl_the_map_is_drawn(bare):
    assert bare.locator("main img").count() == 0
    assert bare.inner_text(".query .id >> nth=0") == CONTENT.names[0]
    assert bare.locator("[data-filter=local]").count() == 0
    assert bare.locator("#map-0 .scatterlayer .point").count() == len(LABELS)


def test_only_scored_items_ask_and_only_their_classes_have_a_recall(bare):
    for name in ("wins", "losses", "wrong"):
        bare.click(f"[data-filter={name}]")
        assert queries(bare) == [item for item in expected(name) if LABELS[item] < 9]
    bare.click("[data-filter=cross]")
    assert len(queries(bare)) == 12
    assert set(LABELS[queries(bare)]) <= set(range(9))
    assert bare.evaluate("document.getElementById('per-class').data[0].x.length") == 9
    assert bare.trouble == []


def test_an_old_browser_still_has_tables_and_gallery(opened):
    page = opened(before="delete window.DecompressionStream;")
    assert "this browser is from before 2023" in page.inner_text("#trouble")
    assert len(page.trouble) == 1
    page.click("[data-filter=losses]")
    assert queries(page) == expected("losses")


def test_without_scripts_the_first_screen_is_complete(opened):
    page = opened(java_script_enabled=False, width=400, height=860)
    for row, place in zip(CONTENT.chart.marks, page.locator(".estimate").all(), strict=False):
        box = place.locator("circle").bounding_box()
        assert 0 < box["x"] < box["x"] + box["width"] < 400
        assert box["width"] == box["height"] > 8  # round, whatever the width
        assert place.inner_text().startswith(row.name)
    assert page.locator(".sentences li").all_inner_texts() == list(CONTENT.sentences)
    assert page.is_visible("noscript")


def numbered(content):
    """Classes and runs whose names are numbers; losses that are tiny, or nothing but zeros."""
    batches = [replace(run.batch, classes=[str(7 * label) for label in sorted(LABELS[:24])]) for run in content.runs]
    runs = [replace(run, name=str(number), batch=batch) for number, (run, batch) in enumerate(zip(content.runs, batches, strict=True), 5)]
    tiny, zeros = ([[(epoch, value * epoch) for epoch in range(1, 9)] for _ in runs] for value in (6e-5, 0.0))
    curves = [replace(content.curves[0], title="tiny", lines=tiny), replace(content.curves[0], title="zeros", lines=zeros)]
    return replace(content, classes=[str(7 * number) for number in range(12)], runs=runs, curves=curves)


def test_names_that_are_numbers_and_numbers_that_are_small(opened):
    page = opened(numbered(made_content()))
    for axis in ("xaxis", "yaxis"):
        assert page.evaluate(f"document.getElementById('matrix-0')._fullLayout.{axis}.type") == "category"
    assert page.evaluate("document.getElementById('matrix-0')._fullLayout.xaxis.range") == pytest.approx([-0.5, 23.5], abs=0.1)
    assert page.evaluate("document.getElementById('cost-plot')._fullLayout.yaxis.type") == "category"
    ticks = page.eval_on_selector_all("#curve-0 .ytick", "all => all.map(tick => tick.textContent)")
    assert ticks
    assert not any("μ" in tick or "µ" in tick for tick in ticks)
    assert any("×10" in tick for tick in ticks)
    assert page.evaluate("document.getElementById('curve-1')._fullLayout.yaxis.range")[0] == 0
    assert page.trouble == []


def test_without_a_teacher_all_else_is_drawn(bare):
    plots = bare.eval_on_selector_all(".plot", "all => all.filter(plot => plot.querySelector('.main-svg')).length")
    assert plots == bare.locator(".plot").count() == 4 + 2 + 3 + 1
    assert bare.evaluate("document.getElementById('cost-plot').data.map(part => part.name)") == ["the step"]
    bare.select_option("#ours", "0")
    assert bare.trouble == []


def test_of_three_runs_only_the_one_with_a_teacher_shows_it(opened):
    page = opened(untaught(made_content(names=("one", "two", "three")), 0, 2))
    assert page.inner_text("#batch-words").startswith("two: ")
    page.uncheck("#all-runs")  # one and three
    assert page.is_hidden("#gradient")
    assert page.is_visible("#gradient-words")
    page.select_option("#ours", "1")
    assert page.is_visible("#gradient .main-svg >> nth=0")
    assert page.inner_text("#batch-words").startswith("two: ")
    assert page.trouble == []


CROSSED = """lines => lines.filter(line => {
    const own = line.getBoundingClientRect();
    return [...document.querySelectorAll(".estimate span")].some(words => {
        const box = words.getBoundingClientRect();
        return own.left < box.right && own.right > box.left && own.top < box.bottom - 0.5 && own.bottom > box.top + 0.5;
    });
}).length"""


@pytest.mark.parametrize("width", [390, 860, 1280])
def test_no_line_of_the_first_picture_runs_through_words(opened, width):
    page = opened(made_content(names=("a rather long name of a baseline method", "two", "three")), width=width)
    assert page.locator(".estimate line").count() > 20
    assert page.eval_on_selector_all(".estimate line, .estimate circle", CROSSED) == 0
