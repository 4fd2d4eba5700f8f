"""`obdsd serve` from its start to its end: what it refuses, an index that changes while it is served, and signals."""

import re
import signal
import socket

import numpy as np
import pytest

from obdsd import cli
from obdsd.models import Embedder
from obdsd.search import Index
from obdsd.serve import listen
from obdsd.serve.guard import is_loopback
from obdsd.serve.server import address
from tests.serve.asking import form, read_wire
from tests.serve.conftest import EACH, QUIET, make_collection, photo, served
from tests.started import PATIENCE, wait_until


def refused(capsys, *words):
    code = cli.main(["serve", *map(str, words)])
    printed, line = capsys.readouterr()
    assert (code, printed, line.count("\n")) == (2, "", 1)
    return line


def test_mistakes_are_named_in_one_line(collection, capsys, tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        line = refused(capsys, collection / "photos.index", "--port", port)
        assert line == f"obdsd: --port {port} is in use on 127.0.0.1; stop what listens there, or take another; 0 takes one that is free\n"
    for words, start in (
        (["x.index", "--port", 70000], "--port 70000 must be from 0 to less than 65536"),
        ([tmp_path, "--port", 0], f"{tmp_path}: is a folder without index.json; give an index"),
        ([collection / "photos.index", "--port", 0, "--host", "203.0.113.9"], "--host '203.0.113.9' cannot be listened at (Cannot assign"),
        ([collection / "photos.index", "--port", 0, "--rerank", "difusion"], "--rerank difusion is not known; did you mean diffusion?"),
        ([collection / "photos.index", "--port", 0, "--device", "abacus"], "--device 'abacus' cannot be used ("),
        (["x.index", "--max-mb", 0], "--max-mb 0.0 must be a number above 0"),
        (["x.index", "--max-pixels", 10**9], "--max-pixels 1000000000 must be from 1 to less than 89000001"),
    ):
        assert refused(capsys, *words).removeprefix("obdsd: ").startswith(start)


def test_ports_that_are_not_for_everybody_are_named(monkeypatch):
    def forbidden(*_, **__):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(socket, "create_server", forbidden)
    with pytest.raises(ValueError, match=r"^port=80 is not for every user \(Permission denied\); take one from 1024 on$"):
        listen("127.0.0.1", 80)


def test_addresses_are_those_that_a_browser_opens():
    for host, shown in (("127.0.0.1", r"127\.0\.0\.1"), ("0.0.0.0", re.escape(socket.gethostname())), ("::1", r"\[::1\]")):
        try:
            listening = listen(host, 0)
        except ValueError:
            assert ":" in host  # there is no IPv6 here
            continue
        with listening:
            assert re.fullmatch(rf"http://{shown}:\d+", address(listening))
    for host in ("127.0.0.1", "127.8.8.8", "::1", "localhost"):
        assert is_loopback(host)
    for host in ("0.0.0.0", "192.168.0.4", "::", "photos.example"):
        assert not is_loopback(host)


def test_no_answer_waits_until_there_is_more_to_send():
    with listen("127.0.0.1", 0) as listening, socket.create_connection(listening.getsockname()):
        accepted, _ = listening.accept()
        with accepted:
            assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


def test_an_index_that_changes_is_served_as_it_is_now_and_sigterm_ends_when_all_is_answered(tmp_path):
    index = make_collection(tmp_path)
    with served(index.path) as client:
        link = client.search(item="bee/0.png", k=1).body["image"]
        assert client.ask(link).status == 200
        (tmp_path / "photos" / "ant" / "3.png").unlink()
        place = index.places["ant/3.png"]
        line = "ant/3.png: its file is not there any more, or cannot be read; if the photos moved: obdsd index photos.index --refresh DATA"
        assert client.ask(f"/api/items/{place}/image")[:2] == (404, {"detail": line})

        photo(1, 200).save(tmp_path / "photos" / "ant" / "one more.png")
        photo(2, 200).save(tmp_path / "photos" / "ant" / "another.png")
        Index.open(index.path).refresh(how=QUIET).set_thresholds({0.01: {"similarity": 1.5}})
        wait_until(lambda: client.ask("/api/index").body["threshold"] == 1.5, client.process)
        answer = client.search(item="ant/one more.png").body
        assert (answer["nothing_alike"], answer["threshold"], answer["found"]) == (True, 1.5, [])
        assert len(client.search(item="ant/one more.png", k=99, threshold=-1, rerank="true").body["found"]) == 4 * EACH + 1
        line = f"place={index.places['bee/0.png']} is another item now, as the index changed; search again"
        assert client.ask(link)[:2] == (404, {"detail": line})

        assert client.lines() == []
        settings = index.path / "index.json"
        settings.write_text("{")
        wait_until(client.lines, client.process)
        (line,) = client.lines()
        assert line.startswith(f"obdsd: {settings}: is not JSON (")
        assert line.endswith("; the index as it was before is served on\n")
        assert client.search(item="ant/one more.png").status == 200

        body, _ = form((tmp_path / "new.jpg").read_bytes(), k=2, threshold=-1)
        with client.begin(len(body)) as wire:
            wire.sendall(body[:100])
            client.ask("/healthz")  # so the server has seen the connection before this one
            client.process.send_signal(signal.SIGTERM)
            wait_until(lambda: not answers(client), client.process)
            wire.sendall(body[100:])
            status, answered = read_wire(wire)
            assert (status, len(answered["found"])) == (200, 2)


def answers(client):
    """Whether it takes new connections."""
    try:
        client.connect().close()
    except OSError:
        return False
    return True


def test_ctrl_c_ends_it_and_a_second_one_at_once(collection):
    with served(collection / "photos.index", "--rerank", "none", signal_at_the_end=signal.SIGINT):
        pass
    with served(collection / "photos.index", "--rerank", "none", code=130) as client, client.begin(1_000):
        client.ask("/healthz")
        client.process.send_signal(signal.SIGINT)
        wait_until(lambda: not answers(client), client.process)
        client.process.send_signal(signal.SIGINT)
        client.process.wait(PATIENCE)


def test_rows_without_images_are_searched_by_name_alone(tmp_path):
    rows = np.random.default_rng(0).normal(size=(12, 6)).astype(np.float32)
    np.savez(tmp_path / "rows.npz", embeddings=rows, labels=np.arange(12) // 3)
    Embedder("features", features=6, dim=5).save(tmp_path / "head")
    index = Index.build(str(tmp_path / "head"), str(tmp_path / "rows.npz"), tmp_path / "rows.index", how=QUIET)
    with served(index.path, "--host", "localhost") as client:
        assert client.ask("/api/index").body["takes_images"] is False
        line = "the index holds rows, and its model knows no images; search by the name of an item"
        assert client.search(b"x")[:2] == (422, {"detail": line})
        answer = client.search(item=index.items[4].name).body
        assert [hit["name"] for hit in answer["found"]] == [hit.name for hit in index.search(index.items[4].name)[0].hits]
        assert {hit["image"] for hit in answer["found"]} == {None}
        assert client.ask("/api/items/4/image")[:2] == (404, {"detail": f"{index.items[4].name}: is no image file, it has no picture"})
