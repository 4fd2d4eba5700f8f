"""The interface of a real server: its answers are those of the index, and every refusal is one line."""

import io
import json
import re
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from PIL import Image

from obdsd.data.items import read_image
from obdsd.search import Index
from tests.serve.asking import form, read_wire
from tests.serve.conftest import CLASSES, EACH, NASTY, photo


@pytest.fixture(scope="module")
def index(collection):
    return Index.open(collection / "photos.index")


def png(image):
    file = io.BytesIO()
    image.save(file, "PNG")
    return file.getvalue()


def same(answered, answer):
    """Whether an answer of the server is one of the index."""
    truth = answer.as_dict()
    found = [(hit["rank"], hit["name"], hit["label"]) for hit in answered["found"]]
    numbers = [[hit["similarity"], hit["score"]] for hit in answered["found"]]
    assert found == [(hit["rank"], hit["name"], hit["label"]) for hit in truth["found"]]
    assert np.allclose(numbers, [[hit["similarity"], hit["score"]] for hit in truth["found"]], atol=1e-5)
    assert answered["nothing_alike"] == truth["nothing_alike"]
    assert answered["most_alike"] == pytest.approx(truth["most_alike"], abs=1e-5)


ASKED = [
    ({}, {}),
    ({"k": 100}, {"k": 100}),
    ({"rerank": "true", "k": 7}, {"rerank": "alpha-qe(neighbours=2)", "k": 7}),
    ({"within": NASTY}, {"within": NASTY}),
    ({"threshold": 0.9999}, {"threshold": 0.9999}),
    ({"threshold": 1.0, "rerank": "on"}, {"threshold": 1.0, "rerank": "alpha-qe(neighbours=2)"}),
    ({"threshold": "", "within": ""}, {}),
]


@pytest.mark.parametrize(("fields", "meant"), ASKED, ids=lambda fields: str(fields))
def test_a_photo_finds_what_the_index_finds(server, index, collection, fields, meant):
    path = collection / "new.jpg"  # which must be turned first
    answer = server.search(path.read_bytes(), "some <b>name</b>.jpg", **fields)
    assert answer.status == 200, answer.body
    same(answer.body, index.search(path, **meant)[0])
    assert (answer.body["query"], answer.body["label"], answer.body["image"]) == ("some <b>name</b>.jpg", None, None)
    assert [answer.body[name] for name in ("rerank", "threshold", "within")] == [meant.get(n) for n in ("rerank", "threshold", "within")]


def test_an_item_finds_others_and_never_a_file_of_its_name(server, index):
    for name in ("ant/turned.jpg", f"{NASTY}/3.png"):
        for answer in (server.search(item=name, k=3), server.search_json(item=name, k=3)):
            assert answer.status == 200
            same(answer.body, index.search(name, 3)[0])
            assert (answer.body["query"], answer.body["label"]) == (name, name.split("/")[0])
            assert name not in [hit["name"] for hit in answer.body["found"]]
            assert server.ask(answer.body["image"]).status == 200


def test_pictures_are_small_upright_and_kept_by_the_browser(server, index):
    for name, size in (("ant/turned.jpg", (320, 240)), ("bee/0.png", (40, 30))):
        place = index.places[name]
        answer = server.ask(f"/api/items/{place}/image?of={index.items[place].digest[:16]}")
        assert (answer.status, answer.headers["content-type"]) == (200, "image/webp")
        assert answer.headers["cache-control"] == "private, max-age=3600"
        picture = Image.open(io.BytesIO(answer.body))
        assert picture.size == size
        whole = read_image(index.file(place)).resize(size)
        assert np.abs(np.asarray(picture.convert("RGB")).astype(int) - np.asarray(whole)).mean() < 6


def test_the_facts_are_those_of_the_index(server, index):
    facts = server.ask("/api/index").body
    assert facts["items"] == len(index.items) == 4 * EACH + 1
    assert facts["labels"] == {name: EACH + (name == "ant") for name in sorted(CLASSES)}
    expected = {"name": "photos.index", "dim": 8, "kind": "flat", "model": "tiny-conv", "takes_images": True, "max_k": 100}
    expected |= {"rerank": "alpha-qe(neighbours=2)", "threshold": None, "max_bytes": 20_000_000, "max_pixels": 50_000_000}
    assert expected.items() <= facts.items()
    assert server.ask("/healthz").body == {"status": "ok", "items": len(index.items)}


JSON = {"content-type": "application/json"}
REFUSED = [
    ("/api/search", b"{}", {"content-type": "text/plain"}, 415, "content-type='text/plain' is not known; send multipart/form-data or"),
    ("/api/search", b"{", JSON, 422, "body=b'{': invalid JSON: "),
    ("/api/search", b"{}", JSON, 422, "an image or an item must be given, and not both; send one of them"),
    ("/api/search", b'{"item": "ant/0.png", "k": 0}', JSON, 422, "k=0: input should be greater than or equal to 1"),
    ("/api/search", b'{"item": "ant/0.png", "k": 101}', JSON, 422, "k=101: input should be less than or equal to 100"),
    ("/api/search", b'{"item": "ant/0.png", "kk": 1}', JSON, 422, "kk: there is no such field; there are image, item, k, rerank, "),
    ("/api/search", b'{"item": "ant/0.png", "threshold": 80}', JSON, 422, "threshold=80: input should be less than or equal to 1"),
    ("/api/search", b'{"item": "ant/0.png", "threshold": NaN}', JSON, 422, "threshold=nan: input should be a finite number"),
    (
        "/api/search",
        b'{"item": "ant/0.png", "within": "aunt"}',
        JSON,
        422,
        "within='aunt' is no label of the index; its labels, the most alike first: ant, ",
    ),
    ("/api/search", b'{"item": "../../../etc/passwd"}', JSON, 404, "item='../../../etc/passwd' is no item of the index; names are such"),
    ("/api/search", b'{"item": "photos.index/model"}', JSON, 404, "item='photos.index/model' is no item of the index"),
    ("/api/search", b"x", {"content-type": "multipart/form-data"}, 400, "Missing boundary in multipart."),
    ("/api/items/99/image", None, {}, 404, "place=99 is none of the 37 items; see what a search answers"),
    ("/api/items/-1/image", None, {}, 404, "place=-1 is none of the 37 items"),
    ("/api/items/x/image", None, {}, 422, "place='x': Input should be a valid integer"),
    ("/api/items/1/image?of=0123", None, {}, 404, "place=1 is another item now, as the index changed; search again"),
    ("/api/items/..%2f..%2fetc%2fpasswd/image", None, {}, 404, "Not Found"),
    ("/../../etc/passwd", None, {}, 404, "Not Found"),
    ("/", None, {"host": "evil.example"}, 403, "host='evil.example' is no name of this server; it listens to this machine alone"),
]


@pytest.mark.parametrize(("path", "body", "headers", "status", "line"), REFUSED, ids=[line[:40] for *_, line in REFUSED])
def test_mistakes_are_refused_in_one_line(server, path, body, headers, status, line):
    answer = server.ask(path, body, headers)
    assert (answer.status, [*answer.body]) == (status, ["detail"])
    assert answer.body["detail"].startswith(line)
    assert "\n" not in answer.body["detail"]


def test_this_machine_has_several_names(server):
    for host in ("localhost", f"127.0.0.1:{server.port}", "LOCALHOST:1", "[::1]:80"):
        assert server.ask("/healthz", headers={"host": host}).status == 200


def test_foreign_files_are_refused_in_one_line(server):
    whole = png(photo(1, 90))
    for content, line in (
        (b"", "x.png: is empty; send an image"),
        (b"%PDF-1.7 " + bytes(900), "x.png: is no image that can be read; send JPEG, PNG, WebP, GIF, BMP or TIFF"),
        (b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n%%EndComments\n", "x.png: is no image that can be read; "),
        (whole[: len(whole) // 2], "x.png: cannot be read as an image ("),
    ):
        answer = server.search(content, "x.png")
        assert answer.status == 422
        assert answer.body["detail"].startswith(line)
    assert server.search(whole, item="ant/0.png").body["detail"].startswith("an image or an item must be given, and not both")


def test_fields_of_other_kinds_are_named(server):
    body, headers = form(png(photo(1, 90)))
    answer = server.ask("/api/search", body.replace(b'name="image"', b'name="img"'), headers)
    assert (answer.status, answer.body["detail"][:29]) == (422, "img: there is no such field; ")
    body, headers = form(item="photo.jpg")
    answer = server.ask("/api/search", body.replace(b'name="item"', b'name="image"'), headers)  # curl -F image=photo.jpg, without the @
    line = "image is a text, not a file; send the file itself, such as by curl -F image=@photo.jpg"
    assert (answer.status, answer.body["detail"]) == (422, line)


def test_what_is_no_http_and_no_form_is_refused(server):
    with server.connect() as wire:
        wire.sendall(b"GET me everything\r\n\r\n")
        assert read_wire(wire) == (400, b"Invalid HTTP request received.")
    answer = server.ask("/api/search", b"--a line\r\nthat is none", form()[1])
    assert answer[:2] == (400, {"detail": "Invalid multipart data."})


def test_damaged_images_are_refused_or_read_and_never_a_defect(server):
    rng = np.random.default_rng(0)
    for kind in ("PNG", "JPEG", "WEBP", "GIF", "BMP", "TIFF"):
        file = io.BytesIO()
        photo(2, 90).save(file, kind)
        for _ in range(12):
            damaged = bytearray(file.getvalue())
            for place in rng.integers(0, min(len(damaged), 400), 3):
                damaged[place] = rng.integers(0, 256)
            assert server.search(bytes(damaged)).status in (200, 413, 422)


def test_many_at_once_get_the_answers_that_each_would_get_alone(server, index):
    images = [photo(seed, 60 + 10 * seed) for seed in range(12)]
    truth = [index.search(image, 3)[0] for image in images]
    start = threading.Barrier(12)

    def ask(number):
        start.wait()
        return [server.search(png(images[(number + turn) % 12]), k=3) for turn in range(5)]

    with ThreadPoolExecutor(12) as clients:
        for number, answers in enumerate(clients.map(ask, range(12))):
            for turn, answer in enumerate(answers):
                assert answer.status == 200
                same(answer.body, truth[(number + turn) % 12])


def test_pages_ask_no_other_host_and_let_nothing_run(server):
    for path in ("/", "/docs", "/page.css", "/page.js", "/openapi.json"):
        answer = server.ask(path)
        assert answer.status == 200
        policy = answer.headers["content-security-policy"]
        assert policy.startswith("default-src 'none'; script-src 'self'; style-src 'self'; ")
        assert "unsafe" not in policy
        assert (answer.headers["x-content-type-options"], answer.headers["cache-control"]) == ("nosniff", "no-store")
        assert "access-control-allow-origin" not in answer.headers
        text = answer.body.decode() if isinstance(answer.body, bytes) else json.dumps(answer.body)
        assert not re.search(r"(src|href|url\(|@import)\W{0,3}(https?:)?//", text)


def test_the_reference_has_every_path_every_field_and_every_status(server):
    page, described = server.ask("/docs").body.decode(), server.ask("/openapi.json").body
    assert [*described["paths"]] == ["/healthz", "/api/index", "/api/search", "/api/items/{place}/image"]
    for path, methods in described["paths"].items():
        for method, about in methods.items():
            assert f"{method.upper()} {path}</code>" in page
            assert all(f"<code>{code}</code>" in page for code in about["responses"] if code != "200")
    body = described["paths"]["/api/search"]["post"]["requestBody"]["content"]
    fields = ["image", "item", "k", "rerank", "threshold", "within"]
    assert {kind: [*content["schema"]["properties"]] for kind, content in body.items()} == {
        "multipart/form-data": fields,
        "application/json": fields[1:],
    }
    answer = server.search(png(photo(1, 90)), k=1).body
    shown = {*fields, *answer, *(f"found[].{name}" for name in answer["found"][0])}
    assert [name for name in sorted(shown) if f"<code>{name}</code>" not in page] == []
    assert "integer from 1 to 100" in page
