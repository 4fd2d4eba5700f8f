"""The engine by itself: images that wait are seen together, and each gets its own row, or the fault that befell all."""

import asyncio
import json
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import pytest

import obdsd.serve.engine as engine_of_serve
from obdsd.search import Index, Query
from obdsd.serve import Engine, Limits, make_app, open_index
from obdsd.serve.opened import BATCH, Opened
from tests.serve.conftest import photo


@pytest.fixture(scope="module")
def opened(collection):
    return open_index(collection / "photos.index", "none", "cpu")


def run(work):
    """In a thread of its own: this one may have the loop of a browser."""
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(asyncio.run, work).result()


def test_each_gets_its_own_row_however_many_wait(opened, monkeypatch):
    pixels = [opened.pixels(photo(seed, 80)) for seed in range(3 * BATCH + 5)]
    truth = np.concatenate([opened.rows([one]) for one in pixels])
    sizes, rows = [], Opened.rows
    monkeypatch.setattr(Opened, "rows", lambda self, some: (sizes.append(len(some)), rows(self, some))[1])

    async def all_rows(engine):
        return np.stack(await asyncio.gather(*(engine.row(opened, one) for one in pixels)))

    with Engine(opened) as engine:
        assert np.allclose(run(all_rows(engine)), truth, atol=1e-6)
    assert sum(sizes) == len(pixels)
    assert max(sizes) == BATCH
    assert len(sizes) < 10


def test_a_fault_of_the_model_reaches_all_who_wait_and_nobody_after_them(opened, monkeypatch):
    pixels = opened.pixels(photo(1, 80))

    async def several(engine):
        return await asyncio.gather(*(engine.row(opened, pixels) for _ in range(5)), return_exceptions=True)

    with Engine(opened) as engine:
        with monkeypatch.context() as patch:
            patch.setattr(Opened, "rows", lambda *_: 1 / 0)
            faults = run(several(engine))
        assert [type(fault) for fault in faults] == [ZeroDivisionError] * 5
        assert all(isinstance(row, np.ndarray) for row in run(several(engine)))


def test_a_defect_is_told_in_one_line_and_its_traceback_is_the_servers(opened, monkeypatch):
    body, sent = b'{"item": "ant/0.png"}', []
    headers = [(b"host", b"127.0.0.1"), (b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    scope = {"type": "http", "method": "POST", "path": "/api/search", "query_string": b"", "headers": headers}

    async def receive():
        return {"type": "http.request", "body": body}

    async def send(message):
        sent.append(message)

    monkeypatch.setattr(Opened, "search", lambda *_: 1 / 0)
    with Engine(opened) as engine, pytest.raises(ZeroDivisionError):
        run(make_app(engine, Limits())(scope, receive, send))
    line = "a defect of obdsd, whose traceback the server has printed; please report it"
    assert (sent[0]["status"], json.loads(sent[1]["body"])) == (500, {"detail": line})


def test_the_end_does_not_wait_for_the_work_on_an_index_that_changed(opened, monkeypatch):
    begun = threading.Event()

    def endless(*_, progress, **__):
        while True:
            begun.set()
            progress("walks", 0, 1)
            time.sleep(0.001)

    monkeypatch.setattr(engine_of_serve, "open_index", endless)
    monkeypatch.setattr(engine_of_serve, "LOOK_SECONDS", 0.001)
    with Engine(replace(opened, stamp=None)) as engine:
        assert begun.wait(60)
    assert engine.now.index is opened.index


def test_the_model_of_an_index_that_changed_is_loaded_once(collection, opened):
    again = open_index(collection / "photos.index", "none", "cpu", before=opened)
    assert again.index is not opened.index
    assert again.index.embedder is opened.index.embedder


def test_a_query_is_what_it_says_and_no_path(collection, tmp_path, monkeypatch):
    index = Index.open(collection / "photos.index")
    truth = index.search("ant/0.png")[0]
    monkeypatch.chdir(tmp_path)
    (tmp_path / "ant").mkdir()
    photo(5, 230).save("ant/0.png")  # another file, in the working directory
    assert index.search("ant/0.png")[0].query.position is None
    by_place = index.search(Query("ant/0.png", position=index.places["ant/0.png"]))[0]
    assert by_place.hits == truth.hits
    row = index.search([Query("a row", row=2 * index.rows[0])], 1)[0]
    assert (row.query.name, row.hits[0].name) == ("a row", index.items[0].name)
