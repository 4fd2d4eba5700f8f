"""The page as text: nothing escapes into it as code, nothing in it asks a host, everything given is in it, and it is not too large."""

import base64
import gzip
import json
import re
from dataclasses import is_dataclass, replace
from html.parser import HTMLParser

import numpy as np
import pytest
from plotly.offline import get_plotlyjs

from obdsd.report import page as report_page
from obdsd.report.content import Neighbours
from obdsd.report.page import packed, render, split_options, version_rows
from tests.report.made_content import BIRDS, CONTENT, NASTY, made_content, untaught


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
    return CONTENT


@pytest.fixture(scope="module")
def text(content):
    return render(content)


@pytest.fixture(scope="module")
def page(text):
    return Page(text)


def unpack(packed):
    """What the page's script does, by numpy."""
    return np.frombuffer(base64.b64decode(packed["data"]), packed["kind"]).reshape(packed["shape"])


def test_a_class_called_script_is_text(page, text, content):
    assert [attributes.get("id") for tag, attributes in page.elements if tag == "script"] == ["content", "plotly", None]
    assert NASTY not in text
    assert json.loads(page.scripts["content"])["classes"] == list(BIRDS)
    assert NASTY in "".join(Page(render(replace(content, title=NASTY))).text)


def spoiled(value, text):
    """The same value with every text in it replaced, but for the kinds that the page tells apart."""
    if is_dataclass(value):
        return replace(value, **{name: entry if name == "kind" else spoiled(entry, text) for name, entry in vars(value).items()})
    if isinstance(value, dict):
        return {text: spoiled(next(iter(value.values())), text)}
    if isinstance(value, list | tuple):
        return type(value)(spoiled(entry, text) for entry in value)
    return text if isinstance(value, str) else value


def test_no_field_of_the_content_is_html(content):
    tag = "<b onclick=alert(2)>&'\""
    page = Page(render(spoiled(content, tag)))
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
    numbers = json.loads(page.scripts["content"])
    assert numbers == json.loads(json.dumps(packed(content)))
    assert [base64.b64decode(picture) for picture in numbers["pictures"]] == content.pictures
    assert np.array_equal(unpack(numbers["runs"][1]["neighbours"]["indices"]), content.runs[1].neighbours.indices)
    assert numbers["curves"][0]["lines"][1][3] == [4, pytest.approx(content.curves[0].lines[1][3][1], rel=1e-5)]
    assert numbers["curves"][-1]["lines"][0][0] == [1, None]  # infinite: not a number of JSON


def test_words_tables_and_options_are_readable_without_a_script(page, content):
    for words in (content.title, *content.sentences, *content.rows[1], content.caption, *content.facts.values(), *content.commands):
        assert words in page.text
    assert all(curve.title in page.text and curve.sentence in page.text for curve in content.curves)
    assert page.text.index("batch-diffusion(omega=0.3)") < page.text.index("epochs")  # what differs comes first


def test_the_same_content_gives_the_same_page_with_all_of_plotly(text, page, monkeypatch):
    assert gzip.decompress(base64.b64decode(page.scripts["plotly"])).decode() == get_plotlyjs()
    monkeypatch.setattr("time.time", lambda: 1e9)
    report_page._plotly.cache_clear()
    assert render(made_content()) == text


def test_a_page_for_birds_of_full_size_is_under_15_mb(content):
    """5,924 items, pictures of 1,200 bytes, two runs with five matrices of a batch of 96; plotly and all."""

    def repeated(times):
        items = np.tile(np.arange(len(content.labels)), times)
        runs = [
            replace(run, map=run.map[items], neighbours=at(run.neighbours, items), positive=at(run.positive, items)) for run in content.runs
        ]
        names = [f"Black_footed_Albatross_{item:04}_796111.jpg" for item in items]
        some = {"labels": content.labels[items], "shown": items, "asking": items}
        return len(render(replace(content, names=names, pictures=[bytes(1200)] * len(items), runs=runs, **some)))

    def at(found, items):
        return Neighbours(indices=found.indices[items], cosines=found.cosines[items])

    once, larger_batch = repeated(1), 2 * 5 * (96**2 - 24**2) * 4 * 4 / 3  # in base64
    assert once + (5924 / len(content.labels) - 1) * (repeated(2) - once) + larger_batch < 15e6


def test_packed_arrays_are_exact():
    for array in (np.array([0, 70_000, -1]), np.array([[-0.25, np.nan], [np.inf, 1 / 3]], np.float32), np.empty(0)):
        assert np.array_equal(unpack(packed(array)), array, equal_nan=array.dtype.kind == "f")


def test_options_that_differ_are_apart_and_versions_are_listed_once(content):
    first, second = content.runs
    differing, common = split_options([first, second])
    assert differing == [("seed", ["0", "1"]), ("targets", ["none", "batch-diffusion(omega=0.3)"])]
    assert common == [("loss", "multi-similarity"), ("epochs", "12")]
    other = replace(second, options={"epochs": 12, "extra": 1}, versions={"obdsd": "0.2.0", "torch": "2.10"})
    assert ("extra", ["–", "1"]) in split_options([first, other])[0]
    assert version_rows([first, other]) == [("obdsd", "0.1.0, 0.2.0"), ("torch", "2.10")]


OF_A_TEACHER = (
    "Which pairs the teacher pulls on",
    "One batch, seen by",
    "of it teacher",
    "of it targets",
    "Teacher and targets",
    "#manifold",
)


def test_where_nobody_taught_nothing_is_said_of_a_teacher():
    both, mixed, none = (render(content) for content in (made_content(), untaught(made_content(), 0), untaught(made_content())))
    assert all(words in both and words in mixed and words not in none for words in OF_A_TEACHER)
    chooser = re.compile(r'id="batch-run">(.*?)</select>', re.DOTALL)
    assert re.findall(r'value="(\d)"', chooser.search(both)[1]) == ["0", "1"]
    assert re.findall(r'value="(\d)"', chooser.search(mixed)[1]) == ["1"]
    assert re.search(r"Multi-similarity\s*100 ms\s*1\.00\s*812 MiB", Page(none).text)


def test_what_a_step_cannot_tell_is_a_dash():
    made = made_content(names=("alone",))
    (run,) = made.runs
    whole = Page(render(replace(made, runs=[replace(run, cost=replace(run.cost, teacher=None, targets=None))])))
    assert re.search(r"alone\s*100 ms\s*–\s*–\s*812 MiB\s*12 min 34 s", whole.text)
    assert "beside the first" not in whole.text
    both = Page(render(made_content(names=("one", "two"))))
    assert re.search(r"one\s*100 ms\s*1\.00\s*22\.0 %", both.text)
    assert re.search(r"two\s*120 ms\s*1\.20\s*22\.0 %", both.text)
    none = Page(render(replace(made, runs=[replace(run, cost=None)])))
    assert re.search(r"alone\s*–\s*–\s*–\s*12 min 34 s", none.text)
    assert "peak memory" not in none.text
