"""Clients that send too much, too slowly, or too many at once: one line each, and the others are served on."""

import io
import time

import pytest
from PIL import Image

from tests.serve.asking import form, read_wire
from tests.serve.conftest import photo, served


@pytest.fixture(scope="module")
def strict(collection):
    """Takes 30 kB, 10,000 pixels, two searches at once, and a second for each."""
    words = ("--rerank", "none", "--max-mb", 0.03, "--max-pixels", 10_000, "--max-waiting", 2, "--timeout", 1)
    with served(collection / "photos.index", *words) as client:
        yield client
        assert client.lines() == []


def content(image, kind="PNG"):
    file = io.BytesIO()
    image.save(file, kind)
    return file.getvalue()


SMALL = content(photo(1, 90))
LONG = "the request has more than the 0.03 MB that are taken; send a smaller image"


def test_a_body_that_is_too_long_is_refused_before_it_is_read(strict):
    with strict.begin(10**9) as wire:
        assert read_wire(wire) == (413, {"detail": LONG})
    assert strict.search(bytes(40_000))[:2] == (413, {"detail": LONG})


def test_a_body_of_unknown_length_is_refused_when_it_is_too_long(strict):
    body, headers = form(bytes(200_000))
    chunks = (body[start : start + 5_000] for start in range(0, len(body), 5_000))
    assert strict.ask("/api/search", chunks, headers)[:2] == (413, {"detail": LONG})
    body, headers = form(SMALL, k=1)
    assert strict.ask("/api/search", iter([body[:99], body[99:]]), headers).status == 200


def test_pixels_are_counted_before_they_are_made(strict):
    assert strict.search(content(Image.new("1", (100, 100)))).status == 200
    for size, line in (
        ((101, 100), "x.png: has 101 x 100 pixels, more than the 10,000 that are read; send a smaller one"),
        ((13_000, 13_000), "x.png: has 13,000 x 13,000 pixels, more than the 10,000 that are read"),
        ((14_000, 14_000), "x.png: has far more pixels than the 10,000 that are read; send a smaller one"),
    ):
        bomb = content(Image.new("1", size))
        assert len(bomb) < 30_000
        answer = strict.search(bomb, "x.png")
        assert answer.status == 413
        assert answer.body["detail"].startswith(line)


def test_a_body_that_comes_too_slowly_is_refused(strict):
    with strict.begin(5_000) as wire:
        start = time.monotonic()
        wire.sendall(b"--a")
        assert read_wire(wire) == (408, {"detail": "the request did not arrive within 1 seconds; send a smaller image"})
        assert time.monotonic() - start > 0.9


def test_a_body_that_trickles_is_refused(strict):
    body, _ = form(SMALL)
    with strict.begin(len(body)) as wire:
        for place in range(5):
            wire.sendall(body[place : place + 1])
            time.sleep(0.3)
        assert read_wire(wire)[0] == 408


def test_a_head_that_comes_too_slowly_is_refused(strict):
    with strict.connect() as wire:
        for piece in (b"GET / HT", b"TP/1.1\r\nhos", b"t: 127"):
            wire.sendall(piece)
            time.sleep(0.1)
        assert read_wire(wire)[0] == 408


def test_a_client_that_sends_on_what_was_refused_is_hung_up_on(strict):
    with strict.begin(10**9) as wire:
        assert read_wire(wire)[0] == 413
        end = time.monotonic() + 60
        with pytest.raises(ConnectionError):
            send_until(wire, end)


def send_until(wire, end):
    while time.monotonic() < end:
        wire.sendall(bytes(100))
        time.sleep(0.05)


def test_a_client_that_leaves_in_the_middle_is_forgotten(strict):
    strict.begin(5_000).close()
    assert strict.search(SMALL).status == 200


def test_too_many_at_once_are_asked_to_come_again(strict):
    body, _ = form(SMALL, k=2)
    with strict.begin(len(body)) as one, strict.begin(len(body)) as other:
        while (answer := strict.search(SMALL)).status == 200:  # until the server has seen both
            time.sleep(0.01)
        line = "2 searches are under way, which is as many as this server takes; try again soon"
        assert answer[:2] == (503, {"detail": line})
        assert answer.headers["retry-after"] == "1"
        assert strict.ask("/healthz").status == 200
        for wire in (one, other):
            wire.sendall(body)
            status, answered = read_wire(wire)
            assert (status, len(answered["found"])) == (200, 2)
    assert strict.search(SMALL).status == 200


def test_without_a_reranker_none_is_offered(strict):
    assert strict.ask("/api/index").body["rerank"] is None
    line = "rerank=true, but this server offers no re-ranker; leave it out, or start it with --rerank diffusion"
    assert strict.search(SMALL, rerank="true")[:2] == (422, {"detail": line})
