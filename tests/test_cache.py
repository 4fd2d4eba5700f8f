"""What is kept is what was computed; what cannot be kept, or is damaged, is computed anew."""

import io
import os
from concurrent.futures import ThreadPoolExecutor
from time import sleep

import numpy as np
import pytest

from obdsd import cache
from obdsd.cache import cached

with io.BytesIO() as file:
    np.save(file, np.arange(3))
    ARRAY = file.getvalue()  # no archive


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("OBDSD_CACHE", str(tmp_path / "kept"))
    return tmp_path / "kept" / "computed"


class Work:
    """Makes an array, and counts how often."""

    def __init__(self, value=1.5, seconds=0.0):
        self.value, self.seconds, self.times = value, seconds, 0

    def __call__(self):
        self.times += 1
        sleep(self.seconds)
        return {"rows": np.full((2, 3), self.value, dtype=np.float32)}


def test_it_is_computed_once_for_a_key():
    work, other = Work(), Work(2.5)
    for _ in range(3):
        assert (cached({"model": "a"}, work)["rows"] == 1.5).all()
    assert (cached({"model": "b"}, other)["rows"] == 2.5).all()
    assert (work.times, other.times) == (1, 1)


def test_two_at_a_time_compute_once():
    work = Work(seconds=0.2)
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda _: cached({}, work)["rows"], range(4)))
    assert work.times == 1
    assert all((rows == 1.5).all() for rows in found)


@pytest.mark.parametrize("damage", [b"", b"PK\x03\x04 half of it", b"\x93NUMPY", ARRAY])
def test_a_damaged_file_is_computed_anew(folder, damage):
    cached({}, Work())
    (file,) = folder.glob("*.npz")
    file.write_bytes(damage)
    again = Work(3.5)
    assert (cached({}, again)["rows"] == 3.5).all()
    assert (cached({}, again)["rows"] == 3.5).all()
    assert again.times == 1


def test_where_nothing_can_be_kept_it_is_computed_each_time(folder):
    folder.parent.write_text("a file where the folder should be")
    work = Work()
    assert [cached({}, work)["rows"][0, 0] for _ in range(2)] == [1.5, 1.5]
    assert work.times == 2


def test_what_was_not_used_for_the_longest_time_makes_room(folder, monkeypatch):
    for number in range(3):
        cached({"number": number}, Work(number))
        (newest,) = [file for file in folder.glob("*.npz") if file.stat().st_mtime > 1e6]
        os.utime(newest, (number, number))
    size = newest.stat().st_size
    first = Work()
    cached({"number": 0}, first)  # used again: now it is the newest
    monkeypatch.setattr(cache, "LARGEST", 2 * size)
    cached({"number": 3}, Work(3))
    again = [Work(), Work(), Work(), Work()]
    for number in (0, 3, 1):
        cached({"number": number}, again[number])
    assert first.times == 0
    assert [work.times for work in again] == [0, 1, 0, 0]
