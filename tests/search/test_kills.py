"""An index that is killed while it is written is the old one or the new one, and the same command comes to the end of one that was left
alone. Real processes, real signals.

`OBDSD_KILLS` says how much of it is tried; with 20, as `make test-faults` says, every moment of every change."""

import os
import random
import shutil
import signal
from functools import partial
from itertools import count

import numpy as np
import pytest

from obdsd.search import Index
from tests.faulty import full_disk, killed_at
from tests.search.conftest import QUIET, photo
from tests.started import PATIENCE, python, wait_until
from tests.training.starting import run_command

KILLS = int(os.environ.get("OBDSD_KILLS", "3"))
PLACES = ("os:replace", "os:fsync", "pathlib:Path.unlink", "shutil:rmtree")  # every moment at which the folder changes
EVERY = KILLS >= 20
CHANGES = {
    "refresh": "--refresh",
    "rerank": "--rerank alpha-qe(neighbours=2)",
    "add": "--add folder:more",
    "remove": "--remove bee/0.png cat/1.png",
    "kind": "--kind ivf",
}


@pytest.fixture(scope="module")
def before(whole, tmp_path_factory):
    """An index with a re-ranker, and photos that changed since."""
    folder = tmp_path_factory.mktemp("before")
    shutil.copytree(whole, folder, dirs_exist_ok=True)
    Index.open(folder / "photos.index").refresh(f"folder:{folder / 'photos'}", how=QUIET).fit("alpha-qe")
    for i in range(3):
        photo(folder / "photos" / "owl" / f"{i}.png", 700 + i, 20)
        photo(folder / "more" / "elk" / f"{i}.png", 800 + i, 120)
    return folder


def seen(folder):
    """All that a search sees of an index, and of which files."""
    index = Index.open(folder / "photos.index")
    answers = index.search([item.name for item in index.items], 3)
    kept = [spec for spec in index.settings.rerank if index.search(index.items[0].name, 2, rerank=spec)]
    found = [[(hit.name, round(hit.similarity, 5)) for hit in answer.hits] for answer in answers]
    return [(item.name, item.digest) for item in index.items], found, kept, index.settings.kind


@pytest.mark.parametrize("change", list(CHANGES)[: None if EVERY else 2])
def test_killed_at_every_moment_it_is_the_old_or_the_new_one(before, tmp_path, change):
    """At the n-th replacing, syncing or removing of a file, for every n that there is, or for 1, 2, 4, …"""
    words = ["index", "photos.index", *CHANGES[change].split(), "--device", "cpu", "--workers", "0"]
    old, ends, codes, repeated = seen(before), [], [], []
    for place in PLACES:
        for number in count(1) if EVERY else (2**power for power in count()):
            folder = tmp_path / f"{place}-{number}"
            shutil.copytree(before / "photos.index", folder / "photos.index")
            (folder / "more").symlink_to(before / "more")
            code, said = run_command(words, folder, partial(killed_at, place, number))
            codes.append(code)
            ends.append(seen(folder))
            if code == 0:
                break
            assert code == -signal.SIGKILL, said
            again, said = run_command(words, folder)
            assert again == 0, said
            repeated.append(seen(folder))
            assert not (folder / "photos.index" / "partial").exists()
    new = ends[-1]
    assert new != old
    assert all(end in (old, new) for end in ends)
    assert all(end == new for end in repeated)
    killed = [end for end, code in zip(ends, codes, strict=True) if code]
    assert old in killed
    assert new in killed
    print(f"{change}: killed {len(killed)} times, {killed.count(old)} times before the switch")


@pytest.fixture(scope="module")
def many(tmp_path_factory):
    folder = tmp_path_factory.mktemp("many")
    for i in range(300):
        photo(folder / "photos" / "abc"[i % 3] / f"{i}.png", i, 40 + 60 * (i % 3))
    return folder


def rows_kept(folder):
    """How many rows an unfinished index has kept."""
    total = 0
    for file in (folder / "photos.index" / "partial").glob("0*.npz"):
        with np.load(file) as arrays:
            total += len(arrays["rows"])
    return total


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT, *[signal.SIGTERM] * EVERY])
def test_stopped_while_it_embeds_it_goes_on_from_there(many, tiny, tmp_path, number):
    """Killed, interrupted and terminated again and again at random moments; nothing that was kept is embedded again."""
    words = ["index", str(tiny), f"folder:{many / 'photos'}", "--out", "photos.index", "--device", "cpu", "--batch-size", "4"]
    code = f"""
import os, sys, time
os.chdir({str(tmp_path)!r})
from obdsd.search import partial, writing
partial.MOST = 20
whole = writing.embedded
def slow(*given, **how):
    for rows in whole(*given, **how):
        time.sleep(0.02)
        yield rows
writing.embedded = slow
from obdsd.cli import run_and_exit
sys.argv[1:] = {[*words, "--workers", "0"]!r}
run_and_exit()
"""
    moments, kept = random.Random(number), 0
    for _ in range(max(1, KILLS // 3)):
        with python("-c", code) as process:
            least = kept + moments.randint(1, 200 // max(1, KILLS // 3))
            wait_until(lambda least=least: rows_kept(tmp_path) >= least, process)
            process.send_signal(number)
            _, said = process.communicate(timeout=PATIENCE)
        assert process.returncode == {signal.SIGKILL: -9, signal.SIGINT: 130, signal.SIGTERM: 75}[number], said
        assert "Traceback" not in said
        assert number == signal.SIGKILL or "stopped; photos.index keeps what was embedded: the same command goes on from there" in said
        assert rows_kept(tmp_path) > kept
        kept = rows_kept(tmp_path)
        refusal, line = run_command(["search", "photos.index", "a/0.png"], tmp_path)
        assert (refusal, "photos.index: is an index that is not complete; run the same obdsd index command again" in line) == (2, True)
    done, printed = run_command([*words, "--workers", "0"], tmp_path)
    assert done == 0
    assert f"300 items, vectors of length 8; 300 new, 0 changed, 0 gone; {300 - kept} embedded" in printed
    anew = Index.build(str(tiny), f"folder:{many / 'photos'}", tmp_path / "anew.index", how=QUIET)
    index = Index.open(tmp_path / "photos.index")
    assert index.items == anew.items
    np.testing.assert_allclose(index.rows, anew.rows, atol=1e-6)
    assert sorted(path.name for path in (tmp_path / "photos.index").iterdir() if path.name[0] != ".") == [
        *("index.json", "items-1.parquet", "model", "vectors-1.faiss")
    ]


def test_a_full_disk_leaves_the_old_index(before, tmp_path):
    shutil.copytree(before / "photos.index", tmp_path / "photos.index")
    old = seen(tmp_path)
    for size in (500, 1000, 3000)[: KILLS - 2]:
        code, said = run_command(
            ["index", "photos.index", "--refresh", "--device", "cpu", "--workers", "0"], tmp_path, partial(full_disk, size)
        )
        assert (code, "cannot be written (File too large); make room" in said, said.count("\n")) == (2, True, 1), said
        assert seen(tmp_path) == old


def test_two_writers_are_one_line_and_readers_never_wait(before, tmp_path):
    """While another process holds the lock, a search answers and a change is refused."""
    shutil.copytree(before / "photos.index", tmp_path / "photos.index")
    held = f"""
import time
from pathlib import Path
from obdsd.search.folder import alone
with alone(Path({str(tmp_path / "photos.index")!r})):
    print("held", flush=True)
    time.sleep({PATIENCE})
"""
    with python("-c", held) as process:
        assert process.stdout.readline() == "held\n"
        code, said = run_command(["index", "photos.index", "--remove", "bee/0.png"], tmp_path)
        assert (code, said) == (2, "obdsd: photos.index: another process is writing this index; wait for it, or stop it\n")
        assert run_command(["search", "photos.index", "bee/0.png", "--rerank", "alpha-qe(neighbours=3)"], tmp_path)[0] == 0
    assert run_command(["index", "photos.index", "--remove", "bee/0.png"], tmp_path)[0] == 0  # it was killed


def test_a_reader_beside_a_writer_sees_the_old_or_the_new_one(before, tmp_path):
    """A process opens and searches the index without end while another writes one generation after the other."""
    shutil.copytree(before / "photos.index", tmp_path / "photos.index")
    index = Index.open(tmp_path / "photos.index")
    reading = f"""
from obdsd.search import Index
for number in range(10**9):
    index = Index.open({str(index.path)!r})
    assert len(index.search("ant/0.png", 40)[0].hits) == 35
    print(index.settings.generation, index.settings.kind, flush=True)
"""
    with python("-c", reading) as process:
        assert process.stdout.readline().endswith("flat\n")
        for kind in 10 * ["ivf", "flat"]:
            index = index.of_kind(kind)
        assert process.poll() is None, process.stderr.read()
        process.kill()
        assert len({*process.stdout.read().splitlines()}) > 3
