"""An index whose vectors are in Milvus answers and changes as the one with a FAISS file does. Milvus Lite is real, a file or served."""

import os
import shutil
import signal
import socket
import sys
from contextlib import contextmanager
from functools import partial
from itertools import count

import numpy as np
import pytest

from obdsd.errors import MissingExtra
from obdsd.search import Index, milvus
from obdsd.search.milvus import uri_of
from obdsd.search.stores import read_ids
from tests.data.trees import refused
from tests.faulty import killed_at
from tests.search.conftest import QUIET, photo
from tests.started import python, wait_until
from tests.training.starting import run_command

EVERY = int(os.environ.get("OBDSD_KILLS", "3")) >= 20
ODD = 'a "b" \\ c\td\'é'
HERE = ("--device", "cpu", "--workers", "0")


@pytest.fixture(scope="module")
def pair(whole, tiny, tmp_path_factory):
    """`faiss.index` and `milvus.index` of the same photos, among them three of the same content and a class whose name needs care."""
    folder = tmp_path_factory.mktemp("pair")
    shutil.copytree(whole / "photos", folder / "photos")
    for i in range(5):
        photo(folder / "photos" / ODD / f"{i}.png", 900 + i, 140)
    for i in range(2):
        shutil.copy(folder / "photos" / "bee" / "3.png", folder / "photos" / "bee" / f"copy {i}.png")
    for name, store in (("faiss", None), ("milvus", f"milvus:{folder / 'photos.db'}")):
        Index.build(str(tiny), f"folder:{folder / 'photos'}", folder / f"{name}.index", store=store, how=QUIET)
    return folder


@pytest.fixture
def place(pair, tmp_path):
    """A copy of it that a test may change: both indexes know its own photos, and its own file of Milvus Lite."""
    shutil.copytree(pair, tmp_path, dirs_exist_ok=True)
    for name, store in (("faiss", "folder"), ("milvus", f"milvus:{tmp_path / 'photos.db'}")):
        Index.open(tmp_path / f"{name}.index").of_store(store).refresh(f"folder:{tmp_path / 'photos'}", how=QUIET)
    return tmp_path


def both(folder):
    return Index.open(folder / "faiss.index"), Index.open(folder / "milvus.index")


def check_same_answers(folder, k=6, **how):
    """The same similarities, each with an item that has it: of items that are as good as equal, any may come first."""
    faiss, other = both(folder)
    assert [item[:2] for item in other.items] == [item[:2] for item in faiss.items]
    names = [item.name for item in faiss.items]
    cosines = dict(zip(names, faiss.rows @ faiss.rows.T, strict=True))
    for one, two in zip(faiss.search(names, k, **how), other.search(names, k, **how), strict=True):
        assert [hit.score for hit in two.hits] == pytest.approx([hit.score for hit in one.hits], abs=1e-5)
        own = [cosines[one.query.name][faiss.places[hit.name]] for hit in two.hits]
        assert [hit.similarity for hit in two.hits] == pytest.approx(own, abs=1e-6)
        assert one.query.name not in {hit.name for hit in two.hits}
        assert len({hit.name for hit in two.hits}) == len(two.hits)
        assert two.most_alike == pytest.approx(one.most_alike, abs=1e-6)


def numbers(uri, collection):
    """The rows of a collection by their numbers, as pymilvus alone reads them; none if it is not there."""
    rows = milvus.Collection(uri, collection)
    if not rows.exists():
        return None
    rows.load()
    client = rows.milvus.client
    found = client.query(collection, filter="id >= 0", output_fields=["id", "vector", "name", "label"], limit=1000)
    return {row["id"]: row for row in found}


def in_milvus(index):
    return numbers(index.settings.store.uri, index.settings.store.collection)


@pytest.mark.parametrize("how", [{}, {"within": "cat"}, {"within": ODD}, {"k": 60}, {"threshold": 0.9}, {"rerank": "alpha-qe"}], ids=str)
def test_the_same_queries_give_the_same_answers(pair, how):
    check_same_answers(pair, **how)


def test_images_and_rows_are_queries_too(pair):
    faiss, other = both(pair)
    image = pair / "photos" / "ant" / "4.png"
    for query in (image, 3 * faiss.rows[[7, 30]], pair / "photos" / ODD):
        found = [[answer.hits[0].name for answer in index.search(query, 1, how=QUIET)] for index in (faiss, other)]
        assert found[0] == found[1]
    np.testing.assert_array_equal(other.rows, faiss.rows)
    assert [path.name for path in other.path.glob("vectors-*")] == ["vectors-1.npy"]
    assert {row["name"]: row["label"] for row in in_milvus(other).values()} == {item.name: item.label for item in faiss.items}


def test_a_change_sends_only_what_is_new_and_deletes_what_is_gone(place):
    faiss, other = both(place)
    before, photos = in_milvus(other), place / "photos"
    photo(photos / "bee" / "new.png", 950, 95)
    photo(photos / "bee" / "0.png", 951, 95)
    (photos / "cat" / "2.png").rename(photos / "cat" / "renamed.png")
    (photos / "ant" / "5.png").unlink()
    photo(place / "more" / "elk" / "0.png", 952, 120)
    for change in (
        lambda index: index.refresh(how=QUIET),
        lambda index: index.remove(["dog/1.png", "bee/copy 0.png"]),
        lambda index: index.add(f"folder:{place / 'more'}", how=QUIET),
        lambda index: index.refresh(how=QUIET),
    ):
        faiss, other = change(faiss), change(other)
        assert other.change == faiss.change
        check_same_answers(place)
        assert {row["name"] for row in in_milvus(other).values()} == {*other.places}
    after = in_milvus(other)
    kept = before.keys() & after.keys()
    assert len(kept) == len(before) - 5
    assert min(after.keys() - kept) > max(before)  # no number is ever given again
    assert [after[number]["name"] for number in sorted(after.keys() - kept)] == ["bee/0.png", "bee/new.png", "cat/renamed.png", "elk/0.png"]


def test_vectors_move_from_the_folder_to_milvus_to_another_and_back(place):
    faiss = Index.open(place / "faiss.index").of_kind("hnsw").fit("alpha-qe")
    uris = [str(place / "one.db"), str(place / "two.db")]
    first = faiss.of_store(f"milvus:{uris[0]}")
    assert (first.settings.kind, first.settings.store.uri, first.change.embedded) == ("flat", uris[0], 0)
    assert not list(first.path.glob("*.faiss"))
    second = first.of_store(f"milvus:{uris[1]}")
    assert numbers(uris[0], first.settings.store.collection) is None
    assert [*second.settings.rerank] == ["alpha-qe"]
    check_same_answers(place)
    back = second.of_store("folder")
    assert numbers(uris[1], second.settings.store.collection) is None
    assert back.settings.store is None
    np.testing.assert_array_equal(back.rows, faiss.rows)
    check_same_answers(place, rerank="alpha-qe")
    assert back.of_store("folder").settings.generation == back.settings.generation


def test_rows_of_a_writer_that_was_killed_are_passed_over_and_deleted(place):
    """Rows that are not yet of the index or no longer, all nearer to the query than its own."""
    index = Index.open(place / "milvus.index")
    store, row = index.settings.store, index.rows[index.places["bee/4.png"]]
    expected = index.search("bee/4.png", 5)
    client = index.vectors.collection.milvus.client
    extra = [*range(store.next, store.next + 40)]
    client.upsert(store.collection, [{"id": number, "vector": 2 * row, "name": "x", "label": "bee"} for number in extra])
    gone = index.remove(["cat/0.png"]).vectors.ids.tolist()
    (dropped,) = {*index.vectors.ids.tolist()} - {*gone}
    client.upsert(store.collection, [{"id": number, "vector": 2 * row, "name": "x", "label": "bee"} for number in [*extra, dropped]])
    changed = Index.open(place / "milvus.index")
    np.save(changed.path / "vectors-1.npy", index.vectors.ids)  # as if it had been killed before it deleted
    assert changed.search("bee/4.png", 5, within=None) == expected
    assert changed.search("bee/4.png", 5, within="bee") == expected
    tidy = changed.refresh(how=QUIET)
    assert in_milvus(tidy).keys() == {*gone}
    assert not (changed.path / "vectors-1.npy").exists()


def seen(folder):
    """All that a search sees of an index in Milvus, and where its vectors are."""
    index = Index.open(folder / "milvus.index")
    answers = index.search([item.name for item in index.items], 3)
    found = [[(hit.name, round(hit.similarity, 5)) for hit in answer.hits] for answer in answers]
    where = None if index.settings.store is None else index.settings.store.uri.rpartition("/")[2]
    return [(item.name, item.digest) for item in index.items], found, where


def check_tidy(folder):
    """Milvus has the rows of the index and nothing else."""
    index = Index.open(folder / "milvus.index")
    store, connections = index.settings.store, [milvus.connected(str(file)) for file in folder.glob("*.db")]
    there = [name for each in connections for name in each.client.list_collections()]
    assert there == ([] if store is None else [store.collection])
    assert store is None or in_milvus(index).keys() == {*index.vectors.ids.tolist()}
    assert not (index.path / "partial").exists()


@pytest.mark.parametrize("words", ["--refresh", "--store milvus:other.db", "--store folder"][: None if EVERY else 1])
def test_killed_at_every_moment_it_is_the_old_or_the_new_one(place, tmp_path, words):
    """At the n-th call of Milvus, and at the n-th replacing of a file. Then the same command comes to the end."""
    photo(place / "photos" / "owl" / "0.png", 700, 20)
    (place / "photos" / "ant" / "3.png").unlink()
    command, old, ends, codes, repeated = ["index", "milvus.index", *words.split(), *HERE], seen(place), [], [], []
    for moment in ("obdsd.search.milvus:Milvus.call", "os:replace")[: None if EVERY else 1]:
        for number in count(1) if EVERY else (6, 8, 11, 99):  # before and after the rows are sent, and when the new index counts
            folder = tmp_path / f"{moment}-{number}"
            for name in ("milvus.index", "photos.db"):
                shutil.copytree(place / name, folder / name)
            Index.open(folder / "milvus.index").of_store(f"milvus:{folder / 'photos.db'}")
            code, said = run_command(command, folder, partial(killed_at, moment, number))
            codes.append(code)
            ends.append(seen(folder))
            if code == 0:
                break
            assert code == -signal.SIGKILL, said
            again, said = run_command(command, folder)
            assert again == 0, said
            repeated.append(seen(folder))
            check_tidy(folder)
    new = ends[-1]
    assert new != old
    assert all(end in (old, new) for end in ends)
    assert all(end == new for end in repeated)
    killed = [end for end, code in zip(ends, codes, strict=True) if code]
    assert old in killed
    assert new in killed
    print(f"{words}: killed {len(killed)} times, {killed.count(old)} times before the switch")


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@contextmanager
def served(file, port):
    """Milvus Lite in a process of its own, behind an address, as a cluster is."""
    with python("-m", "milvus_lite", "server", "--data-dir", file, "--host", "127.0.0.1", "--port", port) as process:
        wait_until(lambda: listening(port), process)
        yield process


def listening(port):
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def test_by_its_address_it_is_built_searched_and_changed(pair, tiny, tmp_path):
    port = free_port()
    store, data = f"milvus:http://127.0.0.1:{port}", f"folder:{pair / 'photos'}"
    with served(tmp_path / "served.db", port):
        for name in ("faiss.index", "photos.db"):
            (tmp_path / name).symlink_to(pair / name)
        built, said = run_command(["index", tiny, data, "--out", "milvus.index", "--store", store, *HERE], tmp_path)
        assert (built, f"vectors: {store}, collection obdsd_milvus_" in said) == (0, True), said
        check_same_answers(tmp_path)
        index = Index.open(tmp_path / "milvus.index")
        assert run_command(["index", "milvus.index", "--remove", "bee/0.png"], tmp_path)[0] == 0
        assert len(index.search("bee/3.png", 40)[0].hits) == 40  # a reader that is open sees the rest
        with refused(f"milvus:http://127.0.0.1:{port}: collection ", " lacks rows of the index; open it again"):
            index.search("bee/0.png")
        assert run_command(["search", "milvus.index", "bee/3.png", "--within", ODD], tmp_path)[0] == 0


def test_milvus_that_is_gone_in_the_middle_of_a_build_loses_nothing(pair, tiny, tmp_path):
    port = free_port()
    store, data = f"milvus:http://127.0.0.1:{port}", f"folder:{pair / 'photos'}"
    command = ["index", str(tiny), data, "--out", "new.index", "--store", store, *HERE]
    with served(tmp_path / "served.db", port) as server:
        code = f"""
import os, signal, sys
from obdsd.search import milvus
milvus.PATIENCE = 1.0
put = milvus.Collection.put
def killed(*given):
    os.kill({server.pid}, signal.SIGKILL)
    put(*given)
milvus.Collection.put = killed
os.chdir({str(tmp_path)!r})
from obdsd.cli import run_and_exit
sys.argv[1:] = {command!r}
run_and_exit()
"""
        with python("-c", code) as process:
            _, said = process.communicate()
    assert process.returncode == 2
    last = said.splitlines()[-1]
    assert last.startswith(f"obdsd: milvus:http://127.0.0.1:{port}: does not answer (")
    assert last.endswith("then give the same command again: nothing is lost")
    assert "Traceback" not in said
    with refused("new.index: is an index that is not complete; run the same obdsd index command again"):
        Index.open(tmp_path / "new.index")
    with served(tmp_path / "served.db", port):
        again, said = run_command(command, tmp_path)
        assert (again, "43 new, 0 changed, 0 gone; 0 embedded" in said) == (0, True), said
        index = Index.open(tmp_path / "new.index")
        assert in_milvus(index).keys() == {*range(43)}
        assert index.vectors.collection.milvus.client.list_collections() == [index.settings.store.collection]


def test_milvus_that_is_not_there_is_told_before_any_work(pair, tiny, tmp_path, monkeypatch):
    monkeypatch.setattr(milvus, "PATIENCE", 1.0)
    uri = f"http://127.0.0.1:{free_port()}"
    with refused(f"milvus:{uri}: does not answer (", "see that it runs at this address", "nothing is lost"):
        Index.build(str(tiny), f"folder:{pair / 'photos'}", tmp_path / "new.index", store=f"milvus:{uri}", how=QUIET)
    assert not [*(tmp_path / "new.index").rglob("0*.npz")]
    with refused(f"milvus:{uri}: does not answer ("):
        Index.open(pair / "milvus.index", f"milvus:{uri}").search("bee/3.png")


def test_a_file_that_another_process_has_open_is_told(pair, tmp_path):
    held = f"""
import time
from obdsd.search.milvus import connected
kept = connected({str(tmp_path / "held.db")!r}, make=True)
print("held", flush=True)
time.sleep(600)
"""
    with python("-c", held) as process:
        assert process.stdout.readline() == "held\n"
        with refused("held.db: does not answer (another process holds the lock on", "wait for the other, or give its address"):
            milvus.connected(str(tmp_path / "held.db"))


def test_a_file_that_moved_is_found_again(place):
    (place / "photos.db").rename(place / "moved.db")
    path, moved = place / "milvus.index", f"milvus:{place / 'moved.db'}"
    with refused("photos.db: no such file; restore it, or if it moved: obdsd index INDEX --store milvus:NEW_PLACE"):
        Index.open(path).search("bee/3.png")
    assert len(Index.open(path, moved).search("bee/3.png", 60)[0].hits) == 42
    index = Index.open(path)
    again = index.of_store(moved)
    assert again.settings.store.collection == index.settings.store.collection
    check_same_answers(place)


def test_a_password_comes_from_the_environment_and_goes_nowhere(place, monkeypatch):
    monkeypatch.setenv(milvus.TOKEN, "root:secret")
    index = Index.open(place / "milvus.index").remove(["bee/0.png"])
    assert index.vectors.collection.milvus.client._config.token == "root:secret"
    assert not [file for file in index.path.rglob("*") if file.is_file() and b"secret" in file.read_bytes()]


def test_stores_that_are_none_are_refused(pair, tmp_path):
    assert uri_of("folder") is None
    assert uri_of("milvus:http://host:19530/photos") == "http://host:19530/photos"
    for store in ("milvus", "milvus:", "milvus:photos", "faiss:photos.db", "milvus:tcp://host:1", "milvus:http://", "milvus:http://h/a/b"):
        with refused(f"store={store} must be folder, milvus:FILE.db (Milvus Lite) or milvus:http://HOST:PORT"):
            uri_of(store)
    with refused("store= must hold no password; set OBDSD_MILVUS_TOKEN=USER:PASSWORD in the environment") as told:
        uri_of("milvus:http://root:secret@host:19530")
    assert "secret" not in str(told.value)
    with refused(f"milvus:{tmp_path}/none/x.db: {tmp_path}/none is no folder; make it, or choose another place"):
        uri_of(f"milvus:{tmp_path}/none/x.db")
    faiss, other = both(pair)
    with refused("kind=hnsw is for vectors in the folder, in Milvus all are compared (flat); leave it out"):
        other.of_kind("hnsw")
    with refused("are in its folder; leave it out, or move them: obdsd index", "--store milvus:x.db"):
        Index.open(faiss.path, "milvus:x.db")
    with refused("store=folder: the vectors of", "are at milvus:", "leave it out, or move them"):
        Index.open(other.path, "folder")


def test_what_does_not_go_with_the_index_is_refused(place, monkeypatch):
    index = Index.open(place / "milvus.index")
    with monkeypatch.context() as patch:
        patch.setattr("obdsd.search.stores.MOST", 5)
        with refused("k=6 is more than Milvus finds at once, 5 with the query itself; ask for fewer"):
            index.search("bee/3.png", 5)
        assert len(index.search("bee/3.png", 4)[0].hits) == 4
    index.vectors.collection.delete(index.vectors.ids[:3])
    for rest in (lambda: index.search("cat/1.png", 60), lambda: index.search(index.items[0].name), index.vectors.rows):
        with refused("collection obdsd_milvus_", " lacks rows of the index; open it again if it has just changed, else build it anew"):
            rest()
    index.vectors.collection.drop()
    with refused(f"photos.db: has no collection {index.settings.store.collection}; give the Milvus that has it"):
        Index.open(index.path).search("bee/3.png")
    for wrong in (np.arange(42), np.arange(43.0), np.zeros(43, dtype=np.int64), np.arange(1, 44)):
        np.save(place / "x.npy", wrong)
        with refused("x.npy: does not hold the numbers of 43 items; restore it, or build the index anew"):
            read_ids(place / "x.npy", 43, index.settings.store)
    (place / "x.npy").write_bytes(b"x")
    with refused("x.npy: cannot be read; restore it, or build the index anew"):
        read_ids(place / "x.npy", 43, index.settings.store)


def test_without_pymilvus_the_extra_is_named(pair, monkeypatch):
    monkeypatch.setitem(sys.modules, "pymilvus", None)
    with pytest.raises(MissingExtra, match=r'^pymilvus is not installed; pip install "obdsd\[milvus\]" installs it$'):
        milvus.Milvus(str(pair / "another.db"))
