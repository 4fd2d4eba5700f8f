"""A file is whole or as it was: full disks, kills, unwritable places."""

import itertools
import os
import subprocess
import sys

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from obdsd.errors import InputError
from obdsd.files import append_line, check_format, read_lines, read_mapping, replacing, to_yaml, write_json


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


ODD = [
    "a\x85b",
    "a\u2028b",
    "\ufeffa",
    "a\0b",
    "\x1b[2J",
    "a\tb",
    "a\r\nb",
    "5e-05",
    "010",
    "1_000",
    "yes",
    "~",
    "=",
    "<<",
    " a ",
    "\udcff",
    "é",
    "",
]
NO_TEXT = st.characters(codec=None, min_codepoint=0xDC80, max_codepoint=0xDCFF)  # bytes in a file's name that are no UTF-8
TEXTS = st.sampled_from(ODD) | st.text() | st.text(NO_TEXT | st.characters(codec="utf-8", categories=["Cc", "Zl", "Zp", "Zs"]), max_size=5)
NUMBERS = st.sampled_from([5e-05, 1e-7, 1e-5, 1e16, 1e22, 5e-324]) | st.floats(allow_nan=False, allow_infinity=False) | st.integers()


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.dictionaries(TEXTS, TEXTS | NUMBERS | st.lists(TEXTS | NUMBERS, max_size=3) | st.none() | st.booleans(), max_size=4))
def test_what_is_written_is_what_is_read(tmp_path, content):
    for name, write in (("x.json", write_json), ("x.yaml", lambda path, content: path.write_bytes(to_yaml(content).encode()))):
        write(tmp_path / name, content)
        read = read_mapping(tmp_path / name)
        assert read == content
        assert [type(value) for value in read.values()] == [type(value) for value in content.values()]
    (tmp_path / "x.jsonl").unlink(missing_ok=True)
    append_line(tmp_path / "x.jsonl", content, "try again")
    assert read_lines(tmp_path / "x.jsonl") == [content]


def test_configurations_of_people_stay_readable():
    assert to_yaml({"data": "Vögel", "lr": 5e-05}) == "data: Vögel\nlr: 5.0e-05\n"


BOMB = "\n".join(f"{after}: &{after} [{', '.join([f'*{before}'] * 9)}]" for before, after in itertools.pairwise("abcdefghij"))
NONSENSE = {
    "deep": "[" * 10_000,
    "deep fields": '{"a": ' * 10_000,
    "no time": "a: !!timestamp noon",
    "no number": "a: !!int ''",
    "code": "a: !!python/object/apply:os.mkdir [made]",
    "itself": "a: &a [*a]",
    "terabytes": f"a: &a [x]\n{BOMB}",
}


@pytest.mark.parametrize("suffix", ["json", "yaml"])
@pytest.mark.parametrize("text", NONSENSE.values(), ids=NONSENSE)
def test_nonsense_is_refused_in_one_line(tmp_path, text, suffix):
    (tmp_path / f"x.{suffix}").write_text(text)
    with pytest.raises(InputError, match=rf"x.{suffix}: .*; mend or restore it$") as refusal:
        read_mapping(tmp_path / f"x.{suffix}")
    assert "\n" not in str(refusal.value)


def test_one_policy_for_versions(tmp_path):
    check_format(tmp_path, "run", {"format": 2}, 2, "train again")
    check_format(tmp_path, "run", {}, 1, "train again")
    for written, remedy in ((1, "train again"), (3, "update obdsd"), (3.5, "update obdsd"), (True, "train again"), ("2", "train again")):
        message = rf": is a run of another version of obdsd \(format {written!r}, not 2\); {remedy}$"
        with pytest.raises(InputError, match=message):
            check_format(tmp_path, "run", {"format": written}, 2, "train again")
