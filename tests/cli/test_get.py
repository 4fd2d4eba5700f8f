"""`obdsd data get` against a server on this machine: broken connections, kills, wrong bytes, full disks."""

import hashlib
import io
import os
import shutil
import signal
import socket
import tarfile
import zipfile
from collections import namedtuple

import numpy as np
import pytest
from filelock import FileLock

from obdsd import cli
from obdsd.data import archives
from tests.data.serving import serving
from tests.started import python, wait_until

Packed = namedtuple("Packed", "name file folder files content")
FILES = {name: np.random.default_rng(i).bytes(900_000) for i, name in enumerate(("images/1.jpg", "images/deep/2.jpg", "lists.txt"))}
COMMAND = """
import sys
from obdsd import cli
from obdsd.data import archives
name, file, folder, length, sha256, *words = sys.argv[1:]
archives.ARCHIVES[name] = archives.Archive(address=f"http://127.0.0.1:9/{file}", length=int(length), sha256=sha256, folder=folder)
sys.argv = ["obdsd", *words]
cli.run_and_exit()
"""


def packed(name):
    """A small archive in the form of the official one, with something beside its folder."""
    folder = archives.ARCHIVES[name].folder
    entries = {f"{folder}/{path}": content for path, content in FILES.items()} | {"__MACOSX/._x": b"beside it"}
    stream = io.BytesIO()
    if name == "sop":
        with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr(f"{folder}/", b"")
            for path, content in entries.items():
                archive.writestr(path, content)
    else:
        with tarfile.open(fileobj=stream, mode="w:gz") as archive:
            for path, content in entries.items():
                about = tarfile.TarInfo(path)
                about.size = len(content)
                archive.addfile(about, io.BytesIO(content))
    return Packed(name, archives.ARCHIVES[name].name, folder, FILES, stream.getvalue())


@pytest.fixture(scope="module", params=["cub200", "sop"])
def each(request):
    return packed(request.param)


@pytest.fixture(scope="module")
def birds():
    return packed("cub200")


@pytest.fixture
def official(monkeypatch):
    """Let a small archive be the official one."""
    monkeypatch.setattr(archives, "WAIT", 0.01)

    def make(own, address="http://127.0.0.1:9"):  # where nobody listens
        made = archives.Archive(
            address=f"{address}/{own.file}", length=len(own.content), sha256=hashlib.sha256(own.content).hexdigest(), folder=own.folder
        )
        monkeypatch.setitem(archives.ARCHIVES, own.name, made)

    return make


def get(capsys, own, to, address, *words):
    code = cli.main(["data", "get", own.name, "--to", str(to), "--mirror", f"{address}/{own.file}", *words])
    return code, *capsys.readouterr()


def about(own):
    """What a process must be told of the archive that is the official one."""
    return [own.name, own.file, own.folder, len(own.content), hashlib.sha256(own.content).hexdigest()]


def assert_there(own, to):
    """The folder as it was packed, the archive, and nothing half-done."""
    assert {
        str(path.relative_to(to / own.folder)): path.read_bytes() for path in (to / own.folder).rglob("*") if path.is_file()
    } == own.files
    assert (to / own.file).read_bytes() == own.content
    assert sorted(path.name for path in to.iterdir()) == sorted([f".{own.file}.lock", own.folder, own.file])


def test_it_is_downloaded_checked_and_unpacked(each, official, tmp_path, capsys):
    official(each)
    to = tmp_path / "my data"
    with serving({f"/{each.file}": each.content}) as server:
        code, printed, said = get(capsys, each, to, server.address)
        assert (code, said) == (0, "")
        assert_there(each, to)
        source = f"'{each.name}:{to / each.folder}'"
        first, *rest = printed.splitlines()
        assert first == f"{to / each.folder}: unpacked; {to / each.file} is no longer needed"
        assert rest == [f"go on with: obdsd data check {source}", f"and with: obdsd train {source}"]
        code, _, said = get(capsys, each, to, server.address)
        assert code == 2
        assert said.startswith(f"obdsd: {to / each.folder}: is there already; obdsd data check {each.name}:")
        shutil.rmtree(to / each.folder)
        assert get(capsys, each, to, server.address)[0] == 0  # the archive is at hand
        assert_there(each, to)
        assert server.asked == [None]


def test_its_own_address_is_asked_without_a_mirror(birds, official, tmp_path, capsys):
    with serving({f"/{birds.file}": birds.content}) as server:
        official(birds, server.address)
        assert cli.main(["data", "get", "cub200", "--to", str(tmp_path)]) == 0
    assert_there(birds, tmp_path)


def test_a_connection_that_breaks_is_gone_on_with(birds, official, tmp_path, capsys):
    official(birds)
    with serving({f"/{birds.file}": birds.content}, cuts=[1_200_000, 0, 300_000]) as server:
        assert get(capsys, birds, tmp_path, server.address)[0] == 0
        assert server.asked == [None, "bytes=1200000-", "bytes=1200000-", "bytes=1500000-"]
    assert_there(birds, tmp_path)


def test_a_server_without_ranges_begins_anew(birds, official, tmp_path, capsys):
    official(birds)
    with serving({f"/{birds.file}": birds.content}, ranges=False, cuts=[1_200_000]) as server:
        assert get(capsys, birds, tmp_path, server.address)[0] == 0
        assert server.asked == [None, "bytes=1200000-"]
    assert_there(birds, tmp_path)


def test_what_came_is_kept_and_the_same_command_goes_on(birds, official, tmp_path, capsys):
    official(birds)
    with serving({f"/{birds.file}": birds.content}, cuts=[700_000, 0, 0, 0]) as server:
        code, printed, said = get(capsys, birds, tmp_path, server.address)
        address = f"{server.address}/{birds.file}"
        kept = f"700,000 of {len(birds.content):,} bytes are there, the same command goes on, --mirror URL takes another address"
        assert (code, printed, said) == (2, "", f"obdsd: {address}: cannot be had (the connection ended early); {kept}\n")
        assert (tmp_path / f"{birds.file}.part").read_bytes() == birds.content[:700_000]
        server.cuts.clear()
        assert get(capsys, birds, tmp_path, server.address)[0] == 0
        assert server.asked[-1] == "bytes=700000-"
    assert_there(birds, tmp_path)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_a_process_that_is_ended_leaves_what_came_for_the_next(birds, tmp_path, number):
    part = tmp_path / f"{birds.file}.part"
    with serving({f"/{birds.file}": birds.content}, slow=0.05) as server:
        words = ["data", "get", birds.name, "--to", tmp_path, "--mirror", f"{server.address}/{birds.file}"]
        with python("-c", COMMAND, *about(birds), *words) as process:
            wait_until(lambda: part.exists() and part.stat().st_size > 0, process)
            os.kill(process.pid, number)
            _, said = process.communicate()
        assert process.returncode == (75 if number == signal.SIGTERM else -number)
        if number == signal.SIGTERM:
            assert said == f"stopped; {tmp_path} keeps what came of {birds.file}: the same command goes on from there\nobdsd: terminated\n"
        kept = part.stat().st_size
        assert 0 < kept < len(birds.content)
        assert not (tmp_path / birds.file).exists()
        server.slow = 0.0
        with python("-c", COMMAND, *about(birds), *words) as process:
            assert (process.communicate()[1], process.returncode) == ("", 0)
        assert server.asked == [None, f"bytes={kept}-"]
    assert_there(birds, tmp_path)


def test_a_kill_while_it_is_unpacked_leaves_no_folder(birds, tmp_path):
    (tmp_path / birds.file).write_bytes(birds.content)
    lethal = "from tests.faulty import killed_at; killed_at('obdsd.data.unpacking:_write', 3)"
    words = [*about(birds), "data", "get", birds.name, "--to", tmp_path]
    with python("-c", lethal + COMMAND, *words) as process:
        process.communicate()
    assert process.returncode == -signal.SIGKILL
    assert len([*tmp_path.rglob("*.jpg")]) == 2
    assert not (tmp_path / birds.folder).exists()
    with python("-c", COMMAND, *words) as process:
        assert (process.communicate()[1], process.returncode) == ("", 0)
    assert_there(birds, tmp_path)


def test_other_bytes_are_refused_and_removed(birds, official, tmp_path, capsys):
    official(birds)
    wrong = birds.content[:-9] + bytes(9)
    with serving({f"/{birds.file}": wrong}) as server:
        code, _, said = get(capsys, birds, tmp_path, server.address)
    digests = [hashlib.sha256(content).hexdigest()[:12] for content in (wrong, birds.content)]
    fault = f"what came is not the official archive (SHA-256 {digests[0]}…, not {digests[1]}…) and was removed"
    assert (code, said) == (2, f"obdsd: {server.address}/{birds.file}: {fault}; try again, or another address with --mirror URL\n")
    assert [path.name for path in tmp_path.iterdir()] == [f".{birds.file}.lock"]
    (tmp_path / birds.file).write_bytes(wrong)
    code, _, said = get(capsys, birds, tmp_path, server.address)
    assert (code, said.count("\n")) == (2, 1)
    assert f"{birds.file}: is not the official archive (its SHA-256 is {digests[0]}…); remove it, then it is downloaded" in said
    assert not (tmp_path / birds.folder).exists()


def test_a_partial_file_that_is_too_long_is_begun_anew(birds, official, tmp_path, capsys):
    official(birds)
    (tmp_path / f"{birds.file}.part").write_bytes(birds.content + b"more")
    with serving({f"/{birds.file}": birds.content}) as server:
        assert get(capsys, birds, tmp_path, server.address)[0] == 0
        assert server.asked == [None]
    assert_there(birds, tmp_path)


def test_what_no_server_gives_is_one_line(birds, official, tmp_path, capsys):
    official(birds)
    with serving({f"/{birds.file}": birds.content[:5000]}) as server:
        lengths = f"has 5,000 bytes, the official archive {len(birds.content):,}; give another address with --mirror URL"
        assert get(capsys, birds, tmp_path, server.address) == (2, "", f"obdsd: {server.address}/{birds.file}: {lengths}\n")
        answers = f"{server.address}/gone/{birds.file}: answers 404 Not Found; give another address with --mirror URL"
        assert get(capsys, birds, tmp_path, f"{server.address}/gone") == (2, "", f"obdsd: {answers}\n")
        server.missing, server.asked = 503, []
        code, _, said = get(capsys, birds, tmp_path, f"{server.address}/gone")
        assert (code, len(server.asked), said.count("\n")) == (2, archives.TRIES, 1)  # it may be back in a moment
        assert "cannot be had (Service Unavailable); 0 of " in said
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        nobody = f"http://127.0.0.1:{free.getsockname()[1]}"
    code, _, said = get(capsys, birds, tmp_path, nobody)
    assert (code, said.count("\n")) == (2, 1)
    assert f"{nobody}/{birds.file}: cannot be had ([Errno 111] Connection refused); 0 of " in said
    assert [path.name for path in tmp_path.iterdir()] == [f".{birds.file}.lock"]


def test_a_disk_that_is_full_or_will_be_is_one_line(birds, official, tmp_path, capsys, monkeypatch):
    official(birds)
    with serving({f"/{birds.file}": birds.content}) as server, monkeypatch.context() as little:
        little.setattr(shutil, "disk_usage", lambda place: namedtuple("Usage", "free")(4_000_000))
        code, _, said = get(capsys, birds, tmp_path, server.address)
        needed = 2 * len(birds.content) / 1e6
        room = f"has 4 MB free, {birds.file} and what is in it take {needed:,.0f} more; make room or choose another place"
        assert (code, said, server.asked) == (2, f"obdsd: {tmp_path}: {room}\n", [])
    with serving({f"/{birds.file}": birds.content}) as server:
        limit = "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (1_000_000, 1_000_000))"
        words = ["data", "get", birds.name, "--to", tmp_path, "--mirror", f"{server.address}/{birds.file}"]
        with python("-c", limit + COMMAND, *about(birds), *words) as process:
            _, said = process.communicate()
        assert (process.returncode, said.count("\n")) == (2, 1)
        assert said.startswith(
            f"obdsd: {tmp_path}: cannot be written (File too large); make room or choose another place, the same command"
        )
        assert 0 < (tmp_path / f"{birds.file}.part").stat().st_size <= 1_000_000
        assert get(capsys, birds, tmp_path, server.address)[0] == 0
    assert_there(birds, tmp_path)


def test_two_at_a_time_do_not_spoil_each_other(birds, official, tmp_path, capsys):
    official(birds)
    with FileLock(tmp_path / f".{birds.file}.lock"):
        code, _, said = get(capsys, birds, tmp_path, "http://127.0.0.1:9")
    assert (code, said) == (2, f"obdsd: --to {tmp_path} is being written by another obdsd data get; wait for it, or stop it\n")


MISTAKES = [
    ("cars196 --to x", "cars196: its official page is gone; look for car_ims.tgz with cars_annos.mat, or class folders such as "
     "train/Acura RL Sedan 2012/, obdsd data check cars196:DIR then looks for 8,054 images of 98 classes in train and 8,131 images of "
     "98 classes in test"),
    ("inshop --to x", "inshop: its authors give it on request; ask for the In-shop Clothes Retrieval Benchmark (img.zip and "
     "list_eval_partition.txt), obdsd data check inshop:DIR then looks for 25,882 images in train, 14,218 images in query, 12,612 images "
     "in gallery"),
    ("glyphs --to x", "DATA 'glyphs' has no archive to get; there are cub200 and sop"),
    ("cub200", "--to must be given: obdsd data get cub200 --to DIR"),
    ("cub200 --to x --merge", "--merge is for obdsd data check; leave it out"),
    ("cub200 --to x --mirror ftp://x/y.tgz",
     "--mirror ftp://x/y.tgz must begin with http:// or https://; give the address of CUB_200_2011.tgz"),
]  # fmt: skip


@pytest.mark.parametrize(("words", "line"), MISTAKES, ids=[words for words, _ in MISTAKES])
def test_what_cannot_be_had_is_one_line(refused, made, words, line):
    assert refused("data", "get", *words.split()) == line
    assert not (made / "x").exists()


def test_a_check_goes_nowhere(refused):
    assert refused("data", "check", "glyphs", "--to", "x") == "--to x is for obdsd data get; leave it out"


def test_a_place_that_is_a_file_is_one_line(birds, official, refused, tmp_path):
    official(birds)
    (tmp_path / "file").touch()
    assert refused("data", "get", "cub200", "--to", tmp_path / "file").startswith(f"{tmp_path / 'file'}: cannot be written (File exists); ")


def test_the_official_archives_are_those_that_others_publish():
    """CaltechDATA's address; lengths and SHA-256 as in tensorflow_datasets' url_checksums."""
    known = {name: (each.name, each.length, each.sha256[:8], each.sha256[-8:]) for name, each in archives.ARCHIVES.items()}
    assert known == {
        "cub200": ("CUB_200_2011.tgz", 1150585339, "0c685df5", "b49bf081"),
        "sop": ("Stanford_Online_Products.zip", 3083860082, "b04fa782", "b756ef48"),
    }
