"""A file is whole or as it was: full disks, kills, unwritable places."""

import os
import subprocess
import sys

import pytest

from obdsd.errors import InputError
from obdsd.files import append_line, read_lines, replacing, write_json


def test_the_new_file_takes_the_old_ones_place(tmp_path):
    path = tmp_path / "deep" / "file"
    for content in (b"old", b"new"):
        with replacing(path) as file:
            file.write(content)
        assert path.read_bytes() == content
    assert os.listdir(path.parent) == ["file"]


def test_a_full_disk_leaves_the_old_file(tmp_path, full_disk):
    path = tmp_path / "file"
    path.write_bytes(b"old")
    with pytest.raises(InputError, match=r"file: cannot be written \(No space left on device\); make room"), replacing(path) as file:
        file.write(b"new")
    assert (path.read_bytes(), os.listdir(tmp_path)) == (b"old", ["file"])


@pytest.mark.skipif(os.path.exists("/dev/full") is False, reason="needs /dev/full")
def test_a_disk_that_is_really_full(tmp_path):
    (tmp_path / f".file.obdsd-{os.getpid()}").symlink_to("/dev/full")
    with pytest.raises(InputError, match="No space left on device"), replacing(tmp_path / "file") as file:
        file.write(b"new" * 10**6)
    assert os.listdir(tmp_path) == []


def test_a_killed_writer_leaves_the_old_file(tmp_path):
    """Any file that is written into the folder later, of whatever name, removes what the kill left; a living writer's stays."""
    path = tmp_path / "file"
    path.write_bytes(b"old")
    code = f"""
import pathlib, time
from obdsd.files import replacing
with replacing(pathlib.Path({str(path)!r})) as file:
    file.write(b"half"); file.flush(); print("writing", flush=True); time.sleep(60)
"""
    process = subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    )
    assert process.stdout.readline() == b"writing\n"
    (half,) = tmp_path.glob(".file.*")
    for name in (".notes.1", ".thesis.tex.2"):  # somebody else's
        (tmp_path / name).touch()
    write_json(tmp_path / "other.json", {})
    assert half.exists()  # its writer lives
    process.kill()
    process.wait()
    process.stdout.close()
    assert path.read_bytes() == b"old"
    write_json(tmp_path / "other.json", {})
    assert sorted(os.listdir(tmp_path)) == [".notes.1", ".thesis.tex.2", "file", "other.json"]


def test_an_error_of_the_writer_is_its_own(tmp_path):
    with pytest.raises(ZeroDivisionError), replacing(tmp_path / "file"):
        _ = 1 / 0
    assert os.listdir(tmp_path) == []


def test_a_place_that_is_no_folder(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="cannot be written"):
        write_json(tmp_path / "file" / "below.json", {})


def test_json_that_no_reader_would_take_is_not_written(tmp_path):
    with pytest.raises(ValueError, match="Out of range float values"):
        write_json(tmp_path / "x.json", {"value": float("nan")})
    assert os.listdir(tmp_path) == []


def test_lines_survive_one_that_was_cut_off(tmp_path):
    file = tmp_path / "lines.jsonl"
    assert read_lines(file) == []
    append_line(file, {"a": "é"}, "try again")
    file.write_text(file.read_text() + '{"b": 2')
    append_line(file, {"c": 3}, "try again")
    assert read_lines(file) == [{"a": "é"}, {"c": 3}]
    with pytest.raises(InputError, match=r"cannot be written \(Is a directory\); make room, try again$"):
        append_line(tmp_path, {}, "try again")
