"""The page as text: nothing escapes into it as code, nothing in it asks a host, everything given is in it, and it is not too large."""

import base64
import gzip
import json
import re
from dataclasses import replace
from html.parser import HTMLParser

import numpy as np
import pytest
from plotly.offline import get_plotlyjs

from obdsd.report.content import Item, Neighbours
from obdsd.report.page import render, split_options, version_rows
from obdsd.report.payload import compressed, finite, pack_indices, pack_numbers, safe_json
from tests.report.made_content import BIRDS, NASTY, made_content


class Page(HTMLParser):
    """What a browser would make of a page: elements, attributes, the text of each script, and all other text."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements, self.scripts, self.text, self.open = [], {}, "", []
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        self.elements.append((tag, dict(attributes)))
        if tag in ("script", "style"):
            self.open = [tag, dict(attributes).get("id", "code" if tag == "script" else "style")]

    def handle_endtag(self, tag):
        if self.open and tag == self.open[0]:
            self.open = []

    def handle_data(self, data):
        if self.open:
            self.scripts[self.open[1]] = self.scripts.get(self.open[1], "") + data
        else:
            self.text += data


@pytest.fixture(scope="module")
def content():
    return made_content()


@pytest.fixture(scope="module")
def text(content):
    return render(content)


@pytest.fixture(scope="module")
def page(text):
    return Page(text)


def unpack(packed):
    """What the page's script does, by numpy."""
    codes = np.frombuffer(base64.b64decode(packed["data"]), "<u4" if packed["kind"] == "wide" else "<u2").astype(np.int64)
    nothing = 2**32 - 1 if packed["kind"] == "wide" else 65535
    if packed["kind"] == "number":
        return np.where(codes == nothing, np.nan, packed["low"] + packed["step"] * codes)
    return np.where(codes == nothing, -1, codes)


def test_a_class_called_script_is_text(page, text):
    assert [attributes.get("id") for tag, attributes in page.elements if tag == "script"] == ["numbers", "pictures", "plotly", None]
    assert NASTY not in text
    assert json.loads(page.scripts["numbers"])["classes"] == list(BIRDS)
    assert NASTY in "".join(Page(render(replace(made_content(), title=NASTY))).text)


def test_no_field_of_the_content_is_html():
    tag = "<b onclick=alert(2)>&'\""
    made = made_content()
    runs = [
        replace(
            run,
            name=tag,
            folder=tag,
            options={tag: tag, "seed": run.seed},
            versions={tag: tag},
            scores={tag: tag},
            batch=replace(run.batch, matrices=[replace(matrix, title=tag, sentence=tag) for matrix in run.batch.matrices]),
        )
        for run in made.runs
    ]
    items = [replace(item, name=tag) for item in made.items]
    nasty = replace(
        made,
        title=tag,
        chart=replace(made.chart, rows=[replace(row, name=tag) for row in made.chart.rows], untrained={tag: 0.5}, sentence=tag),
        sentences=[tag],
        curves=[replace(made.curves[0], title=tag, sentence=tag)],
        header=[tag] * 5,
        rows=[[tag] * 5],
        caption=tag,
        facts={tag: tag},
        commands=[tag],
        runs=runs,
        items=items,
    )
    page = Page(render(nasty))
    assert "b" not in {tag for tag, _ in page.elements}
    assert not any(name.startswith("on") for _, attributes in page.elements for name in attributes)
    assert page.text.count(tag) >= 25


def test_no_request_to_any_host(page, text):
    for tag, attributes in page.elements:
        for name in ("src", "href", "action", "srcset", "poster", "data"):
            assert attributes.get(name, "#").startswith(("#", "data:")), (tag, attributes)
    assert not re.search(r"url\(|@import|https?://", text)
    policy = next(attributes["content"] for _, attributes in page.elements if attributes.get("http-equiv") == "Content-Security-Policy")
    assert policy.startswith("default-src 'none'")
    assert "http" not in policy


def test_all_data_are_in_the_page(page, content):
    numbers, pictures = json.loads(page.scripts["numbers"]), json.loads(page.scripts["pictures"])
    assert numbers["names"] == [item.name for item in content.items]
    assert np.array_equal(unpack(numbers["labels"]), [item.label for item in content.items])
    expected = [*(item.picture for item in content.items), *content.local_pictures]
    assert [base64.b64decode(picture) for picture in pictures] == expected
    for packed, run in zip(numbers["runs"], content.runs, strict=True):
        assert np.array_equal(unpack(packed["neighbours"]["indices"]).reshape(-1, 5), run.neighbours.indices)
        assert np.allclose(unpack(packed["neighbours"]["cosines"]).reshape(-1, 5), run.neighbours.cosines, atol=2e-5)
        assert np.allclose(np.stack([unpack(packed["x"]), unpack(packed["y"])], axis=1), run.map, atol=1e-3)
        assert [mark == "1" for mark in packed["right"]] == run.right.tolist()
        assert packed["perClass"] == pytest.approx(list(run.per_class))
        for drawn, matrix in zip(packed["batch"]["matrices"], run.batch.matrices, strict=True):
            assert (drawn["title"], drawn["kind"], drawn["sentence"]) == (matrix.title, matrix.kind, matrix.sentence)
            assert np.allclose(unpack(drawn["values"]).reshape(matrix.values.shape), matrix.values, atol=3e-5)
    for drawn, curve in zip(numbers["curves"], content.curves, strict=True):
        assert (drawn["title"], drawn["sentence"]) == (curve.title, curve.sentence)
        assert [len(line) for line in drawn["lines"]] == [len(line) for line in curve.lines]
    assert numbers["curves"][0]["lines"][1][3] == [4, finite(content.curves[0].lines[1][3][1])]
    assert numbers["curves"][-1]["lines"][0][0] == [1, None]  # infinite: not a number of JSON


def test_words_tables_and_options_are_readable_without_a_script(page, content):
    for words in (content.title, *content.sentences, *content.rows[1], content.caption, *content.facts.values(), *content.commands):
        assert words in page.text
    for curve in content.curves:
        assert curve.title in page.text
        assert curve.sentence in page.text
    assert page.text.index("batch-diffusion(omega=0.3)") < page.text.index("epochs")  # what differs comes first
    assert "12 min 34 s" in page.text
    assert "812 MiB" in page.text


def test_plotly_is_in_the_page_whole(page):
    assert gzip.decompress(base64.b64decode(page.scripts["plotly"])).decode() == get_plotlyjs()


def test_the_same_content_gives_the_same_page(text, monkeypatch):
    assert render(made_content()) == text
    packed = compressed("some script")
    monkeypatch.setattr("time.time", lambda: 1e9)
    assert compressed("some script") == packed


def test_a_page_for_birds_of_full_size_is_under_15_mb():
    made = made_content(batch=96)
    few, each = 96, 5924
    items = [Item(label=place % 100, name=f"Black_footed_Albatross_{place:04}_796111.jpg", picture=bytes(1200)) for place in range(each)]

    def many(rows):
        return np.resize(rows, (each, *rows.shape[1:]))

    runs = [
        replace(
            run,
            map=many(run.map),
            right=many(run.right),
            per_class=[0.5] * 100,
            neighbours=Neighbours(indices=many(run.neighbours.indices) * 60 % each, cosines=many(run.neighbours.cosines)),
            positive=Neighbours(indices=many(run.neighbours.indices[:, :1]), cosines=many(run.neighbours.cosines[:, :1])),
        )
        for run in made.runs
    ]
    assert runs[0].batch.matrices[0].values.shape == (few, few)
    classes = [f"{label:03}.Black_footed_Albatross" for label in range(100)]
    large = replace(made, items=items, classes=classes, shown=np.arange(each), runs=runs)
    assert len(render(large).encode()) < 15e6


def test_works_without_images_and_for_one_run():
    page = Page(render(made_content(images=False, names=("alone",))))
    assert set(json.loads(page.scripts["pictures"])) == {None}
    assert "compare" not in {attributes.get("id") for _, attributes in page.elements}
    assert "peak memory" not in page.text
    assert json.loads(page.scripts["numbers"])["runs"][0]["local"] is None


def test_packed_numbers_keep_their_range_and_their_gaps():
    values = np.array([-0.25, np.nan, 0.5, np.inf, 0.75])
    assert np.allclose(unpack(pack_numbers(values)), [-0.25, np.nan, 0.5, np.nan, 0.75], atol=1e-5, equal_nan=True)
    assert np.array_equal(unpack(pack_numbers(np.full(3, 2.5))), [2.5] * 3)
    assert np.isnan(unpack(pack_numbers(np.full(2, np.nan)))).all()
    assert unpack(pack_numbers(np.empty(0))).size == 0


@pytest.mark.parametrize("indices", [[0, 65534, -1], [65535, -1, 3], [70_000], []])
def test_packed_indices_are_exact(indices):
    assert unpack(pack_indices(np.array(indices, np.int64))).tolist() == indices


def test_json_is_safe_in_a_script_and_says_the_same():
    value = {"</script><!--": "\u2028\u2029 & é", "n": [1, None]}
    text = safe_json(value)
    assert not set(text) & set("<>&\u2028\u2029")
    assert json.loads(text) == value
    assert [finite(value) for value in (float("nan"), float("inf"), 1 / 3)] == [None, None, 0.333333]


def test_options_that_differ_are_apart_from_those_that_do_not(content):
    differing, common = split_options(content.runs)
    assert differing == [("seed", ["0", "1"]), ("targets", ["none", "batch-diffusion(omega=0.3)"])]
    assert common == [("loss", "multi-similarity"), ("epochs", "12")]
    missing = replace(content.runs[1], options={"epochs": 12, "extra": 1})
    assert ("extra", ["–", "1"]) in split_options([content.runs[0], missing])[0]


def test_versions_are_listed_once(content):
    other = replace(content.runs[1], versions={"obdsd": "0.2.0", "torch": "2.10"})
    assert version_rows([content.runs[0], other]) == [("obdsd", "0.1.0, 0.2.0"), ("torch", "2.10")]


def test_what_a_step_cannot_tell_is_a_dash():
    made = made_content(names=("alone",))
    (run,) = made.runs
    whole = Page(render(replace(made, runs=[replace(run, cost=replace(run.cost, teacher=None, targets=None))])))
    assert re.search(r"alone\s*100 ms\s*–\s*–\s*812 MiB\s*12 min 34 s", whole.text)
    none = Page(render(replace(made, runs=[replace(run, cost=None)])))
    assert re.search(r"alone\s*–\s*–\s*–\s*12 min 34 s", none.text)
